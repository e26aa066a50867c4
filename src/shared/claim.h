/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  A claim in the lock table: how it begins, changes, and ends; and whether
 *	  it is good, in doubt or lost.
 *
 * lockentry.h has the states and their changes.  All functions lock the
 * entry's partition themselves, so the caller holds none.  None raises an
 * error, except zkl_claim_claimant.
 *
 * Called only by backends.
 *
 * src/shared/claim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLAIM_H
#define ZKL_CLAIM_H

#include "shared/locktable.h"

/* What a backend learns when it begins a claim. */
typedef enum ZklBeginning
{
	ZKL_BEGUN,
	ZKL_BEGIN_FULL,				/* entries or claims are used up */
	ZKL_BEGIN_OTHER_KIND,		/* the path is in use as another kind of lock */
	ZKL_BEGIN_OTHER_LIMIT,		/* the semaphore is in use with another limit */

	/* a detached claim */
	ZKL_BEGIN_OWNERLESS,		/* the claims process does not run */
	ZKL_BEGIN_BOUND				/* the role has its share of detached claims */
} ZklBeginning;

/* The state of a claim that was held, as far as the server knows. */
typedef enum ZklClaimStatus
{
	ZKL_STATUS_GOOD,
	ZKL_STATUS_DOUBT,			/* good again if the session turns out to live */
	ZKL_STATUS_LOST				/* also if its hold limit has passed */
} ZklClaimStatus;

/*
 * The process that makes the claim, with the text for its znodes; of a detached
 * claim, the claims process.
 */
typedef struct ZklClaimant
{
	int			proc_number;
	int			pid;
	int			detached;		/* as in ZklClaim */
	const char *owner_text;		/* shorter than ZKL_OWNER_TEXT_SIZE */
	int			loss_signal;
	bool		superuser;		/* a superuser has or may use the claim */
} ZklClaimant;

/*
 * Fill in a claimant for this process.  This reads a catalog, and so may
 * raise an error or process an interrupt.
 */
extern ZklClaimant zkl_claim_claimant(const char *owner_text,
									  int loss_signal);

/*
 * Begin a claim in state WAITING.  "limit" (0: the stored one) and "quantity"
 * are for semaphores.  If the semaphore is in use with another limit, this
 * writes that limit to "limit" and returns ZKL_BEGIN_OTHER_LIMIT.
 */
extern ZklBeginning zkl_claim_begin(const char *path, ZklMode mode,
									int *limit, int quantity,
									const ZklClaimant *claimant,
									ZklClaim **claim);

/*
 * Begin a claim that is granted at once, in state HELD: the server owns the
 * ticket, and there are no other claims.  Otherwise this does nothing, and
 * returns NULL.  The caller has the advisory lock of this generation.  For a mutex
 * or a read-write lock.
 */
extern ZklClaim *zkl_claim_begin_held(const char *path, uint32 hash,
									  ZklMode mode, uint32 generation,
									  const ZklClaimant *claimant);

/*
 * The generation of the advisory lock that the backend must take now.  The claim
 * waits in this generation until the backend calls this again.
 */
extern uint32 zkl_claim_generation(ZklClaim *claim);

/*
 * Call these around a wait for the advisory lock.  If the worker begins a new
 * generation meanwhile, it ends the wait by a signal, because the old advisory
 * lock's holder may be idle for hours.  begin returns false if there is
 * already a new generation.  A signal that was sent before the call of end
 * may arrive after it.
 */
extern bool zkl_claim_begin_local_wait(ZklClaim *claim);
extern void zkl_claim_end_local_wait(ZklClaim *claim);

/*
 * Move the leases of a second claim to the first, and end the second.  False
 * if either claim was lost; then nothing is done.
 */
extern bool zkl_claim_merge(ZklClaim *claim, ZklClaim *second);

/* For leases: release some of them. */
extern void zkl_claim_release_leases(ZklClaim *claim, int quantity);

/*
 * Change the claim from writing to reading.  No other client can write in
 * between.
 */
extern void zkl_claim_downgrade(ZklClaim *claim);

/* Set the claim's hold limit, as a moment of zkl_now(); 0 for none. */
extern void zkl_claim_set_hold_limit(ZklClaim *claim, int64 hold_until);

/*
 * For a detached claim.  renew: set its hold limit, and the hold limit of the
 * claims that use it; false if it was lost.  use: begin a claim of this
 * process, which is HELD on the same ticket with the same token and hold
 * limit.  So the ticket stays until both have ended, in whatever order.
 * NULL: the detached claim is not held, or there is no room for another
 * claim.
 */
extern bool zkl_claim_renew(ZklClaim *claim, int64 hold_until);
extern ZklClaim *zkl_claim_use(ZklClaim *detached, const ZklClaimant *claimant);

