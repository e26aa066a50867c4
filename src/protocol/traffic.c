/*-------------------------------------------------------------------------
 *
 * traffic.c
 *	  The kinds of requests to ZooKeeper and the latencies that zk_stat
 *	  distinguishes.
 *
 * src/protocol/traffic.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/traffic.h"

/*
 * From half a millisecond, which a ZooKeeper on the same machine needs, to the
 * default of zklock.session_timeout.  The steps are fixed, so that the
 * histograms of all servers can be added.
 */
const int64_t zkl_traffic_bounds[ZKL_TRAFFIC_BOUNDS] = {
	500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000,
	1000000, 2000000, 5000000, 10000000
};

bool
zkl_traffic_is_write(ZklTraffic kind)
{
	return kind == ZKL_TRAFFIC_CREATE || kind == ZKL_TRAFFIC_WRITE ||
		kind == ZKL_TRAFFIC_DELETE || kind == ZKL_TRAFFIC_CHECK;
}

int
zkl_traffic_bucket(int64_t latency)
{
	int			bucket = 0;

	while (bucket < ZKL_TRAFFIC_BOUNDS && latency > zkl_traffic_bounds[bucket])
		bucket++;
	return bucket;
}
