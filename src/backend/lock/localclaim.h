/*-------------------------------------------------------------------------
 *
 * localclaim.h
 *	  One backend's claims: the locks that it holds or wants.
 *
 * The counts of a claim are in the backend's own memory.  Only the first
 * acquire and the last release of a lock touch shared memory.  For a semaphore
 * every acquire and release does, because the leases are counted there.
 *
 * A claim has two parts, because a backend that writes may read as well: what
 * it holds exclusively, and what it shares.  A mutex has only the first, a
 * semaphore only the second.
 *
 * Called only by backends.
 *
 * src/backend/lock/localclaim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCALCLAIM_H
#define ZKL_LOCALCLAIM_H

#include "backend/lock/claimtable.h"

/* What one call wants. */
typedef struct ZklLockRequest
{
	const char *path;			/* checked, in UTF-8 */
	ZklMode		mode;
	ZklScope	scope;
	int64		until;			/* of zkl_now(), or ZKL_FOREVER */
	bool		only_tries;		/* "until" is now: a try, which waits for
								 * ZooKeeper's answer only */
	int64		lease_time;		/* the hold limit, in microseconds; 0: none */

	/* LEASE */
	int			limit;			/* 0: the stored one */
	int			quantity;
} ZklLockRequest;

/* The part that a mode is about, and the local lock for it. */
extern ZklPartName zkl_local_claim_part(ZklMode mode);
extern LOCKMODE zkl_local_claim_lock_mode(ZklPartName part);

/*
 * The SQL function that releases the claim's session-level acquires; if the
 * backend both writes and reads, the function for writing.  NULL if the claim
 * has no session-level acquires.
 */
extern const char *zkl_local_claim_release_function(const ZklLocalClaim *claim);

/* How many acquires are there, at session level and in all? */
extern int	zkl_local_claim_session_count(const ZklLocalClaim *claim);
extern int	zkl_local_claim_count(const ZklLocalClaim *claim, ZklPartName part);

/*
 * Report the loss of a claim: raise ZK001 or ZK002, or put that into another
 * error.
 */
extern void zkl_local_claim_report_lost(int level, const ZklLocalClaim *claim);
extern void zkl_local_claim_report_lost_instead(ErrorData *error,
												const ZklLocalClaim *claim);

/*
 * Called before each claim begins.  xact.c sets it, so that no claim exists
 * that the commit guard would not look at.
 */
extern void (*zkl_local_claim_begin_hook) (void);

/* The signal by which the worker tells this backend of a loss; onlost.c sets it. */
extern int	zkl_local_claim_loss_signal;

/*
 * Begin a claim that counts nothing yet.  The caller counts it or ends it, on
 * every way out.  Raises 53400, ZK003, 22023.
 */
extern ZklLocalClaim *zkl_local_claim_begin(const ZklLockRequest *request);

/*
 * Begin a claim that holds its lock, and the local lock, if that needs no wait:
 * the server owns the ticket, and no other backend has or wants the lock.  NULL
 * if not.  The claim counts nothing yet, and the caller must count it without an
 * error.  For a mutex or a read-write lock.
 */
extern ZklLocalClaim *zkl_local_claim_begin_held(const ZklLockRequest *request);

/*
 * Begin a claim that holds the lock together with a detached claim, of this number.
 * Without a local lock, because the detached claim has none.  NULL if that one is not
 * held.  The caller must count the claim without an error, at transaction level.
 */
extern ZklLocalClaim *zkl_local_claim_use(const ZklLockRequest *request, uint64 number);

/*
 * Begin a claim for "use", which returns true if it has counted the claim.  On
 * every other way out the claim ends: a claim without a count would stay until
 * the backend ends.  "use" raises no error after it has counted.
 */
typedef bool (*ZklClaimUse) (ZklLocalClaim *claim, const ZklLockRequest *request,
							 void *arg);
extern bool zkl_local_claim_begin_for(const ZklLockRequest *request, ZklClaimUse use,
									  void *arg);

/*
 * The same for more leases of a semaphore on which this backend has a claim.
 * A backend has at most one such second claim at a time.  The caller ends it,
 * or forgets it after it has been merged with the first.
 */
extern ZklClaim *zkl_local_claim_begin_second(const ZklLockRequest *request);
extern void zkl_local_claim_end_second(void);
extern void zkl_local_claim_forget_second(void);

/* End a claim in whatever state, and release its local lock. */
extern void zkl_local_claim_end(ZklLocalClaim *claim);

/*
 * The same for a claim that was held.  With zklock.synchronous_release, this
 * waits until the znode is gone.  All releases since the last call of
 * renew_deadline share one deadline.
 */
extern void zkl_local_claim_release(ZklLocalClaim *claim);
extern void zkl_local_claim_renew_deadline(void);

/*
 * The generation of the local lock that the caller is about to acquire.  The
 * claim must have none.
 */
extern void zkl_local_claim_set_generation(ZklLocalClaim *claim, uint32 generation);

/* Release the local lock of one part, but keep the claim. */
extern void zkl_local_claim_unlock(ZklLocalClaim *claim, ZklPartName part);

/* A lost claim of which the user has not been told yet; NULL: none. */
extern ZklLocalClaim *zkl_local_claim_find_lost(void);

/* Release the local locks of claims that were lost. */
extern void zkl_local_claim_unlock_lost(void);

/*
 * Raise a NOTICE for each claim whose release has been requested since the
 * last call.
 */
extern void zkl_local_claim_tell_revoked(void);

#endif							/* ZKL_LOCALCLAIM_H */
