/*-------------------------------------------------------------------------
 *
 * waitevidence.c
 *	  Deadlocks between servers: what was seen, to see whether it was seen again.
 *
 * src/protocol/waitevidence.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/waitgraphint.h"

#include <stdlib.h>

static uint64_t evidence_item(const ZklWaitSet *set,
							  const ZklWaitRecord *record,
							  const ZklWaitHold *hold);
static bool is_among(const ZklWaitEvidence *evidence, const ZklGraphNode *node,
					 const ZklWaitHold *hold);
static int	compare_items(const void *one, const void *other);

/*
 * Of the whole strongly connected part, not only of the circle: with
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

/* What makes it the very same wait, and the very same hold. */
static uint64_t
evidence_item(const ZklWaitSet *set, const ZklWaitRecord *record,
			  const ZklWaitHold *hold)
{
	uint64_t	hash = zkl_wait_graph_hash_number(0, set->instance);

	hash = zkl_wait_graph_hash_number(hash, record->claim);
	hash = zkl_wait_graph_hash_number(hash, record->czxid);
	hash = zkl_wait_graph_hash_number(hash, (int64_t) zkl_wait_graph_hash_text(record->path));
	hash = zkl_wait_graph_hash_number(hash, hold->claim);
	hash = zkl_wait_graph_hash_number(hash, hold->stuck);
	return zkl_wait_graph_hash_number(hash, (int64_t) zkl_wait_graph_hash_text(hold->path));
}

bool
zkl_wait_graph_is_evident(const ZklWaitGraph *graph, const ZklGraphNode *node,
						  const ZklWaitHold *hold)
{
	return graph->evidence == NULL || is_among(graph->evidence, node, hold);
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
uint64_t
zkl_wait_graph_hash_text(const char *text)
{
	uint64_t	hash = UINT64_C(14695981039346656037);

	for (; *text !='\0'; text ++)
		hash = (hash ^ (unsigned char) *text) *UINT64_C(1099511628211);
	return hash;
}

/* The mixing function of splitmix64, so that all bits count. */
uint64_t
zkl_wait_graph_hash_number(uint64_t hash, int64_t number)
{
	hash = (hash ^ (uint64_t) number) + UINT64_C(0x9e3779b97f4a7c15);
	hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
	return hash ^ (hash >> 31);
}
