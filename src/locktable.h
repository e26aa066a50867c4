/*-------------------------------------------------------------------------
 *
 * locktable.h
 *	  The shared lock table: where backends ask and the worker answers.
 *
 * One ENTRY a lock that this server has to do with.  It carries the state of
 * the server's ticket and the claims of its backends.
 *
 *		entry state		meaning
 *		NONE			no ticket
 *		WANTED			a backend asked for one; none in the queue yet
 *		QUEUED			in ZooKeeper's queue, behind somebody
 *		OWNED			first in the queue: the lock is this server's.
 *						Without any claim: the ticket is lingering
 *		RELEASING		given up; its znode is not known to be gone.  If the
 *						delete was refused, it is stuck: a claim that needs the
 *						ticket lets the worker try again, and fails if it cannot
 *
 *		from -> to				who			when
 *		NONE -> WANTED			backend		a claim needs the ticket
 *		WANTED -> NONE			backend		not any more, before the worker looked
 *		WANTED -> QUEUED		worker		the znode is not the first
 *		WANTED, QUEUED -> OWNED	worker		the znode is the first
 *		WANTED, QUEUED,			backend		the last claim ended, and the
 *		OWNED -> RELEASING					ticket shall not be kept; or a
 *											claim needs one of another mode
 *		OWNED -> RELEASING		worker		lingered long enough, or contended
 *											while lingering
 *		any -> RELEASING		worker		failed; a znode is left to delete
 *		any -> NONE				worker		failed; no znode is left
 *		RELEASING -> NONE		worker		the znode is gone
 *		RELEASING -> WANTED		worker		the same, and somebody waits
 *		OWNED -> NONE			worker		lost: the claims that were held
 *											are LOST, the generation grows
 *		WANTED, QUEUED -> NONE,	worker		the session expired before the
 *		WANTED								lock was this server's
 *
 * A ticket has a mode.  One that writes serves readers, too; when others wait
 * and nobody in this server writes, it is downgraded: entry->mode becomes READ
 * at once, so that no writer is granted any more, and the worker then changes
 * the znode.
 *
 * A SEMAPHORE's entry has no ticket of its own.  Each of the server's leases is
 * an entry with a ticket, made by the claim that asks for it and held by one
 * claim or none; it is in one list: "pending" of the semaphore (WANTED, QUEUED),
 * "idle" of it (OWNED, held by none), "leases" of the claim that holds it
 * (OWNED), or in none (RELEASING, NONE).  Only who holds the semaphore's inner
 * mutex, a lock like others, asks for leases; see leases.c.
 *
 * One CLAIM a backend and a lock that it holds or waits for.
 *
 *		from -> to			who			when
 *		(new) -> WAITING	backend		it begins to acquire
 *		WAITING -> HELD		backend		it has PostgreSQL's lock, the ticket is
 *										owned in this epoch, the session is
 *										safe, and no other claim that is HELD
 *										conflicts
 *		HELD -> LOST		worker		the ticket was lost, or the claim's
 *										lease time is over
 *		any -> (gone)		backend		released, withdrawn, or backend's end
 *
 * A grant is complete when the worker has written OWNED.  Nothing necessary
 * happens after a backend's wait returns: if it is cancelled instead, it
 * withdraws its claim, and whoever withdraws the last claim gives up the
 * ticket.
 *
 * Locks.  The table has ZKL_PARTITIONS LWLocks; the one for an entry's hash
 * protects the entry and its claims, except for what is marked otherwise.  A
 * semaphore and its leases are in the same partition.
 * Order of locking: one partition (or all of them, in order), then one
 * spinlock (a work_mutex, claims_mutex).  Wake-ups carry no data and are sent
 * while the partition is still locked, so that no claim can go meanwhile.
 *
 * src/locktable.h
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

#include "path.h"
#include "ticket.h"

#define ZKL_PARTITIONS		16
#define ZKL_SERVER_SIZE		80	/* "address:port" */
#define ZKL_PASSWORD_SIZE	16
#define ZKL_SERVERS_SIZE	16384	/* addresses of all servers */
#define ZKL_ERROR_SIZE		256

