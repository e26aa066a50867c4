/*-------------------------------------------------------------------------
 *
 * lockentry.h
 *	  An entry of the lock table, and a claim: their fields, states and locks.
 *
 * The table has one ENTRY for each lock that this server holds, wants or is
 * giving up.  The entry carries the state of the server's ticket and the
 * claims of the server's backends.
 *
 *		entry state		meaning
 *		NONE			no ticket
 *		WANTED			a backend requested one; none in the queue yet
 *		QUEUED			in ZooKeeper's queue, behind another znode
 *		OWNED			first in the queue: the server owns the lock.
 *						If it has no claim, the ticket is lingering
 *		RELEASING		given up; its znode may still exist.  If ZooKeeper
 *						refused the delete, the ticket is stuck: a claim that
 *						needs the ticket makes the worker delete again, and
 *						fails if ZooKeeper refuses again
 *
 *		from -> to				by			when
 *		NONE -> WANTED			backend		a claim needs the ticket
 *		WANTED -> NONE			backend		no claim needs it any more, and the
 *											worker has not looked yet
 *		WANTED -> QUEUED		worker		the znode is not the first
 *		WANTED, QUEUED -> OWNED	worker		the znode is the first
 *		WANTED, QUEUED,			backend		the last claim ended, and the
 *		OWNED -> RELEASING					ticket is not kept; or a claim
 *											needs a ticket of another mode,
 *											or one that does not only try
 *		OWNED -> RELEASING		worker		it lingered for zklock.linger, or
 *											another client queues behind it
 *		any -> RELEASING		worker		it cannot be acquired; a znode is left
 *		any -> NONE				worker		it cannot be acquired; no znode is left
 *		RELEASING -> NONE		worker		the znode is gone
 *		RELEASING -> WANTED		worker		the znode is gone; a claim waits
 *		OWNED -> NONE			worker		lost: the claims that were HELD
 *											become LOST, the generation grows
 *		WANTED, QUEUED -> NONE,	worker		the ZooKeeper session expired
 *		WANTED								before the server owned the lock
 *
 * A ticket has a mode.  A ticket that writes also serves readers.  When other
 * clients queue and no backend of this server writes, the ticket is
 * downgraded.  The backend or the worker sets entry->mode to READ at once, so
 * that no writer is granted any more.  The worker then changes the znode.
 *
 * A SEMAPHORE's entry has no ticket of its own.  Each of the server's leases
 * is an entry with a ticket.  The claim that requests a lease makes its entry;
 * one claim or none holds it.  The entry of a lease is in one list, or in
 * none: "pending" of the semaphore (WANTED, QUEUED), "idle" of the semaphore
 * (OWNED, and no claim holds it), "leases" of the claim that holds it (OWNED),
 * or none (RELEASING, NONE).  Only a backend that holds the semaphore's inner
 * mutex, or that only tries, requests leases; see leases.c.
 *
 * One CLAIM a backend and a lock that it holds or waits for.
 *
 *		from -> to			by			when
 *		(new) -> WAITING	backend		it begins to acquire
 *		WAITING -> HELD		backend		it has PostgreSQL's lock, the ticket is
 *										owned in this epoch, the ZooKeeper
 *										session is safe, and no other claim
 *										that is HELD conflicts; at once, if
 *										there are no other claims at all
 *		HELD -> LOST		worker		the ticket was lost, or the claim's
 *										hold limit has passed.  A backend that
 *										has deleted the znode by force sets
 *										the claim's epoch before that
 *		any -> (gone)		backend		released, withdrawn, or the backend ends
 *
 * Detached claims (detached.h) and leaderships (leadership.h) belong to the
 * claims process.  That process is "the backend" of such a claim, and so is
 * each backend that calls a function about a detached one.  These claims have
 * no advisory lock.  A transaction uses a detached claim by a claim of its own,
 * which is HELD from the beginning, on the same ticket and with the same
 * token.  So does a transaction that commits under a lock which another session
 * holds: use.h.
 *
 * A grant is complete when the worker has written OWNED.  Nothing necessary
 * happens after a backend's wait returns.  A backend that is cancelled at that
 * moment withdraws its claim, and the backend that withdraws the last claim
 * gives up the ticket.
 *
 * locktable.h says which LWLock protects an entry and its claims: "the
 * partition" below.
 *
 * src/shared/lockentry.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCKENTRY_H
#define ZKL_LOCKENTRY_H

#include "lib/ilist.h"
#include "lib/pairingheap.h"

#include "protocol/path.h"
#include "protocol/ticket.h"

/*
 * The epoch of no session, so no claim is granted in it, and no claim with it
 * is good.  A claim has it before it is granted.  An owned ticket and the
 * claims that hold it have it when this server has deleted the znode by
 * zk_lock_force_release().
 */
