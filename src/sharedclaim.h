/*-------------------------------------------------------------------------
 *
 * sharedclaim.h
 *	  A claim in the lock table: it begins, holds its lock, and ends.
 *
 * The states and the arrows are in locktable.h.  All functions lock the
 * entry's partition themselves; none raises an error.
 *
 * Called only by backends.
 *
 * src/sharedclaim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SHAREDCLAIM_H
#define ZKL_SHAREDCLAIM_H

#include "locktable.h"

/* What a claim that wants to hold its lock is told. */
typedef enum ZklAnswer
{
	ZKL_ANSWER_HELD,			/* it does now */
	ZKL_ANSWER_STALE,			/* its local lock is of an old generation */
	ZKL_ANSWER_QUEUED,			/* somebody else holds the lock */
	ZKL_ANSWER_NONE,			/* ZooKeeper was asked; no answer yet */
	ZKL_ANSWER_DOUBT,			/* the server's ticket is in doubt */
	ZKL_ANSWER_FAILED,			/* it cannot be had; see claim->failure */
	ZKL_ANSWER_SHUTDOWN			/* nothing is granted any more */
} ZklAnswer;

/* What became of a claim that was held. */
typedef enum ZklStanding
{
	ZKL_STANDING_GOOD,
	ZKL_STANDING_DOUBT,			/* good again if the session comes back */
	ZKL_STANDING_LOST
} ZklStanding;

/* Begin to acquire.  NULL when entries or claims are used up. */
extern ZklClaim *zkl_shared_begin(const char *path);

/*
 * The generation of the local lock to take now.  The claim waits in this
 * generation until it asks again.
 */
extern uint32 zkl_shared_generation(ZklClaim *claim);

/*
 * Hold the lock, if the server owns it; otherwise see to it that the worker
 * gets it.  The caller has the local lock of the claim's generation, and
 * calls again when its latch was set.
 *
 * "about" is what the ticket's znode shall say.  It takes a while to write,
 * so the caller may first try with NULL: then the worker is not asked.
 */
extern ZklAnswer zkl_shared_hold(ZklClaim *claim, bool only_tries,
								 const char *about);

/*
 * How does a claim stand that was held?  Good means: until the session has
 * "margin" microseconds more to live, at least.
 */
extern ZklStanding zkl_shared_standing(ZklClaim *claim, int64 margin);

/* End a claim, in whatever state; frees it. */
extern void zkl_shared_end(ZklClaim *claim);

/*
 * The same for a backend that wants to see the znode gone: true if it has to
 * wait, on its latch, until zkl_shared_is_released says so, and then to call
 * zkl_shared_leave.  False: the claim is gone already.
 */
extern bool zkl_shared_end_and_stay(ZklClaim *claim);
extern bool zkl_shared_is_released(ZklClaim *claim);
extern void zkl_shared_leave(ZklClaim *claim);

#endif							/* ZKL_SHAREDCLAIM_H */
