/*-------------------------------------------------------------------------
 *
 * claims.h
 *	  One backend's claims: what it holds or wants, how often, for how long.
 *
 * The counts of a claim are this backend's own business.  Only the first
 * acquire and the last release of a lock touch shared memory.
 *
 * Called only by backends.
 *
 * src/claims.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLAIMS_H
#define ZKL_CLAIMS_H

#include "locallock.h"
#include "sharedclaim.h"

typedef struct ZklLocalClaim
{
	char		path[ZKL_PATH_SIZE];	/* hash key */
	ZklClaim   *shared;
	LOCKTAG		tag;			/* of the local lock */
	bool		locked;			/* the local lock is held ... */
	ZklScope	lock_scope;		/* ... at this level */
	int			session_count;
	int			xact_count;
	int			xact_record;	/* its latest record; -1: none */
	dlist_node	session_link;	/* while session_count > 0 */
} ZklLocalClaim;

/* This backend's claim on a path, or NULL. */
extern ZklLocalClaim *zkl_claims_find(const char *path);

/*
 * Begin a claim that counts nothing yet.  Its maker counts it or ends it, on
 * every way out.  Raises 53400.
 */
extern ZklLocalClaim *zkl_claims_begin(const char *path);

/* Count one more acquire of a claim that is held. */
extern void zkl_claims_count(ZklLocalClaim *claim, ZklScope scope);

/* Take one session count off; ends the claim when nothing is left. */
extern void zkl_claims_uncount_session(ZklLocalClaim *claim);

/* End a claim in whatever state, with its local lock. */
extern void zkl_claims_end(ZklLocalClaim *claim);

/* Any claims at all?  The first claim with session scope, or NULL. */
extern bool zkl_claims_any(void);
extern ZklLocalClaim *zkl_claims_first_session(void);

/* Call for each claim; "visitor" may not begin or end any. */
typedef void (*ZklClaimVisitor) (ZklLocalClaim *claim, void *arg);
extern void zkl_claims_visit(ZklClaimVisitor visitor, void *arg);

/*
 * Has DISCARD ALL or pg_advisory_unlock_all() dropped the local locks of
 * session scope?  Then that scope of all claims ends.
 */
extern void zkl_claims_sweep(void);

/* Ends of transactions and savepoints. */
extern void zkl_claims_end_xact(void);
extern void zkl_claims_abort_savepoint(int nest_level);
extern void zkl_claims_release_savepoint(int nest_level);

#endif							/* ZKL_CLAIMS_H */
