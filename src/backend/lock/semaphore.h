/*-------------------------------------------------------------------------
 *
 * semaphore.h
 *	  How a backend gets leases of a semaphore.
 *
 * Called only by backends.
 *
 * src/backend/lock/semaphore.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SEMAPHORE_H
#define ZKL_SEMAPHORE_H

#include "backend/lock/localclaim.h"

/*
 * Acquire as many leases as the lock request says, all or none, in addition to
 * those that this backend has.  It returns and raises what zkl_acquire does.
 */
extern bool zkl_semaphore_acquire(const ZklLockRequest *request);

/*
 * The limit that is stored in ZooKeeper; ZKL_LIMIT_NONE if there is none, or
 * if set_limit is to delete it.  Both raise the errors of znodes.h.  If
 * another client has written an invalid limit, the first raises 22023, and
 * set_limit replaces it.  set_limit raises 22023 for a path that is too long,
 * and 42501 if no backend may have a claim on the path.
 */
extern int	zkl_semaphore_limit(const char *path);
extern void zkl_semaphore_set_limit(const char *path, int limit);

#endif							/* ZKL_SEMAPHORE_H */
