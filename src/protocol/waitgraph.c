/*-------------------------------------------------------------------------
 *
 * waitgraph.c
 *	  Deadlocks between servers: which waits cannot end.
 *
 * Why the rules of waitgraph.h are exact, although nodes know nothing of the
 * places in the queues:
 *
 * - A znode in a queue waits for that lock.  So what is before a waiter either
 *	 owns the lock, or waits behind the same owners.  If no owner is stuck, the
 *	 owners leave, and all before the waiter get the lock in turn and leave.
 *	 If one is stuck, the waiter is stuck, whoever is between the two, and
 *	 whether that has a record or not.
 * - A reader that has to wait behind a reader waits behind a writer between
 *	 the two.  The writer need not have a record, because it may hold nothing
 *	 else.  It is stuck behind the first reader.  Therefore a stuck node that
 *	 reads is in the way of a reader as well.  (A reader with nothing but
 *	 readers before it does not wait, and so has no record.)
 * - A backend that waits for leases has the inner mutex of the semaphore.
 *	 That is among its holds, so a waiter for one lease that stands behind a
 *	 waiter for three is stuck behind that node.
 * - A node's own holds are in the way of its wait like those of others.  A
 *	 backend that has the last lease may wait for a row of the backend that
 *	 waits for the lease: a circle of one node, of which PostgreSQL sees only
 *	 the half.
 *
 * src/protocol/waitgraph.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/waitgraphint.h"

#include <string.h>

static void add_record(ZklWaitGraph *graph, const ZklWaitSet *set,
					   const ZklWaitRecord *record, bool own);
static bool has_nonce(const ZklWaitRecord *record, int64_t nonce);
static bool add_holding(ZklWaitGraph *graph, int node,
						const ZklWaitHold *hold);
static int	find_lock(ZklWaitGraph *graph, const char *path, ZklMode mode);
static int	find_claim(ZklWaitGraph *graph, int64_t instance,
					   const ZklWaitHold *hold, int lock);
static void reach(ZklWaitGraph *graph, int node);
static bool can_end(const ZklWaitGraph *graph, const ZklGraphNode *node);
static void count_stuck(ZklWaitGraph *graph, const ZklGraphNode *node, int by);

/*
 * Building the graph
 */

void
zkl_wait_graph_begin(ZklWaitGraph *graph)
{
	graph->complete = true;
	graph->confirms = 0;
	graph->evidence = NULL;
	graph->nsessions = 0;
	graph->nnodes = 0;
	graph->nholdings = 0;
	graph->nclaims = 0;
	graph->nlocks = 0;
	graph->nmembers = 0;
	for (int i = 0; i < ZKL_WAITGRAPH_BUCKETS; i++)
		graph->lock_buckets[i] = graph->claim_buckets[i] = -1;
}

void
zkl_wait_graph_begin_proof(ZklWaitGraph *graph, int64_t nonce,
						   const ZklWaitEvidence *evidence)
{
	zkl_wait_graph_begin(graph);
	graph->confirms = nonce;
	graph->evidence = evidence;
}

void
zkl_wait_graph_add(ZklWaitGraph *graph, int64_t session, bool own,
				   const ZklWaitSet *set)
{
	/*
	 * A lock may have a thousand readers, of which few wait for anything.
	 * Their sessions take no place.
	 */
	if (zkl_wait_graph_has(graph, session) || (set == NULL && !own))
		return;
	if (graph->nsessions == ZKL_WAITGRAPH_SESSIONS)
	{
		graph->complete = false;
		return;
	}
	graph->sessions[graph->nsessions++] = session;
	if (set == NULL)
		return;
	if (set->truncated)
		graph->complete = false;
	for (int i = 0; i < set->nrecords; i++)
	{
		if (graph->confirms == 0 ||
			has_nonce(&set->records[i], graph->confirms))
			add_record(graph, set, &set->records[i], own);
	}
}

bool
zkl_wait_graph_has(const ZklWaitGraph *graph, int64_t session)
{
	for (int i = 0; i < graph->nsessions; i++)
	{
		if (graph->sessions[i] == session)
			return true;
	}
	return false;
}

