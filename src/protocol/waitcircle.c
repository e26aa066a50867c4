/*-------------------------------------------------------------------------
 *
 * waitcircle.c
 *	  Deadlocks between servers: the victim, the circle, and which backend ends.
 *
 * src/protocol/waitcircle.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/waitgraphint.h"

#include <stddef.h>
#include <string.h>

static bool explore(ZklWaitGraph *graph, int64_t instance, int64_t claim,
					int *start);
static void explore_forward(ZklWaitGraph *graph, int start);
static void explore_backward(ZklWaitGraph *graph, int start);
static bool is_younger(const ZklGraphNode *one, const ZklGraphNode *other);
static void make_circle(ZklWaitGraph *graph, int victim);
static const ZklGraphHolding *find_entry(const ZklWaitGraph *graph, int victim);
static bool is_better_entry(const ZklWaitHold *one, const ZklWaitHold *other,
							const ZklWaitRecord *record);
static bool waits_for_itself(const ZklWaitRecord *record,
							 const ZklWaitHold *hold);
static int	find_member(const ZklWaitGraph *graph, int lock);
static const ZklWaitHold *find_hold(const ZklWaitGraph *graph,
									const ZklGraphNode *node, int lock);

bool
zkl_wait_graph_is_victim(ZklWaitGraph *graph, int64_t instance, int64_t claim)
{
	int			start;

	if (!explore(graph, instance, claim, &start))
		return false;
	for (int i = 0; i < graph->nnodes; i++)
	{
		const ZklGraphNode *node = &graph->nodes[i];

		/* It leads out of the circle, or another wait is younger. */
		if (node->led_to &&
			(!node->leads_here || is_younger(node, &graph->nodes[start])))
			return false;
	}
	make_circle(graph, start);
	return true;
}

int
zkl_wait_graph_searches(ZklWaitGraph *graph, int64_t instance, int64_t claim,
						int64_t nonces[ZKL_WAITRECORD_CONFIRMS])
{
	int			start;
	int			n = 0;

	if (!explore(graph, instance, claim, &start))
		return 0;
	for (int i = 0; i < graph->nnodes && n < ZKL_WAITRECORD_CONFIRMS; i++)
	{
		const ZklGraphNode *node = &graph->nodes[i];

		if (i != start && node->led_to && node->leads_here &&
			node->record->search != 0)
			nonces[n++] = node->record->search;
	}
	return n;
}

/*
 * From a stuck node, mark all stuck nodes that it leads to, and all that lead
 * to it.  It is in a circle if it leads to itself.  False: there is no such
 * node, or it is not stuck.
 */
static bool
explore(ZklWaitGraph *graph, int64_t instance, int64_t claim, int *start)
{
	*start = zkl_wait_graph_find_node(graph, instance, claim);
	if (*start < 0 || !graph->nodes[*start].stuck)
		return false;
	for (int i = 0; i < graph->nnodes; i++)
		graph->nodes[i].led_to = graph->nodes[i].leads_here = false;
	explore_forward(graph, *start);
	explore_backward(graph, *start);
	return true;
}

/* The nearest nodes come first, so circles are as short as can be. */
static void
explore_forward(ZklWaitGraph *graph, int start)
{
	int			nqueued = 0;

	for (int next = -1; next < nqueued; next++)
	{
		int			from = next < 0 ? start : graph->queue[next];
		const ZklGraphLock *lock = &graph->locks[graph->nodes[from].lock];

		for (int i = lock->first_claim; i >= 0; i = graph->claims[i].next_of_lock)
		{
			for (int j = graph->claims[i].first_holding; j >= 0;
				 j = graph->holdings[j].next_of_claim)
			{
				ZklGraphNode *node = &graph->nodes[graph->holdings[j].node];

				if (!node->stuck || node->led_to)
					continue;
				node->led_to = true;
				node->came_from = from;
				graph->queue[nqueued++] = graph->holdings[j].node;
			}
		}
	}
	graph->nled_to = nqueued;
}

