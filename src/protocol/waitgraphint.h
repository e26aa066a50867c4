/*-------------------------------------------------------------------------
 *
 * waitgraphint.h
 *	  What the files of waitgraph.h share, and callers do not use.
 *
 * src/protocol/waitgraphint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITGRAPHINT_H
#define ZKL_WAITGRAPHINT_H

#include "protocol/waitgraph.h"

/* The node of a wait; -1: there is none. */
extern int	zkl_wait_graph_find_node(const ZklWaitGraph *graph,
									 int64_t instance, int64_t claim);

/* Is a hold of this node in the graph's evidence?  Without evidence, all are. */
extern bool zkl_wait_graph_is_evident(const ZklWaitGraph *graph,
									  const ZklGraphNode *node,
									  const ZklWaitHold *hold);

/* Hashes, with all bits mixed */
extern uint64_t zkl_wait_graph_hash_text(const char *text);
extern uint64_t zkl_wait_graph_hash_number(uint64_t hash, int64_t number);

#endif							/* ZKL_WAITGRAPHINT_H */
