/*-------------------------------------------------------------------------
 *
 * locktable.c
 *	  The shared lock table: memory, look-up, wake-ups.
 *
 * Everything has a fixed size: for zklock.max_locks, or for what PostgreSQL's
 * own lock table carries, if that is less.  lockentry.h says what entries and
 * claims mean, and which process may change what.  The changes themselves are
 * in entry.c and, for the worker, in entrystate.c.
 *
 * src/shared/locktable.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/twophase.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/locktable.h"

/* The locks of the tranche that do not belong to a partition. */
#define SESSION_LOCK	ZKL_PARTITIONS
#define BROWSE_LOCK		(ZKL_PARTITIONS + 1)


/*
 * The limit for zklock.max_locks = -1, if PostgreSQL's lock table has room
 * for this many.
 */
#define MAX_LOCKS_DEFAULT	8192

ZklLockTable *zkl_lock_table = NULL;

static HTAB *entries = NULL;
static int	max_entries = 0;	/* set in the postmaster, and inherited */

static void choose_max_entries(void);
static int	wished_entries(void);

/* All claims, free or not. */
static ZklClaim *claims = NULL;
static int	nclaims = 0;

/* Does this process use the entries and claims that are set aside? */
static bool uses_reserve = false;

static int	max_claims(void);
static int	set_aside(void);
static int	max_recent(void);
static void init_shared(LWLockPadded *locks);
static Size lock_length(const char *path);
static void visit_partition(int partition, ZklVisitor visitor, void *arg);
static bool any_held_in(int partition);
static void clear_claim(ZklClaim *claim);
static void set_due(ZklClaim *claim);

/* Choose the number of entries here: this function is called first. */
Size
zkl_lock_table_size(void)
{
	if (max_entries == 0)
		choose_max_entries();
	return add_size(offsetof(ZklLockTable, recent),
					mul_size(max_recent(), sizeof(ZklRecent)));
}

Size
zkl_lock_table_hash_size(void)
{
	return hash_estimate_size(max_entries + ZKL_LEADERS_MAX, sizeof(ZklEntry));
}

void
zkl_lock_table_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	HASHCTL		info = {0};

	zkl_lock_table = memory;
	if (is_new)
		init_shared(locks);

	/*
	 * HASH_PARTITION lets backends change the table at the same time, each
	 * under the lock of its own partition.  All look-ups pass the hash of
	 * zkl_lock_table_hash().
	 */
	info.keysize = ZKL_PATH_SIZE;
	info.entrysize = sizeof(ZklEntry);
	info.num_partitions = ZKL_PARTITIONS;
	entries = zkl_shmem_init_hash("zklock entries",
								  max_entries + ZKL_LEADERS_MAX, &info,
								  HASH_ELEM | HASH_STRINGS | HASH_PARTITION);
}

/*
 * Each entry may also take a place in PostgreSQL's own lock table.  When
 * PostgreSQL's table is full, not even a new client can connect.  So zklock
 * takes at most half of it, and reaches its own limit first.
 */
static void
choose_max_entries(void)
{
	int64		processes = (int64) MaxBackends + max_prepared_xacts;
	int64		carried = max_locks_per_xact * processes / 2;

	/* -1 does not request a certain number, so it causes no warning. */
	if (zkl_max_locks > carried)
		ereport(WARNING,
				errmsg("\"zklock.max_locks\" (%d) is more than PostgreSQL's lock table carries",
					   zkl_max_locks),
				errdetail("The limit is %lld locks, which is half of that table.",
						  (long long) carried),
				errhint("Set \"max_locks_per_transaction\" to at least %lld.",
						(long long) ((2 * (int64) zkl_max_locks + processes - 1) / processes)));
	max_entries = (int) Min(carried, wished_entries());
}

static int
wished_entries(void)
{
	return zkl_max_locks < 0 ? MAX_LOCKS_DEFAULT : zkl_max_locks;
}

/* The setting for the hint of the error about too many locks. */
const char *
zkl_lock_table_limiting_setting(void)
{
	return max_entries < wished_entries() ? "max_locks_per_transaction" :
		"zklock.max_locks";
}

