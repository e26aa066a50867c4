/*-------------------------------------------------------------------------
 *
 * claimstatus.h
 *	  How a claim stands: good, in doubt or lost; and facts about its lock.
 *
 * All functions lock the entry's partition themselves, so the caller holds
 * none.  None raises an error.
 *
 * Called only by backends.
 *
 * src/shared/claimstatus.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLAIMSTATUS_H
#define ZKL_CLAIMSTATUS_H

#include "shared/locktable.h"

/* What became of a claim that was held. */
typedef enum ZklClaimStatus
{
	ZKL_STATUS_GOOD,
	ZKL_STATUS_DOUBT,			/* good again if the session comes back */
	ZKL_STATUS_LOST				/* or its hold limit has passed */
} ZklClaimStatus;

/*
 * How does a claim stand that was held?  Good means that the session certainly
 * lives for at least "margin" more microseconds, and the hold limit does not
 * pass before that.
 */
extern ZklClaimStatus zkl_claim_status(ZklClaim *claim, int64 margin);

/* Why and when was a lost claim lost? */
extern ZklLoss zkl_claim_status_loss(ZklClaim *claim, int64 *lost_at);

/* Has the release of the lock that this claim holds been requested? */
extern bool zkl_claim_status_is_revoked(ZklClaim *claim);

/*
 * True if no znode of the lock is on its way to be deleted.  If false, the
 * claim's latch will be set when the znode is gone.
 */
extern bool zkl_claim_status_is_settled(ZklClaim *claim);

/* Is a znode of the lock on its way to be deleted?  No claim is needed to ask. */
extern bool zkl_claim_status_is_releasing(const char *path);

/*
 * Is it known that the path is no other kind of lock?  A claim that gets
 * leases must find that out, unless another claim of this server has done so
 * since the server has had leases.  set_surveyed notes it, if the claim is
 * still held.
 */
extern bool zkl_claim_status_is_surveyed(ZklClaim *claim);
extern void zkl_claim_status_set_surveyed(ZklClaim *claim);

/*
 * Does this claim certainly wait for other clients, as far as the worker has
 * heard?  Then write the czxid and the name of the znode by which this server
 * queues for the claim's lock; of several leases, the newest.  SOON: it may be
 * granted in a moment.  DOUBT: the session of the lock is not in touch with
 * ZooKeeper.
 */
typedef enum ZklTicketStatus
{
	ZKL_TICKET_WAITS,
	ZKL_TICKET_SOON,
	ZKL_TICKET_DOUBT
} ZklTicketStatus;

extern ZklTicketStatus zkl_claim_status_ticket(ZklClaim *claim, int64 *czxid,
											   char znode[ZKL_ZNODE_SIZE]);

/*
 * Is this znode a ticket of this server, for the path or one of its leases?
 * Then write the text about the backend that holds the lock by it now, or
 * waits for it.  The text is empty if no backend does.
 */
extern bool zkl_claim_status_describe(const char *path, const char *znode,
									  char about[ZKL_ABOUT_SIZE]);

/*
 * What is known, without any request, of the client that keeps a waiting claim
 * from its lock.
 */
typedef struct ZklObstacle
{
	bool		holds;			/* it holds the lock; else it is just before
								 * the claim in the queue */
	char		about[ZKL_ABOUT_SIZE];	/* the text of its znode; empty: not
										 * known */
	char		front[ZKL_CHILD_SIZE];	/* the znode of another client that
										 * holds the lock; empty: not known */
} ZklObstacle;

extern ZklObstacle zkl_claim_status_obstacle(const ZklClaim *claim);

#endif							/* ZKL_CLAIMSTATUS_H */
