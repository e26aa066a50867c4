/*-------------------------------------------------------------------------
 *
 * waitgraph.h
 *	  Deadlocks between servers: which waits cannot end, and which backend to
 *	  cancel.
 *
 * The graph has a NODE for each record of a wait (waitrecord.h), and an arrow
 * from a node to every node that holds what it waits for.
 *
 * At first every node counts as stuck, and each holder without a record
 * counts as one that can go on.  Then the nodes whose waits can end are
 * removed, until nothing changes any more.  A wait
 *
 *		for a mutex, or to write, can end if no stuck node holds the lock;
 *		to read, can end if no stuck node holds the lock in any mode;
 *		for leases, can end if the semaphore has enough leases besides those
 *		that stuck nodes hold, the waiter's own node included.
 *
 * Each claim of a server counts once, even if it is in several of its nodes.
 * The nodes that are left are deadlocked, or stuck behind a deadlock.  The
 * arrows between them lead to at least one innermost circle: nodes that all
 * lead to each other and nowhere else.  The youngest wait of a circle is the
 * VICTIM: the wait with the greatest czxid, or, if two have the same czxid,
 * with the greatest claim.  Two have the same if they wait for one ticket, or
 * for two tickets that were created in one transaction.  But a backend that
 * uses a detached claim is the victim only if all members do: its rollback
 * does not end the claim, so a retry would meet the same circle.  All servers
 * come to the same result.
 *
 * What a server reads of other servers may be out of date.  So the victim's
 * server proves the deadlock before it acts, and leaves out all that has
 * changed meanwhile:
 *
 *		1. It notes what it has seen, the EVIDENCE; makes a nonce; and only
 *		   then publishes its record with that nonce as "search".
 *		2. Each server that sees itself in the same deadlock as that record
 *		   computes its record again, and publishes it with the nonce among
 *		   its "confirms".
 *		3. The victim's server reads the records again, and confines the graph
 *		   to what is in the evidence and in records that confirm.  If its
 *		   record is still the victim then, all waits and holds of the other
 *		   members existed when the nonce was published.
 *		4. It looks at its own wait and hold once more, in shared memory, and
 *		   cancels the backend in the same moment.
 *
 *		A nonce is used for one search only.
 *
 * A caller that looks for deadlocks begins with the sets of its own server,
 * adds the sets of the sessions that own what zkl_wait_graph_next() names,
 * until that names nothing more, and then solves.
 *
 * The caller provides all memory, and the sets must outlive the graph.  What
 * does not fit is left out, and counts as waits that can end.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/deadlock/waitgraph.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITGRAPH_H
#define ZKL_WAITGRAPH_H

#include "deadlock/waitrecord.h"

#define ZKL_WAITGRAPH_SESSIONS	256
#define ZKL_WAITGRAPH_NODES		1024
#define ZKL_WAITGRAPH_HOLDS		4096
#define ZKL_WAITGRAPH_LOCKS		4096
#define ZKL_WAITGRAPH_BUCKETS	1024	/* a power of 2 */

/* A lock that nodes wait for or hold; the leases of a semaphore are one lock. */
typedef struct ZklGraphLock
{
	const char *path;
	bool		is_semaphore;
	int			next;			/* in its bucket; -1: none */
	int			first_claim;
	int			first_waiter;
	int64_t		stuck;			/* leases that stuck nodes hold */
	bool		wanted;			/* a reached node waits for it */
	bool		looked_up;
} ZklGraphLock;

/* A claim, which may be in several nodes. */
typedef struct ZklGraphClaim
{
	int64_t		instance;
	const ZklWaitHold *hold;	/* one of its holds */
	int			lock;
	int			next;			/* in its bucket */
	int			next_of_lock;
	int			first_holding;
	int			nstuck;			/* how many stuck nodes have it */
} ZklGraphClaim;

/* A claim in a node. */
typedef struct ZklGraphHolding
{
	const ZklWaitHold *hold;
	int			node;
	int			claim;
	int			next_of_claim;
} ZklGraphHolding;

typedef struct ZklGraphNode
{
	const ZklWaitSet *set;
	const ZklWaitRecord *record;
	int			lock;			/* what it waits for */
	int			next_waiter;	/* the next node that waits for the same lock */
	int			first_holding;
	int			nholdings;
	bool		reached;		/* a wait of this server leads to it */
	bool		stuck;
	bool		leads_here;		/* it leads to the node being looked at */
	bool		led_to;			/* the node being looked at leads to it */
	int			came_from;		/* the node before this one */
} ZklGraphNode;

/* One member of a circle. */
typedef struct ZklGraphMember
{
	const ZklWaitSet *set;
	const ZklWaitRecord *record;
	const ZklWaitHold *waits_for;	/* a claim of the next member, and of the
									 * first one for the last */
} ZklGraphMember;

