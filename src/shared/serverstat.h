/*-------------------------------------------------------------------------
 *
 * serverstat.h
 *	  What zk_stat counts: the requests to ZooKeeper, and how the sessions live.
 *
 * The counts are of all ZooKeeper sessions of the server, and are kept while
 * the server runs, however often a worker is started again.  They are atomics:
 * a worker adds, and any process reads, without a lock.  No function raises an
 * error.
 *
 * src/shared/serverstat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SERVERSTAT_H
#define ZKL_SERVERSTAT_H

#include "port/atomics.h"

#include "protocol/traffic.h"
#include "shared/sessioninfo.h"

/* All times are in microseconds. */
typedef struct ZklServerStat
{
	pg_atomic_uint64 sent[ZKL_TRAFFIC_KINDS];
	pg_atomic_uint64 answers[ZKL_TRAFFIC_BOUNDS + 1];	/* by latency */
	pg_atomic_uint64 answer_time;	/* the sum of their latencies */
	pg_atomic_uint64 reconnects;
	pg_atomic_uint64 expirations;
	pg_atomic_uint64 doubt_time;	/* of all doubts that are over */
	pg_atomic_uint64 reset_at;	/* on the clock of zkl_now() ... */
	pg_atomic_uint64 reset_time;	/* ... and as a TimestampTz */
} ZklServerStat;

extern ZklServerStat *zkl_server_stat;

/* For the shared-memory hooks: once in the postmaster, once in each process. */
extern void zkl_server_stat_request(void);
extern void zkl_server_stat_startup(void);

/* A worker has sent a request, or got an answer after this time. */
extern void zkl_server_stat_count_sent(ZklTraffic kind);
extern void zkl_server_stat_count_answer(int64 latency);

/*
 * How long the session's locks have been in doubt by now, since the counts
 * begin.  The worker adds this to doubt_time when it moves safe until past
 * "now", or when the session has expired.
 */
extern int64 zkl_server_stat_doubt(ZklSessionInfo *session, int64 now);

/* Begin to count anew. */
extern void zkl_server_stat_reset(void);

#endif							/* ZKL_SERVERSTAT_H */
