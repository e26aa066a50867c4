/*-------------------------------------------------------------------------
 *
 * lockstat.h
 *	  What zk_stat_locks counts: one row for each path.
 *
 * A row outlives the entry of its path, and stays until the server stops.  There
 * are at most zklock.stat_locks rows; a new path takes the place of the one in
 * its partition that was used least recently.
 *
 * The partition of the path protects its row, the entry's link to it, and the
 * order of the partition's rows.  Callers hold the partition, exclusively,
 * unless the comment of a function says otherwise.  So an acquire that holds it
 * anyway takes no other lock to be counted, and no other reading of the clock.
 * No function raises an error.
 *
 * src/shared/lockstat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCKSTAT_H
#define ZKL_LOCKSTAT_H

#include "datatype/timestamp.h"

#include "shared/locktable.h"

/* All times are in microseconds. */
typedef struct ZklLockCounts
{
	uint64		acquired;		/* grants ... */
	uint64		acquired_locally;	/* ... with a ticket that was there */
	uint64		waited;			/* claims that found the lock taken */
	int64		wait_time;		/* of all claims not granted at once */
	int64		hold_time;		/* of claims that ended */
	uint64		timeouts;
	uint64		lost;
	uint64		deadlocks;
	uint64		handed_over;	/* tickets given up while other clients queue */
} ZklLockCounts;

struct ZklLockStat
{
	char		path[ZKL_PATH_SIZE];	/* hash key; fixed */
	dlist_node	link;			/* the most recently used row comes first */
	ZklEntry   *entry;			/* the one that links here, or NULL */
	Oid			role;			/* of all claims so far; invalid: of several */
	TimestampTz since;			/* when the row was made */
	ZklLockCounts counts;
};

/* For the shared-memory hooks: once in the postmaster, once in each process. */
extern void zkl_lock_stat_request(void);
extern void zkl_lock_stat_startup(void);

/*
 * A claim that waited is about to be HELD, or one that was HELD to be LOST, or
 * a claim in any state to end: called before the state and "since" change.
 */
extern void zkl_lock_stat_granted(ZklClaim *claim, int64 now);
extern void zkl_lock_stat_lost(ZklClaim *claim, int64 now);
extern void zkl_lock_stat_ended(ZklClaim *claim, int64 now);

/* The entry's owned ticket, or a lease's, is given up; do others queue? */
extern void zkl_lock_stat_given_up(const ZklEntry *entry);

/* The entry is about to be removed. */
extern void zkl_lock_stat_unlink(ZklEntry *entry);

/*
 * This backend's wait with the claim has failed.  Counts a deadlock (40P01), and
 * a timeout (55P03), whether that is lock_timeout or the timeout of the call.
 * Called without the partition.
 */
extern void zkl_lock_stat_failed(ZklClaim *claim, int sqlstate);

/*
 * A copy of all rows, as an array in the current memory context, each partition
 * at a moment of its own.  And the sum of all rows, and of those that were
 * discarded, with their number.  reset makes all rows go, and the sum.  Called
 * without a partition.
 */
extern ZklLockStat *zkl_lock_stat_copy(int *nrows);
extern uint64 zkl_lock_stat_sum(ZklLockCounts *sum);
extern void zkl_lock_stat_reset(void);

#endif							/* ZKL_LOCKSTAT_H */
