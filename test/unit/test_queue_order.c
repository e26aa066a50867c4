/*-------------------------------------------------------------------------
 *
 * test_queue_order.c
 *	  Which clients queue for a lock, in which order, and which of them hold it.
 *
 * test/unit/test_queue_order.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/queueorder.h"

#define UUID		"f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
#define CURATOR		"_c_" UUID "-lock-"
#define WRITE		"_c_" UUID "-__WRIT__"
#define READ		"_c_" UUID "-__READ__"
#define LEASE		"_c_" UUID "-lease-"
#define KAZOO		"f81d4fae7dec41d0a76500a0c91e6bf6__lock__"
#define KAZOO_READ	"f81d4fae7dec41d0a76500a0c91e6bf6__rlock__"
#define OURS		"_c_01234567-89ab-8b4c-8123-456789abcdef-lock-"

#define MAX_PLACES	64

static ZklPlace places[MAX_PLACES];
static int	nplaces;

static int
begin(void **state)
{
	(void) state;
	memset(places, 0, sizeof(places));
	nplaces = 0;
	return 0;
}

static void
put(ZklWhere where, const char *name, int64_t czxid, int64_t owner)
{
	places[nplaces].index = nplaces;
	places[nplaces].where = where;
	places[nplaces].name = name;
	places[nplaces].czxid = czxid;
	places[nplaces].owner = owner;
	nplaces++;
}

/*
 * The queue as a text: for each place, in order, the index that it was put in
 * with, and a plus where it holds.
 */
static const char *
lineup(int limit)
{
	static char text[MAX_PLACES * 8];
	int			nqueued = zkl_queue_order(places, nplaces, limit);

	text[0] = '\0';
	for (int i = 0; i < nqueued; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d%s",
				 i > 0 ? " " : "", places[i].index, places[i].holds ? "+" : "");
	return text;
}

/* The queue of a lock's own directory, of these children. */
#define directory(...) \
	directory_of((const char *const []) {__VA_ARGS__}, \
				 lengthof(((const char *const []) {__VA_ARGS__})))

static const char *
directory_of(const char *const *children, int nchildren)
{
	begin(NULL);
	for (int i = 0; i < nchildren; i++)
		put(ZKL_WHERE_LOCK, children[i], 1000 - i, 7);
	return lineup(0);
}

/*
 * Mutex and read-write lock
 */

static void
nobody_queues_in_an_empty_directory(void **state)
{
	(void) state;
	assert_string_equal(lineup(0), "");
	assert_string_equal(lineup(3), "");
}

static void
the_first_holds_a_mutex(void **state)
{
	(void) state;
	assert_string_equal(directory(CURATOR "0000000003", OURS "0000000001",
								  KAZOO "0000000002", "lock-0000000000"),
						"3+ 1 2 0");
	assert_int_equal(places[0].client, ZKL_CLIENT_UNKNOWN);
	assert_int_equal(places[1].client, ZKL_CLIENT_ZKLOCK);
	assert_int_equal(places[2].client, ZKL_CLIENT_KAZOO);
	assert_int_equal(places[3].client, ZKL_CLIENT_CURATOR);
	for (int i = 0; i < 4; i++)
	{
		assert_int_equal(places[i].kind, ZKL_KIND_MUTEX);
		assert_string_equal(zkl_queue_order_mode_name(&places[i]), "lock");
	}
}

static void
others_are_in_no_queue(void **state)
{
	(void) state;
	assert_string_equal(directory("leases", "locks", CURATOR "0000000002", "x",
								  LEASE "0000000001", "lock-x"),
						"2+");
	assert_string_equal(directory("a", "b"), "");
}

static void
keys_are_compared_as_texts(void **state)
{
	(void) state;
	assert_string_equal(directory(CURATOR "0000000001", CURATOR "-2147483648",
								  "lock-"),
						"2+ 1 0");
}

static void
of_equal_keys_one_holds(void **state)
{
	(void) state;
	assert_string_equal(directory(CURATOR "0000000001", OURS "0000000001"),
						"1+ 0");
}

static void
readers_before_any_writer_hold(void **state)
{
	(void) state;
	assert_string_equal(directory(READ "0000000001", READ "0000000002",
								  WRITE "0000000003", READ "0000000004"),
						"0+ 1+ 2 3");
	assert_string_equal(directory(WRITE "0000000001", READ "0000000002",
								  WRITE "0000000003"),
						"0+ 1 2");
	assert_int_equal(places[1].kind, ZKL_KIND_READ_WRITE);
	assert_string_equal(zkl_queue_order_mode_name(&places[0]), "write");
	assert_string_equal(zkl_queue_order_mode_name(&places[1]), "read");
}

