/*-------------------------------------------------------------------------
 *
 * held.h
 *	  What a backend may ask about the locks that it holds.
 *
 * Called only by backends.
 *
 * src/backend/held.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HELD_H
#define ZKL_HELD_H

/* Does this backend hold the lock, and is that certain? */
extern bool zkl_held_certainly(const char *path);

/*
 * Facts about a lock that this backend certainly holds; otherwise an error.
 * The claim's token, or that of a leadership on which the transaction relies.
 * What is left of its hold limit, in microseconds (false: it has none).
 * Whether the lock's release has been requested.
 */
extern int64 zkl_held_token(const char *path);
extern bool zkl_held_remaining(const char *path, int64 *remaining);
extern bool zkl_held_is_revoked(const char *path);

#endif							/* ZKL_HELD_H */