#define ZKL_EPOCH_NONE		0

/*
 * The token reserves 16 bits for the number of the claim among those that one
 * ticket serves.
 */
#define ZKL_CLAIM_NUMBER_MAX	65535

/* What claim->run is for a claim that is for no run of a job. */
#define ZKL_RUN_NONE	(-1)

/* What claim->detached is for a leadership. */
#define ZKL_DETACHED_LEADERSHIP	(-1)

typedef enum ZklEntryState
{
	ZKL_ENTRY_NONE,
	ZKL_ENTRY_WANTED,
	ZKL_ENTRY_QUEUED,
	ZKL_ENTRY_OWNED,
	ZKL_ENTRY_RELEASING
} ZklEntryState;

typedef enum ZklClaimState
{
	ZKL_CLAIM_WAITING,
	ZKL_CLAIM_HELD,
	ZKL_CLAIM_LOST
} ZklClaimState;

/* Why a claim was lost. */
typedef enum ZklLoss
{
	ZKL_LOSS_NONE,
	ZKL_LOSS_EXPIRED,			/* the ZooKeeper session expired */
	ZKL_LOSS_DELETED,			/* another client deleted the znode */
	ZKL_LOSS_HOLD_LIMIT			/* its hold limit has passed */
} ZklLoss;

typedef struct ZklClaim ZklClaim;
typedef struct ZklEntry ZklEntry;
typedef struct ZklLockStat ZklLockStat;

/*
 * The ticket's place in ZooKeeper's queue, for backends to see.  entrystate.c
 * copies it from the ticket, which only the worker may read.
 */
typedef struct ZklTicketPlace
{
	int64		czxid;			/* of the znode */
	char		znode[ZKL_ZNODE_SIZE];
	bool		asking;			/* QUEUED, behind a ticket that may linger */
	bool		front_is_next;	/* the ticket waits for the znode "front" */
	char		front[ZKL_CHILD_SIZE];	/* QUEUED: the znode that owns the
										 * lock; empty: not known */
} ZklTicketPlace;

/* The requests that are due for one lock or semaphore. */
typedef struct ZklLine
{
	dlist_head	entries;
	dlist_node	turn_link;		/* linked while there are entries */
	bool		batched;		/* linked among the lines that wait for
								 * batches */
} ZklLine;

/*
 * What the worker knows about the requests of a ticket.  Only sendqueue.c
 * writes this, but for "create_at", which batches.c clears.
 */
typedef struct ZklSending
{
	bool		counted;		/* the znode is counted in ephemeral_bytes */
	bool		needs_no_proof; /* see sendqueue.h */
	Oid			role;			/* the role whose create was sent */
	int64		create_at;		/* when the create was sent; 0: do not measure
								 * the time */
	bool		in_bulk;		/* a bulk request is on its way */
	bool		not_batched;	/* the create or delete joins no batch */
	ZklRequest	due;			/* the request to send next */
	dlist_node	due_link;
	ZklLine		line;			/* the requests of this lock, or of this
								 * semaphore's leases */
	dlist_head	listening;		/* of a semaphore: leases that wait for a list
								 * which was sent */
	dlist_node	listening_link;
	uint32		list;			/* of a lease: the number of the list it waits
								 * for */
} ZklSending;

/*
 * The fields of an entry and of a claim are grouped by what protects them.
 * "The partition" is the LWLock of the partition: a process that writes has it
 * exclusively.  Assertions check that (zkl_lock_table_is_mine).
 */
struct ZklEntry
{
	/* Fixed. */
	char		path[ZKL_PATH_SIZE];	/* hash key */
	uint32		hash;			/* of the path */
	ZklEntry   *lock;			/* of a lease: its semaphore; else itself */

	/*
	 * Protected by the partition.  To make requests, the worker also reads
	 * mode, role, only_tries, excludes_superuser, in_multilock and owner_text
	 * without it.  Once the worker has seen that a ticket is wanted, backends
	 * change these fields, except mode, only when they give the ticket up, or
	 * later.  Then the new values are about the next ticket, and what the
	 * worker reads goes at worst into a znode that it is about to delete.
	 * Backends change the mode only when they downgrade an owned ticket; the
	 * worker uses a mode that it read without the lock only for a new ticket.
	 *
	 * First the ticket: its state, and the request.
	 */
	ZklEntryState state;
	ZklMode		mode;			/* of the ticket, present or wanted */
	Oid			role;			/* the role that requested the ticket, and
								 * that had logged in */
	bool		only_tries;		/* the backend that requested the ticket only
								 * tries */
	bool		excludes_superuser; /* the ticket must not serve superusers,
									 * because its znode says so */
	bool		in_multilock;	/* the backend requests other tickets, too */
	bool		seen;			/* the worker has looked since the state
								 * became WANTED */
	bool		stuck;			/* RELEASING, and ZooKeeper refused the delete */
	int			nstuck;			/* not for a lease: how many tickets, of this
								 * entry and its leases, are stuck */
	char		owner_text[ZKL_OWNER_TEXT_SIZE];	/* the backend that the
													 * znode names: the one
													 * that requested the
													 * ticket, or has held the
													 * lock for
													 * deadlock_timeout */
	int64		described_at;	/* when the worker last changed "owner_text" */

