/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquire a mutex or a read-write lock: the two waits.
 *
 * Called only by backends.
 *
 * src/backend/acquire.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ACQUIRE_H
#define ZKL_ACQUIRE_H

#include "backend/claims.h"

/*
 * Acquire a lock that is no semaphore.  True: acquired.  False: another backend
 * or client held the lock until the time was over.  Anything else is an error.
 * After false or an error, this call's acquire leaves nothing behind.
 */
extern bool zkl_acquire(const ZklWish *wish);

/*
 * The same for a claim that has just begun.  The caller counts the claim if it
 * is held, and ends it otherwise, also after an error.
 */
extern bool zkl_acquire_claim(ZklLocalClaim *claim, const ZklWish *wish);

/* The first half of that: acquire the local lock. */
extern bool zkl_acquire_locally(ZklLocalClaim *claim, const ZklWish *wish);

#endif							/* ZKL_ACQUIRE_H */
