/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquire a mutex or a read-write lock: the two waits.
 *
 * Called only by backends, which hold no LWLock.
 *
 * src/backend/lock/acquire.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ACQUIRE_H
#define ZKL_ACQUIRE_H

#include "backend/lock/localclaim.h"

/*
 * Acquire a mutex or a read-write lock.  True: acquired.  False: another
 * backend or client held the lock until the time was over.  Every other
 * outcome is an error.  After false or an error, this call's acquire leaves
 * nothing behind.
 */
extern bool zkl_acquire(const ZklLockRequest *request);

/*
 * Acquire the lock, as zkl_acquire does, with a claim that has just begun.
 * The caller counts an acquire of the claim if it is held.  Otherwise, and
 * also after an error, the caller ends the claim.
 */
extern bool zkl_acquire_claim(ZklLocalClaim *claim, const ZklLockRequest *request);

/*
 * Acquire only the advisory lock for the claim.  False: the time is over, or a
 * try would have to wait.  Raises the errors of zkl_advisory_lock_wait.
 */
extern bool zkl_acquire_locally(ZklLocalClaim *claim, const ZklLockRequest *request);

#endif							/* ZKL_ACQUIRE_H */