static void
explore_backward(ZklWaitGraph *graph, int start)
{
	int			nqueued = 0;

	graph->back[nqueued++] = start;
	graph->nodes[start].leads_here = true;
	for (int next = 0; next < nqueued; next++)
	{
		const ZklGraphNode *to = &graph->nodes[graph->back[next]];

		for (int i = 0; i < to->nholdings; i++)
		{
			int			claim = graph->holdings[to->first_holding + i].claim;
			int			lock = graph->claims[claim].lock;

			for (int j = graph->locks[lock].first_waiter; j >= 0;
				 j = graph->nodes[j].next_waiter)
			{
				if (!graph->nodes[j].stuck || graph->nodes[j].leads_here)
					continue;
				graph->nodes[j].leads_here = true;
				graph->back[nqueued++] = j;
			}
		}
	}
}

/*
 * ZooKeeper gives each znode a czxid of its own, so only waits for one ticket,
 * on one server, share it.
 */
static bool
is_younger(const ZklGraphNode *one, const ZklGraphNode *other)
{
	if (one->record->czxid != other->record->czxid)
		return one->record->czxid > other->record->czxid;
	if (one->record->claim != other->record->claim)
		return one->record->claim > other->record->claim;
	return one->set->instance > other->set->instance;
}

/*
 * The members of a circle through the victim, as PostgreSQL lists them: each
 * waits for the next.
 */
static void
make_circle(ZklWaitGraph *graph, int victim)
{
	const ZklGraphHolding *entry = find_entry(graph, victim);
	int			member = find_member(graph, graph->claims[entry->claim].lock);
	const ZklWaitHold *waits_for = entry->hold;
	int			n = 1;

	for (int i = member; i != victim; i = graph->nodes[i].came_from)
		n++;
	graph->nmembers = n;
	while (n-- > 0)
	{
		const ZklGraphNode *node = &graph->nodes[member];

		graph->members[n] = (ZklGraphMember)
		{
			.set = node->set,
				.record = node->record,
				.waits_for = waits_for
		};
		if (n > 0)
		{
			const ZklGraphNode *before = &graph->nodes[node->came_from];

			waits_for = find_hold(graph, node, before->lock);
			member = node->came_from;
		}
	}
}

/* The claim by which a circle enters the victim's node. */
static const ZklGraphHolding *
find_entry(const ZklWaitGraph *graph, int victim)
{
	const ZklGraphNode *node = &graph->nodes[victim];
	const ZklGraphHolding *best = NULL;

	for (int i = 0; i < node->nholdings; i++)
	{
		const ZklGraphHolding *holding =
		&graph->holdings[node->first_holding + i];

		if (find_member(graph, graph->claims[holding->claim].lock) >= 0 &&
			(best == NULL || is_better_entry(holding->hold, best->hold,
											 node->record)))
			best = holding;
	}
	return best;
}

/*
 * If the backend that waits holds such a lock itself, that one ends: it is the
 * one whose wait is the youngest.  Otherwise the youngest claim.  But a backend
 * that waits for more leases does not wait for those that it has, if others
 * are in its way.
 */
static bool
is_better_entry(const ZklWaitHold *one, const ZklWaitHold *other,
				const ZklWaitRecord *record)
{
	if (waits_for_itself(record, one) != waits_for_itself(record, other))
		return waits_for_itself(record, other);
	if ((one->pid == record->pid) != (other->pid == record->pid))
		return one->pid == record->pid;
	return one->claim > other->claim;
}

static bool
waits_for_itself(const ZklWaitRecord *record, const ZklWaitHold *hold)
{
	return hold->pid == record->pid && strcmp(hold->path, record->path) == 0;
}

/* The nearest node of the circle that waits for this lock; -1: there is none. */
static int
find_member(const ZklWaitGraph *graph, int lock)
{
	for (int i = 0; i < graph->nled_to; i++)
	{
		if (graph->nodes[graph->queue[i]].lock == lock)
			return graph->queue[i];
	}
	return -1;
}

static const ZklWaitHold *
find_hold(const ZklWaitGraph *graph, const ZklGraphNode *node, int lock)
{
	for (int i = 0; i < node->nholdings; i++)
	{
		const ZklGraphHolding *holding =
		&graph->holdings[node->first_holding + i];

		if (graph->claims[holding->claim].lock == lock)
			return holding->hold;
	}
	return NULL;
}