/* The token keeps 16 bits for the claims that one ticket serves. */
#define ZKL_CLAIM_NUMBER_MAX	65535

/* So many may zklock.sessions be; each has a worker of its own. */
#define ZKL_SESSIONS_MAX	64

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
	ZKL_LOSS_EXPIRED,			/* the session expired */
	ZKL_LOSS_DELETED,			/* somebody deleted the znode */
	ZKL_LOSS_LEASE_TIME			/* its lease time is over */
} ZklLoss;

typedef struct ZklClaim ZklClaim;
typedef struct ZklEntry ZklEntry;

/* The requests that are due to a lock or a semaphore; see requests.c. */
typedef struct ZklLine
{
	dlist_head	entries;
	dlist_node	turn_link;		/* where there are any */
} ZklLine;

struct ZklEntry
{
	char		path[ZKL_PATH_SIZE];	/* hash key; fixed */
	uint32		hash;			/* of the path; fixed */
	int			session;		/* index of the ticket's session; fixed */
	ZklEntry   *semaphore;		/* of a lease: what it is of; fixed */

	/* protected by the partition's lock */
	ZklEntryState state;
	ZklMode		mode;			/* of the ticket, or of the one to get */
	int			limit;			/* of a semaphore and its leases */
	uint32		generation;		/* in the local lock's tag; grows at a loss */
	uint64		epoch;			/* of the session, since OWNED */
	int64		czxid;			/* of the znode, since OWNED */
	int			claim_number;	/* claims that this ticket has served */
	bool		contended;		/* somebody queues behind the owned ticket */
	bool		rechecking;		/* the worker shall look whether that is so */
	bool		answered;		/* who tries was told that it is in use */
	bool		asking;			/* QUEUED, behind a ticket that may linger */
	bool		revoked;		/* somebody has asked for it */
	bool		looked;			/* the worker has looked who queues behind */
	bool		handed_on;		/* ... or shall do it now */
	bool		watching;		/* the worker watches the znode */
	bool		comes_back;		/* re-acquired within zklock.linger */
	bool		only_tries;		/* who asked for the ticket only tries */
	bool		plain;			/* the ticket must not serve superusers,
								 * because its znode says that it does not */
	int64		owned_at;		/* since OWNED */
	int64		idle_at;		/* when the last claim ended */
	int64		released_at;	/* when a claim was last released, or 0 */
	dlist_head	claims;
	int			nheld;			/* claims in state HELD */
	bool		exclusive;		/* ... and one of them is not just reading */
	int			nwaiting;		/* ... and WAITING, in this generation */
	int			nneeding;		/* ... of these, with needs_ticket */
	char		about[ZKL_ABOUT_SIZE];	/* the backend that the znode names:
										 * the one that asked for the ticket,
										 * or has held it for long ... */
	int64		described_at;	/* ... when the worker last changed that */
	char		znode[ZKL_ZNODE_SIZE];	/* since QUEUED or OWNED */
	bool		timer_armed;	/* the worker will look at it by itself ... */
	int64		armed_for;		/* ... at this moment */
	bool		stuck;			/* RELEASING, and the delete was refused */
	bool		in_work;		/* the worker was asked to look at it */
	bool		seen;			/* it has looked since the state is WANTED */

	/* of a semaphore */
	dlist_head	idle;
	dlist_head	pending;
	int			nleases;		/* WANTED, QUEUED or OWNED ... */
	int			nowned;			/* ... OWNED ... */
	int			nlinked;		/* ... and all that exist */
	uint64		last_lease;		/* makes their names */
	bool		surveyed;		/* the path is no other kind of lock: none was
								 * seen while one of these was OWNED */

	/* of all but leases: tickets, its own or of leases, that are stuck */
	int			nstuck;

	/* of a lease */
	ZklClaim   *holder;
	dlist_node	lease_link;

	/* protected by work_mutex */
	dlist_node	work_link;
	bool		taken;			/* off that list; the worker will look at once */

