/*-------------------------------------------------------------------------
 *
 * waitgraph.c
 *	  Deadlocks between servers: which waits cannot end.
 *
 * Why the rules of waitgraph.h are exact, although nodes know nothing of the
 * places in the queues:
 *
 * - A znode in a queue waits for that lock.  So each znode before a waiter
 *   either owns the lock, or waits behind the same owners.  If no owner is
 *   stuck, the owners leave, and each znode before the waiter gets the lock
 *   in turn and leaves.  If one owner is stuck, the waiter is stuck, whatever
 *   znodes are between the two, with or without a record.
 * - A reader that has to wait behind a reader waits behind a writer between
 *	 the two.  The writer need not have a record, because it may hold nothing
 *	 else.  It is stuck behind the first reader.  Therefore a reader counts as
 *	 waiting for a stuck node that reads as well.  (A reader with nothing but
 *	 readers before it does not wait, and so has no record.)
 * - A backend that waits for leases has the inner mutex of the semaphore.
 *	 The inner mutex is among its holds, so a waiter for one lease that stands
 *	 behind a waiter for three is stuck behind the latter's node.
 * - A node may wait for its own holds as well as for the holds of others.
 *	 The backend that has the last lease may wait for a row of the backend
 *	 that waits for that lease.  This is a circle of one node, of which
 *	 PostgreSQL sees only half.  A transaction that uses a detached claim may
 *	 be such a circle, too, because it has no advisory lock.
 *
 * src/deadlock/waitgraph.c
 *
 *-------------------------------------------------------------------------
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "deadlock/waitgraph.h"

static int	find_node(const ZklWaitGraph *graph, int64_t instance,
					  int64_t claim);
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

static bool explore(ZklWaitGraph *graph, int64_t instance, int64_t claim,
					int *start);
static void explore_forward(ZklWaitGraph *graph, int start);
static void explore_backward(ZklWaitGraph *graph, int start);
static bool goes_first(const ZklGraphNode *one, const ZklGraphNode *other);
static bool keeps_lock(const ZklGraphNode *node);
static void make_circle(ZklWaitGraph *graph, int victim);
static const ZklGraphHolding *find_entry(const ZklWaitGraph *graph, int victim);
static bool is_better_entry(const ZklWaitHold *one, const ZklWaitHold *other,
							const ZklWaitRecord *record);
static bool waits_for_itself(const ZklWaitRecord *record,
							 const ZklWaitHold *hold);
static int	find_member(const ZklWaitGraph *graph, int lock);
static const ZklWaitHold *find_hold(const ZklWaitGraph *graph,
									const ZklGraphNode *node, int lock);

static uint64_t evidence_item(const ZklWaitSet *set,
							  const ZklWaitRecord *record,
							  const ZklWaitHold *hold);
static bool is_among(const ZklWaitEvidence *evidence, const ZklGraphNode *node,
					 const ZklWaitHold *hold);
static int	compare_items(const void *one, const void *other);
static uint64_t hash_text(const char *text);
static uint64_t hash_number(uint64_t hash, int64_t number);

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
	 * A lock may have a thousand readers, of which few wait for anything.  So
	 * a session without records takes no place.
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

static int
find_node(const ZklWaitGraph *graph, int64_t instance,
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
 * A server that has lost its session and opened a new one may show one wait
 * twice, in an old znode and in a new one.  The first one counts.
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
	if (find_node(graph, set->instance, record->claim) >= 0)
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

		if (graph->evidence != NULL && !is_among(graph->evidence, node, hold))
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

/* Returns false if there is no room. */
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

	/* There are never more claims than holdings, so there is room. */
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

