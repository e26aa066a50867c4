/*-------------------------------------------------------------------------
 *
 * sharedclaim.h
 *	  A claim in the lock table: it begins, changes, and ends.
 *
 * The states and the arrows are in lockentry.h.  All functions lock the
 * entry's partition themselves, so the caller holds none.  None raises an
 * error, except zkl_shared_claim_claimant.
 *
 * Called only by backends.
 *
 * src/shared/sharedclaim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SHAREDCLAIM_H
#define ZKL_SHAREDCLAIM_H

#include "shared/claimstatus.h"
#include "shared/locktable.h"

/* What a backend is told that begins a claim. */
typedef enum ZklBeginning
{
	ZKL_BEGUN,
	ZKL_BEGIN_FULL,				/* entries or claims are used up */
	ZKL_BEGIN_OTHER_KIND,		/* the path is in use as another kind of lock */
	ZKL_BEGIN_OTHER_LIMIT		/* the semaphore is in use with another limit */
} ZklBeginning;

/* Who claims: this process, with the text for its znodes. */
typedef struct ZklClaimant
{
	const char *about;			/* shorter than ZKL_ABOUT_SIZE */
	int			loss_signal;
	bool		superuser;
} ZklClaimant;

/* This reads a catalog, and so may raise an error or serve an interrupt. */
extern ZklClaimant zkl_shared_claim_claimant(const char *about,
											 int loss_signal);

/*
 * Begin a claim in state WAITING.  "limit" and "quantity" are for semaphores.
 * If the semaphore is in use with another limit, this writes that limit to
 * "limit" and returns ZKL_BEGIN_OTHER_LIMIT.
 */
extern ZklBeginning zkl_shared_claim_begin(const char *path, ZklMode mode,
										   int *limit, int quantity,
										   const ZklClaimant *claimant,
										   ZklClaim **claim);

/*
 * Begin a claim that is granted at once, in state HELD: the server owns the
 * ticket, and there are no other claims.  Otherwise this does nothing, and
 * returns NULL.  The caller has the local lock of this generation.  For a mutex
 * or a read-write lock.
 */
extern ZklClaim *zkl_shared_claim_begin_held(const char *path, uint32 hash,
											 ZklMode mode, uint32 generation,
											 const ZklClaimant *claimant);

/*
 * The generation of the local lock that the backend must take now.  The claim
 * waits in this generation until the backend calls again.
 */
extern uint32 zkl_shared_claim_generation(ZklClaim *claim);

/*
 * Call these around a wait for the local lock.  If the worker begins a new
 * generation meanwhile, it cancels the wait, because the old local lock's
 * holder may be idle for hours.  begin returns false if there is a new
 * generation already. end returns true if a cancel was sent, which may not
 * have arrived yet.
 */
extern bool zkl_shared_claim_begin_local_wait(ZklClaim *claim);
extern bool zkl_shared_claim_end_local_wait(ZklClaim *claim);

/*
 * Leases: move those of a second claim to the first, and end the second.
 * False if either claim was lost; then nothing is done.
 */
extern bool zkl_shared_claim_merge(ZklClaim *claim, ZklClaim *second);

/* Leases: release some of them. */
extern void zkl_shared_claim_release_leases(ZklClaim *claim, int quantity);

/* From writing to reading.  No other client can write in between. */
extern void zkl_shared_claim_downgrade(ZklClaim *claim);

/* Set the claim's hold limit, a moment of zkl_now(); 0: none. */
extern void zkl_shared_claim_set_lease_time(ZklClaim *claim, int64 lease_until);

/*
 * A job's run: the claim is for it from now on, which ends it as failed at its
 * own end.  False if the claim was lost; then the run has ended, too.  end_run
 * ends it before that, if it has not ended.
 */
extern bool zkl_shared_claim_set_run(ZklClaim *claim, int slot);
extern void zkl_shared_claim_end_run(ZklClaim *claim, bool done);

/* End a claim, in whatever state, and free it. */
extern void zkl_shared_claim_end(ZklClaim *claim);

#endif							/* ZKL_SHAREDCLAIM_H */
