/*-------------------------------------------------------------------------
 *
 * grant.h
 *	  A claim requests its lock, and is granted it.
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

/* What a backend learns when it requests its lock. */
typedef enum ZklAnswer
{
	ZKL_ANSWER_HELD,			/* it holds the lock now */
	ZKL_ANSWER_STALE,			/* the claim's advisory lock is of an old
								 * generation; leases: begin anew */
	ZKL_ANSWER_QUEUED,			/* another claim or client holds the lock, or
								 * goes first */
	ZKL_ANSWER_ASKING,			/* as QUEUED, but the znode in front may
								 * belong to a lingering ticket */
	ZKL_ANSWER_NONE,			/* ZooKeeper has not replied yet */
	ZKL_ANSWER_DOUBT,			/* the server's ticket is in doubt */
	ZKL_ANSWER_FAILED,			/* the lock cannot be acquired; see
								 * claim->failure */
	ZKL_ANSWER_FULL,			/* entries are used up */
	ZKL_ANSWER_SHUTDOWN			/* the server shuts down and grants nothing
								 * more */
} ZklAnswer;

/*
 * Hold the lock if the server owns it; otherwise, if "requests", request the
 * ticket from the worker.  The caller has the advisory lock of the claim's
 * generation.  Once it has requested, it calls again whenever its latch was
 * set.  The first call of a wait does not request: if the server owns the
 * lock, the claim is then granted without work for the worker.
 */
extern ZklAnswer zkl_grant_request(ZklClaim *claim, bool only_tries,
								   bool requests);

/*
 * Hold the lock, if no other claim prevents it.  The caller holds the
 * partition, and the advisory lock of the claim's generation; the server owns
 * the ticket.
 */
extern bool zkl_grant_owned(ZklClaim *claim, int64 now);

/*
 * For leases: hold them at once, if this server has enough of them and no
 * other claim of this server waits for any.
 */
extern bool zkl_grant_at_once(ZklClaim *claim);

/*
 * For leases: keep waiting, but request the leases anew.  Called by a backend
 * that has lost the inner mutex, or has looked at the limit.
 */
extern void zkl_grant_begin_anew(ZklClaim *claim);

#endif							/* ZKL_GRANT_H */
