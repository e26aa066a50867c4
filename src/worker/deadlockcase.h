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

/* A znode in the queue of a lock that waits to read. */
typedef struct ZklDeadlockReader
{
	const char *path;			/* of the lock */
	const char *znode;
} ZklDeadlockReader;

typedef struct ZklDeadlockSeen
{
	int64		good_until;		/* then it is too old for a sentence */
	List	   *sources;		/* of ZklDeadlockSource */
	List	   *readers;		/* of ZklDeadlockReader */
	ZklWaitSet *own;			/* the set of this server */
} ZklDeadlockSeen;

/*
 * Solve the graph, which has all the sources.  The records of this server
 * confirm the searches of others; its victims are proved; and who is proved,
 * is sentenced.  Returns whether any waits are deadlocked.  The graph is used
 * up, and so are the sources.
 */
extern bool zkl_deadlock_case_decide(ZklWaitGraph *graph,
									 const ZklDeadlockSeen *seen);

/* Is there a deadlock to prove? */
extern bool zkl_deadlock_case_any(void);

/* Nothing is published any more, so there are no cases. */
extern void zkl_deadlock_case_forget(void);

#endif							/* ZKL_DEADLOCKCASE_H */
