/*-------------------------------------------------------------------------
 *
 * locktable.h
 *	  The shared lock table, through which backends and workers talk.
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
 *											needs a ticket of another mode
 *		OWNED -> RELEASING		worker		it lingered for zklock.linger, or
 *											another client queues behind it
 *		any -> RELEASING		worker		it cannot be had; a znode is left
 *		any -> NONE				worker		it cannot be had; no znode is left
 *		RELEASING -> NONE		worker		the znode is gone
 *		RELEASING -> WANTED		worker		the same, and a claim waits
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
 *										that is HELD conflicts
 *		HELD -> LOST		worker		the ticket was lost, or the claim's
 *										hold limit has passed
 *		any -> (gone)		backend		released, withdrawn, or the backend ends
 *
 * A grant is complete when the worker has written OWNED.  Nothing necessary
 * happens after a backend's wait returns.  A backend that is cancelled at that
 * moment withdraws its claim, and the backend that withdraws the last claim
 * gives up the ticket.
 *
 * Locks.  The table has ZKL_PARTITIONS LWLocks.  The LWLock for an entry's
 * hash protects the entry and its claims, except for the fields that say
 * otherwise.  A semaphore and its leases are in the same partition.  A process
 * takes one partition (or all of them, in order) first, and then one spinlock
 * (a work_mutex, claims_mutex).  Wake-ups carry no data.  They are sent while
 * the partition is still locked, so that no claim, and with it the backend to
 * wake, can go away meanwhile.
 *
 * src/shared/locktable.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCKTABLE_H
#define ZKL_LOCKTABLE_H

#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "protocol/path.h"
#include "protocol/ticket.h"
#include "settings.h"

#define ZKL_PARTITIONS		16
#define ZKL_SERVER_SIZE		80	/* "address:port" */
#define ZKL_PASSWORD_SIZE	16
#define ZKL_SERVERS_SIZE	16384	/* addresses of all servers */
#define ZKL_ERROR_SIZE		256

/* The token keeps 16 bits for the claims that one ticket serves. */
#define ZKL_CLAIM_NUMBER_MAX	65535

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
	ZKL_LOSS_LEASE_TIME			/* its hold limit has passed */
} ZklLoss;

typedef struct ZklClaim ZklClaim;
typedef struct ZklEntry ZklEntry;

/*
 * The requests that are due to a lock or a semaphore.  Only the worker uses
 * it; see sendqueue.c.
 */
typedef struct ZklLine
{
	dlist_head	entries;
	dlist_node	turn_link;		/* linked while there are entries */
} ZklLine;

struct ZklEntry
{
	char		path[ZKL_PATH_SIZE];	/* hash key; fixed */
	uint32		hash;			/* of the path; fixed */
	int			session;		/* index of the ticket's session; fixed */
	ZklEntry   *semaphore;		/* of a lease: its semaphore; fixed */

	/*
	 * Protected by the partition's LWLock.  To make requests, the worker also
	 * reads mode, limit, only_tries, plain and about without it.  Once the
	 * worker has seen that a ticket is wanted, backends change only_tries,
	 * plain and about only when they give the ticket up, or later.  Then the
	 * new values are about the next ticket, and what the worker reads goes at
	 * worst into a znode that it is about to delete.  Backends change the
	 * mode only when they downgrade an owned ticket; the worker uses a mode
	 * that it read without the lock only for a new ticket.
	 */
	ZklEntryState state;
	ZklMode		mode;			/* of the ticket, present or wanted */
	int			limit;			/* of a semaphore and its leases */
	uint32		generation;		/* in the local lock's tag; grows at a loss */
	uint64		epoch;			/* of the ZooKeeper session, since OWNED */
	int64		czxid;			/* of the znode, since OWNED */
	int			claim_number;	/* claims that this ticket has served */
	bool		contended;		/* another client queues behind the owned
								 * ticket */
	bool		rechecking;		/* the worker has been asked whether that is
								 * still true */
	bool		answered;		/* the znode says, or is about to say, that it
								 * is in use */
	bool		asking;			/* QUEUED, behind a ticket that may linger */
	bool		revoked;		/* its release has been requested */
	bool		looked;			/* the worker has listed, or lists now, the
								 * znodes behind the ticket */
	bool		handed_on;		/* ... or is asked to list now, as the lock
								 * changes hands */
	bool		watching;		/* the worker watches the ticket's znode */
	bool		comes_back;		/* re-acquired within zklock.linger */
	bool		only_tries;		/* the backend that requested the ticket only
								 * tries */
	bool		plain;			/* the ticket must not serve superusers,
								 * because its znode says so */
	int64		owned_at;		/* since OWNED */
	int64		idle_at;		/* when the last claim ended */
	int64		released_at;	/* when a claim was last released, or 0 */
	dlist_head	claims;
	int			nheld;			/* claims in state HELD */
	bool		exclusive;		/* ... and one of them is not a reader */
	int			nwaiting;		/* claims in state WAITING, in this generation */
	int			nneeding;		/* claims with needs_ticket */
	char		about[ZKL_ABOUT_SIZE];	/* the backend that the znode names:
										 * the one that requested the ticket,
										 * or has held the lock for
										 * deadlock_timeout */
	int64		described_at;	/* when the worker last changed "about" */
	char		znode[ZKL_ZNODE_SIZE];	/* since QUEUED or OWNED */
	bool		timer_armed;	/* the worker will look at the entry without
								 * being asked ... */
	int64		armed_for;		/* ... at this moment */
	bool		stuck;			/* RELEASING, and ZooKeeper refused the delete */
	bool		in_work;		/* the worker was asked to look at the entry,
								 * and has not done so yet */
	bool		seen;			/* the worker has looked since the state
								 * became WANTED */