	/* The ticket's place in ZooKeeper, and how long it is kept. */
	uint64		epoch;			/* of the ZooKeeper session, since OWNED */
	ZklTicketPlace place;		/* since QUEUED or OWNED */
	int			claim_number;	/* claims that this ticket has served; at
								 * ZKL_CLAIM_NUMBER_MAX it serves no more */
	int64		owned_at;		/* since OWNED */
	int64		idle_at;		/* when the last claim ended */
	int64		released_at;	/* when a claim was last released, or 0 */
	bool		comes_back;		/* the last acquire came within zklock.linger
								 * of a release */
	bool		lingers;		/* since the last claim ended */
	int			kept_for;		/* which count of lingerquota.h the ticket is
								 * in, from 1 on; 0 if none */

	/*
	 * The other clients in the queue.  Only the worker writes "blocked", and
	 * reads it without the lock.
	 */
	bool		contended;		/* another client queues behind the owned
								 * ticket */
	bool		recheck_asked;	/* the worker shall check whether "contended"
								 * is still true */
	bool		answered;		/* the znode says, or is about to say, that
								 * the lock is in use */
	bool		blocked;		/* QUEUED, and as far as the worker knows, the
								 * ticket certainly has to wait */
	bool		revoked;		/* its release has been requested */
	bool		list_asked;		/* the worker has listed, or lists now, the
								 * znodes behind the ticket */
	bool		handed_on;		/* the worker shall list now, as the lock
								 * changes hands */
	bool		watch_asked;	/* the worker watches the ticket's znode */
	char		before[ZKL_OWNER_TEXT_SIZE];	/* the text of the znode that
												 * the ticket waits for;
												 * empty: not known */

	/*
	 * The claims.  The worker also looks without the lock whether there is a
	 * "leader", and then looks again with it.
	 */
	dlist_head	claims;
	ZklClaim   *leader;			/* the claim that is this server's leadership,
								 * or NULL */
	uint32		generation;		/* in the advisory lock's tag; grows at a loss */
	int			nheld;			/* claims in state HELD; of a lease: 0 */
	bool		exclusive;		/* one of the claims in state HELD is a
								 * writer's */
	int			nwaiting;		/* claims in state WAITING, in this generation */
	int			nneeding;		/* claims with needs_ticket */
	int			ndetached;		/* claims with "detached" in state WAITING */
	ZklLockStat *stat;			/* its row in lockstat.h, or NULL; leases have
								 * none */

	/*
	 * Of a semaphore.  The worker, and a backend with a claim, read both
	 * limits without the lock: while a lease waits for a list, only the
	 * worker changes "stored", and no claim names another number than the
	 * claims before it.  Such a backend also reads "surveyed", right after it
	 * had the lock.
	 */
	int			limit;			/* the limit that its callers have named; 0:
								 * the stored limit counts */
	int			stored;			/* the limit that is stored in ZooKeeper, as
								 * last read; ZKL_LIMIT_NONE also if this
								 * server has no lease */
	bool		surveyed;		/* the path is not another kind of lock: a
								 * backend saw none while this server owned a
								 * lease */
	dlist_head	idle;
	dlist_head	pending;
	int			nleases;		/* leases that are WANTED, QUEUED or OWNED */
	int			nowned;			/* leases that are OWNED */
	int			nlinked;		/* leases that have an entry */
	uint64		last_lease;		/* the number in the name of the newest lease */

	/* Of a lease. */
	ZklClaim   *holder;
	dlist_node	lease_link;

	/* What keeps the entry, and when the worker looks at it. */
	dlist_node	partition_link; /* in the list of its partition */
	bool		in_work;		/* the worker shall look at the entry, and has
								 * not done so yet */
	bool		timer_armed;	/* the worker will look at the entry by itself */
	int64		armed_for;		/* when the worker will look */

	/*
	 * Protected by the session's work_mutex.  A worker that starts also
	 * writes "taken" without it, while it holds the partition exclusively.
	 */
	dlist_node	work_link;
	bool		taken;			/* the worker has taken the entry off the
								 * list, and is about to look */

