/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquire and release, as the SQL functions do it.
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
 * Every function that depends on this backend's claims calls this first.  It
 * brings the claims up to date, and raises a NOTICE for those whose release
 * has been requested.  Raises 55000 unless zklock was preloaded, 25000 during
 * a parallel operation.
 */
extern void zkl_enter(void);

/*
 * Acquire a lock.  True: acquired.  False: another backend or client held the
 * lock until the time was over.  Anything else is an error.  After false or an
 * error, this call's acquire leaves nothing behind.
 */
extern bool zkl_acquire(const ZklWish *wish);

/*
 * The same for a claim that has just begun.  The caller counts the claim if it
 * is held, and ends it otherwise, also after an error.
 */
extern bool zkl_acquire_claim(ZklLocalClaim *claim, const ZklWish *wish);

/* The first half of that: acquire the local lock. */
extern bool zkl_acquire_locally(ZklLocalClaim *claim, const ZklWish *wish);

/*
 * Release this many session-level acquires.  False, with a WARNING, if the
 * backend does not hold that many.
 */
extern bool zkl_release(const char *path, ZklMode mode, int quantity);

/* Release all session-level acquires.  Returns how many that were. */
extern int	zkl_release_all(void);

/* Does this backend hold the lock, and is that certain? */
extern bool zkl_is_held(const char *path);

/*
 * Facts about a lock that this backend certainly holds; otherwise an error.
 * The claim's token.  What is left of its hold limit, in microseconds (false:
 * it has none).  Whether the lock's release has been requested.
 */
extern int64 zkl_token(const char *path);
extern bool zkl_remaining(const char *path, int64 *remaining);
extern bool zkl_is_revoked(const char *path);

#endif							/* ZKL_ACQUIRE_H */