/* Several backends may hold or want one lock, but rarely all locks at once. */
static int
max_claims(void)
{
	return 2 * max_entries + MaxBackends + ZKL_LEADERS_MAX;
}

/*
 * How many entries and claims are set aside for leaderships: where commits
 * require one, a full table would stop all writes.  The claims that the claims
 * process itself begins are leaderships.  Other processes get 0.
 */
static int
set_aside(void)
{
	return uses_reserve ? ZKL_LEADERS_MAX : 0;
}

void
zkl_lock_table_use_reserve(void)
{
	uses_reserve = true;
}

/* The number of slots: a multiple of ZKL_PARTITIONS, so that each is in one partition. */
static int
max_recent(void)
{
	return ((max_entries + ZKL_PARTITIONS) / ZKL_PARTITIONS) * ZKL_PARTITIONS;
}

/*
 * The count of losses starts at 1: a backend whose guard has never looked at
 * its claims remembers 0.
 */
static void
init_shared(LWLockPadded *locks)
{
	zkl_lock_table->partitions = locks;
	pg_atomic_init_u32(&zkl_lock_table->nentries, 0);
	pg_atomic_init_u32(&zkl_lock_table->shutting_down, 0);
	pg_atomic_init_u64(&zkl_lock_table->losses, 1);
	SpinLockInit(&zkl_lock_table->pauses_mutex);
	SpinLockInit(&zkl_lock_table->due_mutex);
	dlist_init(&zkl_lock_table->due);
	pg_atomic_init_u64(&zkl_lock_table->revocations, 0);
	zkl_lock_table->nrecent = max_recent();
#ifndef ZKLOCK_FAULTS			/* tests need to find locks of one partition */
	if (!pg_strong_random(&zkl_lock_table->key, sizeof(zkl_lock_table->key)))
		elog(ERROR, "could not generate a random number");
#endif
	for (int i = 0; i < ZKL_PARTITIONS; i++)
		dlist_init(&zkl_lock_table->entries[i]);

	for (Size i = 0; i < sizeof(ZklCounters) / sizeof(pg_atomic_uint64); i++)
		pg_atomic_init_u64(&((pg_atomic_uint64 *) &zkl_lock_table->counters)[i], 0);
	pg_atomic_init_u32(&zkl_lock_table->namesakes, 0);
	pg_atomic_init_u32(&zkl_lock_table->clones, 0);
}

Size
zkl_lock_table_claims_size(void)
{
	return mul_size(max_claims() + MaxBackends, sizeof(ZklClaim));
}

/* Called after the lock table is attached. */
void
zkl_lock_table_attach_claims(void *memory, LWLockPadded *locks, bool is_new)
{
	claims = memory;
	nclaims = max_claims() + MaxBackends;
	if (!is_new)
		return;
	SpinLockInit(&zkl_lock_table->claims_mutex);
	dlist_init(&zkl_lock_table->free_claims);
	zkl_lock_table->nfree_claims = max_claims();
	for (int i = 0; i < max_claims(); i++)
		dlist_push_tail(&zkl_lock_table->free_claims, &claims[i].link);
}

/*
 * The length of the part of a path that chooses the partition: for a lease,
 * the length of its semaphore's path.
 */
static Size
lock_length(const char *path)
{
	static const char mark[] = {ZKL_LEASE_MARK, '\0'};

	return strcspn(path, mark);
}

uint32
zkl_lock_table_hash(const char *path)
{
	Size		length = lock_length(path);
	uint32		hash = zkl_siphash(&zkl_lock_table->key, path, length, NULL);

	if (path[length] == '\0')
		return hash;

	/*
	 * The number of the lease changes only bits that do not choose the
	 * partition.
	 */
	return hash ^ ((uint32) zkl_siphash(&zkl_lock_table->key, path + length,
										strlen(path + length), NULL) &
				   ~(uint32) (ZKL_PARTITIONS - 1));
}

/* The hash that zkl_lock_table_hash() computes for the lock. */
uint32
zkl_lock_table_both_hashes(const char *path, uint64 *shown)
{
	return zkl_siphash(&zkl_lock_table->key, path, strlen(path), shown);
}