static void
kazoo_reads_and_writes_too(void **state)
{
	(void) state;
	assert_string_equal(directory(KAZOO_READ "0000000001", READ "0000000002",
								  KAZOO "0000000003", READ "0000000004"),
						"0+ 1+ 2 3");
	assert_string_equal(zkl_queue_order_mode_name(&places[0]), "read");
	assert_string_equal(zkl_queue_order_mode_name(&places[2]), "write");
	assert_string_equal(zkl_queue_order_kind_name(places[2].kind), "read-write");
	assert_string_equal(directory(KAZOO_READ "0000000001", CURATOR "0000000002"),
						"0+ 1");
	assert_string_equal(directory(CURATOR "0000000001", KAZOO_READ "0000000002"),
						"0+ 1");
	assert_string_equal(directory(KAZOO_READ "0000000001", WRITE "0000000002"),
						"0+ 1");
}

static void
kinds_do_not_count_for_each_other(void **state)
{
	(void) state;
	assert_string_equal(directory(CURATOR "0000000001", WRITE "0000000002",
								  CURATOR "0000000003", READ "0000000004"),
						"0+ 1+ 2 3");
	assert_string_equal(directory(CURATOR "0000000001", WRITE "0000000002",
								  KAZOO "0000000003", READ "0000000004"),
						"0+ 1+ 2 3");
}

/*
 * Semaphore
 */

static void
leases_are_in_the_order_of_their_creation(void **state)
{
	(void) state;
	put(ZKL_WHERE_LEASES, LEASE "0000000001", 30, 1);
	put(ZKL_WHERE_LEASES, "whatever", 10, 0);
	put(ZKL_WHERE_LEASES, OURS "0000000009", 20, 2);
	assert_string_equal(lineup(3), "1+ 2+ 0+");
	assert_int_equal(places[0].kind, ZKL_KIND_SEMAPHORE);
	assert_string_equal(zkl_queue_order_mode_name(&places[1]), "lease");
	assert_int_equal(places[1].client, ZKL_CLIENT_ZKLOCK);
}

/* A lock whose path ends with "leases". */
static void
another_lock_in_the_directory_is_no_lease(void **state)
{
	(void) state;
	put(ZKL_WHERE_LEASES, CURATOR "0000000001", 10, 1);
	put(ZKL_WHERE_LOCK, CURATOR "0000000002", 20, 2);
	put(ZKL_WHERE_LEASES, KAZOO "0000000002", 30, 3);
	assert_string_equal(lineup(0), "1+");
	begin(NULL);
	put(ZKL_WHERE_LEASES, CURATOR "0000000001", 10, 1);
	put(ZKL_WHERE_LEASES, LEASE "0000000002", 20, 2);
	assert_string_equal(lineup(0), "0+ 1+");
	begin(NULL);
	put(ZKL_WHERE_LEASES, "anything", 10, 1);
	assert_string_equal(lineup(0), "");
	assert_string_equal(lineup(1), "0+");
}

static void
the_newest_that_are_too_many_wait(void **state)
{
	(void) state;
	for (int i = 0; i < 5; i++)
		put(ZKL_WHERE_LEASES, LEASE "0000000001", 10 + i, i);
	assert_string_equal(lineup(3), "0+ 1+ 2+ 3 4");
}

static void
without_a_limit_all_leases_are_held(void **state)
{
	(void) state;
	for (int i = 0; i < 3; i++)
		put(ZKL_WHERE_LEASES, LEASE "0000000001", 10 + i, i);
	assert_string_equal(lineup(0), "0+ 1+ 2+");
}

static void
who_acquires_holds_nothing_yet(void **state)
{
	(void) state;
	put(ZKL_WHERE_LOCKS, CURATOR "0000000002", 50, 5);
	put(ZKL_WHERE_LEASES, LEASE "0000000001", 10, 1);
	put(ZKL_WHERE_LOCKS, OURS "0000000001", 40, 4);
	assert_string_equal(lineup(1), "1+ 2 0");
	assert_string_equal(zkl_queue_order_mode_name(&places[1]), "acquiring");
	assert_string_equal(zkl_queue_order_kind_name(places[2].kind), "semaphore");
}

/* All or nothing: of four, one is too many, and so none of the three is had. */
static void
leases_that_are_acquired_together_wait_together(void **state)
{
	(void) state;
	put(ZKL_WHERE_LEASES, LEASE "0000000001", 10, 1);
	put(ZKL_WHERE_LEASES, LEASE "0000000002", 11, 4);
	put(ZKL_WHERE_LOCKS, OURS "0000000001", 40, 4);
	for (int i = 0; i < 3; i++)
		put(ZKL_WHERE_LEASES, LEASE "0000000003", 41 + i, 4);
	assert_string_equal(lineup(4), "0+ 1+ 3 4 5 2");
}

