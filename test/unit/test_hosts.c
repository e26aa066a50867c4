/*-------------------------------------------------------------------------
 *
 * test_hosts.c
 *	  The connect string, the pauses between attempts to connect, and how
 *	  long each may take.
 *
 * test/unit/test_hosts.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/hosts.h"

/* The server of this number is "name:port". */
static void
assert_server(const char *hosts, int server, const char *expected)
{
	char		name[ZKL_HOSTS_NAME_SIZE];
	char		port[ZKL_HOSTS_PORT_SIZE];
	char		found[ZKL_HOSTS_NAME_SIZE + ZKL_HOSTS_PORT_SIZE];

	assert_null(zkl_hosts_fault(hosts));
	assert_true(zkl_hosts_server(hosts, server, name, port));
	snprintf(found, sizeof(found), "%s:%s", name, port);
	assert_string_equal(found, expected);
}

TEST(servers_are_names_or_addresses_with_ports)
{
	assert_server("zk1:2182", 0, "zk1:2182");
	assert_server("zk1:2182, 10.0.0.2:2183 ,[::1]:2184", 1, "10.0.0.2:2183");
	assert_server("zk1:2182,10.0.0.2:2183,[::1]:2184", 2, "::1:2184");
	assert_int_equal(zkl_hosts_servers("a:1,b:2,c:3/x"), 3);
}

/* As in ZooKeeper's client for Java. */
TEST(the_port_is_2181_if_it_is_left_out)
{
	assert_server("zk1", 0, "zk1:2181");
	assert_server("zk1:2182,zk2", 1, "zk2:2181");
	assert_server("zk1,zk2:2182", 0, "zk1:2181");
	assert_server(" zk1 , zk2", 0, "zk1:2181");
	assert_server("[::1]", 0, "::1:2181");
	assert_server("zk1/chroot", 0, "zk1:2181");
	assert_string_equal(zkl_hosts_chroot("zk1/chroot"), "/chroot");
}

TEST(other_texts_are_refused)
{
	static const char *const wrong[] = {
		"", ",", "a,", ",a", "a,,b", " ", ":2181", "a:", "a:0", "a:65536",
		"a:port", "a:1:2", "a:+1", "a b", "[::1", "[]", "[]:1", "[::1]2181",
		"::1", "fe80::1", "/chroot", "a/x/", "a/x/../y"
	};

	for (int i = 0; i < lengthof(wrong); i++)
		if (zkl_hosts_fault(wrong[i]) == NULL)
			fail_msg("\"%s\" was accepted", wrong[i]);
}

#define TIMEOUT_MS 20000

TEST(the_list_is_tried_once_without_a_pause)
{
	assert_int_equal(zkl_hosts_pause_ms(1, 3, TIMEOUT_MS, UINT32_MAX), 0);
	assert_int_equal(zkl_hosts_pause_ms(2, 3, TIMEOUT_MS, UINT32_MAX), 0);
	assert_int_not_equal(zkl_hosts_pause_ms(3, 3, TIMEOUT_MS, 0), 0);
	assert_int_equal(zkl_hosts_pause_ms(4, 3, TIMEOUT_MS, UINT32_MAX), 0);
	assert_int_not_equal(zkl_hosts_pause_ms(1, 1, TIMEOUT_MS, 0), 0);
}

/* The longest and the shortest pause that a random number can give. */
static int
longest(int rounds, int timeout_ms)
{
	int			max = 0;

	for (uint32_t random = 0; random < 200000; random++)
	{
		int			pause = zkl_hosts_pause_ms(3 * rounds, 3, timeout_ms, random);

		if (pause > max)
			max = pause;
	}
	return max;
}

TEST(pauses_grow_to_a_twentieth_of_the_timeout)
{
	assert_int_equal(longest(1, TIMEOUT_MS), 100);
	assert_int_equal(longest(2, TIMEOUT_MS), 200);
	assert_int_equal(longest(4, TIMEOUT_MS), 800);
	assert_int_equal(longest(5, TIMEOUT_MS), 1000);
	assert_int_equal(longest(700000000, TIMEOUT_MS), 1000);
	assert_int_equal(longest(100, 1000), 100);
}

TEST(servers_pause_for_different_times)
{
	assert_int_equal(zkl_hosts_pause_ms(30, 3, TIMEOUT_MS, 0), 500);
	assert_int_equal(zkl_hosts_pause_ms(30, 3, TIMEOUT_MS, 500), 1000);
	assert_int_equal(zkl_hosts_pause_ms(30, 3, TIMEOUT_MS, 501), 500);
}

TEST(all_servers_can_be_tried_within_a_third_of_the_timeout)
{
	assert_int_equal(zkl_hosts_limit_ms(0, 1, TIMEOUT_MS, false), TIMEOUT_MS / 3);
	assert_int_equal(zkl_hosts_limit_ms(0, 5, TIMEOUT_MS, false), TIMEOUT_MS / 15);
	assert_int_equal(zkl_hosts_limit_ms(4, 5, TIMEOUT_MS, false), TIMEOUT_MS / 15);
	assert_int_equal(zkl_hosts_limit_ms(0, 3, 1000, false), 200);
}

TEST(the_limit_grows_until_the_slowest_server_can_connect)
{
	for (int nservers = 1; nservers < 256; nservers += 2)
	{
		int			last = 0;

		for (int late = 0; late < 20 * nservers; late += nservers)
		{
			int			limit = zkl_hosts_limit_ms(late, nservers, TIMEOUT_MS, false);

			assert_true(limit == (last == 0 ? limit : 2 * last) || limit == TIMEOUT_MS / 3 * 2);
			last = limit;
		}
		assert_int_equal(last, TIMEOUT_MS / 3 * 2);
		assert_int_equal(zkl_hosts_limit_ms(INT32_MAX, nservers, TIMEOUT_MS, false), last);
	}
	assert_int_equal(zkl_hosts_limit_ms(5, 5, TIMEOUT_MS, false), TIMEOUT_MS / 15 * 2);
}

/* So at most three sessions that were given up live at a time. */
TEST(a_new_session_has_time_from_the_start)
{
	assert_int_equal(zkl_hosts_limit_ms(0, 11, TIMEOUT_MS, true), TIMEOUT_MS / 3);
	assert_int_equal(zkl_hosts_limit_ms(11, 11, TIMEOUT_MS, true), TIMEOUT_MS / 3 * 2);
	assert_int_equal(zkl_hosts_limit_ms(110, 11, TIMEOUT_MS, true), TIMEOUT_MS / 3 * 2);
}

int
main(void)
{
	return run_all_tests("hosts");
}
