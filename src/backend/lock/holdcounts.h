/*-------------------------------------------------------------------------
 *
 * holdcounts.h
 *	  How many acquires a claim counts, at which level, and when they end.
 *
 * Called only by backends, which hold no LWLock.  A function raises an error
 * only if its comment says so.
 *
 * src/backend/lock/holdcounts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HOLDCOUNTS_H
#define ZKL_HOLDCOUNTS_H

#include "backend/lock/localclaim.h"

/*
 * Count the acquire that was requested; of a semaphore, one for each lease.
 * The claim is held.  May raise the errors of the lock manager; and for a
 * session-level acquire, 55006 if the claim is a use, and 55P03 if another
 * backend got the advisory lock after pg_advisory_unlock_all().  After an
 * error, the acquire does not count.
 */
extern void zkl_hold_counts_add(ZklLocalClaim *claim, const ZklLockRequest *request);

/*
 * The acquire that was counted last is for the run of a job, which ends when
 * that acquire is released.
 */
extern void zkl_hold_counts_begin_run(ZklLocalClaim *claim, ZklScope scope);

/*
 * May this backend hold this many more locks or leases?  Raises 53400 if
 * zklock.max_locks_per_backend does not allow it.  Also makes room to count
 * one of them.
 */
extern void zkl_hold_counts_check_room(int wanted);

/*
 * Remove this many session-level acquires, which the part must have.  When
 * none is left at any level, the claim ends.  If this ends a run, the run is
 * done, unless its last transaction was rolled back.  Raises 53200 if shared
 * memory is short; then nothing has changed.
 */
extern void zkl_hold_counts_take_session(ZklLocalClaim *claim, ZklPartName part,
										 int count);

/*
 * What the SQL functions that release call.  release: release this many
 * session-level acquires; false, with a WARNING, if the backend does not hold
 * that many.  release_all: release all of them, and return how many that were.
 * Both raise the errors of zkl_hold_counts_update and take_session.
 */
extern bool zkl_hold_counts_release(const char *path, ZklMode mode, int quantity);
extern int	zkl_hold_counts_release_all(void);

/*
 * Release all session-level locks, after DISCARD ALL.  Their runs count as
 * failed.  Raises 53200 if shared memory is short.
 */
extern void zkl_hold_counts_discard_session(void);

/*
 * Every function that depends on this backend's claims calls this first.  It
 * brings the claims and advisory locks up to date: it releases the advisory locks
 * of claims that were lost.  And if DISCARD ALL or pg_advisory_unlock_all()
 * has released the session-level advisory locks, it releases all session-level
 * locks.  Claims may end.  Raises a NOTICE for each claim whose release has
 * been requested.  Raises 55000 unless zklock was preloaded, 25000 during a
 * parallel operation, and 53200 if shared memory is short.
 */
extern void zkl_hold_counts_update(void);

/*
 * Do what zkl_hold_counts_update does.  Returns this backend's claim on the
 * wanted lock, or NULL.  Also raises ZK003 if the claim is of another kind,
 * and 42501 if no backend may have a claim on the path.
 */
extern ZklLocalClaim *zkl_hold_counts_update_to_acquire(const ZklLockRequest *request);

/*
 * Does this backend certainly hold the lock?  Like the four functions below,
 * this first does what zkl_hold_counts_update does, and raises its errors.
 */
extern bool zkl_hold_counts_is_held(const char *path);

/*
 * Facts about a lock that this backend certainly holds.  Raise 55000 if the
 * backend has no claim on it, and ZK001 or ZK002 if the claim is in doubt or
 * lost.  token: the token of the claim, or of a leadership on which the
 * transaction relies.  The others: the rest of its hold limit, in microseconds
 * (false if it has none), whether its release has been requested, and how
 * often it was used (use.h).
 */
extern int64 zkl_hold_counts_token(const char *path);
extern bool zkl_hold_counts_remaining(const char *path, int64 *remaining);
extern bool zkl_hold_counts_is_revoked(const char *path);
extern int64 zkl_hold_counts_uses(const char *path);

/*
 * Called when transactions and savepoints end.  "tells": the outcome of the
 * transaction tells how session-level runs of jobs would end.
 */
extern void zkl_hold_counts_end_xact(bool committed, bool tells);
extern void zkl_hold_counts_abort_savepoint(int nest_level);
extern void zkl_hold_counts_release_savepoint(int nest_level);

#endif							/* ZKL_HOLDCOUNTS_H */