bool
zkl_lock_table_any_is_mine(void)
{
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		if (LWLockHeldByMe(zkl_lock_table_partition(i)))
			return true;
	}
	return false;
}

LWLock *
zkl_lock_table_session_lock(void)
{
	return &zkl_lock_table->partitions[SESSION_LOCK].lock;
}

int64
zkl_lock_table_session_id(void)
{
	int64		id;

	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	id = zkl_session_info->id;
	LWLockRelease(zkl_lock_table_session_lock());
	return id;
}

/*
 * The ID stays: in a smart shutdown, PostgreSQL may start another worker, which
 * continues the session.
 */
void
zkl_lock_table_leave_session(const char *why)
{
	if (zkl_lock_table_session_id() == 0 ||
		pg_atomic_exchange_u32(&zkl_session_info->left, 1) != 0)
		return;
	ereport(LOG,
			errmsg("leaving the ZooKeeper session to expire, because %s", why),
			errdetail("Other servers acquire the locks of this server after the session timeout, %d ms, or when this server has started again.",
					  zkl_session_info->timeout_ms));
}

int
zkl_lock_table_max_entries(void)
{
	return max_entries;
}

bool
zkl_lock_table_is_half_free(void)
{
	return pg_atomic_read_u32(&zkl_lock_table->nentries) <= max_entries / 2 &&
		pg_atomic_read_u64(&zkl_session_info->ephemeral_bytes) <= ZKL_EPHEMERAL_BYTES_MAX / 2;
}

ZklEntry *
zkl_lock_table_find(const char *path, uint32 hash)
{
	Assert(LWLockHeldByMe(zkl_lock_table_partition(hash)));
	return hash_search_with_hash_value(entries, path, hash, HASH_FIND, NULL);
}

ZklEntry *
zkl_lock_table_make(const char *path, uint32 hash)
{
	ZklEntry   *entry;

	Assert(LWLockHeldByMeInMode(zkl_lock_table_partition(hash), LW_EXCLUSIVE));

	/* dynahash does not enforce its limit exactly, so count the entries. */
	if (pg_atomic_fetch_add_u32(&zkl_lock_table->nentries, 1) >= max_entries + set_aside() ||
		(entry = hash_search_with_hash_value(entries, path, hash,
											 HASH_ENTER_NULL, NULL)) == NULL)
	{
		pg_atomic_fetch_sub_u32(&zkl_lock_table->nentries, 1);
		return NULL;
	}

	/*
	 * The key is in place; clear the rest, which is left from an earlier
	 * entry.
	 */
	memset((char *) entry + ZKL_PATH_SIZE, 0, sizeof(*entry) - ZKL_PATH_SIZE);
	entry->hash = hash;
	entry->lock = entry;
	entry->stored = ZKL_LIMIT_NONE;
	dlist_push_tail(&zkl_lock_table->entries[hash % ZKL_PARTITIONS],
					&entry->partition_link);
	dlist_init(&entry->claims);
	dlist_init(&entry->idle);
	dlist_init(&entry->pending);
	return entry;
}

void
zkl_lock_table_remove(ZklEntry *entry)
{
	Assert(LWLockHeldByMeInMode(zkl_lock_table_partition(entry->hash),
								LW_EXCLUSIVE));
	Assert(entry->state == ZKL_ENTRY_NONE && dlist_is_empty(&entry->claims));
	Assert(entry->kept_for == 0);
	Assert(zkl_lock_table_find(entry->path, entry->hash) == entry);

	/*
	 * Take the entry off the list first: another process may use the memory
	 * as soon as the hash table has it back.
	 */
	dlist_delete(&entry->partition_link);
	(void) hash_search_with_hash_value(entries, entry->path, entry->hash,
									   HASH_REMOVE, NULL);
	pg_atomic_fetch_sub_u32(&zkl_lock_table->nentries, 1);
}