static bool
has_nonce(const ZklWaitRecord *record, int64_t nonce)
{
	for (int i = 0; i < record->nconfirms; i++)
	{
		if (record->confirms[i] == nonce)
			return true;
	}
	return record->search == nonce;
}

int
zkl_wait_graph_find_node(const ZklWaitGraph *graph, int64_t instance,
						 int64_t claim)
{
	for (int i = 0; i < graph->nnodes; i++)
	{
		if (graph->nodes[i].record->claim == claim &&
			graph->nodes[i].set->instance == instance)
			return i;
	}
	return -1;
}

/*
 * A session of another server that was lost and opened again may show a wait
 * twice, in an old znode and a new one; the first counts.
 */
static void
add_record(ZklWaitGraph *graph, const ZklWaitSet *set,
		   const ZklWaitRecord *record, bool own)
{
	int			index = graph->nnodes;
	int			lock = find_lock(graph, record->path, record->mode);
	ZklGraphNode *node = &graph->nodes[index];

	if (index == ZKL_WAITGRAPH_NODES || lock < 0)
	{
		graph->complete = false;
		return;
	}
	if (zkl_wait_graph_find_node(graph, set->instance, record->claim) >= 0)
		return;

	graph->nnodes++;
	*node = (ZklGraphNode)
	{
		.set = set,
			.record = record,
			.lock = lock,
			.next_waiter = graph->locks[lock].first_waiter,
			.first_holding = graph->nholdings
	};
	graph->locks[lock].first_waiter = index;
	for (int i = 0; i < record->nholds; i++)
	{
		const ZklWaitHold *hold = &set->holds[record->first_hold + i];

		if (!zkl_wait_graph_is_evident(graph, node, hold))
			continue;
		if (!add_holding(graph, index, hold))
		{
			graph->complete = false;
			break;
		}
	}
	if (own)
		reach(graph, index);
	for (int i = 0; i < node->nholdings && !node->reached; i++)
	{
		int			claim = graph->holdings[node->first_holding + i].claim;

		if (graph->locks[graph->claims[claim].lock].wanted)
			reach(graph, index);
	}
}

/* False: there is no room. */
static bool
add_holding(ZklWaitGraph *graph, int node, const ZklWaitHold *hold)
{
	int			lock;
	int			claim;

	if (graph->nholdings == ZKL_WAITGRAPH_HOLDS)
		return false;
	lock = find_lock(graph, hold->path, hold->mode);
	if (lock < 0)
		return false;

	/* There are as many claims as holdings at most. */
	claim = find_claim(graph, graph->nodes[node].set->instance, hold, lock);
	graph->holdings[graph->nholdings] = (ZklGraphHolding)
	{
		.hold = hold,
			.node = node,
			.claim = claim,
			.next_of_claim = graph->claims[claim].first_holding
	};
	graph->claims[claim].first_holding = graph->nholdings++;
	graph->nodes[node].nholdings++;
	return true;
}

/* Find or make it; -1: there is no room. */
static int
find_lock(ZklWaitGraph *graph, const char *path, ZklMode mode)
{
	bool		is_semaphore = mode == ZKL_MODE_LEASE;
	int		   *bucket = &graph->lock_buckets[zkl_wait_graph_hash_text(path) %
											  ZKL_WAITGRAPH_BUCKETS];

	for (int i = *bucket; i >= 0; i = graph->locks[i].next)
	{
		if (graph->locks[i].is_semaphore == is_semaphore &&
			strcmp(graph->locks[i].path, path) == 0)
			return i;
	}
	if (graph->nlocks == ZKL_WAITGRAPH_LOCKS)
		return -1;
	graph->locks[graph->nlocks] = (ZklGraphLock)
	{
		.path = path,
			.is_semaphore = is_semaphore,
			.next = *bucket,
			.first_claim = -1,
			.first_waiter = -1
	};
	return *bucket = graph->nlocks++;
}