/* Find or make the lock; return -1 if there is no room. */
static int
find_lock(ZklWaitGraph *graph, const char *path, ZklMode mode)
{
	bool		is_semaphore = mode == ZKL_MODE_LEASE;
	int		   *bucket = &graph->lock_buckets[hash_text(path) %
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

/* Find or make the claim. */
static int
find_claim(ZklWaitGraph *graph, int64_t instance, const ZklWaitHold *hold,
		   int lock)
{
	uint64_t	hash = hash_number(hash_number(0, instance), hold->claim);
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
 * A wait of this server leads to this node, so mark it, and all nodes that
 * hold what it waits for.
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
 * hold one lease each.  They may hold more than the limit, but any one of
 * them suffices to block.
 */
static bool
can_end(const ZklWaitGraph *graph, const ZklGraphNode *node)
{
	return graph->locks[node->lock].stuck <=
		node->record->limit - node->record->leases;
}

/* A node becomes stuck (1), or stops being stuck (-1). */
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

/*
 * The victim's wait, the circle, and the backend to cancel
 */

bool
zkl_wait_graph_is_victim(ZklWaitGraph *graph, int64_t instance, int64_t claim)
{
	int			start;

	if (!explore(graph, instance, claim, &start))
		return false;
	for (int i = 0; i < graph->nnodes; i++)
	{
		const ZklGraphNode *node = &graph->nodes[i];

		/*
		 * The arrow leads out of the circle, or to a wait that must be the
		 * victim instead.
		 */
		if (node->led_to &&
			(!node->leads_here || goes_first(node, &graph->nodes[start])))
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
 * Mark all stuck nodes to which this stuck node leads, and all that lead to
 * it.  It is in a circle if it leads to itself.  Returns false if the node is
 * missing or not stuck.
 */
static bool
explore(ZklWaitGraph *graph, int64_t instance, int64_t claim, int *start)
{
	*start = find_node(graph, instance, claim);
	if (*start < 0 || !graph->nodes[*start].stuck)
		return false;
	for (int i = 0; i < graph->nnodes; i++)
		graph->nodes[i].led_to = graph->nodes[i].leads_here = false;
	explore_forward(graph, *start);
	explore_backward(graph, *start);
	return true;
}

/*
 * Visit the nearest nodes first, so that the circle is as short as possible.
 */
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
 * Must the first wait be the victim?  All tickets of a batch have one
 * czxid, and belong to one server.  So two waits have the same czxid only if
 * they wait for tickets of one server.
 */
static bool
goes_first(const ZklGraphNode *one, const ZklGraphNode *other)
{
	if (keeps_lock(one) != keeps_lock(other))
		return keeps_lock(other);
	if (one->record->czxid != other->record->czxid)
		return one->record->czxid > other->record->czxid;
	if (one->record->claim != other->record->claim)
		return one->record->claim > other->record->claim;
	return one->set->instance > other->set->instance;
}

/*
 * Does the backend that waits use a detached claim?  Look at all holds of the
 * record, so that a proof comes to the same result.
 */
static bool
keeps_lock(const ZklGraphNode *node)
{
	for (int i = 0; i < node->record->nholds; i++)
	{
		const ZklWaitHold *hold = &node->set->holds[node->record->first_hold + i];

		if (hold->is_use && hold->pid == node->record->pid)
			return true;
	}
	return false;
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

/*
 * Nodes to which the victim leads wait for claims of the victim's node.  The
 * circle closes at the best of these claims: the node that waits for it
 * becomes the last member.
 */
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
 * Is the first claim better to close the circle?  A claim of the backend
 * that waits for the ticket is better, because this backend's wait is the
 * youngest; otherwise the youngest claim is.  But a backend that waits for
 * more leases does not wait for its own leases if other backends hold the
 * leases that it needs.
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

/*
 * The nearest node of the circle that waits for this lock; -1 if there is
 * none.
 */
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

/* Evidence: what one search has seen, and whether a later search sees the same */

/*
 * Note the whole strongly connected part, not only the circle.  With
 * semaphores and readers, the circle alone need not be a deadlock.
 */
void
zkl_wait_graph_note_evidence(const ZklWaitGraph *graph,
							 ZklWaitEvidence *evidence)
{
	evidence->nitems = 0;
	for (int i = 0; i < graph->nholdings; i++)
	{
		const ZklGraphNode *node = &graph->nodes[graph->holdings[i].node];

		if (node->led_to)
			evidence->items[evidence->nitems++] =
				evidence_item(node->set, node->record, graph->holdings[i].hold);
	}
	qsort(evidence->items, (size_t) evidence->nitems, sizeof(uint64_t),
		  compare_items);
}

bool
zkl_wait_graph_exceeds(const ZklWaitGraph *graph,
					   const ZklWaitEvidence *evidence)
{
	for (int i = 0; i < graph->nholdings; i++)
	{
		const ZklGraphNode *node = &graph->nodes[graph->holdings[i].node];

		if (node->led_to &&
			!is_among(evidence, node, graph->holdings[i].hold))
			return true;
	}
	return false;
}

/* A number that identifies this very wait and this very hold. */
static uint64_t
evidence_item(const ZklWaitSet *set, const ZklWaitRecord *record,
			  const ZklWaitHold *hold)
{
	uint64_t	hash = hash_number(0, set->instance);

	hash = hash_number(hash, record->claim);
	hash = hash_number(hash, record->czxid);
	hash = hash_number(hash, (int64_t) hash_text(record->path));
	hash = hash_number(hash, hold->claim);
	hash = hash_number(hash, hold->pid);
	hash = hash_number(hash, hold->stuck);
	return hash_number(hash, (int64_t) hash_text(hold->path));
}

static bool
is_among(const ZklWaitEvidence *evidence, const ZklGraphNode *node,
		 const ZklWaitHold *hold)
{
	uint64_t	item = evidence_item(node->set, node->record, hold);

	return bsearch(&item, evidence->items, (size_t) evidence->nitems,
				   sizeof(uint64_t), compare_items) != NULL;
}

static int
compare_items(const void *one, const void *other)
{
	uint64_t	a = *(const uint64_t *) one;
	uint64_t	b = *(const uint64_t *) other;

	return (a > b) - (a < b);
}

/* FNV-1a */
static uint64_t
hash_text(const char *text)
{
	uint64_t	hash = UINT64_C(14695981039346656037);

	for (; *text !='\0'; text ++)
		hash = (hash ^ (unsigned char) *text) *UINT64_C(1099511628211);
	return hash;
}

/*
 * The mixing function of splitmix64: every bit of the input changes the
 * output.
 */
static uint64_t
hash_number(uint64_t hash, int64_t number)
{
	hash = (hash ^ (uint64_t) number) + UINT64_C(0x9e3779b97f4a7c15);
	hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
	return hash ^ (hash >> 31);
}