	/* the worker's alone; but for the ticket, built anew when it restarts */
	ZklTicket	ticket;
	bool		counted;		/* in ephemeral_bytes */
	ZklRequest	due;			/* to be sent */
	dlist_node	due_link;
	ZklLine		line;			/* of a lock, or of a semaphore's leases */
	dlist_head	listening;		/* of a semaphore: leases that wait for a list
								 * on its way */
	dlist_node	listening_link;
	uint32		list;			/* of a lease: the number of that list */
	pairingheap_node timer;
	bool		timer_set;		/* it is in the heap */
	int64		timer_at;
};

struct ZklClaim
{
	ZklEntry   *entry;			/* fixed while the claim exists */
	int			proc_number;	/* fixed */
	int			pid;			/* fixed */
	int			loss_signal;	/* fixed */
	Oid			role;			/* fixed */
	Oid			database;		/* fixed */
	bool		superuser;		/* of a superuser's session; fixed */

	/* protected by the entry's partition */
	dlist_node	link;			/* in entry->claims, or the free list */
	ZklClaimState state;
	ZklMode		mode;
	int			quantity;		/* of a semaphore: leases that it waits for */
	int			nleases;		/* ... and that it holds: */
	dlist_head	leases;
	uint64		epoch;			/* since HELD */
	uint32		generation;		/* of the local lock it has or waits for */
	bool		waits_locally;	/* for the local lock ... */
	bool		nudged;			/* ... but was told to take a new one */
	bool		needs_ticket;	/* waits on its latch, not for the local lock */
	ZklFailure	failure;		/* why the lock cannot be had */
	ZklLoss		loss;			/* why it was lost ... */
	int64		lost_at;		/* ... and when */
	int64		token;			/* since HELD */
	int64		lease_until;	/* when the lease time is over; 0: never */
	int64		since;			/* of the present state */

	/* written by the backend alone, read by others just to show them */
	int			session_count;
	int			xact_count;

	char		about[ZKL_ABOUT_SIZE];	/* the backend; fixed */
};

/* One session: written by its worker, read by all. */
typedef struct ZklSessionInfo
{
	pg_atomic_uint64 epoch;		/* grows when a session has expired */
	pg_atomic_uint64 safe_until;	/* on the clock of zkl_now() */
	pg_atomic_uint64 heard_at;	/* when a heartbeat was answered last */
	pg_atomic_uint32 period_ms; /* between heartbeats */
	pg_atomic_uint32 connected;

	/* protected by session_lock */
	int64		id;				/* 0: none */
	char		password[ZKL_PASSWORD_SIZE];
	int			timeout_ms;		/* negotiated */
	char		server[ZKL_SERVER_SIZE];
	int64		connected_at;
	char		last_error[ZKL_ERROR_SIZE];
	int64		last_error_at;	/* 0: never */

	pg_atomic_uint32 worker_proc;	/* proc number + 1; 0: not running */
	pg_atomic_uint32 worker_pid;
	pg_atomic_uint64 ephemeral_bytes;	/* see requests.c */

	slock_t		work_mutex;
	dlist_head	work;			/* entries that the worker shall look at */
} ZklSessionInfo;

/* What zk_status counts. */
typedef struct ZklCounters
{
	pg_atomic_uint64 requests;	/* sent to ZooKeeper, heartbeats apart */
	pg_atomic_uint64 heartbeats;	/* answered */
	pg_atomic_uint64 tickets;	/* creates sent */
	pg_atomic_uint64 owned;		/* times that a ticket became owned */
	pg_atomic_uint64 lost;		/* tickets lost while owned */
	pg_atomic_uint64 connects;
	pg_atomic_uint64 expirations;
} ZklCounters;

/*
 * When a path was last released: what makes a ticket linger.  This outlives the
 * entry, unless another path with the same slot comes along.
 */
typedef struct ZklRecent
{
	uint32		hash;
	int64		released_at;
} ZklRecent;

