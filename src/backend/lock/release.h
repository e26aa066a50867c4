/*-------------------------------------------------------------------------
 *
 * release.h
 *	  Release, as the SQL functions do it.
 *
 * Called only by backends.
 *
 * src/backend/lock/release.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_RELEASE_H
#define ZKL_RELEASE_H

#include "protocol/recipe.h"

/*
 * Release this many session-level acquires.  False, with a WARNING, if the
 * backend does not hold that many.
 */
extern bool zkl_release(const char *path, ZklMode mode, int quantity);

/* Release all session-level acquires.  Returns how many that were. */
extern int	zkl_release_all(void);

#endif							/* ZKL_RELEASE_H */
