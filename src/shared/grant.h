/*-------------------------------------------------------------------------
 *
 * grant.h
 *	  A claim asks for its lock, and is granted it.
 *
 * All functions lock the entry's partition themselves, so the caller holds
 * none.  None raises an error.
 *
 * Called only by backends.
 *
 * src/shared/grant.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_GRANT_H
#define ZKL_GRANT_H

#include "shared/locktable.h"

/* What a backend is told that wants its claim to hold the lock. */
typedef enum ZklAnswer
{
	ZKL_ANSWER_HELD,			/* it holds the lock now */
	ZKL_ANSWER_STALE,			/* its local lock is of an old generation */
	ZKL_ANSWER_QUEUED,			/* another claim or client holds the lock, or
								 * goes first */
	ZKL_ANSWER_ASKING,			/* the same, but the ticket there may only
								 * linger */
	ZKL_ANSWER_NONE,			/* ZooKeeper has not answered yet */
	ZKL_ANSWER_DOUBT,			/* the server's ticket is in doubt */
	ZKL_ANSWER_FAILED,			/* the lock cannot be acquired; see
								 * claim->failure */
	ZKL_ANSWER_FULL,			/* entries are used up */
	ZKL_ANSWER_SHUTDOWN			/* the server shuts down and grants nothing
								 * any more */
} ZklAnswer;

/*
 * Hold the lock, if the server owns it; otherwise ask the worker for the
 * ticket.  The caller has the local lock of the claim's generation, and calls
 * again whenever its latch was set.
 *
 * "about" is the text for the ticket's znode.  The text takes a while to
 * write, so the caller may first try with NULL: then the worker is not asked.
 */
extern ZklAnswer zkl_grant_request(ZklClaim *claim, bool only_tries,
								   const char *about);

/*
 * Hold the lock, if nothing is in the way.  The caller holds the partition, and
 * the local lock of the claim's generation; the server owns the ticket.
 */
extern bool zkl_grant_owned(ZklClaim *claim, int64 now);

/*
 * Leases: hold them if this server has enough of them, and no other claim of
 * this server waits for any.
 */
extern bool zkl_grant_at_once(ZklClaim *claim);

/*
 * Leases: request no more, but go on waiting.  For a backend that has lost the
 * inner mutex.
 */
extern void zkl_grant_stop_asking(ZklClaim *claim);

#endif							/* ZKL_GRANT_H */
