/*-------------------------------------------------------------------------
 *
 * lockstat.h
 *	  What zk_stat_locks counts: one row for each path.
 *
 * A row outlives the entry of its path, and stays until the server stops.
 * There are at most zklock.stat_locks rows; a new path takes the place of the
 * one in its partition that was used least recently.
 *
 * The partition of the path protects its row, the entry's link to it, and the
 * order of the partition's rows.  Callers hold the partition, exclusively,
 * unless the comment of a function says otherwise.  So to count an acquire,
 * which holds the partition anyway, takes no other lock, and no other reading
 * of the clock.  No function raises an error, except copy for lack of memory.
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
	uint64		acquired;		/* grants */
	uint64		acquired_locally;	/* grants for which the server already had
									 * the ticket */
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
	Oid			role;			/* of all claims so far; invalid if of several
								 * roles */
	TimestampTz since;			/* when the row was made */
	ZklLockCounts counts;
};

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_lock_stat_size(void);
extern Size zkl_lock_stat_hash_size(void);
extern void zkl_lock_stat_attach(void *memory, LWLockPadded *locks, bool is_new);

/*
 * Call these before a claim that waited becomes HELD, before a held claim
 * becomes LOST, and before a claim in any state ends: state and "since" must
 * still be the old ones.
 */
extern void zkl_lock_stat_granted(ZklClaim *claim, int64 now);
extern void zkl_lock_stat_lost(ZklClaim *claim, int64 now);
extern void zkl_lock_stat_ended(ZklClaim *claim, int64 now);

/* The owned ticket of a lock or a lease is given up. */
extern void zkl_lock_stat_given_up(const ZklEntry *entry);

/* The entry is about to be removed. */
extern void zkl_lock_stat_unlink(ZklEntry *entry);

/*
 * This backend's wait with the claim has failed.  Counts a deadlock (40P01)
 * or a timeout (55P03), whether that is lock_timeout or the timeout of the
 * call.  The caller must not hold the partition.
 */
extern void zkl_lock_stat_failed(ZklClaim *claim, int sqlstate);

/*
 * copy returns all rows, as an array in the current memory context; each
 * partition is copied at a different moment.  The sum is over all rows,
 * including discarded ones, whose number is counted.  reset discards all rows
 * and the sum.  The caller must not hold a partition.
 */
extern ZklLockStat *zkl_lock_stat_copy(int *nrows);
extern uint64 zkl_lock_stat_sum(ZklLockCounts *sum);
extern void zkl_lock_stat_reset(void);

#endif							/* ZKL_LOCKSTAT_H */
