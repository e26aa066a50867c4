/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquire and release, as the SQL functions want it.
 *
 * Called only by backends.
 *
 * src/acquire.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ACQUIRE_H
#define ZKL_ACQUIRE_H

#include "claims.h"

/* What one call wants. */
typedef struct ZklWish
{
	const char *path;			/* checked, in UTF-8 */
	ZklScope	scope;
	int64		until;			/* of zkl_now(), or ZKL_FOREVER */
	bool		only_tries;		/* "until" is now: ask, but do not wait */
} ZklWish;

/*
 * Acquire.  True: acquired.  False: somebody else held the lock until the
 * time was over.  Everything else is an error, and leaves nothing behind.
 */
extern bool zkl_acquire(const ZklWish *wish);

/* Release one acquire of session scope; false with a WARNING if not held. */
extern bool zkl_release(const char *path);

/* Release all of session scope; returns how many acquires that were. */
extern int	zkl_release_all(void);

/* Does this backend hold the lock, and is that certain? */
extern bool zkl_is_held(const char *path);

/* The claim's token.  Raises an error unless the lock is held. */
extern int64 zkl_token(const char *path);

#endif							/* ZKL_ACQUIRE_H */
