/*-------------------------------------------------------------------------
 *
 * semaphore.h
 *	  How a backend gets leases of a semaphore.
 *
 * Called only by acquire.c.
 *
 * src/backend/semaphore.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SEMAPHORE_H
#define ZKL_SEMAPHORE_H

#include "backend/claims.h"

/*
 * Acquire as many leases as the wish says, all or none.  "claim" is the one
 * that this backend has on the semaphore already (NULL: none); its leases
 * stay.  Result and errors are those of zkl_acquire.
 */
extern bool zkl_semaphore_acquire(ZklLocalClaim *claim, const ZklWish *wish);

#endif							/* ZKL_SEMAPHORE_H */
