/*-------------------------------------------------------------------------
 *
 * waitgraph.h
 *	  Deadlocks between servers: which waits cannot end, and which backend ends.
 *
 * The graph has a NODE for each record of a wait (waitrecord.h), and an arrow
 * from a node to every node that holds what it waits for.
 *
 * At first every node counts as stuck, and whoever holds anything without a
 * record can go on.  Then the nodes whose waits can end are taken out, until
 * nothing changes any more.  A wait
 *
 *		for a mutex, or to write, can end if no stuck node holds the lock;
 *		to read, can end if no stuck node holds the lock in any mode;
 *		for leases, can end if the semaphore has enough leases besides those
 *		that stuck nodes hold, the waiter's own node included.
 *
 * Each claim of a server counts once, however many of its nodes it is in.  The
 * nodes that are left are deadlocked, or stuck behind a deadlock.  The arrows
 * between them lead to at least one innermost circle: nodes that all lead to
 * each other and nowhere else.  Of those, the youngest wait is the VICTIM: the
 * one with the greatest czxid, or with the greatest claim if two wait for one
 * ticket.  All servers see that alike.
 *
 * What is read of other servers is old.  So the victim's server proves the
 * deadlock before it acts, and anything that changed meanwhile is left out:
 *
 *		1. It notes what it has seen, the EVIDENCE; makes a nonce; and only
 *		   then publishes its record with that nonce as "search".
 *		2. Each server that sees itself in one deadlock with that record
 *		   computes its record again, and publishes it with the nonce among
 *		   its "confirms".
 *		3. The victim's server reads the records again, and confines the graph
 *		   to what is in the evidence and in records that confirm.  If its
 *		   record is still the victim then, all waits and holds of the other
 *		   members existed when the nonce was published.
 *		4. It looks at its own wait and hold once more, in shared memory, and
 *		   cancels in the same moment.
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
 * src/protocol/waitgraph.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITGRAPH_H
#define ZKL_WAITGRAPH_H

#include "protocol/waitrecord.h"

#define ZKL_WAITGRAPH_SESSIONS	256
#define ZKL_WAITGRAPH_NODES		1024
#define ZKL_WAITGRAPH_HOLDS		4096
#define ZKL_WAITGRAPH_LOCKS		4096
#define ZKL_WAITGRAPH_BUCKETS	1024	/* a power of 2 */

/* A lock that nodes wait for or hold; leases are a lock of their own. */
typedef struct ZklGraphLock
{
	const char *path;
	bool		is_semaphore;
	int			next;			/* in its bucket; -1: none */
	int			first_claim;
	int			first_waiter;
	int64_t		stuck;			/* leases of it that stuck nodes hold */
	bool		wanted;			/* a node that was reached waits for it */
	bool		looked_up;
} ZklGraphLock;

/* A claim, whatever nodes it is in. */
typedef struct ZklGraphClaim
{
	int64_t		instance;
	const ZklWaitHold *hold;	/* one of them */
	int			lock;
	int			next;			/* in its bucket */
	int			next_of_lock;
	int			first_holding;
	int			nstuck;			/* nodes that have it and are stuck */
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
	int			next_waiter;	/* for the same lock */
	int			first_holding;
	int			nholdings;
	bool		reached;		/* from a wait of this server */
	bool		stuck;
	bool		leads_here;		/* the node being looked at can be reached */
	bool		led_to;			/* it can be reached from that one ... */
	int			came_from;		/* ... and this is the node before it */
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
 * Some holds of a deadlock, each with the wait behind which it was stuck, as
 * numbers that say whether the very same are seen again.
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
	bool		complete;		/* everything had room */
	int64_t		confirms;		/* only records with this nonce; 0: all */
	const ZklWaitEvidence *evidence;	/* and only what is in here */
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
	int			nled_to;		/* nodes that can be reached from one, the
								 * nearest first: */
	int			queue[ZKL_WAITGRAPH_NODES];
	int			back[ZKL_WAITGRAPH_NODES];
	int			nmembers;
	ZklGraphMember members[ZKL_WAITGRAPH_NODES];
} ZklWaitGraph;

/* Begin a graph without nodes. */
extern void zkl_wait_graph_begin(ZklWaitGraph *graph);

/*
 * Begin a graph that is confined to what is in the evidence and in records
 * that have begun or confirm the search with this nonce; 0: in any records.
 */
extern void zkl_wait_graph_begin_proof(ZklWaitGraph *graph, int64_t nonce,
									   const ZklWaitEvidence *evidence);

/*
 * Add what the znode of a session says; NULL: there is none, or it is no set.
 * "own": the session is of this server, and its waits are the ones from which
 * the search begins.  Nothing happens if the session was added before.
 */
extern void zkl_wait_graph_add(ZklWaitGraph *graph, int64_t session, bool own,
							   const ZklWaitSet *set);

/*
 * Has this session been added?  Of another server, only one with records
 * counts.
 */
extern bool zkl_wait_graph_has(const ZklWaitGraph *graph, int64_t session);

/*
 * The next wait whose lock the caller has to look up in ZooKeeper: it adds all
 * sessions that own the lock.  Those are the first znode; or the readers
 * before the first writer; or all children of the semaphore's "leases".  Who
 * only waits for the lock, need not be looked up: that is stuck only behind
 * the same owners.  NULL: everything has been looked up.  Each lock is named
 * once.
 */
extern const ZklWaitRecord *zkl_wait_graph_next(ZklWaitGraph *graph);

/* Find out which waits cannot end.  Returns how many. */
extern int	zkl_wait_graph_solve(ZklWaitGraph *graph);

/*
 * After zkl_wait_graph_solve: is the wait of this claim the victim of a
 * deadlock?  Then graph->members is a circle, with the victim first, and the
 * last member waits for a claim of the victim's server.  The backend of that
 * claim is to be cancelled: it holds the lock by which the circle enters the
 * record, and need not be the one that waits for the ticket.
 */
extern bool zkl_wait_graph_is_victim(ZklWaitGraph *graph, int64_t instance,
									 int64_t claim);

/* After that was true: the evidence for it; is there more than this evidence? */
extern void zkl_wait_graph_note_evidence(const ZklWaitGraph *graph,
										 ZklWaitEvidence *evidence);
extern bool zkl_wait_graph_exceeds(const ZklWaitGraph *graph,
								   const ZklWaitEvidence *evidence);

/*
 * After zkl_wait_graph_solve: the nonces of searches by other records of the
 * deadlock that this wait is in; the record of the wait is to confirm them.
 * Returns how many, and at most ZKL_WAITRECORD_CONFIRMS.
 */
extern int	zkl_wait_graph_searches(ZklWaitGraph *graph, int64_t instance,
									int64_t claim,
									int64_t nonces[ZKL_WAITRECORD_CONFIRMS]);

#endif							/* ZKL_WAITGRAPH_H */
