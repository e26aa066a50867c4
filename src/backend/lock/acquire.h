/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquire a mutex or a read-write lock: the two waits.
 *
 * Called only by backends.
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
 * The same for a claim that has just begun.  The caller counts an acquire of
 * the claim if it is held.  Otherwise, and also after an error, the caller
 * ends the claim.
 */
extern bool zkl_acquire_claim(ZklLocalClaim *claim, const ZklLockRequest *request);

/* The first half of that: acquire only the advisory lock. */
extern bool zkl_acquire_locally(ZklLocalClaim *claim, const ZklLockRequest *request);

#endif							/* ZKL_ACQUIRE_H */
