/*-------------------------------------------------------------------------
 *
 * claims.h
 *	  One backend's claims: what it holds or wants.
 *
 * The counts of a claim are this backend's own business.  Only the first
 * acquire and the last release of a lock touch shared memory (and every one of
 * a semaphore, whose leases are counted one by one).
 *
 * A claim has two parts, because who writes may read as well: what it holds
 * exclusively, and what it shares.  A mutex has only the first, a semaphore only
 * the second.
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

/* What one call wants. */
typedef struct ZklWish
{
	const char *path;			/* checked, in UTF-8 */
	ZklMode		mode;
	ZklScope	scope;
	int64		until;			/* of zkl_now(), or ZKL_FOREVER */
	bool		only_tries;		/* "until" is now: ask, but do not wait */
	int64		lease_time;		/* in microseconds; 0: no limit */

	/* LEASE */
	int			limit;
	int			quantity;
} ZklWish;

typedef enum ZklPartName
{
	ZKL_EXCLUSIVE,
	ZKL_SHARED
} ZklPartName;

#define ZKL_PARTS	2

typedef struct ZklPart
{
	bool		locked;			/* the local lock is held in this mode ... */
	ZklScope	lock_scope;		/* ... at this level */
	int			session_count;
	int			xact_count;
	int			xact_record;	/* its latest record; -1: none */
} ZklPart;

typedef struct ZklLocalClaim
{
	char		path[ZKL_PATH_SIZE];	/* hash key */
	ZklClaim   *shared;
	ZklKind		kind;
	int			limit;			/* of a semaphore */
	LOCKTAG		tag;			/* of the local lock */
	ZklPart		parts[ZKL_PARTS];
	bool		told_revoked;	/* the user was told that it was revoked ... */
	bool		told_lost;		/* ... or why its statement was cancelled */
	dlist_node	session_link;	/* while any part has session scope */
} ZklLocalClaim;

/* The part that a mode is about, and the local lock for it. */
extern ZklPartName zkl_claims_part(ZklMode mode);
extern LOCKMODE zkl_claims_lock_mode(ZklPartName part);

/*
 * The SQL function that releases what is held with session scope, of a writer
 * that reads as well the one for writing; NULL: nothing is held so.
 */
extern const char *zkl_claims_release_function(const ZklLocalClaim *claim);

/* This backend's claim on a path, or NULL. */
extern ZklLocalClaim *zkl_claims_find(const char *path);

/*
 * Begin a claim that counts nothing yet.  Its maker counts it or ends it, on
 * every way out.  Raises 53400, ZK003, 22023.
 */
extern ZklLocalClaim *zkl_claims_begin(const ZklWish *wish);

/*
 * The same for more leases of a semaphore that this backend has a claim on:
 * there is one such second claim at a time, and its maker ends it, or forgets it
 * when it has been merged with the first.
 */
extern ZklClaim *zkl_claims_begin_second(const ZklWish *wish);
extern void zkl_claims_end_second(void);
extern void zkl_claims_forget_second(void);

/* End a claim in whatever state, with its local lock. */
extern void zkl_claims_end(ZklLocalClaim *claim);

/*
 * The same for one that was had; waits where zklock.synchronous_release says so.
 * All releases since the last call of renew_deadline share one deadline.
 */
extern void zkl_claims_release(ZklLocalClaim *claim);
extern void zkl_claims_renew_deadline(void);

/* Give back its local lock, but not the claim. */
extern void zkl_claims_unlock(ZklLocalClaim *claim, ZklPartName part);

/* Any claims at all?  How many? */
extern bool zkl_claims_any(void);
extern int	zkl_claims_number(void);

/* Call for each claim; "visitor" may not begin or end any. */
typedef void (*ZklClaimVisitor) (ZklLocalClaim *claim, void *arg);
extern void zkl_claims_visit(ZklClaimVisitor visitor, void *arg);

/* A claim that was lost, and the user has not been told yet; NULL: none. */
extern ZklLocalClaim *zkl_claims_find_lost(void);

/*
 * See what has become of claims and local locks behind our back.  Claims may
 * end.
 */
extern void zkl_claims_sweep(void);

/* A NOTICE for each claim that somebody has asked for since the last time. */
extern void zkl_claims_tell_revoked(void);

#endif							/* ZKL_CLAIMS_H */