	/* of a semaphore; protected by the partition's LWLock */
	dlist_head	idle;
	dlist_head	pending;
	int			nleases;		/* its leases that are WANTED, QUEUED or OWNED
								 * ... */
	int			nowned;			/* ... OWNED ... */
	int			nlinked;		/* ... and all that have an entry */
	uint64		last_lease;		/* the number in the name of the newest lease */
	bool		surveyed;		/* the path is no other kind of lock: a
								 * backend saw none while this server owned a
								 * lease */

	/*
	 * Of all but leases: how many tickets are stuck, its own or those of its
	 * leases; protected by the partition's LWLock.
	 */
	int			nstuck;

	/* of a lease; protected by the partition's LWLock */
	ZklClaim   *holder;
	dlist_node	lease_link;

	/*
	 * Protected by the session's work_mutex.  A worker that starts also
	 * writes "taken" without it, while it holds all partitions.
	 */
	dlist_node	work_link;
	bool		taken;			/* the worker has taken the entry off the
								 * list, and is about to look */

	/*
	 * Only the worker uses these, so no lock protects them.  A new worker
	 * keeps the ticket, and builds the rest anew.
	 */
	ZklTicket	ticket;
	bool		counted;		/* its znode is counted in ephemeral_bytes */
	ZklRequest	due;			/* the request to send next */
	dlist_node	due_link;
	ZklLine		line;			/* the requests of this lock, or of this
								 * semaphore's leases */
	dlist_head	listening;		/* of a semaphore: leases that wait for a list
								 * which was sent */
	dlist_node	listening_link;
	uint32		list;			/* of a lease: the number of that list */
	pairingheap_node timer;
	bool		timer_set;		/* the timer is in the heap */
	int64		timer_at;
};

struct ZklClaim
{
	ZklEntry   *entry;			/* fixed while the claim exists */
	int			proc_number;	/* fixed */
	int			pid;			/* fixed */
	int			loss_signal;	/* fixed */
	Oid			role;			/* current user when the claim began; fixed */
	Oid			database;		/* fixed */
	bool		superuser;		/* of a superuser's session; fixed */

	/*
	 * Written under the LWLock of the entry's partition, exclusively.  The
	 * claim's own backend reads some of these without the lock: token,
	 * lease_until and waits_locally, which no other process writes; failure,
	 * once it has been told ZKL_ANSWER_FAILED; and generation.  The worker
	 * writes the generation of a claim on leases when one is lost, perhaps at
	 * the same moment; but leases share their local lock, so the old value
	 * will do as well as the new one.
	 */
	dlist_node	link;			/* in entry->claims; while free, in
								 * free_claims, under claims_mutex */
	ZklClaimState state;
	ZklMode		mode;
	int			quantity;		/* of a semaphore: leases that it requests */
	int			nleases;		/* ... and that it holds: */
	dlist_head	leases;
	uint64		epoch;			/* since HELD */
	uint32		generation;		/* of the local lock that the backend has or
								 * waits for */
	bool		waits_locally;	/* its backend waits for the local lock ... */
	bool		nudged;			/* ... and the worker cancelled that wait,
								 * because there is a new generation */
	bool		needs_ticket;	/* its backend waits on its latch, for the
								 * ticket or for a delete */
	ZklFailure	failure;		/* why the lock cannot be had */
	ZklLoss		loss;			/* why it was lost ... */
	int64		lost_at;		/* ... and when */
	int64		token;			/* since HELD */
	int64		lease_until;	/* when the hold limit passes; 0: never */
	int64		since;			/* of the present state */