ZklClaim *
zkl_lock_table_take_claim(void)
{
	ZklClaim   *claim = NULL;

	int			others = ZKL_LEADERS_MAX - set_aside();

	SpinLockAcquire(&zkl_lock_table->claims_mutex);
	if (zkl_lock_table->nfree_claims > others)
	{
		claim = dlist_container(ZklClaim, link,
								dlist_pop_head_node(&zkl_lock_table->free_claims));
		zkl_lock_table->nfree_claims--;
	}
	SpinLockRelease(&zkl_lock_table->claims_mutex);

	if (claim != NULL)
		clear_claim(claim);
	return claim;
}

/* The last claims are the places for uses, in the order of the processes. */
ZklClaim *
zkl_lock_table_take_use(void)
{
	static ZklClaim *place = NULL;

	if (place == NULL)
	{
		place = &claims[nclaims - MaxBackends + zkl_my_proc_number()];
		clear_claim(place);
	}
	return place;
}

/*
 * The text comes last in the struct.  The caller writes it, so it need not be
 * cleared.
 */
static void
clear_claim(ZklClaim *claim)
{
	memset(claim, 0, offsetof(ZklClaim, owner_text));
	dlist_init(&claim->leases);
}

/*
 * Another backend may take the claim at once, so the caller must not touch it
 * afterwards.
 */
void
zkl_lock_table_free_claim(ZklClaim *claim)
{
	if (claim >= &claims[nclaims - MaxBackends])
		return;					/* the place of a use is not in the list */
	claim->pid = 0;
	SpinLockAcquire(&zkl_lock_table->claims_mutex);
	dlist_push_head(&zkl_lock_table->free_claims, &claim->link);
	zkl_lock_table->nfree_claims++;
	SpinLockRelease(&zkl_lock_table->claims_mutex);
}

void
zkl_lock_table_visit(LWLockMode mode, ZklVisitor visitor, void *arg)
{
	Assert(!zkl_lock_table_any_is_mine());
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		LWLockAcquire(zkl_lock_table_partition(i), mode);
		visit_partition(i, visitor, arg);
		LWLockRelease(zkl_lock_table_partition(i));
	}
}

/* The caller has locked the partition. */
static void
visit_partition(int partition, ZklVisitor visitor, void *arg)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zkl_lock_table->entries[partition])
		visitor(dlist_container(ZklEntry, partition_link, iter.cur), arg);
}

void
zkl_lock_table_browse(int partition, ZklVisitor visitor, void *arg)
{
	zkl_lock_table_begin_browsing(partition);
	visit_partition(partition, visitor, arg);
	zkl_lock_table_end_browsing(partition);
}

/*
 * PostgreSQL grants a shared lock ahead of processes that wait for an
 * exclusive one.  If many backends read at the same time, a partition would
 * hardly ever be free for those that acquire locks.  So only one backend
 * reads at a time.
 */
void
zkl_lock_table_begin_browsing(int partition)
{
	Assert(!zkl_lock_table_any_is_mine());
	LWLockAcquire(&zkl_lock_table->partitions[BROWSE_LOCK].lock, LW_EXCLUSIVE);
	LWLockAcquire(zkl_lock_table_partition(partition), LW_SHARED);
	ZKL_FAULT_POINT("partition-browsed");	/* while both locks are held */
}

void
zkl_lock_table_end_browsing(int partition)
{
	LWLockRelease(zkl_lock_table_partition(partition));
	LWLockRelease(&zkl_lock_table->partitions[BROWSE_LOCK].lock);
}

/*
 * A worker that stops calls this in each turn.  So the search begins where the
 * last one has ended, and keeps only one partition locked: holders must be able
 * to release.
 */
bool
zkl_lock_table_any_held(void)
{
	static int	partition = 0;
	bool		any = false;

	Assert(zkl_session_info_is_worker() && !zkl_lock_table_any_is_mine());
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		LWLockAcquire(zkl_lock_table_partition(partition), LW_SHARED);
		any = any_held_in(partition);
		LWLockRelease(zkl_lock_table_partition(partition));
		if (any)
			break;
		partition = (partition + 1) % ZKL_PARTITIONS;
	}
	return any;
}

/* The caller has locked the partition. */
static bool
any_held_in(int partition)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zkl_lock_table->entries[partition])
	{
		const ZklEntry *entry = dlist_container(ZklEntry, partition_link, iter.cur);

		if (entry->nheld > 0)
			return true;
	}
	return false;
}

