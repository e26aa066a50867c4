/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  How a backend waits for its server's ticket.
 *
 * Called only by backends.
 *
 * src/wait.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAIT_H
#define ZKL_WAIT_H

#include "claims.h"

/* How long a wait has lasted, and how long without a sign of ZooKeeper. */
typedef struct ZklWait
{
	const ZklWish *wish;
	int			session;		/* of the ticket that it waits for */
	int64		lock_timeout_at;	/* when lock_timeout ends it */
	int64		begun_at;
	int64		asks_until;		/* then others need not answer; 0: not asked */
	int64		silent_since;	/* 0: ZooKeeper has answered */
	bool		impatient;		/* end it when somebody else has the lock */
	const char *about;			/* what znodes shall say, once it is needed */
} ZklWait;

extern void zkl_wait_begin(ZklWait *wait, const ZklWish *wish);

/*
 * Wait until the server's ticket is owned and the lock is held: HELD.  STALE
 * if the local lock is not the right one any more, or, for leases, if the inner
 * mutex was lost ("mutex", else NULL); anything else if the time is over.
 * Raises what ends a wait otherwise (55P03, 57014, 08006 ...).
 */
extern ZklAnswer zkl_wait_for_ticket(ZklWait *wait, ZklClaim *claim,
									 ZklClaim *mutex);

/* Just ask for it, and do not wait at all. */
extern ZklAnswer zkl_wait_ask(ZklWait *wait, ZklClaim *claim);

/* Wait until what was released before is gone; false if the time is over. */
extern bool zkl_wait_until_settled(ZklWait *wait, ZklClaim *claim);

/* Wait until a claim that is held is not in doubt any more, or was lost. */
extern ZklStanding zkl_wait_for_certainty(ZklWait *wait, ZklClaim *claim);

#endif							/* ZKL_WAIT_H */