/* Find or make it. */
static int
find_claim(ZklWaitGraph *graph, int64_t instance, const ZklWaitHold *hold,
		   int lock)
{
	uint64_t	hash = zkl_wait_graph_hash_number(zkl_wait_graph_hash_number(0, instance), hold->claim);
	int		   *bucket = &graph->claim_buckets[hash % ZKL_WAITGRAPH_BUCKETS];

	for (int i = *bucket; i >= 0; i = graph->claims[i].next)
	{
		const ZklGraphClaim *claim = &graph->claims[i];

		if (claim->instance == instance &&
			claim->hold->claim == hold->claim && claim->lock == lock)
			return i;
	}
	graph->claims[graph->nclaims] = (ZklGraphClaim)
	{
		.instance = instance,
			.hold = hold,
			.lock = lock,
			.next = *bucket,
			.next_of_lock = graph->locks[lock].first_claim,
			.first_holding = -1
	};
	graph->locks[lock].first_claim = graph->nclaims;
	return *bucket = graph->nclaims++;
}

/*
 * This node matters to a wait of this server, and so do those that hold what
 * it waits for.
 */
static void
reach(ZklWaitGraph *graph, int node)
{
	int			nqueued = 0;

	graph->nodes[node].reached = true;
	graph->queue[nqueued++] = node;
	while (nqueued > 0)
	{
		ZklGraphLock *lock = &graph->locks[graph->nodes[graph->queue[--nqueued]].lock];

		if (lock->wanted)
			continue;
		lock->wanted = true;
		for (int i = lock->first_claim; i >= 0; i = graph->claims[i].next_of_lock)
		{
			for (int j = graph->claims[i].first_holding; j >= 0;
				 j = graph->holdings[j].next_of_claim)
			{
				ZklGraphNode *holder = &graph->nodes[graph->holdings[j].node];

				if (holder->reached)
					continue;
				holder->reached = true;
				graph->queue[nqueued++] = graph->holdings[j].node;
			}
		}
	}
}

const ZklWaitRecord *
zkl_wait_graph_next(ZklWaitGraph *graph)
{
	for (int i = 0; i < graph->nlocks; i++)
	{
		ZklGraphLock *lock = &graph->locks[i];

		if (lock->wanted && !lock->looked_up)
		{
			lock->looked_up = true;
			return graph->nodes[lock->first_waiter].record;
		}
	}
	return NULL;
}

/*
 * Solving
 */

int
zkl_wait_graph_solve(ZklWaitGraph *graph)
{
	int			nstuck = graph->nnodes;
	bool		changed;

	for (int i = 0; i < graph->nlocks; i++)
		graph->locks[i].stuck = 0;
	for (int i = 0; i < graph->nclaims; i++)
		graph->claims[i].nstuck = 0;
	for (int i = 0; i < graph->nnodes; i++)
	{
		graph->nodes[i].stuck = true;
		count_stuck(graph, &graph->nodes[i], 1);
	}
	do
	{
		changed = false;
		for (int i = 0; i < graph->nnodes; i++)
		{
			ZklGraphNode *node = &graph->nodes[i];

			if (!node->stuck || !can_end(graph, node))
				continue;
			node->stuck = false;
			count_stuck(graph, node, -1);
			nstuck--;
			changed = true;
		}
	} while (changed);
	return nstuck;
}

/*
 * A mutex or a read-write lock counts as a semaphore with one lease.  Readers
 * hold one lease each, so there may be more than the limit, but any of them is
 * in the way.
 */
static bool
can_end(const ZklWaitGraph *graph, const ZklGraphNode *node)
{
	return graph->locks[node->lock].stuck <=
		node->record->limit - node->record->leases;
}

/* A node becomes stuck, by 1, or not any more, by -1. */
static void
count_stuck(ZklWaitGraph *graph, const ZklGraphNode *node, int by)
{
	for (int i = 0; i < node->nholdings; i++)
	{
		ZklGraphClaim *claim =
		&graph->claims[graph->holdings[node->first_holding + i].claim];
		bool		was_stuck = claim->nstuck > 0;

		claim->nstuck += by;
		if (was_stuck != (claim->nstuck > 0))
			graph->locks[claim->lock].stuck += by * (int64_t) claim->hold->leases;
	}
}
