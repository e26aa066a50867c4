/*-------------------------------------------------------------------------
 *
 * locktable.h
 *	  The shared lock table, through which backends and the worker communicate.
 *
 * The table has one entry for each lock that this server holds, wants or is
 * giving up; see lockentry.h.
 *
 * Locks.  The table has ZKL_PARTITIONS LWLocks.  The LWLock for an entry's
 * hash protects the entry and its claims, except for the fields that say
 * otherwise.  A semaphore and its leases are in the same partition.  A process
 * takes one partition at a time, and then one spinlock (a work_mutex,
 * claims_mutex, pauses_mutex, due_mutex), or the lock of the waits (waits.h)
 * or of the ends of runs (jobruns.h).  A backend that reads all entries takes
 * browse_lock before each partition, and a process that changes detached
 * claims takes their lock (detached.h).  Wake-ups carry no data.  So it does
 * no harm if the process to wake has ended meanwhile, and another one wakes up
 * needlessly.
 *
 * No function raises an error, except attach in the postmaster, and any
 * function for lack of memory.
 *
 * src/shared/locktable.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCKTABLE_H
#define ZKL_LOCKTABLE_H

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "protocol/comeback.h"
#include "protocol/serverrecord.h"
#include "protocol/siphash.h"
#include "settings.h"
#include "shared/lockentry.h"
#include "shared/sessioninfo.h"

#define ZKL_PARTITIONS		16
#define ZKL_LOCKTABLE_LOCKS	(ZKL_PARTITIONS + 2)	/* see "partitions" */
#define ZKL_SERVERS_SIZE	16384	/* addresses of all servers */

/* What zk_status counts: atomics of one type only. */
typedef struct ZklCounters
{
	pg_atomic_uint64 requests;	/* sent to ZooKeeper, without heartbeats */
	pg_atomic_uint64 tickets;	/* creates of tickets sent */
	pg_atomic_uint64 lost;		/* tickets lost while owned */
	pg_atomic_uint64 connects;
	pg_atomic_uint64 expirations;
	pg_atomic_uint64 bypasses;	/* znodes behind a ticket, of clients that do
								 * not wait for zklock */
	pg_atomic_uint64 ensembles; /* how often ZooKeeper's data were replaced,
								 * or set back */
} ZklCounters;

/*
 * When a path was last released, and whether it pays to keep its ticket, which
 * decide whether its next ticket lingers.  A slot outlives the entry, until
 * another path with the same slot is released.  The partition of the slot's
 * hash protects it.
 */
typedef struct ZklRecent
{
	uint32		hash;
	int64		released_at;
	ZklComeback comeback;		/* of all but semaphores */
} ZklRecent;

/*
 * Until when this server does not stand for the leadership of a path, because
 * it has resigned, or because its history must not lead.  The slot of a pause
 * that is over is free, but keeps its path and its reason until it is needed.
 */
#define ZKL_WHY_SIZE	256
typedef struct ZklPause
{
	char		path[ZKL_PATH_SIZE];
	int64		until;
	char		why[ZKL_WHY_SIZE];	/* a sentence about the history; empty: it
									 * has resigned, or may lead */
} ZklPause;

