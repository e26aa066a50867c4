/*-------------------------------------------------------------------------
 *
 * detached.c
 *	  Detached claims: those that belong to a number, and to no backend.
 *
 * Numbers grow, and the remainder of a number names its slot.  A number whose slot has a
 * claim is left out.
 *
 * src/shared/detached.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/claimstatus.h"
#include "shared/detached.h"
#include "shared/grant.h"
#include "shared/lingerquota.h"

/* How soon to look again at a claim whose ticket is in doubt. */
#define LOOK_INTERVAL	ZKL_MS(1000)

/* Protected by detached_lock, all of it. */
typedef struct Detached
{
	LWLock	   *lock;			/* detached_lock; fixed */
	int			owner_pid;
	int			owner_proc;
	int64		look_at;		/* when the owner process looks at all claims
								 * that wait */
	uint64		last;			/* the last number */
	int			nslots;
	int			nfree;
	ZklDetached slots[FLEXIBLE_ARRAY_MEMBER];
} Detached;

static Detached *detached = NULL;

static void lock(LWLockMode mode);
static void unlock(void);
static ZklDetached *free_slot(void);
static ZklDetached *find(uint64 number);
static ZklDetached *slot_of(const ZklClaim *claim);
static void fill(ZklDetached *slot, ZklClaim *claim, int64 lease_time);
static void copy(const ZklDetached *slot, ZklDetachedInfo *info);
static void ask(ZklDetached *slot);
static void end(ZklDetached *slot, ZklLoss loss, int64 lost_at, ZklFailure failure);
static bool end_if_lost(ZklDetached *slot);
static void wake_waiter(const ZklDetached *slot);
static void note_asked(ZklDetached *slot, int64 lease_time);
static void look_by(int64 moment);
static void look_at_waiting(int64 now);

/* There are never more claims than entries, so that backends have claims left. */
Size
zkl_detached_size(void)
{
	return add_size(offsetof(Detached, slots),
					mul_size(zkl_lock_table_max_entries(), sizeof(ZklDetached)));
}

void
zkl_detached_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	detached = memory;
	if (!is_new)
		return;
	detached->lock = &locks->lock;
	detached->look_at = ZKL_FOREVER;
	detached->nslots = detached->nfree = zkl_lock_table_max_entries();
	detached->last = detached->nslots;	/* 0 is no claim */
}

static void
lock(LWLockMode mode)
{
	LWLockAcquire(detached->lock, mode);
}

static void
unlock(void)
{
	LWLockRelease(detached->lock);
}

/* The slot of this claim, which may have ended; NULL: it is not known any more. */
static ZklDetached *
find(uint64 number)
{
	ZklDetached *slot = &detached->slots[number % detached->nslots];

	return slot->number == number ? slot : NULL;
}

static ZklDetached *
slot_of(const ZklClaim *claim)
{
	return &detached->slots[claim->detached - 1];
}

int
zkl_detached_owner(void)
{
	int			pid;

	lock(LW_SHARED);
	pid = detached->owner_pid;
	unlock();
	return pid;
}

/*
 * The functions of backends
 */

ZklBeginning
zkl_detached_request(const char *path, int64 lease_time,
					 const ZklClaimant *claimant, int owner, uint64 *number)
{
	ZklClaimant for_owner = *claimant;
	ZklBeginning beginning = ZKL_BEGIN_OWNERLESS;
	ZklClaim   *claim;
	ZklDetached *slot;
	int			limit = 0;

	lock(LW_EXCLUSIVE);
	if (owner == 0 || detached->owner_pid != owner)
		;						/* another one may have begun */
	else if (!zkl_linger_quota_begin_claim(path, detached->nfree))
		beginning = ZKL_BEGIN_BOUND;
	else
	{
		slot = free_slot();
		for_owner.pid = owner;
		for_owner.proc_number = detached->owner_proc;
		for_owner.detached = slot - detached->slots + 1;
		beginning = zkl_claim_begin(path, ZKL_MODE_LOCK, &limit, 0,
									&for_owner, &claim);
		if (beginning == ZKL_BEGUN)
		{
			*number = detached->last;
			fill(slot, claim, lease_time);
			ZKL_FAULT_POINT("detached-begun");	/* under detached_lock */
			ask(slot);
		}
		else
			zkl_linger_quota_end_claim(path, MyProc->roleId);
	}
	unlock();
	return beginning;
}

/* For the next number.  There is one, or the role's bound would have been reached. */
static ZklDetached *
free_slot(void)
{
	ZklDetached *slot;

	do
	{
		slot = &detached->slots[++detached->last % detached->nslots];
	} while (slot->claim != NULL);
	return slot;
}

