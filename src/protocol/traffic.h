/*-------------------------------------------------------------------------
 *
 * traffic.h
 *	  The kinds of requests to ZooKeeper and the latencies that zk_stat
 *	  distinguishes.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/traffic.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TRAFFIC_H
#define ZKL_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

/* The kinds of requests, in the order of zk_stat's columns. */
typedef enum ZklTraffic
{
	ZKL_TRAFFIC_CREATE,
	ZKL_TRAFFIC_LIST,			/* the children of a znode */
	ZKL_TRAFFIC_READ,			/* data or facts of a znode, and its watch */
	ZKL_TRAFFIC_WRITE,			/* data of a znode, or a downgrade */
	ZKL_TRAFFIC_DELETE,
	ZKL_TRAFFIC_CHECK,			/* a write that changes nothing */
	ZKL_TRAFFIC_UNWATCH,
	ZKL_TRAFFIC_HEARTBEAT,		/* a proof that the session lives */
	ZKL_TRAFFIC_SIGN,			/* another sign of life */
	ZKL_TRAFFIC_KINDS
} ZklTraffic;

/*
 * Is it a write?  A heartbeat is also a write, but does not count as one
 * here.
 */
extern bool zkl_traffic_is_write(ZklTraffic kind);

/*
 * The buckets of the histogram of latencies.  Bucket i counts the replies
 * that took longer than the bounds before zkl_traffic_bounds[i], and at most
 * that many microseconds.  One more bucket counts those that took longer than
 * all bounds.
 */
#define ZKL_TRAFFIC_BOUNDS	14
extern const int64_t zkl_traffic_bounds[ZKL_TRAFFIC_BOUNDS];
extern int	zkl_traffic_bucket(int64_t latency);

#endif							/* ZKL_TRAFFIC_H */