typedef struct ZklLockTable
{
	LWLockPadded *partitions;	/* ZKL_PARTITIONS locks, then session_lock,
								 * then browse_lock */
	dlist_head	entries[ZKL_PARTITIONS];	/* each under its partition */
	uint64		nclaims[ZKL_PARTITIONS];	/* claims granted; each is written
											 * under its partition, and
											 * zk_status reads it without */

	slock_t		claims_mutex;
	dlist_head	free_claims;	/* protected by claims_mutex */
	int			nfree_claims;	/* protected by claims_mutex */

	slock_t		due_mutex;
	dlist_head	due;			/* claims that the claims process has to look
								 * at; protected by due_mutex */

	slock_t		pauses_mutex;
	ZklPause	pauses[ZKL_LEADERS_MAX];	/* protected by pauses_mutex */

	ZklSipHashKey key;			/* key of all hashes of paths; fixed */
	pg_atomic_uint32 nentries;
	pg_atomic_uint32 shutting_down;
	pg_atomic_uint64 losses;	/* grows when a ZooKeeper session expires, and
								 * when its safe until moves back; also when a
								 * claim is lost or this server stops leading,
								 * and then with the partition locked */
	pg_atomic_uint64 revocations;	/* grows when the release of a ticket is
									 * requested */

	/*
	 * What the worker knows about the cluster: how many other servers have
	 * this one's name, and which data ZooKeeper has (serverrecord.h; empty if
	 * not known).  Protected by session_lock, except for the worker's own
	 * reads.
	 */
	pg_atomic_uint32 namesakes; /* read without a lock */
	pg_atomic_uint32 clones;	/* how many other primaries have this one's
								 * database system identifier */
	char		birth[ZKL_SERVERRECORD_BIRTH_SIZE];

	/*
	 * Addresses that a lookup found for the names in zklock.hosts, in the
	 * form that resolver.c describes.  A worker uses them when it cannot
	 * resolve the names.  Protected by session_lock.
	 */
	uint64		servers_of;		/* hash of zklock.hosts */
	char		servers[ZKL_SERVERS_SIZE];

	ZklCounters counters;
	int			nrecent;		/* fixed */
	ZklRecent	recent[FLEXIBLE_ARRAY_MEMBER];
} ZklLockTable;

extern ZklLockTable *zkl_lock_table;	/* NULL if zklock was not preloaded */

/*
 * Two parts of shared memory, for the table in zklock.c: the lock table, with
 * the hash table of its entries; and the claims.
 */
extern Size zkl_lock_table_size(void);
extern Size zkl_lock_table_hash_size(void);
extern void zkl_lock_table_attach(void *memory, LWLockPadded *locks, bool is_new);
extern Size zkl_lock_table_claims_size(void);
extern void zkl_lock_table_attach_claims(void *memory, LWLockPadded *locks,
										 bool is_new);

/*
 * The hash of a path, and the lock of its partition.  The path of a lease is
 * its semaphore's path, ZKL_LEASE_MARK and a number; the lease is in the
 * semaphore's partition.
 *
 * The hash is secret, because a role that knew it could crowd another role's
 * part of the table.  "shown" is another hash of a lock's path, which
 * pg_locks shows.
 */
#define ZKL_LEASE_MARK	'\1'
extern uint32 zkl_lock_table_hash(const char *path);
extern uint32 zkl_lock_table_both_hashes(const char *path, uint64 *shown);

static inline LWLock *
zkl_lock_table_partition(uint32 hash)
{
	return &zkl_lock_table->partitions[hash % ZKL_PARTITIONS].lock;
}

/*
 * For assertions: has this process locked the entry's partition exclusively?
 * And has it locked any partition?
 */
static inline bool
zkl_lock_table_is_mine(const ZklEntry *entry)
{
	return LWLockHeldByMeInMode(zkl_lock_table_partition(entry->hash), LW_EXCLUSIVE);
}

extern bool zkl_lock_table_any_is_mine(void);

extern LWLock *zkl_lock_table_session_lock(void);

/* The ZooKeeper session of this server; 0 if none. */
extern int64 zkl_lock_table_session_id(void);

/*
 * The server stops, and nothing closes its session.  If there is a session,
 * say so in the server log, once.
 */
extern void zkl_lock_table_leave_session(const char *why);

/* How many entries there are room for; known before there is shared memory. */
extern int	zkl_lock_table_max_entries(void);

/* Are half of the entries, and half of the bytes of the ZooKeeper session, free? */
extern bool zkl_lock_table_is_half_free(void);

/* The name of the setting that limits the number of entries. */
extern const char *zkl_lock_table_limiting_setting(void);

/*
 * Find, make or remove an entry.  The caller holds the entry's partition,
 * exclusively to make or remove.  find returns NULL if there is no entry.
 * make returns NULL if all entries are in use; the path must not have an entry
 * yet.
 */