static void
fill(ZklDetached *slot, ZklClaim *claim, int64 lease_time)
{
	memset(slot, 0, sizeof(*slot));
	slot->number = detached->last;
	slot->claim = claim;
	strlcpy(slot->path, claim->entry->path, sizeof(slot->path));
	slot->role = claim->role;
	note_asked(slot, lease_time);
	detached->nfree--;
}

bool
zkl_detached_look(uint64 number, ZklDetachedInfo *info)
{
	bool		existed;

	lock(LW_SHARED);
	existed = number > detached->nslots && number <= detached->last;
	copy(find(number), info);
	unlock();
	return existed;
}

bool
zkl_detached_next(int *place, ZklDetachedInfo *info)
{
	bool		found = false;

	lock(LW_SHARED);
	while (!found && *place < detached->nslots)
	{
		const ZklDetached *slot = &detached->slots[(*place)++];

		if (slot->claim == NULL)
			continue;
		copy(slot, info);
		found = info->state != ZKL_CLAIM_LOST;
	}
	unlock();
	return found;
}

/*
 * NULL: a claim of which nothing is known but that it has ended.  The owner process may
 * not have noticed a loss yet.
 */
static void
copy(const ZklDetached *slot, ZklDetachedInfo *info)
{
	ZklClaimStatus standing;

	memset(info, 0, sizeof(*info));
	info->state = ZKL_CLAIM_LOST;
	if (slot == NULL)
		return;
	info->slot = *slot;
	if (slot->claim == NULL)
		return;
	info->claim = *slot->claim;
	info->state = slot->claim->state;
	if (info->state == ZKL_CLAIM_WAITING)
		return;
	standing = zkl_claim_status(slot->claim, 0);
	info->in_doubt = standing == ZKL_STATUS_DOUBT;
	if (standing != ZKL_STATUS_LOST)
		return;
	info->state = ZKL_CLAIM_LOST;
	info->slot.loss = zkl_claim_status_loss(slot->claim, &info->slot.lost_at);
}

bool
zkl_detached_begin_wait(uint64 number)
{
	ZklDetached *slot;
	bool		mine = true;

	lock(LW_EXCLUSIVE);
	slot = find(number);
	if (slot != NULL && slot->claim != NULL)
	{
		mine = slot->waiter == NULL;
		if (mine)
			slot->waiter = MyProc;
		note_asked(slot, slot->lease_time);
	}
	unlock();
	return mine;
}

void
zkl_detached_end_wait(uint64 number)
{
	ZklDetached *slot;

	lock(LW_EXCLUSIVE);
	slot = find(number);
	if (slot != NULL && slot->waiter == MyProc)
	{
		slot->waiter = NULL;
		note_asked(slot, slot->lease_time);
	}
	unlock();
}

bool
zkl_detached_renew(uint64 number, int64 lease_time)
{
	ZklDetached *slot;
	bool		renewed = false;

	lock(LW_EXCLUSIVE);
	slot = find(number);
	if (slot != NULL && slot->claim != NULL)
	{
		renewed = slot->claim->state == ZKL_CLAIM_WAITING ||
			zkl_claim_renew(slot->claim, zkl_now() + lease_time);
		note_asked(slot, lease_time);
	}
	unlock();
	return renewed;
}

bool
zkl_detached_release(uint64 number)
{
	ZklDetached *slot;
	bool		released = false;

	lock(LW_EXCLUSIVE);
	slot = find(number);
	if (slot != NULL && slot->claim != NULL && !end_if_lost(slot))
	{
		end(slot, ZKL_LOSS_NONE, zkl_now(), ZKL_FAILURE_NONE);
		released = true;
	}
	unlock();
	return released;
}

ZklClaim *
zkl_detached_use(uint64 number, const ZklClaimant *claimant, bool *full)
{
	ZklDetached *slot;
	ZklClaim   *claim = NULL;

	*full = false;
	lock(LW_SHARED);
	slot = find(number);
	if (slot != NULL && slot->claim != NULL)
		claim = zkl_claim_use(slot->claim, claimant, full);
	unlock();
	return claim;
}

/*
 * What happens to a claim.  The caller has detached_lock, exclusively.
 */

/*
 * Ask for the lock, as a claim that waits.  Only the first in line asks the worker, and is
 * woken whenever there is news.
 */