/*
 * Some holds of a deadlock, each together with the wait behind which it was
 * stuck, as numbers.  They tell whether a later look sees the very same holds
 * and waits.
 */
typedef struct ZklWaitEvidence
{
	int			nitems;
	uint64_t	items[ZKL_WAITGRAPH_HOLDS];
} ZklWaitEvidence;

/*
 * About 600 kB.  Callers read "complete" and the members; only the functions
 * below use the rest.
 */
typedef struct ZklWaitGraph
{
	bool		complete;		/* there was room for everything */
	int64_t		confirms;		/* use only records with this nonce; 0: use
								 * all */
	const ZklWaitEvidence *evidence;	/* use only holds in this evidence;
										 * NULL: use all */
	int			nsessions;
	int64_t		sessions[ZKL_WAITGRAPH_SESSIONS];
	int			nnodes;
	ZklGraphNode nodes[ZKL_WAITGRAPH_NODES];
	int			nholdings;
	ZklGraphHolding holdings[ZKL_WAITGRAPH_HOLDS];
	int			nclaims;
	ZklGraphClaim claims[ZKL_WAITGRAPH_HOLDS];
	int			nlocks;
	ZklGraphLock locks[ZKL_WAITGRAPH_LOCKS];
	int			lock_buckets[ZKL_WAITGRAPH_BUCKETS];
	int			claim_buckets[ZKL_WAITGRAPH_BUCKETS];
	int			nled_to;		/* nodes that one node leads to, the nearest
								 * first: */
	int			queue[ZKL_WAITGRAPH_NODES];
	int			back[ZKL_WAITGRAPH_NODES];
	int			nmembers;
	ZklGraphMember members[ZKL_WAITGRAPH_NODES];
} ZklWaitGraph;

/* Begin a graph without nodes. */
extern void zkl_wait_graph_begin(ZklWaitGraph *graph);

/*
 * Begin a graph that is confined to this evidence, and to records that have
 * begun or confirm the search with this nonce; 0: to any records.
 */
extern void zkl_wait_graph_begin_proof(ZklWaitGraph *graph, int64_t nonce,
									   const ZklWaitEvidence *evidence);

/*
 * Add the text of a session's znode; NULL if there is none, or it is not a
 * set.  "own": the session is this server's, and the search begins from its
 * waits.  Nothing happens if the session was added before.
 */
extern void zkl_wait_graph_add(ZklWaitGraph *graph, int64_t session, bool own,
							   const ZklWaitSet *set);

/*
 * Has this session been added?  A session of another server counts only if it
 * has records.
 */
extern bool zkl_wait_graph_has(const ZklWaitGraph *graph, int64_t session);

/*
 * The next wait whose lock the caller must look up in ZooKeeper.  The caller
 * then adds all sessions that own the lock: the session of the first znode, of
 * each reader before the first writer, or of each child of the semaphore's
 * "leases".  The caller need not look up the other waiters for the lock: they
 * can be stuck only behind the same owners.  Returns NULL when everything has
 * been looked up.  Each lock is named once.
 */
extern const ZklWaitRecord *zkl_wait_graph_next(ZklWaitGraph *graph);

/* Find out which waits cannot end, and return how many. */
extern int	zkl_wait_graph_solve(ZklWaitGraph *graph);

/*
 * After zkl_wait_graph_solve: is the wait of this claim the victim of a
 * deadlock?  Then graph->members is a circle, with the victim first, and the
 * last member waits for a claim of the victim's server.  The backend of that
 * claim is to be cancelled.  It holds the lock for which the last member
 * waits, and need not be the backend that waits for the ticket.  But if that
 * claim is the use of a detached claim, cancel the backend that waits for the
 * ticket.
 */
extern bool zkl_wait_graph_is_victim(ZklWaitGraph *graph, int64_t instance,
									 int64_t claim);

/*
 * After zkl_wait_graph_is_victim has returned true: note the evidence for
 * that, or check whether the graph has more than this evidence.
 */
extern void zkl_wait_graph_note_evidence(const ZklWaitGraph *graph,
										 ZklWaitEvidence *evidence);
extern bool zkl_wait_graph_exceeds(const ZklWaitGraph *graph,
								   const ZklWaitEvidence *evidence);

/*
 * After zkl_wait_graph_solve: the nonces of the searches of other records in
 * the same deadlock as this wait.  The record of the wait must confirm them.
 * Returns how many, and at most ZKL_WAITRECORD_CONFIRMS.
 */
extern int	zkl_wait_graph_searches(ZklWaitGraph *graph, int64_t instance,
									int64_t claim,
									int64_t nonces[ZKL_WAITRECORD_CONFIRMS]);

#endif							/* ZKL_WAITGRAPH_H */
