/*-------------------------------------------------------------------------
 *
 * limit.h
 *	  The number of leases that is stored for a semaphore in ZooKeeper.
 *
 * Called only by backends.
 *
 * src/backend/lock/limit.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LIMIT_H
#define ZKL_LIMIT_H

#include "backend/lock/localclaim.h"
#include "shared/listing.h"

/* Raise 22023 if the path is too long for a semaphore. */
extern void zkl_limit_check_path(const char *path);

/*
 * Compare what a lock request says with what is stored.  Raises ZK003 if that is another
 * number; if the lock request leaves it to the stored limit, 22023 if there is none, and
 * 28000 if it may not be read.  True: there is a stored limit.
 */
extern bool zkl_limit_check(const ZklListing *survey, const ZklLockRequest *request);

#endif							/* ZKL_LIMIT_H */
