/*-------------------------------------------------------------------------
 *
 * recipelease.c
 *	  The leases of a semaphore, and which of them are granted.
 *
 * src/protocol/recipelease.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/recipe.h"

#include <stdlib.h>
#include <string.h>

static int	lease_rank(const char *child);
static int	compare_leases(const void *one, const void *other);
static int	count_ranks_up_to(int rank, const ZklLease *leases, int nleases);

/*
 * The order of leases: first those that all others count, namely leases of
 * other clients than zklock; then zklock's own whose number has no safe place
 * in the order; then the rest of zklock's by number.
 */
#define RANK_FOREIGN	(-2)
#define RANK_NO_NUMBER	(-1)	/* as zkl_recipe_number() says it */

void
zkl_recipe_order_leases(const char *const *children, int nchildren,
						ZklLease *leases)
{
	for (int i = 0; i < nchildren; i++)
	{
		leases[i].name = children[i];
		leases[i].rank = lease_rank(children[i]);
	}
	if (nchildren > 0)
		qsort(leases, (size_t) nchildren, sizeof(ZklLease), compare_leases);
}

/*
 * Other clients may give their leases any names, so only zklock's are parsed.
 */
static int
lease_rank(const char *child)
{
	ZklContender contender;
	bool		tries;

	if (!zkl_recipe_is_zklock(child, &tries))
		return RANK_FOREIGN;
	if (!zkl_recipe_parse(child, &contender) ||
		contender.mode != ZKL_MODE_LEASE)
		return RANK_NO_NUMBER;
	return zkl_recipe_number(contender.key);
}

/*
 * The names decide between equal ranks, so that a search finds one certain
 * lease.
 */
static int
compare_leases(const void *one, const void *other)
{
	const ZklLease *a = one;
	const ZklLease *b = other;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return strcmp(a->name, b->name);
}

bool
zkl_recipe_has_lease(const char *me, const ZklLease *leases, int nleases)
{
	ZklLease	wanted = {me, lease_rank(me)};

	return nleases > 0 &&
		bsearch(&wanted, leases, (size_t) nleases, sizeof(ZklLease),
				compare_leases) != NULL;
}

/*
 * Every child of the directory counts as a lease, as it does for Curator.  A
 * lease whose number has no safe place in the order does not go behind this
 * one.
 */
ZklVerdict
zkl_recipe_judge_lease(int limit, const char *me, const ZklLease *leases,
					   int nleases)
{
	ZklVerdict	verdict = {0};
	int			rank = lease_rank(me);
	int			before = nleases - 1;	/* without "me" */
	bool		only_tries = false;

	verdict.found = zkl_recipe_has_lease(me, leases, nleases);
	verdict.contended = nleases > limit;
	if (!verdict.found)
		return verdict;

	/*
	 * With a number of its own, the lease need not count zklock's leases with
	 * higher numbers.  The binary search counts "me" as well.
	 */
	if (rank >= 0)
		before = count_ranks_up_to(rank, leases, nleases) - 1;
	verdict.owned = before < limit || !verdict.contended;

	/*
	 * Any other lease of zklock may linger; all of them are at the end of the
	 * order.
	 */
	if (!verdict.owned && zkl_recipe_is_zklock(me, &only_tries) && only_tries)
	{
		/* At least one of the last two is not this lease. */
		for (int i = nleases - 1; i >= 0 && i >= nleases - 2; i--)
		{
			if (leases[i].rank != RANK_FOREIGN &&
				strcmp(leases[i].name, me) != 0)
				verdict.ask = leases[i].name;
		}
	}
	return verdict;
}

/* The leases are in order, so a binary search finds the end of these ranks. */
static int
count_ranks_up_to(int rank, const ZklLease *leases, int nleases)
{
	int			low = 0;
	int			high = nleases;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (leases[middle].rank <= rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