static void
leases_are_had_when_they_are_not_too_many(void **state)
{
	(void) state;
	put(ZKL_WHERE_LOCKS, OURS "0000000001", 40, 4);
	for (int i = 0; i < 3; i++)
		put(ZKL_WHERE_LEASES, LEASE "0000000003", 41 + i, 4);
	assert_string_equal(lineup(3), "1+ 2+ 3+ 0");
}

static void
without_a_limit_who_acquires_waits(void **state)
{
	(void) state;
	put(ZKL_WHERE_LEASES, LEASE "0000000001", 10, 1);
	put(ZKL_WHERE_LEASES, LEASE "0000000002", 39, 4);
	put(ZKL_WHERE_LOCKS, OURS "0000000001", 40, 4);
	put(ZKL_WHERE_LOCKS, CURATOR "0000000002", 42, 1);
	put(ZKL_WHERE_LEASES, LEASE "0000000003", 43, 4);
	put(ZKL_WHERE_LEASES, LEASE "0000000004", 44, 1);
	assert_string_equal(lineup(0), "0+ 1+ 4 5+ 2 3");
}

/* A znode without a session is no server's. */
static void
what_is_not_ephemeral_is_of_no_session(void **state)
{
	(void) state;
	put(ZKL_WHERE_LOCKS, OURS "0000000001", 40, 0);
	put(ZKL_WHERE_LEASES, LEASE "0000000003", 41, 0);
	assert_string_equal(lineup(0), "1+ 0");
}

/* A lock whose directory has the others in it, too. */
static void
all_three_queues_are_one_behind_the_other(void **state)
{
	(void) state;
	put(ZKL_WHERE_LOCKS, CURATOR "0000000000", 1, 1);
	put(ZKL_WHERE_LEASES, LEASE "0000000000", 2, 2);
	put(ZKL_WHERE_LOCK, CURATOR "0000000007", 3, 3);
	put(ZKL_WHERE_LOCK, "leases", 0, 0);
	put(ZKL_WHERE_LOCKS, "abc", 0, 0);
	put(ZKL_WHERE_LOCK, CURATOR "0000000005", 4, 4);
	assert_string_equal(lineup(0), "5+ 2 1+ 0");
}

/*
 * Generated: one holder of a mutex at least and at most, whatever the order
 * of the children, and a holder has no rival before it.
 */
static void
of_any_directory_the_first_holds_and_writers_are_alone(void **state)
{
	static const char *const marks[] = {
		"lock-", "__WRIT__", "__READ__", "__lock__", "__rlock__"
	};
	static char names[MAX_PLACES][ZKL_ZNODE_SIZE];
	uint64_t	seed = 20240229;

	(void) state;
	for (int round = 0; round < 5000; round++)
	{
		int			count = 1 + random_below(&seed, 10);
		int			nkinds = 1 + random_below(&seed, lengthof(marks));
		int			holders = 0;
		int			exclusive = 0;
		int			others = 0;

		begin(NULL);
		for (int i = 0; i < count; i++)
		{
			snprintf(names[i], sizeof(names[i]), "%s%010d",
					 marks[random_below(&seed, nkinds)],
					 (int) (random_below(&seed, 1000) * 64) + i);
			put(ZKL_WHERE_LOCK, names[i], 0, 0);
		}
		assert_int_equal(zkl_queue_order(places, nplaces, 0), count);
		assert_true(places[0].holds);
		for (int i = 0; i < count; i++)
		{
			bool		mutex = places[i].mode == ZKL_MODE_LOCK;
			bool		writes = places[i].mode == ZKL_MODE_WRITE ||
				places[i].mode == ZKL_MODE_KAZOO_LOCK;

			assert_true(i == 0 || strcmp(places[i - 1].key, places[i].key) < 0);
			if (!places[i].holds)
				continue;
			holders++;
			exclusive += writes;
			others += mutex;
		}
		assert_true(others <= 1);
		assert_true(exclusive == 0 || holders == exclusive + others);
		assert_true(exclusive <= 1);
	}
}

static void
every_name_is_a_word(void **state)
{
	(void) state;
	assert_string_equal(zkl_queue_order_kind_name(ZKL_KIND_MUTEX), "mutex");
	assert_string_equal(zkl_queue_order_kind_name(ZKL_KIND_READ_WRITE), "read-write");
	assert_string_equal(zkl_queue_order_kind_name(ZKL_KIND_SEMAPHORE), "semaphore");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_ZKLOCK), "zklock");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_CURATOR), "curator");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_KAZOO), "kazoo");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_UNKNOWN), "unknown");
}

