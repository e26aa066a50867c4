/*-------------------------------------------------------------------------
 *
 * test_window.c
 *	  How many requests ZooKeeper works on at a time.
 *
 * test/unit/test_window.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/window.h"

/* So many answers, each of which takes this long for each request on its way. */
static int
size_after(ZklWindow *window, int nanswers, int64_t alone, int64_t each, int64_t *now)
{
	for (int i = 0; i < nanswers; i++)
	{
		int64_t		took = alone + each * window->size;

		*now += took;
		zkl_window_answered(window, took, *now);
	}
	return window->size;
}

TEST(it_grows_where_requests_do_not_wait_for_each_other)
{
	ZklWindow	window;
	int64_t		now = 0;

	zkl_window_start(&window);
	assert_int_equal(window.size, ZKL_WINDOW_MAX);
	size_after(&window, 1, 1000, 0, &now);
	assert_int_equal(size_after(&window, 100, 10000, 0, &now), ZKL_WINDOW_MIN);
	zkl_window_start(&window);
	assert_int_equal(size_after(&window, 100, 10000, 0, &now), ZKL_WINDOW_MAX);
	assert_int_equal(size_after(&window, 1000, 10000, 100, &now), ZKL_WINDOW_MAX);
}

TEST(it_shrinks_where_they_do)
{
	ZklWindow	window;
	int64_t		now = 0;

	zkl_window_start(&window);
	zkl_window_answered(&window, 300, now);
	assert_int_equal(size_after(&window, 100, 0, 300, &now), ZKL_WINDOW_MIN);
	for (int i = 0; i < 1000; i++)
	{
		int			size = size_after(&window, 1, 0, 300, &now);

		assert_true(size == ZKL_WINDOW_MIN || size == ZKL_WINDOW_MIN + 1);
	}
}

TEST(it_grows_again_afterwards)
{
	ZklWindow	window;
	int64_t		now = 0;

	zkl_window_start(&window);
	assert_int_equal(size_after(&window, 100, 300, 0, &now), ZKL_WINDOW_MAX);
	assert_int_equal(size_after(&window, 100, 3000, 0, &now), ZKL_WINDOW_MIN);
	assert_int_equal(size_after(&window, 100, 300, 0, &now), ZKL_WINDOW_MAX);
}

TEST(it_gets_used_to_a_slower_zookeeper)
{
	ZklWindow	window;
	int64_t		now = 0;

	zkl_window_start(&window);
	size_after(&window, 10, 1000, 0, &now);
	assert_int_equal(size_after(&window, 60000, 5000, 0, &now), ZKL_WINDOW_MIN);
	now += 1800 * INT64_C(1000000);
	assert_int_equal(size_after(&window, 3000, 5000, 0, &now), ZKL_WINDOW_MIN);
	for (int hour = 0; hour < 3 * 6; hour++)
	{
		now += 600 * INT64_C(1000000);
		size_after(&window, 100, 5000, 0, &now);
	}
	assert_int_equal(window.size, ZKL_WINDOW_MAX);
}

TEST(no_time_at_all_is_a_time)
{
	ZklWindow	window;
	int64_t		now = 0;

	zkl_window_start(&window);
	assert_int_equal(size_after(&window, 100, 0, 0, &now), ZKL_WINDOW_MAX);
}

int
main(void)
{
	return run_all_tests("window");
}
