/*-------------------------------------------------------------------------
 *
 * deadlockcase.h
 *	  What the worker does about the deadlocks that a search has found.
 *
 * Called only by deadlocksearch.c.
 *
 * src/worker/deadlockcase.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DEADLOCKCASE_H
#define ZKL_DEADLOCKCASE_H

#include "nodes/pg_list.h"

#include "protocol/waitgraph.h"

/* What a search has read of a session. */
typedef struct ZklDeadlockSource
{
	int64		session;
	bool		own;			/* of this server */
	ZklWaitSet *set;			/* NULL: none */
} ZklDeadlockSource;

/*
 * Solve the graph, which has all the sources.  The records of this server
 * confirm the searches of others; its victims are proved; and who is proved,
 * is sentenced.  Returns whether any waits are deadlocked.  The graph is used
 * up.  "own" is the set of this server.
 */
extern bool zkl_deadlock_case_decide(ZklWaitGraph *graph,
									 const ZklWaitSet *own,
									 const List *sources);

/* Nothing is published any more, so there are no cases. */
extern void zkl_deadlock_case_forget(void);

#endif							/* ZKL_DEADLOCKCASE_H */