extern ZklEntry *zkl_lock_table_find(const char *path, uint32 hash);
extern ZklEntry *zkl_lock_table_make(const char *path, uint32 hash);
extern void zkl_lock_table_remove(ZklEntry *entry);

/*
 * Take a claim from the free list (NULL: none is left), and put one back.  The
 * caller of free_claim has taken the claim off its entry.
 */
extern ZklClaim *zkl_lock_table_take_claim(void);
extern void zkl_lock_table_free_claim(ZklClaim *claim);

/*
 * This process's own place for the use of a lock (use.h), which is always
 * there.  The caller has none in it.  It is cleared once; after that, it is
 * as the last use left it.  free_claim takes it back, too.
 */
extern ZklClaim *zkl_lock_table_take_use(void);

/*
 * From now on, this process also takes the entries and claims that are set
 * aside for leaderships.  For the claims process.
 */
extern void zkl_lock_table_use_reserve(void);

/*
 * Call the visitor for all entries, one partition after another, so that the
 * others stay free.  The caller holds no partition.  The visitor removes
 * nothing, changes nothing if the mode is LW_SHARED, and calls no function of
 * this file but wake-ups.
 */
typedef void (*ZklVisitor) (ZklEntry *entry, void *arg);
extern void zkl_lock_table_visit(LWLockMode mode, ZklVisitor visitor, void *arg);

/* Does any claim hold a lock?  Called by the worker, which holds no partition. */
extern bool zkl_lock_table_any_held(void);

/*
 * Call the visitor for the entries of one partition, for backends.  The
 * visitor changes nothing.  Any role may read the whole table in a loop.  So
 * only one backend reads at a time, and it locks only one partition at a time.
 * The other partitions stay free, however many backends want to read.
 *
 * begin and end are for reading other data that a partition protects.
 */
extern void zkl_lock_table_browse(int partition, ZklVisitor visitor, void *arg);
extern void zkl_lock_table_begin_browsing(int partition);
extern void zkl_lock_table_end_browsing(int partition);

/*
 * The entries that have a ticket, as an array in the current memory context.
 * Called only by the worker, without any partition.  The entries stay while the
 * worker looks at them, because only the worker takes tickets away.
 */
extern ZklEntry **zkl_lock_table_collect(int *nentries);

/*
 * The slot that remembers a path's last release.  The caller holds the
 * partition.
 */
extern ZklRecent *zkl_lock_table_recent(uint32 hash);

/*
 * Wake the worker, or the backend of a claim.  Harmless if that process has
 * ended.  The last two functions return the latch by which to wake it
 * later; NULL if there is no worker.
 */
extern void zkl_lock_table_wake_worker(void);
extern void zkl_lock_table_wake(const ZklClaim *claim);
extern Latch *zkl_lock_table_worker_latch(void);
extern Latch *zkl_lock_table_latch(const ZklClaim *claim);

/*
 * To wake the claims process for one of its claims, or to take its latch for
 * that, is also to put the claim into the list of those that are due.
 * next_due takes the first one off the list, and NULL is the end; not_due
 * takes this claim off.  Only the claims process ends a leadership, and the
 * callers hold detached_lock for other claims, so the claim exists.
 */
extern ZklClaim *zkl_lock_table_next_due(void);
extern void zkl_lock_table_not_due(ZklClaim *claim);

/*
 * Every PostgreSQL process handles this signal, and takes one without a
 * reason for a mere wake-up.  So it does no harm if it comes late.
 */
#define ZKL_NUDGE_SIGNAL	SIGUSR1

/*
 * Signal a claim's backend: ZKL_NUDGE_SIGNAL, because its wait for the advisory
 * lock is to end, or the claim's loss_signal, because the claim is lost.  The
 * caller holds the partition: the claim then exists, so its backend does, and
 * the signal cannot hit another process.
 */
extern void zkl_lock_table_signal(const ZklClaim *claim, int signal);

/*
 * Does this process have a claim that was lost at this moment of zkl_now() or
 * later?  A signal handler may call this.
 */
extern bool zkl_lock_table_has_lost(int pid, int64 since);

#endif							/* ZKL_LOCKTABLE_H */
