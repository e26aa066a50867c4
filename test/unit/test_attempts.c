/*-------------------------------------------------------------------------
 *
 * test_attempts.c
 *	  The pauses between attempts to connect.
 *
 * test/unit/test_attempts.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/backoff.h"

#define TIMEOUT_MS 20000

static void
the_list_is_tried_once_without_a_pause(void **state)
{
	(void) state;
	assert_int_equal(zkl_backoff_pause_ms(1, 3, TIMEOUT_MS, UINT32_MAX), 0);
	assert_int_equal(zkl_backoff_pause_ms(2, 3, TIMEOUT_MS, UINT32_MAX), 0);
	assert_int_not_equal(zkl_backoff_pause_ms(3, 3, TIMEOUT_MS, 0), 0);
	assert_int_equal(zkl_backoff_pause_ms(4, 3, TIMEOUT_MS, UINT32_MAX), 0);
	assert_int_not_equal(zkl_backoff_pause_ms(1, 1, TIMEOUT_MS, 0), 0);
}

/* The longest and the shortest pause that a random number can give. */
static int
longest(int rounds, int timeout_ms)
{
	int			max = 0;

	for (uint32_t random = 0; random < 200000; random++)
	{
		int			pause = zkl_backoff_pause_ms(3 * rounds, 3, timeout_ms, random);

		if (pause > max)
			max = pause;
	}
	return max;
}

static void
pauses_grow_to_a_twentieth_of_the_timeout(void **state)
{
	(void) state;
	assert_int_equal(longest(1, TIMEOUT_MS), 100);
	assert_int_equal(longest(2, TIMEOUT_MS), 200);
	assert_int_equal(longest(4, TIMEOUT_MS), 800);
	assert_int_equal(longest(5, TIMEOUT_MS), 1000);
	assert_int_equal(longest(700000000, TIMEOUT_MS), 1000);
	assert_int_equal(longest(100, 1000), 100);
}

static void
servers_pause_for_different_times(void **state)
{
	(void) state;
	assert_int_equal(zkl_backoff_pause_ms(30, 3, TIMEOUT_MS, 0), 500);
	assert_int_equal(zkl_backoff_pause_ms(30, 3, TIMEOUT_MS, 500), 1000);
	assert_int_equal(zkl_backoff_pause_ms(30, 3, TIMEOUT_MS, 501), 500);
}

static void
all_servers_can_be_tried_within_a_third_of_the_timeout(void **state)
{
	(void) state;
	assert_int_equal(zkl_backoff_limit_ms(1, TIMEOUT_MS), TIMEOUT_MS / 3);
	assert_int_equal(zkl_backoff_limit_ms(5, TIMEOUT_MS), TIMEOUT_MS / 15);
	assert_int_equal(zkl_backoff_limit_ms(3, 1000), 200);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_list_is_tried_once_without_a_pause),
		cmocka_unit_test(pauses_grow_to_a_twentieth_of_the_timeout),
		cmocka_unit_test(servers_pause_for_different_times),
		cmocka_unit_test(all_servers_can_be_tried_within_a_third_of_the_timeout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
