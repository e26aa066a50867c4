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

/*
 * Every function that depends on this backend's claims calls this first.  It
 * brings them up to date, and tells the user which of them were asked for.
 * Raises 55000 unless zklock was preloaded, 25000 during a parallel operation.
 */
extern void zkl_enter(void);

/*
 * Acquire.  True: acquired.  False: somebody else held the lock until the
 * time was over.  Everything else is an error, and leaves nothing behind.
 */
extern bool zkl_acquire(const ZklWish *wish);

/*
 * The same for a claim that has just begun: its caller counts it or ends it,
 * in any case.
 */
extern bool zkl_acquire_claim(ZklLocalClaim *claim, const ZklWish *wish);

/* The first half of that: PostgreSQL's own lock. */
extern bool zkl_acquire_locally(ZklLocalClaim *claim, const ZklWish *wish);

/*
 * Release so many acquires of session scope; false with a WARNING if they are
 * not held.
 */
extern bool zkl_release(const char *path, ZklMode mode, int quantity);

/* Release all of session scope; returns how many acquires that were. */
extern int	zkl_release_all(void);

/* Does this backend hold the lock, and is that certain? */
extern bool zkl_is_held(const char *path);

/*
 * Of a lock that is held, or else an error: the claim's token; what is left of
 * its lease time, in microseconds (false: it has none); has somebody asked for
 * it?
 */
extern int64 zkl_token(const char *path);
extern bool zkl_remaining(const char *path, int64 *remaining);
extern bool zkl_is_revoked(const char *path);

#endif							/* ZKL_ACQUIRE_H */
