/*-------------------------------------------------------------------------
 *
 * locktable.h
 *	  The shared lock table, through which backends and workers talk.
 *
 * The table has one entry for each lock that this server holds, wants or is
 * giving up; see lockentry.h.
 *
 * Locks.  The table has ZKL_PARTITIONS LWLocks.  The LWLock for an entry's
 * hash protects the entry and its claims, except for the fields that say
 * otherwise.  A semaphore and its leases are in the same partition.  A process
 * takes one partition (or all of them, in order) first, and then one spinlock
 * (a work_mutex, claims_mutex).  A backend that reads all entries takes
 * browse_lock before each partition.  Wake-ups carry no data.  So it does no harm
 * if the process to wake has gone meanwhile, and another one wakes up for nothing.
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

#include "settings.h"
#include "shared/lockentry.h"
#include "shared/sessioninfo.h"

#define ZKL_PARTITIONS		16
#define ZKL_SERVERS_SIZE	16384	/* addresses of all servers */

/* What zk_status counts. */
typedef struct ZklCounters
{
	pg_atomic_uint64 requests;	/* sent to ZooKeeper, heartbeats apart */
	pg_atomic_uint64 tickets;	/* creates of tickets sent */
	pg_atomic_uint64 owned;		/* times that a ticket became owned */
	pg_atomic_uint64 lost;		/* tickets lost while owned */
	pg_atomic_uint64 connects;
	pg_atomic_uint64 expirations;
	pg_atomic_uint64 bypasses;	/* znodes of clients that do not wait for
								 * zklock, seen behind a ticket */
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

	uint64		seed;			/* of the hash in local locks; fixed */
	int			max_entries;	/* fixed */
	pg_atomic_uint32 nentries;
	pg_atomic_uint32 shutting_down;
	pg_atomic_uint32 leader_pid;	/* the leader process; 0: none */
	pg_atomic_uint64 losses;	/* grows when a ZooKeeper session expires, and
								 * when a claim is lost or this server stops
								 * leading, with the partition locked */
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
	int			nrecent;		/* fixed */
	ZklRecent	recent[FLEXIBLE_ARRAY_MEMBER];
} ZklLockTable;

extern ZklLockTable *zkl_lock_table;	/* NULL if zklock was not preloaded */

/* For the shared-memory hooks: once in the postmaster, once in each process. */
extern void zkl_lock_table_request(void);
extern void zkl_lock_table_startup(void);

/*
 * A path's hash, and the lock of its partition.  The path of a lease is that
 * of its semaphore, ZKL_LEASE_MARK and a number; it has the same partition.
 */
#define ZKL_LEASE_MARK	'\1'
extern uint32 zkl_lock_table_hash(const char *path);

static inline LWLock *
zkl_lock_table_partition(uint32 hash)
{
	return &zkl_lock_table->partitions[hash % ZKL_PARTITIONS].lock;
}

extern LWLock *zkl_lock_table_session_lock(void);

/*
 * The number of the ZooKeeper session that carries the ticket of this path.  A
 * semaphore's leases and its inner mutex have the same session, because other
 * clients recognize by the session that they belong together.
 */
extern int	zkl_lock_table_session(const char *path);

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
 * Call the visitor for the entries of one session.
 * This locks all partitions, so the caller must hold none.  The visitor
 * removes nothing, changes nothing if the mode is LW_SHARED, and calls nothing
 * of this file but wake-ups.
 */
typedef void (*ZklVisitor) (ZklEntry *entry, void *arg);
extern void zkl_lock_table_visit(int session, LWLockMode mode,
								 ZklVisitor visitor, void *arg);

/*
 * Does this hold of any entry of the session?  Locks as zkl_lock_table_visit()
 * does, shared.
 */
extern bool zkl_lock_table_any(int session,
							   bool (*condition) (const ZklEntry *entry));

/*
 * Call the visitor for the entries of all sessions, one partition after the other: the
 * others stay free.  For a worker; the caller holds no partition.  The visitor
 * changes nothing.
 */
extern void zkl_lock_table_pass(ZklVisitor visitor, void *arg);

/*
 * Call the visitor for the entries of one partition, of all sessions, for
 * backends.  The visitor changes nothing.  Any role may read the whole table in a loop.  So
 * only one backend at a time does, and it locks only one partition at a time:
 * the others stay free, however many backends read.
 *
 * begin and end are for what else a partition protects.
 */
extern void zkl_lock_table_browse(int partition, ZklVisitor visitor, void *arg);
extern void zkl_lock_table_begin_browsing(int partition);
extern void zkl_lock_table_end_browsing(int partition);

/*
 * The entries of a session that have a ticket, as an array in the current memory context.
 * Called only by a worker, without any partition.  The entries stay while the
 * worker looks at them, because only the worker takes tickets away.
 */
extern ZklEntry **zkl_lock_table_collect(int session, int *nentries);

/*
 * The slot that remembers a path's last release.  The caller holds the
 * partition.
 */
extern ZklRecent *zkl_lock_table_recent(uint32 hash);

/*
 * Wake the worker of a session, or the backend of a claim.  Harmless if that
 * process is gone.  And: the latch by which to do so later; NULL, if the
 * session has no worker.
 */
extern void zkl_lock_table_wake_worker(int session);
extern void zkl_lock_table_wake(const ZklClaim *claim);
extern Latch *zkl_lock_table_worker_latch(int session);
extern Latch *zkl_lock_table_latch(const ZklClaim *claim);

/*
 * Cancel the statement that a claim's backend runs, or signal the backend that
 * its claim is lost.  The caller holds the partition: the claim then exists,
 * so its backend does, and the signal cannot hit another process.
 */
extern void zkl_lock_table_cancel(const ZklClaim *claim);
extern void zkl_lock_table_tell_lost(const ZklClaim *claim);

/*
 * Has this process a claim that was lost at this moment of zkl_now(), or since?
 * A signal handler may call it.
 */
extern bool zkl_lock_table_has_lost(int pid, int64 since);

#endif							/* ZKL_LOCKTABLE_H */
