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
 * src/backend/claimtable.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLAIMTABLE_H
#define ZKL_CLAIMTABLE_H

#include "lib/ilist.h"

#include "backend/locallock.h"
#include "shared/sharedclaim.h"

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
	char		path[ZKL_PATH_SIZE];
	uint32		hash;			/* of the path, in the lock table */
	LOCKTAG		tag;			/* of the local lock ... */
	uint32		generation;		/* ... and the generation in it */
	bool		crowded;		/* the last acquire found that the lock was
								 * not to be had at once */
	dlist_node	table_link;		/* in the table, or among the free ones */
	ZklClaim   *shared;
	ZklKind		kind;
	int			limit;			/* of a semaphore */
	ZklPart		parts[ZKL_PARTS];
	int			run_level;		/* session-level run of a job: it ends when
								 * fewer acquires than this are left; 0: none */
	bool		run_failed;		/* ... and the last transaction of that run
								 * was rolled back */
	bool		told_revoked;	/* the user was told that its release was
								 * requested ... */
	bool		told_lost;		/* ... or why its statement was cancelled */
	dlist_node	session_link;	/* linked while a part has session-level
								 * acquires */
} ZklLocalClaim;

/* This backend's claim on a path, or NULL. */
extern ZklLocalClaim *zkl_claim_table_find(const char *path);

/*
 * Find memory for a claim on a path, and fill in the path and all that is above
 * "table_link".  If it is the memory of the last claim on the path, that is as it was.
 * Raises an error if memory has run out.  The claim is not in the table: the
 * caller adds it before the next call, or leaves it.
 */
extern ZklLocalClaim *zkl_claim_table_prepare(const char *path);

/* Add the claim that was prepared, or remove one.  No error can come. */
extern void zkl_claim_table_add(ZklLocalClaim *claim);
extern void zkl_claim_table_remove(ZklLocalClaim *claim);

/* How many claims are in the table? */
extern int	zkl_claim_table_number(void);

/* Call "visitor" for each claim.  It may not add or remove any. */
typedef void (*ZklClaimVisitor) (ZklLocalClaim *claim, void *arg);
extern void zkl_claim_table_visit(ZklClaimVisitor visitor, void *arg);

/* The backend ends, and has no claims from now on. */
extern void zkl_claim_table_forget(void);

#endif							/* ZKL_CLAIMTABLE_H */
