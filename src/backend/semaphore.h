/*-------------------------------------------------------------------------
 *
 * semaphore.h
 *	  How a backend gets leases of a semaphore.
 *
 * Called only by backends.
 *
 * src/backend/semaphore.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SEMAPHORE_H
#define ZKL_SEMAPHORE_H

#include "backend/claims.h"

/*
 * Acquire as many leases as the wish says, all or none, in addition to those
 * that this backend has.  Result and errors are those of zkl_acquire.
 */
extern bool zkl_semaphore_acquire(const ZklWish *wish);

#endif							/* ZKL_SEMAPHORE_H */
