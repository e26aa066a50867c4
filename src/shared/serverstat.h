/*-------------------------------------------------------------------------
 *
 * serverstat.h
 *	  What zk_stat counts: the requests to ZooKeeper, and the fate of the
 *	  session.
 *
 * The counts are kept while the server runs, however often a worker is started
 * again or a session expires.  They are atomics: the worker or a backend adds,
 * and any process reads, without a lock.  No function raises an error.
 *
 * src/shared/serverstat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SERVERSTAT_H
#define ZKL_SERVERSTAT_H

#include "port/atomics.h"
#include "storage/lwlock.h"

#include "protocol/traffic.h"

#define ZKL_SERVER_STAT_ERRORS	15

/* Atomics of one type only.  All times are in microseconds. */
typedef struct ZklServerStat
{
	pg_atomic_uint64 sent[ZKL_TRAFFIC_KINDS];
	pg_atomic_uint64 answers[ZKL_TRAFFIC_BOUNDS + 1];	/* by latency */
	pg_atomic_uint64 answer_time;	/* the sum of all latencies */
	pg_atomic_uint64 reconnects;
	pg_atomic_uint64 expirations;
	pg_atomic_uint64 doubt_time;	/* of all doubts that have ended */
	pg_atomic_uint64 late_commits;	/* commits that ended after their lock had
									 * become uncertain; backends count these */
	pg_atomic_uint64 batches;	/* transactions of several operations */
	pg_atomic_uint64 batches_undone;	/* transactions of several operations
										 * that failed */
	pg_atomic_uint64 errors[ZKL_SERVER_STAT_ERRORS];	/* by SQLSTATE, in the
														 * order of report.c */
	pg_atomic_uint64 reset_at;	/* on the clock of zkl_now() */
	pg_atomic_uint64 reset_time;	/* reset_at as a TimestampTz */
} ZklServerStat;

extern ZklServerStat *zkl_server_stat;

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_server_stat_size(void);
extern void zkl_server_stat_attach(void *memory, LWLockPadded *locks, bool is_new);

/* The worker has got a reply after this time. */
extern void zkl_server_stat_count_answer(int64 latency);

/*
 * How long the session's locks have been in doubt by now, not counting the
 * time before the last reset.  The worker adds this to doubt_time when it
 * moves safe until past "now", or when the session has expired.
 */
extern int64 zkl_server_stat_doubt(int64 now);

/* Reset all counts. */
extern void zkl_server_stat_reset(void);

#endif							/* ZKL_SERVERSTAT_H */
