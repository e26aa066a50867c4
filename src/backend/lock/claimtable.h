/*-------------------------------------------------------------------------
 *
 * claimtable.h
 *	  Where a backend finds its claims, by path.
 *
 * The second claim of a backend, for more leases of a semaphore, has the path
 * of the first, so it is not in the table.
 *
 * Called only by backends.
 *
 * src/backend/lock/claimtable.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLAIMTABLE_H
#define ZKL_CLAIMTABLE_H

#include "lib/ilist.h"

#include "backend/lock/locallock.h"
#include "shared/claim.h"

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
	int			xact_record;	/* index of its latest record; -1 if none */
} ZklPart;

typedef struct ZklLocalClaim
{
	char		path[ZKL_PATH_SIZE];
	uint32		hash;			/* of the path, in the lock table */
	LOCKTAG		tag;			/* of the local lock ... */
	uint32		generation;		/* ... and the generation in it */
	bool		crowded;		/* the last acquire did not get the lock at
								 * once */
	dlist_node	table_link;		/* in the table, or among the free ones */
	ZklClaim   *shared;
	ZklKind		kind;
	int			limit;			/* of a semaphore; 0: the stored one */
	ZklPart		parts[ZKL_PARTS];
	int			run_level;		/* the session-level run of a job ends when
								 * fewer acquires than this are left; 0 if
								 * there is no run */
	bool		run_failed;		/* ... and a release does not mean that it is
								 * done: the last transaction of the run was
								 * rolled back, or DISCARD ALL releases the
								 * lock */
	bool		told_revoked;	/* the user was told that its release has been
								 * requested ... */
	bool		told_lost;		/* ... or why its statement was cancelled */
	dlist_node	session_link;	/* linked while a part has session-level
								 * acquires */
} ZklLocalClaim;

/* This backend's claim on a path, or NULL. */
extern ZklLocalClaim *zkl_claim_table_find(const char *path);

/*
 * Find memory for a claim on a path, and fill in the path and all fields
 * before "table_link".  If the memory was last used for the same path, the
 * other fields are as they were.  Raises an error if memory has run out.  The
 * claim is not in the table: the caller adds it before the next call, or does
 * not use it.
 */
extern ZklLocalClaim *zkl_claim_table_prepare(const char *path);

/*
 * Add the claim that was prepared, or remove a claim.  These raise no error.
 */
extern void zkl_claim_table_add(ZklLocalClaim *claim);
extern void zkl_claim_table_remove(ZklLocalClaim *claim);

/* How many claims are in the table? */
extern int	zkl_claim_table_number(void);

/* Call "visitor" for each claim.  It may not add or remove any. */
typedef void (*ZklClaimVisitor) (ZklLocalClaim *claim, void *arg);
extern void zkl_claim_table_visit(ZklClaimVisitor visitor, void *arg);

/* The backend ends: forget all claims. */
extern void zkl_claim_table_forget(void);

#endif							/* ZKL_CLAIMTABLE_H */
