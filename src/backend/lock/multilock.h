/*-------------------------------------------------------------------------
 *
 * multilock.h
 *	  Several mutexes at once, all or none.
 *
 * Called only by backends.
 *
 * src/backend/lock/multilock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_MULTILOCK_H
#define ZKL_MULTILOCK_H

#include "backend/lock/localclaim.h"

/*
 * Acquire the mutexes of all these paths, which are checked and in UTF-8.
 * This sorts the array and drops duplicates.  It returns and raises what
 * zkl_acquire does.  "request" has all parameters except the path.
 */
extern bool zkl_multilock_acquire(const char **paths, int npaths,
								  const ZklLockRequest *request);

/*
 * Release one acquire of each; false, with WARNINGs, unless all were held.
 * Raises the errors of zkl_hold_counts_release.
 */
extern bool zkl_multilock_release(const char **paths, int npaths);

#endif							/* ZKL_MULTILOCK_H */