	/*
	 * Only the worker uses these, so no lock protects them.  A new worker
	 * keeps the ticket, and sets the other fields again.
	 */
	ZklTicket	ticket;
	ZklSending	sending;
	int			bypass;			/* the greatest sequence number of a znode
								 * that bypass.c has counted; 0: none */
	bool		limit_read;		/* of a semaphore: "stored" has been read, and
								 * has not changed since, as far as heard */
	pairingheap_node timer;		/* in the heap while timer_armed */
};

struct ZklClaim
{
	/*
	 * Fixed while the claim exists, as is "owner_text" below.  Only the role
	 * of a leadership and "is_use" are set right after the claim has begun.
	 */
	ZklEntry   *entry;
	int			proc_number;
	int			pid;
	int			loss_signal;
	int			detached;		/* of the claims process: which detached claim
								 * (detached.h), from 1, or
								 * ZKL_DETACHED_LEADERSHIP; 0: it is a
								 * backend's */
	Oid			login;			/* the role that logged in */
	Oid			role;			/* current user when the claim began */
	Oid			database;
	bool		superuser;		/* of a superuser's session; and of a detached
								 * claim, because superusers may use it */
	bool		is_use;			/* the use of a detached claim, or of another
								 * session's hold */

	/*
	 * Written under the partition.  The claim's own backend also reads state,
	 * epoch, mode and quantity without it, and its signal handler reads state
	 * and since.  detached.c reads state under the lock of the detached
	 * claims.
	 */
	dlist_node	link;			/* in entry->claims; while free, in
								 * free_claims, under claims_mutex */
	ZklClaimState state;
	int64		since;			/* when the present state began */
	ZklMode		mode;
	int			limit;			/* of a semaphore: the limit that the caller
								 * names; 0: the stored limit */
	int			quantity;		/* leases that it requests */
	int			nleases;		/* leases that it holds: */
	dlist_head	leases;
	uint64		epoch;			/* since HELD */
	bool		needs_ticket;	/* its backend waits on its latch, for the
								 * ticket or for a delete */
	bool		asked;			/* for statistics: a ticket had to be
								 * requested */
	bool		waited;			/* for statistics: other claims or clients
								 * went first */
	bool		only_tries;		/* its last request for the ticket was a try */
	ZklLoss		loss;			/* why it was lost */
	int64		nuses;			/* how many times it was used (use.h) */
	bool		may_commit;		/* of a leadership: zklock.commit_requires may
								 * name it, because this server's history may
								 * lead */

	/*
	 * Written under the partition, exclusively.  The claim's own backend also
	 * reads these fields without the lock.  No other process writes token,
	 * hold_until, waits_locally and run, but the renewal of a detached claim
	 * moves hold_until, and a loss ends the run.  The backend reads failure
	 * after it was told ZKL_ANSWER_FAILED, resigned after it was woken, and
	 * nudged in a signal handler.  The worker may write the generation of a
	 * claim on leases while the backend reads it.  But leases share their
	 * advisory lock, so the old generation will do as well as the new one.
	 */
	int64		token;			/* since HELD */
	int64		hold_until;		/* when the hold limit passes; 0: never */
	bool		waits_locally;	/* its backend waits for the advisory lock */
	bool		nudged;			/* the worker has ended that wait, because
								 * there is a new generation */
	int			run;			/* slot of the job's run that the claim is
								 * for, or ZKL_RUN_NONE */
	ZklFailure	failure;		/* why the lock cannot be acquired */
	bool		resigned;		/* of a leadership: it must end */
	uint32		generation;		/* of the advisory lock that the backend has
								 * or waits for */

	/*
	 * Only the claim's backend writes these, and no lock protects them.
	 * zk_locks shows them.  The worker reads them when the claim is lost: it
	 * signals the backend only if a count is not 0.  If the claim is lost
	 * between its grant and the first count, the worker sends no signal; the
	 * commit guard still finds the loss.
	 */
	int			session_count;
	int			xact_count;

	/*
	 * The backend requests other tickets together with this one.  Only the
	 * claim's backend writes this, before it requests the ticket.
	 */
	bool		in_multilock;

	/*
	 * Of the claims process: linked while it has to look at the claim.
	 * Protected by due_mutex.
	 */
	dlist_node	due_link;

	char		owner_text[ZKL_OWNER_TEXT_SIZE];	/* the backend; fixed */
};

/* Needs no lock. */
static inline bool
zkl_lock_entry_is_lease(const ZklEntry *entry)
{
	return entry->lock != entry;
}

#endif							/* ZKL_LOCKENTRY_H */
