/*-------------------------------------------------------------------------
 *
 * waits.c
 *	  The waits of this server that may be part of a deadlock across servers.
 *
 * States, their changes and the lock are described in waits.h.
 *
 * src/deadlock/waits.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "deadlock/waits.h"
#include "shared/locktable.h"

/* The worker, which publishes the waits. */
#define PUBLISHER		0

typedef struct Slot
{
	ZklWaitInfo wait;
	uint32		asked;			/* number of the worker's last request */
	bool		sentenced;
	ZklWaitSentence sentence;

	/* the notice for the backend as the holder of a lock: */
	ZklWaitSentence notice;
	TimestampTz notice_at;		/* when the notice came; the backend reads
								 * this field, and the three below, without
								 * the lock */
	int			waiter;			/* the process that waits */
	int			waiter_number;	/* the number of the waiting process */
	pg_atomic_uint64 notice_for;	/* when the waiting process began its wait
									 * in PostgreSQL; 0: no notice.  Written
									 * under the lock; a signal handler reads
									 * it without */
} Slot;

typedef struct Waits
{
	LWLock	   *lock;			/* protects the slots */
	pg_atomic_uint64 last_number;
	pg_atomic_uint64 changes;
	Slot		slots[FLEXIBLE_ARRAY_MEMBER];	/* MaxBackends of them */
} Waits;

static Waits *waits = NULL;

static Slot *my_slot(void);
static Slot *find(uint64 number);
static void note_change(void);
static ZklClaim *find_claim(const ZklWaitSentence *sentence, uint32 hash);
static int	compare_ages(const void *one, const void *other);
static int	compare_turns(const void *one, const void *other);

Size
zkl_waits_size(void)
{
	return add_size(offsetof(Waits, slots), mul_size(MaxBackends, sizeof(Slot)));
}

void
zkl_waits_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	waits = memory;
	if (!is_new)
		return;
	waits->lock = &locks->lock;
	pg_atomic_init_u64(&waits->last_number, 0);
	pg_atomic_init_u64(&waits->changes, 0);
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&waits->slots[i].notice_for, 0);
}

static Slot *
my_slot(void)
{
	return &waits->slots[zkl_my_proc_number()];
}

/* The slot of a wait, or NULL.  The caller holds the lock of the slots. */
static Slot *
find(uint64 number)
{
	Assert(LWLockHeldByMe(waits->lock));
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
	zkl_lock_table_wake_worker();
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
	 * Count this as a change even if the holders are the same, because their
	 * locks may have changed.
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
zkl_waits_is_held(const ZklWaitSentence *sentence, bool *is_use)
{
	uint32		hash = zkl_lock_table_hash(sentence->path);
	const ZklClaim *claim;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	claim = find_claim(sentence, hash);
	*is_use = claim != NULL && claim->is_use;
	LWLockRelease(zkl_lock_table_partition(hash));
	return claim != NULL;
}

/*
 * The partition stays locked from the look at the claim to the signal.  So
 * the claim exists, and with it the backend, and the signal cannot hit
 * another process.
 */
void
zkl_waits_cancel(const ZklWaitSentence *sentence, int waiter,
				 TimestampTz wait_start)
{
	uint32		hash = zkl_lock_table_hash(sentence->path);
	const PGPROC *proc = BackendPidGetProc(waiter);
	ZklClaim   *claim;

	if (proc == NULL)
		return;
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
		zkl_lock_table_signal(claim, claim->loss_signal);
	}
	LWLockRelease(zkl_lock_table_partition(hash));
}

/*
 * The claim that the sentence names.  NULL also if the claim is in doubt,
 * because then the deadlock is in doubt, too.
 */
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
			!zkl_session_info_is_in_doubt(claim->epoch, zkl_now()))
			return claim;
	}
	return NULL;
}

/*
 * A semaphore's entry does not show whether clients wait for its leases, so
 * assume that they do.  Backends of this server may wait for the ticket of a
 * lock that a transaction holds by a detached claim.
 */
bool
zkl_waits_is_wanted(const ZklClaim *claim)
{
	return claim->mode == ZKL_MODE_LEASE || claim->entry->contended ||
		(claim->is_use && claim->entry->nneeding > 0);
}

/*
 * While a backend waits for leases, its claim with this path can only be on
 * the inner mutex, not on a user's lock of that name.
 */
bool
zkl_waits_hold_up(ZklMode mode, const char *path, const ZklClaim *held)
{
	Size		length = strlen(path);
	const char *held_path = held->entry->path;
	bool		is_inner = mode == ZKL_MODE_LEASE &&
	strncmp(held_path, path, length) == 0 &&
	strcmp(held_path + length, "/" ZKL_LOCKS) == 0;

	return !is_inner || zkl_waits_is_wanted(held);
}

/*
 * The backend that is cancelled
 */

/*
 * The slot may have belonged to another process before.  Auxiliary processes
 * have no slot.
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
 * when it ends.  If a wait has no waitStart, it is identified by the
 * transaction.  A parallel worker that has ended has left the group, and its
 * PGPROC may belong to another process.
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

/* Order by turn within the role, and then the oldest first. */
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
