/*-------------------------------------------------------------------------
 *
 * holds.h
 *	  How many acquires a claim counts, at which level, and when they end.
 *
 * Called only by backends.
 *
 * src/backend/holds.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HOLDS_H
#define ZKL_HOLDS_H

#include "backend/claims.h"

/*
 * Count acquires of a claim that is held.  Raises the lock manager's errors;
 * then nothing has changed.
 */
extern void zkl_holds_add(ZklLocalClaim *claim, ZklPartName part,
						  ZklScope scope, int count);

/*
 * The acquire that was counted last is for the run of a job, which ends with
 * it.
 */
extern void zkl_holds_begin_run(ZklLocalClaim *claim, ZklScope scope);

/*
 * May this backend have so many more locks or leases?  Raises 53400 if
 * zklock.max_locks_per_backend does not allow it.  Also makes room to count one
 * of them.
 */
extern void zkl_holds_check_room(int wanted);

/* Take session-level counts off.  The claim ends when no count is left. */
extern void zkl_holds_take_session(ZklLocalClaim *claim, ZklPartName part,
								   int count);

/* The same for all session-level counts.  Returns how many there were. */
extern int	zkl_holds_take_all_session(ZklLocalClaim *claim);

/* The first claim with a session-level acquire, or NULL. */
extern ZklLocalClaim *zkl_holds_first_session(void);

/* Release all session-level locks, as DISCARD ALL does. */
extern void zkl_holds_discard_session(void);

/*
 * Bring claims and local locks up to date: claims that were lost, and
 * session-level local locks that DISCARD ALL or pg_advisory_unlock_all() has
 * released; then all session-level locks are released.  Claims may end.
 */
extern void zkl_holds_sweep(void);

/* Ends of transactions and savepoints. */
extern void zkl_holds_end_xact(bool committed);
extern void zkl_holds_abort_savepoint(int nest_level);
extern void zkl_holds_release_savepoint(int nest_level);

#endif							/* ZKL_HOLDS_H */
