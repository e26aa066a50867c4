/*-------------------------------------------------------------------------
 *
 * claimtable.c
 *	  Where a backend finds its claims, by path.
 *
 * A backend often releases the lock that it acquired last, and then acquires
 * it again.  So the claim that was added last is found without hashing.  And
 * the memory of the claim that was removed last is used first: if the path is
 * the same, nothing is hashed or copied.
 *
 * Only zkl_claim_table_prepare() allocates memory.  Adding and removing must
 * not raise an error: when a claim is added, its shared claim already exists,
 * and claims are removed while a transaction ends.
 *
 * src/backend/lock/claimtable.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "backend/lock/claimtable.h"

#define FIRST_BUCKETS	16		/* a power of two, like all later numbers */

static MemoryContext context = NULL;	/* for the claims, in use or free */

static dlist_head *buckets = NULL;
static int	nbuckets = 0;
static int	nclaims = 0;

/* The claim that was added last, if it is still in the table; else NULL. */
static ZklLocalClaim *latest = NULL;

/* The claim that was removed last is the first in the list. */
static dlist_head free_claims = DLIST_STATIC_INIT(free_claims);

static void make_room(void);
static dlist_head *bucket_of(uint32 hash);

ZklLocalClaim *
zkl_claim_table_find(const char *path)
{
	uint32		hash;
	dlist_iter	iter;

	if (nclaims == 0)
		return NULL;
	if (latest != NULL && strcmp(latest->path, path) == 0)
		return latest;
	hash = zkl_lock_table_hash(path);
	dlist_foreach(iter, bucket_of(hash))
	{
		ZklLocalClaim *claim = dlist_container(ZklLocalClaim, table_link,
											   iter.cur);

		if (claim->hash == hash && strcmp(claim->path, path) == 0)
			return claim;
	}
	return NULL;
}

/*
 * The claim stays in the list of free ones until it is added, so it is not
 * lost if the caller fails.
 */
ZklLocalClaim *
zkl_claim_table_prepare(const char *path)
{
	ZklLocalClaim *claim;
	uint64		shown;

	if (nclaims >= nbuckets)
		make_room();
	if (dlist_is_empty(&free_claims))
	{
		if (context == NULL)
			context = SlabContextCreate(TopMemoryContext, "zklock claims",
										SLAB_DEFAULT_BLOCK_SIZE,
										sizeof(ZklLocalClaim));
		claim = MemoryContextAllocZero(context, sizeof(ZklLocalClaim));
		dlist_push_head(&free_claims, &claim->table_link);
	}
	claim = dlist_head_element(ZklLocalClaim, table_link, &free_claims);

	/* No path is empty, so a claim that was never used does not match. */
	if (strcmp(claim->path, path) != 0)
	{
		strlcpy(claim->path, path, sizeof(claim->path));
		claim->hash = zkl_lock_table_both_hashes(path, &shown);
		zkl_local_lock_tag(&claim->tag, shown);
		claim->generation = 0;
		claim->crowded = false;
	}
	return claim;
}

/* Double the buckets, so that each has at most one claim on average. */
static void
make_room(void)
{
	int			nold = nbuckets;
	dlist_head *old = buckets;
	int			nnew = Max(2 * nold, FIRST_BUCKETS);
	dlist_head *new = MemoryContextAllocHuge(TopMemoryContext,
											 nnew * sizeof(dlist_head));

	for (int i = 0; i < nnew; i++)
		dlist_init(&new[i]);
	buckets = new;
	nbuckets = nnew;
	for (int i = 0; i < nold; i++)
	{
		while (!dlist_is_empty(&old[i]))
		{
			dlist_node *node = dlist_pop_head_node(&old[i]);
			ZklLocalClaim *claim = dlist_container(ZklLocalClaim, table_link,
												   node);

			dlist_push_tail(bucket_of(claim->hash), node);
		}
	}
	if (old != NULL)
		pfree(old);
}

static dlist_head *
bucket_of(uint32 hash)
{
	return &buckets[hash & (nbuckets - 1)];
}

void
zkl_claim_table_add(ZklLocalClaim *claim)
{
	dlist_delete(&claim->table_link);
	dlist_push_tail(bucket_of(claim->hash), &claim->table_link);
	nclaims++;
	latest = claim;
}

void
zkl_claim_table_remove(ZklLocalClaim *claim)
{
	dlist_delete(&claim->table_link);
	dlist_push_head(&free_claims, &claim->table_link);
	nclaims--;
	if (latest == claim)
		latest = NULL;
}

int
zkl_claim_table_number(void)
{
	return nclaims;
}

void
zkl_claim_table_visit(ZklClaimVisitor visitor, void *arg)
{
	dlist_iter	iter;

	for (int i = 0; i < nbuckets; i++)
		dlist_foreach(iter, &buckets[i])
			visitor(dlist_container(ZklLocalClaim, table_link, iter.cur), arg);
}

void
zkl_claim_table_forget(void)
{
	nclaims = 0;
	nbuckets = 0;
	latest = NULL;
}