#define test(function) cmocka_unit_test_setup(function, begin)

/*
 * Who is in the way
 */

/* The indexes of the places in the way of one that waits with this key. */
static const char *
in_way(ZklWhere where, ZklMode mode, const char *key)
{
	static char text[MAX_PLACES * 8];

	text[0] = '\0';
	for (int i = 0; i < nplaces; i++)
	{
		if (zkl_queue_order_is_in_way(&places[i], where, mode, key))
			snprintf(text + strlen(text), sizeof(text) - strlen(text), " %d",
					 places[i].index);
	}
	return text;
}

static void
those_before_are_in_the_way(void **state)
{
	(void) state;
	directory(CURATOR "0000000003", OURS "0000000001", KAZOO "0000000002");
	assert_string_equal(in_way(ZKL_WHERE_LOCK, ZKL_MODE_LOCK, "0000000001"), " 1");
	assert_string_equal(in_way(ZKL_WHERE_LOCK, ZKL_MODE_LOCK, "0000000002"), " 1 2");
	assert_string_equal(in_way(ZKL_WHERE_LOCK, ZKL_MODE_LOCK, NULL), " 1 2 0");
	assert_string_equal(in_way(ZKL_WHERE_LOCKS, ZKL_MODE_LOCK, NULL), "");
	assert_string_equal(in_way(ZKL_WHERE_LEASES, ZKL_MODE_LEASE, NULL), "");
}

static void
readers_are_not_in_the_way_of_readers(void **state)
{
	(void) state;
	directory(READ "0000000000", KAZOO_READ "0000000001", WRITE "0000000002",
			  KAZOO "0000000003", READ "0000000004");
	assert_string_equal(in_way(ZKL_WHERE_LOCK, ZKL_MODE_READ, "0000000001"), "");
	assert_string_equal(in_way(ZKL_WHERE_LOCK, ZKL_MODE_READ, NULL), " 2 3");
	assert_string_equal(in_way(ZKL_WHERE_LOCK, ZKL_MODE_WRITE, "0000000002"),
						" 0 1 2");
	assert_string_equal(in_way(ZKL_WHERE_LOCK, ZKL_MODE_WRITE, NULL),
						" 0 1 2 3 4");
}

static void
leases_that_are_held_are_in_the_way(void **state)
{
	(void) state;
	put(ZKL_WHERE_LEASES, LEASE "0000000000", 1, 7);
	put(ZKL_WHERE_LEASES, LEASE "0000000001", 2, 8);
	put(ZKL_WHERE_LOCKS, CURATOR "0000000000", 3, 9);
	put(ZKL_WHERE_LOCKS, CURATOR "0000000001", 4, 8);
	put(ZKL_WHERE_LEASES, LEASE "0000000002", 5, 9);
	assert_string_equal(lineup(2), "0+ 1+ 4 2 3");
	assert_string_equal(in_way(ZKL_WHERE_LEASES, ZKL_MODE_LEASE, NULL), " 0 1");
	assert_string_equal(in_way(ZKL_WHERE_LOCKS, ZKL_MODE_LOCK, "0000000001"),
						" 2 3");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		test(nobody_queues_in_an_empty_directory),
		test(the_first_holds_a_mutex),
		test(others_are_in_no_queue),
		test(keys_are_compared_as_texts),
		test(of_equal_keys_one_holds),
		test(readers_before_any_writer_hold),
		test(kazoo_reads_and_writes_too),
		test(kinds_do_not_count_for_each_other),
		test(leases_are_in_the_order_of_their_creation),
		test(another_lock_in_the_directory_is_no_lease),
		test(the_newest_that_are_too_many_wait),
		test(without_a_limit_all_leases_are_held),
		test(who_acquires_holds_nothing_yet),
		test(leases_that_are_acquired_together_wait_together),
		test(leases_are_had_when_they_are_not_too_many),
		test(without_a_limit_who_acquires_waits),
		test(what_is_not_ephemeral_is_of_no_session),
		test(all_three_queues_are_one_behind_the_other),
		test(of_any_directory_the_first_holds_and_writers_are_alone),
		test(those_before_are_in_the_way),
		test(readers_are_not_in_the_way_of_readers),
		test(leases_that_are_held_are_in_the_way),
		test(every_name_is_a_word),
	};

	return cmocka_run_group_tests_name("lineup", tests, NULL, NULL);
}