	/*
	 * Only the claim's backend writes these, and no lock protects them.
	 * zk_locks shows them.  The worker reads them when the claim is lost: it
	 * signals the backend only if a count is not 0.  If the claim is lost
	 * between its grant and the first count, the worker sends no signal; the
	 * commit guard still finds the loss.
	 */
	int			session_count;
	int			xact_count;

	char		about[ZKL_ABOUT_SIZE];	/* the backend; fixed */
};

/*
 * One ZooKeeper session.  Only its worker writes this, except for the list of
 * work.  Every process reads the atomic fields without a lock.
 */
typedef struct ZklSessionInfo
{
	pg_atomic_uint64 epoch;		/* grows when the session has expired */
	pg_atomic_uint64 safe_until;	/* on the clock of zkl_now() */
	pg_atomic_uint64 heard_at;	/* when ZooKeeper last answered a heartbeat */
	pg_atomic_uint32 period_ms; /* between heartbeats */
	pg_atomic_uint32 connected;

	/*
	 * Written under session_lock.  The worker itself reads them without it.
	 */
	int64		id;				/* 0: none */
	char		password[ZKL_PASSWORD_SIZE];
	int			timeout_ms;		/* the shortest that ZooKeeper has granted */
	char		server[ZKL_SERVER_SIZE];
	int64		connected_at;
	char		last_error[ZKL_ERROR_SIZE];
	int64		last_error_at;	/* 0: never */

	pg_atomic_uint32 worker_proc;	/* proc number + 1; 0: not running */
	pg_atomic_uint32 worker_pid;
	pg_atomic_uint64 ephemeral_bytes;	/* see sendqueue.c */

	slock_t		work_mutex;
	dlist_head	work;			/* entries that the worker is asked to look
								 * at; protected by work_mutex */
} ZklSessionInfo;

/* What zk_status counts. */
typedef struct ZklCounters
{
	pg_atomic_uint64 requests;	/* sent to ZooKeeper, heartbeats apart */
	pg_atomic_uint64 heartbeats;	/* answered */
	pg_atomic_uint64 tickets;	/* creates of tickets sent */
	pg_atomic_uint64 owned;		/* times that a ticket became owned */
	pg_atomic_uint64 lost;		/* tickets lost while owned */
	pg_atomic_uint64 connects;
	pg_atomic_uint64 expirations;
} ZklCounters;

/*
 * When a path was last released, which decides whether its next ticket
 * lingers.  The slot outlives the entry, until another path with the same slot
 * is released.  The partition of the slot's hash protects it.
 */
typedef struct ZklRecent
{
	uint32		hash;
	int64		released_at;
} ZklRecent;

typedef struct ZklShared
{
	LWLockPadded *partitions;	/* ZKL_PARTITIONS locks, then session_lock */
	uint64		nclaims[ZKL_PARTITIONS];	/* claims granted; each is written
											 * under its partition, and
											 * zk_status reads it without */

	slock_t		claims_mutex;
	dlist_head	free_claims;	/* protected by claims_mutex */

	int			max_entries;	/* fixed */
	pg_atomic_uint32 nentries;
	pg_atomic_uint32 shutting_down;
	pg_atomic_uint64 losses;	/* grows when a ZooKeeper session expires, and
								 * when a claim is lost, with its partition
								 * locked */
	pg_atomic_uint64 revocations;	/* grows when the release of a ticket is
									 * requested */

	/*
	 * Addresses that a lookup found for the names in zklock.hosts, in the
	 * form that addresses.h describes.  A worker uses them when it cannot
	 * resolve the names.  Protected by session_lock.
	 */
	uint64		servers_of;		/* hash of zklock.hosts */
	char		servers[ZKL_SERVERS_SIZE];

	ZklSessionInfo session[ZKL_SESSIONS_MAX];	/* zklock.sessions of them */
	ZklCounters counters;
	int			nrecent;
	ZklRecent	recent[FLEXIBLE_ARRAY_MEMBER];
} ZklShared;

