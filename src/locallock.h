/*-------------------------------------------------------------------------
 *
 * locallock.h
 *	  PostgreSQL's own lock behind a claim: who goes first in this server.
 *
 * A claim holds its local lock exactly once in a mode, whatever its counts: at
 * session level while it has session scope, else at transaction level.
 * Transaction level means the top transaction; savepoints are counted in
 * claims.c.  The modes are ExclusiveLock, and ShareLock for readers and for
 * leases.
 *
 * Called only by backends.
 *
 * src/locallock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCALLOCK_H
#define ZKL_LOCALLOCK_H

#include "storage/lock.h"

typedef enum ZklScope
{
	ZKL_SCOPE_SESSION,
	ZKL_SCOPE_XACT
} ZklScope;

struct ZklClaim;

#define ZKL_FOREVER		PG_INT64_MAX

/* The tag for a path; the generation tells locks from those that were lost. */
extern void zkl_local_lock_tag(LOCKTAG *tag, const char *path,
							   uint32 generation);

/* Take it if that is possible at once. */
extern bool zkl_local_lock_try(const LOCKTAG *tag, LOCKMODE mode,
							   ZklScope scope);

/*
 * Take ShareLock beside an ExclusiveLock that we hold: that never waits, though
 * others may be waiting already.
 */
extern void zkl_local_lock_add_share(const LOCKTAG *tag, ZklScope scope);

typedef enum ZklLocalWait
{
	ZKL_LOCAL_LOCKED,
	ZKL_LOCAL_TIME_OVER,
	ZKL_LOCAL_NEW_GENERATION	/* the lock to wait for is another one now */
} ZklLocalWait;

/*
 * Wait for it, until this moment of zkl_now() at the latest.  Raises what
 * waiting for any lock does (55P03, 57014, 40P01), with nothing left behind.
 */
extern ZklLocalWait zkl_local_lock_wait(struct ZklClaim *claim,
										const LOCKTAG *tag, LOCKMODE mode,
										ZklScope scope, int64 until);

/* Change the level at which it is held. */
extern void zkl_local_lock_move(const LOCKTAG *tag, LOCKMODE mode,
								ZklScope from, ZklScope to);

extern void zkl_local_lock_release(const LOCKTAG *tag, LOCKMODE mode,
								   ZklScope scope);

#endif							/* ZKL_LOCALLOCK_H */
