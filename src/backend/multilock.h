/*-------------------------------------------------------------------------
 *
 * multilock.h
 *	  Several mutexes at once, all or none.
 *
 * Called only by backends.
 *
 * src/backend/multilock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_MULTILOCK_H
#define ZKL_MULTILOCK_H

#include "backend/claims.h"

/*
 * Acquire the mutexes of all these paths, which are checked and in UTF-8.
 * This sorts the array and drops duplicates.  Result and errors are those of
 * zkl_acquire.  "wish" says everything but the path.
 */
extern bool zkl_multilock_acquire(const char **paths, int npaths,
								  const ZklWish *wish);

/* Release one acquire of each; false, with WARNINGs, unless all were held. */
extern bool zkl_multilock_release(const char **paths, int npaths);

#endif							/* ZKL_MULTILOCK_H */