static void
ask(ZklDetached *slot)
{
	ZklClaim   *claim = slot->claim;
	ZklAnswer	answer = zkl_grant_request(claim, false, claim->about);

	if (answer == ZKL_ANSWER_DOUBT)
		look_by(zkl_now() + LOOK_INTERVAL);
	else if (answer == ZKL_ANSWER_FAILED)
		end(slot, ZKL_LOSS_NONE, zkl_now(), claim->failure);
	else if (answer == ZKL_ANSWER_HELD)
	{
		ZKL_FAULT_POINT("detached-granted");	/* under detached_lock */
		zkl_claim_set_lease_time(claim, zkl_now() + slot->lease_time);
		wake_waiter(slot);
	}
}

/* Transactions that use the claim keep the ticket, until they end. */
static void
end(ZklDetached *slot, ZklLoss loss, int64 lost_at, ZklFailure failure)
{
	ZklClaim   *claim = slot->claim;

	ZKL_FAULT_POINT("detached-ending"); /* under detached_lock */
	slot->loss = loss;
	slot->lost_at = lost_at;
	slot->failure = failure;
	slot->claim = NULL;
	zkl_linger_quota_end_claim(slot->path, claim->login);
	zkl_claim_end(claim);
	detached->nfree++;
	wake_waiter(slot);
}

static bool
end_if_lost(ZklDetached *slot)
{
	ZklLoss		loss;
	int64		lost_at;

	if (slot->claim->state == ZKL_CLAIM_WAITING ||
		zkl_claim_status(slot->claim, 0) != ZKL_STATUS_LOST)
		return false;
	loss = zkl_claim_status_loss(slot->claim, &lost_at);
	end(slot, loss, lost_at, ZKL_FAILURE_NONE);
	return true;
}

static void
wake_waiter(const ZklDetached *slot)
{
	if (slot->waiter != NULL)
		SetLatch(&slot->waiter->procLatch);
}

static void
note_asked(ZklDetached *slot, int64 lease_time)
{
	slot->lease_time = lease_time;
	slot->asked_until = zkl_now() + lease_time;
	look_by(slot->asked_until);
}

/*
 * The owner process looks at all claims that wait when the first of them may have to end,
 * and not at every change of one.  So most changes do not wake it.
 */
static void
look_by(int64 moment)
{
	if (moment >= detached->look_at)
		return;
	detached->look_at = moment;
	if (detached->owner_pid != 0 && detached->owner_pid != MyProcPid)
		SetLatch(&zkl_proc(detached->owner_proc)->procLatch);
}

/*
 * The owner process
 */

bool
zkl_detached_begin_owner(void)
{
	bool		mine;

	lock(LW_EXCLUSIVE);
	mine = detached->owner_pid == 0;
	if (mine)
	{
		detached->owner_pid = MyProcPid;
		detached->owner_proc = zkl_my_proc_number();
	}
	unlock();
	return mine;
}

/* Backends get detached_lock in between. */
int64
zkl_detached_tend(void)
{
	ZklClaim   *claim;
	int64		now;
	int64		look_at;

	do
	{
		ZKL_FAULT_POINT("owner-woken");
		lock(LW_EXCLUSIVE);
		claim = zkl_lock_table_next_due();
		if (claim != NULL && !end_if_lost(slot_of(claim)) &&
			claim->state == ZKL_CLAIM_WAITING)
			ask(slot_of(claim));
		unlock();
	} while (claim != NULL);

	lock(LW_EXCLUSIVE);
	now = zkl_now();
	if (now >= detached->look_at)
		look_at_waiting(now);
	look_at = detached->look_at;
	unlock();
	return look_at;
}

static void
look_at_waiting(int64 now)
{
	detached->look_at = ZKL_FOREVER;
	for (int i = 0; i < detached->nslots; i++)
	{
		ZklDetached *slot = &detached->slots[i];

		if (slot->claim == NULL || slot->claim->state != ZKL_CLAIM_WAITING)
			continue;
		if (slot->waiter != NULL)
			note_asked(slot, slot->lease_time);
		if (slot->asked_until <= now)
			end(slot, ZKL_LOSS_LEASE_TIME, now, ZKL_FAILURE_NONE);
		else
		{
			look_by(slot->asked_until);
			ask(slot);
		}
	}
}

/* The process exits.  No claim begins any more, until there is another one. */
void
zkl_detached_end_owner(void)
{
	lock(LW_EXCLUSIVE);
	for (int i = 0; i < detached->nslots; i++)
	{
		ZklDetached *slot = &detached->slots[i];

		if (slot->claim != NULL && !end_if_lost(slot))
			end(slot, ZKL_LOSS_NONE, zkl_now(), ZKL_FAILURE_NONE);
	}
	detached->owner_pid = 0;
	unlock();
}