/*
 * The lock that a session of this server holds, for a transaction of another
 * one that commits under it (use.h).  Both functions look at the hold, and
 * write what there is to know.  If the hold is good, and its ticket may serve
 * this session, use_hold also counts the use, and begins a claim of this
 * process, which is HELD on the same ticket with the same token.  The claim
 * has a place of its own, and ends like any other claim.  NULL: no claim has
 * begun.  Without a claimant, use_hold only counts.
 */
typedef struct ZklHoldSearch
{
	const char *path;
	uint32		hash;
	int64		token;			/* token of the hold; 0: the first hold after
								 * "after" */
	int64		after;			/* if "token" is 0, skip holds up to this
								 * token */
	int64		margin;			/* as for zkl_claim_status() */
	bool		superuser;		/* for a superuser's session */
} ZklHoldSearch;

typedef struct ZklHold
{
	bool		is_semaphore;	/* the path is in use as a semaphore */
	int64		token;			/* 0: there is no such hold, and the fields
								 * below have no meaning */
	Oid			role;			/* of the session that has the hold */
	bool		superuser;		/* a superuser's session holds it */
	ZklClaimStatus status;
	int64		looked_at;		/* when "status" was read */
	int64		until;			/* GOOD: up to this moment */
	ZklLoss		loss;			/* LOST: why and when */
	int64		lost_at;
	bool		excludes;		/* its ticket serves no superuser */
} ZklHold;

extern void zkl_claim_look_at_hold(const ZklHoldSearch *search, ZklHold *hold);
extern ZklClaim *zkl_claim_use_hold(const ZklHoldSearch *search,
									const ZklClaimant *claimant, ZklHold *hold);

/*
 * set_run: from now on the claim is for this run of a job, whose start the
 * worker writes now; and when the claim ends, the run ends as failed.  False
 * if the claim was lost; then the run has ended, too.  end_run: end the run
 * now, before its claim, if it has not ended.
 */
extern bool zkl_claim_set_run(ZklClaim *claim, int slot);
extern void zkl_claim_end_run(ZklClaim *claim, bool done);

/*
 * End the run of a claim, if it has one, and set *run to ZKL_RUN_NONE.
 * "lost": other clients may have had the lock since.  The caller has locked
 * the claim's partition.  jobruns.c sets this.
 */
extern void (*zkl_claim_end_run_hook) (int *run, bool done, bool lost);

/* End a claim, in whatever state, and free it. */
extern void zkl_claim_end(ZklClaim *claim);

/*
 * The status of a claim, and facts about its lock
 */

/*
 * Whether a claim that was held is good, in doubt or lost.  Good means that
 * the session certainly lives for at least "margin" more microseconds, and
 * that the hold limit does not pass before that.
 */
extern ZklClaimStatus zkl_claim_status(ZklClaim *claim, int64 margin);

/*
 * Like zkl_claim_status.  If the claim is good, but only up to a moment before
 * *until, this sets *until to that moment.
 */
extern ZklClaimStatus zkl_claim_status_until(ZklClaim *claim, int64 margin,
											 int64 *until);

/* Why and when was a lost claim lost? */
extern ZklLoss zkl_claim_status_loss(ZklClaim *claim, int64 *lost_at);

/*
 * Has another client requested the release of the lock that this claim holds?
 */
extern bool zkl_claim_status_is_revoked(ZklClaim *claim);

/* How often was the claim used by other sessions' transactions? */
extern int64 zkl_claim_status_uses(const ZklClaim *claim);

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
 * If the claim is still held, note that the path is no other kind of lock.  A
 * backend that gets leases must look for other kinds, unless another claim has
 * done so since this server first had leases ("surveyed" of the semaphore's
 * entry).
 */
extern void zkl_claim_mark_surveyed(ZklClaim *claim);

/*
 * As far as the worker knows, does this claim certainly wait for other
 * clients?  If so (WAITS), write the czxid and the name of the znode with
 * which this server queues for the claim's lock; for several leases, of the
 * newest one.  SOON: the claim may be granted in a moment.  DOUBT: the session
 * of the lock is not in touch with ZooKeeper.
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
									  char owner_text[ZKL_OWNER_TEXT_SIZE]);

/*
 * What this server knows, without any request, about the client for which a
 * waiting claim waits.
 */
typedef struct ZklObstacle
{
	bool		holds;			/* true: it holds the lock; false: it is just
								 * before the claim in the queue */
	char		owner_text[ZKL_OWNER_TEXT_SIZE];	/* the text of its znode;
													 * empty if not known */
	char		front[ZKL_CHILD_SIZE];	/* the znode of another client that
										 * holds the lock; empty if not known */
} ZklObstacle;

extern ZklObstacle zkl_claim_status_obstacle(const ZklClaim *claim);

/*
 * ZooKeeper has reported that this znode of a lock or semaphore is gone.  If
 * an owned ticket had it, the claims that hold the ticket count as lost from
 * now on.  The worker will find out later.
 */
extern void zkl_claim_mark_deleted(const char *path, const char *znode);

#endif							/* ZKL_CLAIM_H */
