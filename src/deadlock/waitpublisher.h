/*-------------------------------------------------------------------------
 *
 * waitpublisher.h
 *	  Publishes this server's waits, for the search for deadlocks.
 *
 * The records (waitrecord.h) are in the znode of the session.  A record is a
 * wait from shared memory (waits.h), with the claims in the lock table that
 * cannot be released before it ends, and what the search for deadlocks wants
 * of it.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/deadlock/waitpublisher.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITPUBLISHER_H
#define ZKL_WAITPUBLISHER_H

#include "deadlock/waitrecord.h"

/* A worker starts, perhaps with the session of its predecessor. */
extern void zkl_wait_publisher_start(const char *prefix);

/* Send what has changed. */
extern void zkl_wait_publisher_send(void);

/* When to send again, even if nothing happens; PG_INT64_MAX: not at all. */
extern int64 zkl_wait_publisher_wake_at(void);

/*
 * The first function returns the directory of the znode.  The second returns
 * the records that ZooKeeper has acknowledged; NULL if there are none, or if
 * the last write was refused or its outcome is unknown.  The text stays until
 * the next event is handled and the next call of send.  "serial" grows with
 * each acknowledgement.
 */
extern const char *zkl_wait_publisher_directory(void);
extern const char *zkl_wait_publisher_text(uint64 *serial);

/* The shortest deadlock_timeout of the backends whose waits were built. */
extern int	zkl_wait_publisher_timeout_ms(void);

/*
 * set_search: from now on, the record of this claim says that a search with
 * this nonce has begun; 0: that none has.  set_confirms: it will confirm
 * these nonces as soon as its backend has computed the holders again.
 */
extern void zkl_wait_publisher_set_search(int64 claim, int64 nonce);
extern void zkl_wait_publisher_set_confirms(int64 claim, const int64 *nonces,
											int nnonces);

/* From now on, no record searches or confirms anything. */
extern void zkl_wait_publisher_forget_searches(void);

#endif							/* ZKL_WAITPUBLISHER_H */
