/*-------------------------------------------------------------------------
 *
 * deadlockproof.h
 *	  What the worker does about the deadlocks that a search has found.
 *
 * Called only by deadlocksearch.c.
 *
 * src/worker/deadlockproof.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DEADLOCKPROOF_H
#define ZKL_DEADLOCKPROOF_H

#include "nodes/pg_list.h"

#include "protocol/waitgraph.h"

/* What a search has read about a session. */
typedef struct ZklDeadlockSource
{
	int64		session;
	bool		own;			/* it is a session of this server */
	ZklWaitSet *set;			/* NULL if it has no records */
} ZklDeadlockSource;

/* The znode of a reader that waits in the queue of a lock. */
typedef struct ZklDeadlockReader
{
	const char *path;			/* of the lock */
	const char *znode;
} ZklDeadlockReader;

typedef struct ZklDeadlockSeen
{
	int64		good_until;		/* after this, it is too old for a cancel */
	List	   *sources;		/* of ZklDeadlockSource */
	List	   *readers;		/* of ZklDeadlockReader */
	ZklWaitSet *own;			/* the set of this server */
} ZklDeadlockSeen;

/*
 * Solve the graph, which has all the sources.  Let the records of this server
 * confirm the searches of other servers, begin or continue a case for each
 * victim of this server, and cancel a backend for each case that is proved.
 * Returns whether any waits are deadlocked.  The graph and the sources must
 * not be used afterwards.
 */
extern bool zkl_deadlock_proof_decide(ZklWaitGraph *graph,
									  const ZklDeadlockSeen *seen);

/* Is there any case, that is, a deadlock to prove? */
extern bool zkl_deadlock_proof_any(void);

/* Forget all cases, because nothing is published any more. */
extern void zkl_deadlock_proof_forget(void);

#endif							/* ZKL_DEADLOCKPROOF_H */
