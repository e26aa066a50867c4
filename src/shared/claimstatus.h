/*-------------------------------------------------------------------------
 *
 * claimstatus.h
 *	  Whether a claim is good, in doubt or lost; and facts about its lock.
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

/* The state of a claim that was held, as far as the server knows. */
typedef enum ZklClaimStatus
{
	ZKL_STATUS_GOOD,
	ZKL_STATUS_DOUBT,			/* good again if the session turns out to live */
	ZKL_STATUS_LOST				/* or its hold limit has passed */
} ZklClaimStatus;

/*
 * Whether a claim that was held is good, in doubt or lost.  Good means that
 * the session certainly lives for at least "margin" more microseconds, and
 * that the hold limit does not pass before that.
 */
extern ZklClaimStatus zkl_claim_status(ZklClaim *claim, int64 margin);

/*
 * The same.  If the claim is good, but only up to a moment before *until,
 * this sets *until to that moment.
 */
extern ZklClaimStatus zkl_claim_status_until(ZklClaim *claim, int64 margin,
											 int64 *until);

/* Why and when was a lost claim lost? */
extern ZklLoss zkl_claim_status_loss(ZklClaim *claim, int64 *lost_at);

/*
 * Has another client requested the release of the lock that this claim holds?
 */
extern bool zkl_claim_status_is_revoked(ZklClaim *claim);

/*
 * Is no znode of the lock on its way to be deleted?  If false, the claim's
 * latch will be set when the znode is gone.
 */
extern bool zkl_claim_status_is_settled(ZklClaim *claim);

/*
 * Is a znode of the lock on its way to be deleted?  The caller needs no
 * claim.
 */
extern bool zkl_claim_status_is_releasing(const char *path);

/*
 * Is it known that the path is not another kind of lock?  A claim that gets
 * leases must find that out, unless another claim has done so since this
 * server first had leases.  set_surveyed notes that it is known, if the claim
 * is still held.
 */
extern bool zkl_claim_status_is_surveyed(ZklClaim *claim);
extern void zkl_claim_status_set_surveyed(ZklClaim *claim);

/*
 * As far as the worker knows, does this claim certainly wait for other
 * clients?  If so (WAITS), write the czxid and the name of the znode with
 * which this server queues for the claim's lock; for several leases, those of
 * the newest.  SOON: the claim may be granted in a moment.  DOUBT: the
 * session of the lock is not in touch with ZooKeeper.
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
 * Is this znode a ticket of this server, for the path or for one of its
 * leases?  If so, write the text about the backend that now holds the lock by
 * it, or waits for it.  The text is empty if there is no such backend.
 */
extern bool zkl_claim_status_describe(const char *path, const char *znode,
									  char about[ZKL_ABOUT_SIZE]);

/*
 * What this server knows, without any request, about the client for which a
 * waiting claim waits.
 */
typedef struct ZklObstacle
{
	bool		holds;			/* true: it holds the lock; false: it is just
								 * before the claim in the queue */
	char		about[ZKL_ABOUT_SIZE];	/* the text of its znode; empty if not
										 * known */
	char		front[ZKL_CHILD_SIZE];	/* the znode of another client that
										 * holds the lock; empty if not known */
} ZklObstacle;

extern ZklObstacle zkl_claim_status_obstacle(const ZklClaim *claim);

/*
 * ZooKeeper has reported that this znode of a lock or semaphore is gone.  If
 * it is that of an owned ticket, the claims that hold it count as lost from
 * now on.  The worker will find out later.
 */
extern void zkl_claim_status_note_deleted(const char *path, const char *znode);

#endif							/* ZKL_CLAIMSTATUS_H */