typedef struct ZklShared
{
	LWLockPadded *partitions;	/* ZKL_PARTITIONS locks, then session_lock */
	uint64		nclaims[ZKL_PARTITIONS];	/* served; under the partition */

	slock_t		claims_mutex;
	dlist_head	free_claims;

	int			max_entries;	/* fixed */
	pg_atomic_uint32 nentries;
	pg_atomic_uint32 shutting_down;
	pg_atomic_uint64 losses;	/* grows when a session expires, and when a
								 * claim is lost, with its partition locked */
	pg_atomic_uint64 revocations;	/* grows when a ticket is revoked */

	/*
	 * Addresses that were found for zklock.hosts, for when names cannot be
	 * resolved.  Protected by session_lock.
	 */
	uint64		servers_of;		/* hash of zklock.hosts */
	bool		servers_complete;	/* no name was left out */
	char		servers[ZKL_SERVERS_SIZE];

	ZklSessionInfo session[ZKL_SESSIONS_MAX];	/* zklock.sessions of them */
	ZklCounters counters;
	int			nrecent;
	ZklRecent	recent[FLEXIBLE_ARRAY_MEMBER];
} ZklShared;

extern ZklShared *zkl_shared;	/* NULL where zklock was not preloaded */

/* In a worker: the session that it holds, which is fixed, and its number. */
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
 * The session that carries the ticket of this path.  A semaphore's leases and its
 * inner mutex are in the same one: that is how others know whose they are.
 */
extern int	zkl_table_session(const char *path);

/* Which setting is it that allows no more entries? */
extern const char *zkl_table_limiting_setting(void);

/*
 * Find, make or remove an entry.  The caller holds the partition, exclusively
 * for the last two.  make returns NULL when all entries are in use.
 */
extern ZklEntry *zkl_table_find(const char *path, uint32 hash);
extern ZklEntry *zkl_table_make(const char *path, uint32 hash);
extern void zkl_table_remove(ZklEntry *entry);

/* Take a claim from the free list (NULL: none left), and put one back. */
extern ZklClaim *zkl_table_take_claim(void);
extern void zkl_table_free_claim(ZklClaim *claim);

/*
 * Visit all entries, with all partitions locked; in a worker, those of its own
 * session.  The visitor removes nothing, changes nothing if the locks are shared,
 * and calls nothing of this table but wake-ups.
 */
typedef void (*ZklVisitor) (ZklEntry *entry, void *arg);
extern void zkl_table_visit(LWLockMode mode, ZklVisitor visitor, void *arg);

/*
 * Those with a ticket, as an array in the current memory context.  In a worker they
 * stay while it looks at them: only it takes tickets away.
 */
extern ZklEntry **zkl_table_collect(int *nentries);

/* The slot that remembers a path's last release; under the partition. */
extern ZklRecent *zkl_table_recent(uint32 hash);

/* Wake a process; safe for one that is gone. */
extern void zkl_table_wake_worker(int session);
extern void zkl_table_wake(const ZklClaim *claim);

/*
 * Cancel the statement that a claim's backend runs; or tell it that the claim is
 * lost.  The caller holds the partition, so that the backend is still there.
 */
extern void zkl_table_cancel(const ZklClaim *claim);
extern void zkl_table_tell_lost(const ZklClaim *claim);

/*
 * Is the session known to be alive, at this moment of zkl_now()?  And all of
 * them?  What is read afterwards is at least as new: when a session expires,
 * "losses" and the epoch grow before the next one can be safe.
 */
extern bool zkl_session_is_safe(int session, int64 now);
extern bool zkl_sessions_are_safe(int64 now);

/*
 * From when on may a backend that has waited for an answer since that moment say
 * that ZooKeeper cannot be reached?  Not while heartbeats are answered: then it
 * only takes long.
 */
extern int64 zkl_session_silent_from(int session, int64 since);

/* Is it not, or has the epoch changed since this one? */
extern bool zkl_session_is_in_doubt(uint64 epoch, int session, int64 now);

#endif							/* ZKL_LOCKTABLE_H */
