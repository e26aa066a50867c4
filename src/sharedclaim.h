/*-------------------------------------------------------------------------
 *
 * sharedclaim.h
 *	  A claim in the lock table: it begins, holds its lock, and ends.
 *
 * The states and the arrows are in locktable.h.  All functions lock the
 * entry's partition themselves; none raises an error, but for zkl_shared_begin,
 * which reads a catalog before it begins anything.
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
#include "standing.h"

/* What a claim that begins is told. */
typedef enum ZklBeginning
{
	ZKL_BEGUN,
	ZKL_BEGIN_FULL,				/* entries or claims are used up */
	ZKL_BEGIN_OTHER_KIND,		/* the path is in use as another kind of lock */
	ZKL_BEGIN_OTHER_LIMIT		/* the semaphore is in use with another limit */
} ZklBeginning;

/* What a claim that wants to hold its lock is told. */
typedef enum ZklAnswer
{
	ZKL_ANSWER_HELD,			/* it does now */
	ZKL_ANSWER_STALE,			/* its local lock is of an old generation */
	ZKL_ANSWER_QUEUED,			/* somebody else holds the lock */
	ZKL_ANSWER_ASKING,			/* that is not sure: its ticket may linger */
	ZKL_ANSWER_NONE,			/* ZooKeeper was asked; no answer yet */
	ZKL_ANSWER_DOUBT,			/* the server's ticket is in doubt */
	ZKL_ANSWER_FAILED,			/* it cannot be had; see claim->failure */
	ZKL_ANSWER_FULL,			/* entries are used up */
	ZKL_ANSWER_SHUTDOWN			/* nothing is granted any more */
} ZklAnswer;

/*
 * Begin to acquire.  "limit" and "quantity" are for semaphores; where the limit
 * in use is another one, that is written to "limit".
 */
extern ZklBeginning zkl_shared_begin(const char *path, ZklMode mode,
									 int *limit, int quantity,
									 const char *about, ZklClaim **claim);

/*
 * The generation of the local lock to take now.  The claim waits in this
 * generation until it asks again.
 */
extern uint32 zkl_shared_generation(ZklClaim *claim);

/*
 * Around a wait for the local lock: the worker interrupts it, as by a cancel,
 * when there is a new generation.  False: there is one already.  The second
 * returns true if a cancel was sent, which may not have arrived yet.
 */
extern bool zkl_shared_begin_local_wait(ZklClaim *claim);
extern bool zkl_shared_end_local_wait(ZklClaim *claim);

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
 * Leases of a semaphore: hold them if that takes nothing but what this server
 * has and nobody in it waits for.
 */
extern bool zkl_shared_hold_at_once(ZklClaim *claim);

/*
 * Leases: ask for no more, but go on waiting.  For who has lost the inner mutex.
 */
extern void zkl_shared_stop_asking(ZklClaim *claim);

/*
 * Leases: add those of a second claim to the first, which ends the second.
 * False, and nothing is done, if either was lost.
 */
extern bool zkl_shared_merge(ZklClaim *claim, ZklClaim *second);

/* Leases: release some of them. */
extern void zkl_shared_release_leases(ZklClaim *claim, int quantity);

/* From writing to reading.  Nobody can write in between. */
extern void zkl_shared_downgrade(ZklClaim *claim);

/* Set the end of the claim's lease time, a moment of zkl_now(). */
extern void zkl_shared_set_lease_time(ZklClaim *claim, int64 lease_until);

/* End a claim, in whatever state; frees it. */
extern void zkl_shared_end(ZklClaim *claim);

#endif							/* ZKL_SHAREDCLAIM_H */
