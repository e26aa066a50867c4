/*-------------------------------------------------------------------------
 *
 * waits.c
 *	  The waits of this server that may be part of a deadlock across servers.
 *
 * States, their changes and the lock are described in waits.h.
 *
 * src/shared/waits.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shared/locktable.h"
#include "shared/waits.h"

#define TRANCHE_NAME	"zklock waits"

/* The worker that publishes the waits of all ZooKeeper sessions. */
#define PUBLISHER		0

typedef struct Slot
{
	ZklWaitInfo wait;
	uint32		asked;			/* requests of the worker, counted for ever */
	bool		sentenced;
	ZklWaitSentence sentence;

	/* for the backend as a holder */
	ZklWaitSentence notice;
	TimestampTz notice_at;		/* when it came; that backend reads this, and
								 * the three below, without the lock */
	int			waiter;			/* the process that waits ... */
	int			waiter_number;	/* ... and its number */
	pg_atomic_uint64 notice_for;	/* its local wait that began at this
									 * moment; 0: no notice.  Written under
									 * the lock; a signal handler reads it
									 * without */
} Slot;

typedef struct Waits
{
	LWLock	   *lock;			/* protects the slots */
	int64		instance;		/* fixed */
	pg_atomic_uint64 last_number;
	pg_atomic_uint64 changes;
	Slot		slots[FLEXIBLE_ARRAY_MEMBER];	/* MaxBackends of them */
} Waits;

static Waits *waits = NULL;

static Size shared_size(void);
static Slot *my_slot(void);
static Slot *find(uint64 number);
static void note_change(void);
static ZklClaim *find_claim(const ZklWaitSentence *sentence, uint32 hash);
static int	compare_ages(const void *one, const void *other);
static int	compare_turns(const void *one, const void *other);