typedef struct Collection
{
	ZklEntry  **entries;
	int			nentries;
	int			room;
} Collection;

/*
 * Only the worker changes the ticket, so it can read the ticket without more
 * locks.
 */
static void
collect(ZklEntry *entry, void *arg)
{
	Collection *collection = arg;

	if (entry->ticket.state == ZKL_TICKET_NONE)
		return;
	Assert(collection->nentries < collection->room);
	collection->entries[collection->nentries++] = entry;
}

ZklEntry  **
zkl_lock_table_collect(int *nentries)
{
	/* There are never more entries than this, leaderships included. */
	Collection	collection = {.room = max_entries + ZKL_LEADERS_MAX};

	Assert(zkl_session_info_is_worker());
	collection.entries = palloc(sizeof(ZklEntry *) * collection.room);
	zkl_lock_table_visit(LW_SHARED, collect, &collection);
	*nentries = collection.nentries;
	return collection.entries;
}

ZklRecent *
zkl_lock_table_recent(uint32 hash)
{
	Assert(LWLockHeldByMe(zkl_lock_table_partition(hash)));
	return &zkl_lock_table->recent[hash % zkl_lock_table->nrecent];
}

void
zkl_lock_table_wake_worker(void)
{
	Latch	   *latch = zkl_lock_table_worker_latch();

	if (latch != NULL)
		SetLatch(latch);
}

/*
 * The worker may have ended since, and its PGPROC may belong to another
 * process, which then wakes up needlessly.
 */
Latch *
zkl_lock_table_worker_latch(void)
{
	uint32		proc = pg_atomic_read_u32(&zkl_session_info->worker_proc);

	return proc != 0 ? &zkl_proc(proc - 1)->procLatch : NULL;
}

void
zkl_lock_table_wake(const ZklClaim *claim)
{
	SetLatch(zkl_lock_table_latch(claim));
}

Latch *
zkl_lock_table_latch(const ZklClaim *claim)
{
	if (claim->detached != 0)
		set_due(unconstify(ZklClaim *, claim));
	return &zkl_proc(claim->proc_number)->procLatch;
}

static void
set_due(ZklClaim *claim)
{
	SpinLockAcquire(&zkl_lock_table->due_mutex);
	if (claim->due_link.next == NULL)
		dlist_push_tail(&zkl_lock_table->due, &claim->due_link);
	SpinLockRelease(&zkl_lock_table->due_mutex);
}

ZklClaim *
zkl_lock_table_next_due(void)
{
	ZklClaim   *claim = NULL;

	SpinLockAcquire(&zkl_lock_table->due_mutex);
	if (!dlist_is_empty(&zkl_lock_table->due))
	{
		claim = dlist_container(ZklClaim, due_link,
								dlist_pop_head_node(&zkl_lock_table->due));
		claim->due_link.next = NULL;
	}
	SpinLockRelease(&zkl_lock_table->due_mutex);
	return claim;
}

void
zkl_lock_table_not_due(ZklClaim *claim)
{
	SpinLockAcquire(&zkl_lock_table->due_mutex);
	if (claim->due_link.next != NULL)
	{
		dlist_delete(&claim->due_link);
		claim->due_link.next = NULL;
	}
	SpinLockRelease(&zkl_lock_table->due_mutex);
}

void
zkl_lock_table_signal(const ZklClaim *claim, int signal)
{
	Assert(LWLockHeldByMe(zkl_lock_table_partition(claim->entry->hash)));
	if (kill(claim->pid, signal) < 0)
		elog(LOG, "could not send signal to process %d: %m", claim->pid);
}

/*
 * A signal handler calls this, so it takes no lock.  A claim that this
 * process is just beginning or ending is not a lost one.
 */
bool
zkl_lock_table_has_lost(int pid, int64 since)
{
	for (int i = 0; i < nclaims; i++)
	{
		if (claims[i].pid == pid && claims[i].state == ZKL_CLAIM_LOST &&
			claims[i].since >= since)
			return true;
	}
	return false;
}
