/*-------------------------------------------------------------------------
 *
 * test_traffic.c
 *	  The buckets of the histogram of latencies.
 *
 * test/unit/test_traffic.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/traffic.h"

TEST(bounds_grow)
{
	for (int i = 1; i < ZKL_TRAFFIC_BOUNDS; i++)
		assert_true(zkl_traffic_bounds[i] > zkl_traffic_bounds[i - 1]);
}

/* A latency that equals a bound is in that bound's bucket, as Prometheus has it. */
TEST(a_bucket_includes_its_bound)
{
	for (int i = 0; i < ZKL_TRAFFIC_BOUNDS; i++)
	{
		assert_int_equal(zkl_traffic_bucket(zkl_traffic_bounds[i]), i);
		assert_int_equal(zkl_traffic_bucket(zkl_traffic_bounds[i] + 1), i + 1);
	}
	assert_int_equal(zkl_traffic_bucket(0), 0);
	assert_int_equal(zkl_traffic_bucket(INT64_MAX), ZKL_TRAFFIC_BOUNDS);
}

int
main(void)
{
	return run_all_tests("traffic");
}