void
zkl_waits_request(void)
{
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

void
zkl_waits_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	waits = ShmemInitStruct(TRANCHE_NAME, shared_size(), &found);
	if (!found)
	{
		memset(waits, 0, shared_size());
		waits->lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
		if (!pg_strong_random(&waits->instance, sizeof(waits->instance)))
			elog(ERROR, "could not generate a random number");
		waits->instance = Max(1, waits->instance & PG_INT64_MAX);
		pg_atomic_init_u64(&waits->last_number, 0);
		pg_atomic_init_u64(&waits->changes, 0);
		for (int i = 0; i < MaxBackends; i++)
			pg_atomic_init_u64(&waits->slots[i].notice_for, 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

static Size
shared_size(void)
{
	return add_size(offsetof(Waits, slots), mul_size(MaxBackends, sizeof(Slot)));
}

static Slot *
my_slot(void)
{
	return &waits->slots[zkl_my_proc_number()];
}

/* The slot of a wait, or NULL.  The caller holds the lock. */
static Slot *
find(uint64 number)
{
	for (int i = 0; i < MaxBackends; i++)
	{
		if (waits->slots[i].wait.number == number)
			return &waits->slots[i];
	}
	return NULL;
}

static void
note_change(void)
{
	pg_atomic_fetch_add_u64(&waits->changes, 1);
	zkl_lock_table_wake_worker(PUBLISHER);
}

int64
zkl_waits_instance(void)
{
	return waits->instance;
}

/*
 * The backend that waits
 */

uint64
zkl_waits_new_number(void)
{
	return pg_atomic_add_fetch_u64(&waits->last_number, 1);
}

void
zkl_waits_put(const ZklWaitInfo *wait)
{
	Slot	   *slot = my_slot();

	LWLockAcquire(waits->lock, LW_EXCLUSIVE);
	if (slot->wait.number != wait->number)
		slot->sentenced = false;
	slot->wait = *wait;
	LWLockRelease(waits->lock);

	/*
	 * What the holders hold may have changed even if they are the same, so
	 * the worker looks each time.
	 */
	note_change();
}

void
zkl_waits_end(void)
{
	Slot	   *slot = my_slot();

	LWLockAcquire(waits->lock, LW_EXCLUSIVE);
	slot->wait.number = 0;
	slot->sentenced = false;
	LWLockRelease(waits->lock);
	note_change();
}

bool
zkl_waits_look(uint32 *asked, ZklWaitSentence *sentence)
{
	Slot	   *slot = my_slot();
	bool		sentenced;

	LWLockAcquire(waits->lock, LW_EXCLUSIVE);
	sentenced = slot->wait.number != 0 && slot->sentenced;
	*asked = slot->wait.number != 0 ? slot->asked : 0;
	if (sentenced)
		*sentence = slot->sentence;
	slot->sentenced = false;
	LWLockRelease(waits->lock);
	return sentenced;
}

bool
zkl_waits_is_held(const ZklWaitSentence *sentence)
{
	uint32		hash = zkl_lock_table_hash(sentence->path);
	bool		held;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	held = find_claim(sentence, hash) != NULL;
	LWLockRelease(zkl_lock_table_partition(hash));
	return held;
}

/*
 * The partition is locked from the look at the claim to the signal.  So the
 * claim exists, and with it the backend, and the signal cannot hit another
 * process.
 */
bool
zkl_waits_cancel(const ZklWaitSentence *sentence, int waiter,
				 TimestampTz wait_start)
{
	uint32		hash = zkl_lock_table_hash(sentence->path);
	const PGPROC *proc = BackendPidGetProc(waiter);
	ZklClaim   *claim;

	if (proc == NULL)
		return false;
	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	claim = find_claim(sentence, hash);
	if (claim != NULL)
	{
		Slot	   *slot = &waits->slots[claim->proc_number];

		LWLockAcquire(waits->lock, LW_EXCLUSIVE);
		slot->notice = *sentence;
		slot->notice_at = GetCurrentTimestamp();
		slot->waiter = waiter;
		slot->waiter_number = proc - ProcGlobal->allProcs;
		pg_atomic_write_u64(&slot->notice_for, (uint64) wait_start);
		LWLockRelease(waits->lock);
		zkl_lock_table_tell_lost(claim);
	}
	LWLockRelease(zkl_lock_table_partition(hash));
	return claim != NULL;
}

/* NULL also if the claim is in doubt: then the deadlock is, too. */
static ZklClaim *
find_claim(const ZklWaitSentence *sentence, uint32 hash)
{
	ZklEntry   *entry = zkl_lock_table_find(sentence->path, hash);
	dlist_iter	iter;

	if (entry == NULL)
		return NULL;
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state == ZKL_CLAIM_HELD && claim->pid == sentence->pid &&
			claim->token == sentence->token &&
			!zkl_session_info_is_in_doubt(claim->epoch, entry->session,
										  zkl_now()))
			return claim;
	}
	return NULL;
}

/* A semaphore's entry does not know about its leases. */
bool
zkl_waits_is_wanted(const ZklClaim *claim)
{
	return claim->mode == ZKL_MODE_LEASE || claim->entry->contended;
}

/*
 * The backend that is cancelled
 */

/*
 * The slot may have been another process's before.  Auxiliary processes have
 * none.
 */
bool
zkl_waits_has_notice(void)
{
	return MyProc != NULL && zkl_my_proc_number() < MaxBackends &&
		pg_atomic_read_u64(&my_slot()->notice_for) != 0 &&
		my_slot()->notice.pid == MyProcPid;
}

TimestampTz
zkl_waits_notice_at(void)
{
	return my_slot()->notice_at;
}

/*
 * PostgreSQL writes waitStart while the wait begins, and resets waitStatus
 * when it ends.  A wait that has lost its time is named by the transaction.
 * A parallel worker that has ended has left the group; its place may be another
 * process's.
 */
bool
zkl_waits_accept_notice(void)
{
	Slot	   *slot = my_slot();
	uint64		notice_for = pg_atomic_exchange_u64(&slot->notice_for, 0);
	PGPROC	   *proc = zkl_proc(slot->waiter_number);
	uint64		wait_start = pg_atomic_read_u64(&proc->waitStart);

	if (wait_start == 0)
		wait_start = zkl_local_xid(proc);
	return proc->pid == slot->waiter &&
		(proc == MyProc || proc->lockGroupLeader == MyProc) &&
		proc->waitStatus == PROC_WAIT_STATUS_WAITING &&
		wait_start == notice_for && zkl_now() < slot->notice.until;
}

void
zkl_waits_read_notice(ZklWaitSentence *sentence)
{
	Slot	   *slot = my_slot();

	LWLockAcquire(waits->lock, LW_EXCLUSIVE);
	*sentence = slot->notice;
	pg_atomic_write_u64(&slot->notice_for, 0);
	LWLockRelease(waits->lock);
}

/*
 * The worker
 */

uint64
zkl_waits_changes(void)
{
	return pg_atomic_read_u64(&waits->changes);
}

int
zkl_waits_get(ZklWaitInfo **copies)
{
	ZklWaitInfo *found = palloc(MaxBackends * sizeof(ZklWaitInfo));
	int			nfound = 0;

	LWLockAcquire(waits->lock, LW_SHARED);
	for (int i = 0; i < MaxBackends; i++)
	{
		if (waits->slots[i].wait.number != 0)
			found[nfound++] = waits->slots[i].wait;
	}
	LWLockRelease(waits->lock);

	qsort(found, nfound, sizeof(ZklWaitInfo), compare_ages);
	for (int i = 0; i < nfound; i++)
		found[i].turn = i > 0 && found[i].role == found[i - 1].role ?
			found[i - 1].turn + 1 : 0;
	qsort(found, nfound, sizeof(ZklWaitInfo), compare_turns);
	*copies = found;
	return nfound;
}

/* By roles, and then the oldest first. */
static int
compare_ages(const void *one, const void *other)
{
	const ZklWaitInfo *a = one;
	const ZklWaitInfo *b = other;

	if (a->role != b->role)
		return a->role < b->role ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static int
compare_turns(const void *one, const void *other)
{
	const ZklWaitInfo *a = one;
	const ZklWaitInfo *b = other;

	if (a->turn != b->turn)
		return a->turn < b->turn ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

uint32
zkl_waits_ask(uint64 number)
{
	Slot	   *slot;
	uint32		asked = 0;

	LWLockAcquire(waits->lock, LW_EXCLUSIVE);
	slot = find(number);
	if (slot != NULL)
	{
		asked = ++slot->asked;
		SetLatch(&zkl_proc(slot - waits->slots)->procLatch);
	}
	LWLockRelease(waits->lock);
	return asked;
}

void
zkl_waits_sentence(uint64 number, const ZklWaitSentence *sentence)
{
	Slot	   *slot;

	LWLockAcquire(waits->lock, LW_EXCLUSIVE);
	slot = find(number);
	if (slot != NULL)
	{
		slot->sentence = *sentence;
		slot->sentenced = true;
		SetLatch(&zkl_proc(slot - waits->slots)->procLatch);
	}
	LWLockRelease(waits->lock);
}
