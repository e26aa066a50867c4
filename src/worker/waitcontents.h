/*-------------------------------------------------------------------------
 *
 * waitcontents.h
 *	  What the records of this server's waits say.
 *
 * A record (waitrecord.h) is a wait from shared memory (waits.h), with the
 * claims in the lock table that cannot be released before it ends, and what the
 * search for deadlocks wants of it.
 *
 * Called only by the first worker's files.  No function raises an error,
 * except when memory is out.
 *
 * src/worker/waitcontents.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITCONTENTS_H
#define ZKL_WAITCONTENTS_H

#include "settings.h"

typedef struct ZklWaitContents
{
	char	   *records;		/* the text of the records; NULL if there are
								 * none */
	bool		owns[ZKL_SESSIONS_MAX]; /* which ZooKeeper sessions own the
										 * locks that the records hold */
} ZklWaitContents;

/* A worker starts. */
extern void zkl_wait_contents_start(void);

/*
 * The first function tells whether something has changed since the last
 * build, the second when to check that even without an event; PG_INT64_MAX:
 * not at all.
 */
extern bool zkl_wait_contents_have_changed(void);
extern int64 zkl_wait_contents_build_at(void);

/*
 * Build the records as they are now, in the current memory context.  This
 * locks the partitions of the lock table, so the caller must hold none.
 */
extern void zkl_wait_contents_build(ZklWaitContents *contents);

/* The shortest deadlock_timeout of the backends whose waits were built. */
extern int	zkl_wait_contents_timeout_ms(void);

/*
 * From now on, the record of this claim says that a search with this nonce
 * has begun; 0 if none has.  The second function makes it confirm these
 * nonces, as soon as its backend has computed the holders again.
 */
extern void zkl_wait_contents_set_search(int64 claim, int64 nonce);
extern void zkl_wait_contents_set_confirms(int64 claim, const int64 *nonces,
										   int nnonces);

/* From now on, no record searches or confirms anything. */
extern void zkl_wait_contents_forget_searches(void);

#endif							/* ZKL_WAITCONTENTS_H */