extern ZklShared *zkl_shared;	/* NULL if zklock was not preloaded */

/*
 * In a worker: its ZooKeeper session, which is fixed, and the number of that
 * session.  Elsewhere: NULL.
 */
extern ZklSessionInfo *zkl_my_session;
extern int	zkl_my_session_number(void);

/* For the shared-memory hooks: once in the postmaster, once in each process. */
extern void zkl_table_request(void);
extern void zkl_table_startup(void);

/*
 * A path's hash, and the lock of its partition.  The path of a lease is that
 * of its semaphore, ZKL_LEASE_MARK and a number; it has the same partition.
 */
#define ZKL_LEASE_MARK	'\1'
extern uint32 zkl_table_hash(const char *path);
extern LWLock *zkl_table_partition(uint32 hash);
extern LWLock *zkl_table_session_lock(void);

/*
 * The number of the ZooKeeper session that carries the ticket of this path.  A
 * semaphore's leases and its inner mutex have the same session, because other
 * clients recognize by the session that they belong together.
 */
extern int	zkl_table_session(const char *path);

/* The name of the setting that limits the number of entries. */
extern const char *zkl_table_limiting_setting(void);

/*
 * Find, make or remove an entry.  The caller holds the entry's partition,
 * exclusively to make or remove.  find returns NULL if there is no entry.
 * make returns NULL if all entries are in use; the path must not have an entry
 * yet.
 */
extern ZklEntry *zkl_table_find(const char *path, uint32 hash);
extern ZklEntry *zkl_table_make(const char *path, uint32 hash);
extern void zkl_table_remove(ZklEntry *entry);

/*
 * Take a claim from the free list (NULL: none is left), and put one back.  The
 * caller of free_claim has taken the claim off its entry.
 */
extern ZklClaim *zkl_table_take_claim(void);
extern void zkl_table_free_claim(ZklClaim *claim);

/*
 * Call the visitor for all entries; in a worker, for those of its own session.
 * This locks all partitions, so the caller must hold none.  The visitor
 * removes nothing, changes nothing if the mode is LW_SHARED, and calls nothing
 * of this file but wake-ups.
 */
typedef void (*ZklVisitor) (ZklEntry *entry, void *arg);
extern void zkl_table_visit(LWLockMode mode, ZklVisitor visitor, void *arg);

/*
 * The entries that have a ticket, as an array in the current memory context.
 * Called only by a worker, without any partition.  The entries stay while the
 * worker looks at them, because only the worker takes tickets away.
 */
extern ZklEntry **zkl_table_collect(int *nentries);

/*
 * The slot that remembers a path's last release.  The caller holds the
 * partition.
 */
extern ZklRecent *zkl_table_recent(uint32 hash);

/*
 * Wake the worker of a session, or the backend of a claim.  Harmless if that
 * process is gone.
 */
extern void zkl_table_wake_worker(int session);
extern void zkl_table_wake(const ZklClaim *claim);

/*
 * Cancel the statement that a claim's backend runs, or signal the backend that
 * its claim is lost.  The caller holds the partition: the claim then exists,
 * so its backend does, and the signal cannot hit another process.
 */
extern void zkl_table_cancel(const ZklClaim *claim);
extern void zkl_table_tell_lost(const ZklClaim *claim);

/*
 * Is this ZooKeeper session, or is each of them, certainly alive at this
 * moment of zkl_now()?  A caller that reads "losses" or an epoch after that
 * sees values at least as new: when a session expires, both grow before the
 * next session can be safe.
 */
extern bool zkl_session_is_safe(int session, int64 now);
extern bool zkl_sessions_are_safe(int64 now);

/*
 * A backend has waited for an answer since "since".  This returns the moment
 * from which it may report that ZooKeeper cannot be reached.  While ZooKeeper
 * answers heartbeats, that moment moves on: then the answer only takes long.
 */
extern int64 zkl_session_silent_from(int session, int64 since);

/*
 * Is the session not certainly alive, or has its epoch changed since this one?
 */
extern bool zkl_session_is_in_doubt(uint64 epoch, int session, int64 now);

#endif							/* ZKL_LOCKTABLE_H */
