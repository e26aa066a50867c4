/*-------------------------------------------------------------------------
 *
 * advisorylock.h
 *	  PostgreSQL's own lock behind a claim: the order within this server.
 *
 * A claim holds its advisory lock exactly once in a mode, whatever its counts: at
 * session level while it counts session-level acquires, else at transaction
 * level.  Transaction level means the top transaction; savepoints are counted
 * in holdcounts.c.  The modes are ExclusiveLock, and ShareLock for readers and
 * for leases.
 *
 * Called only by backends, which hold no LWLock.  A function raises an error
 * only if its comment says so.
 *
 * src/backend/lock/advisorylock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ADVISORYLOCK_H
#define ZKL_ADVISORYLOCK_H

#include "storage/lock.h"

typedef enum ZklScope
{
	ZKL_SCOPE_SESSION,
	ZKL_SCOPE_XACT
} ZklScope;

struct ZklClaim;

/*
 * The tag for a path, of generation 0.  "hash" is the path's "shown" hash
 * (locktable.h).  A new generation keeps newcomers from waiting behind a
 * backend whose claim was lost.
 */
extern void zkl_advisory_lock_tag(LOCKTAG *tag, uint64 hash);
extern void zkl_advisory_lock_set_generation(LOCKTAG *tag, uint32 generation);

/*
 * Acquire the advisory lock.  With "dont_wait", only if that is possible
 * without a wait.  A caller that passes false must know that the lock is
 * free, or will be in a moment.  Raises the errors of the lock manager, such
 * as 53200 if shared memory is short.
 */
extern bool zkl_advisory_lock_acquire(const LOCKTAG *tag, LOCKMODE mode,
									  ZklScope scope, bool dont_wait);

typedef enum ZklAdvisoryWait
{
	ZKL_ADVISORY_LOCKED,
	ZKL_ADVISORY_TIME_OVER,
	ZKL_ADVISORY_NEW_GENERATION /* there is a new generation, so wait for its
								 * lock instead */
} ZklAdvisoryWait;

/*
 * Wait for the lock until this moment of zkl_now().  Raises the errors of any
 * lock wait (55P03, 57014, 40P01).  After an error, the backend does not hold
 * the lock.
 */
extern ZklAdvisoryWait zkl_advisory_lock_wait(struct ZklClaim *claim,
											  const LOCKTAG *tag, LOCKMODE mode,
											  ZklScope scope, int64 until);

/*
 * For the hook for messages: if this is PostgreSQL's message that the wait
 * goes on, raise a NOTICE for the user, once in each wait.
 */
extern void zkl_advisory_lock_tell(const ErrorData *message);

/*
 * Does the cancel that is being raised only end this backend's wait for the
 * advisory lock?  Then zkl_advisory_lock_wait returns.
 */
extern bool zkl_advisory_lock_ends_wait(void);

/* Change the level at which the lock is held. */
extern void zkl_advisory_lock_move(const LOCKTAG *tag, LOCKMODE mode,
								   ZklScope from, ZklScope to);

extern void zkl_advisory_lock_release(const LOCKTAG *tag, LOCKMODE mode,
									  ZklScope scope);

#endif							/* ZKL_ADVISORYLOCK_H */
