/*-------------------------------------------------------------------------
 *
 * detached.c
 *	  Detached claims: those that belong to a number, and to no backend.
 *
 * Numbers grow, and the remainder of a number names its slot.  A number whose
 * slot has a claim is left out.
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
#include "shared/detached.h"
#include "shared/grant.h"
#include "shared/lingerquota.h"
#include "shared/lockstat.h"

/* How soon to look again at a claim whose ticket is in doubt. */
#define DOUBT_INTERVAL	ZKL_MS(1000)

/* All fields are protected by detached_lock. */
typedef struct Detached
{
	LWLock	   *lock;			/* detached_lock; fixed */
	int			owner_pid;
	int			owner_proc;
	int64		look_at;		/* when the claims process looks next at all
								 * claims that wait */
	int64		looked_at;		/* when it last looked at them */
	uint64		last;			/* the last number */
	int			nslots;
	int			nfree;
	ZklDetached slots[FLEXIBLE_ARRAY_MEMBER];
} Detached;

static Detached *detached = NULL;

static ZklDetached *free_slot(void);
static ZklDetached *find(uint64 number);
static ZklDetached *lock_existing(uint64 number, LWLockMode mode);
static void copy(const ZklDetached *slot, ZklDetachedInfo *info);
static bool is_lost(ZklDetached *slot);
static void ask(ZklDetached *slot);
static void end(ZklDetached *slot);
static void wake_waiter(const ZklDetached *slot);
static void note_asked(ZklDetached *slot, int64 hold_limit);
static void look_by(int64 moment);
static void look_at_due(ZklDetached *slot);
static void look_at_waiting(int64 now);

/*
 * There is room for as many detached claims as for entries.  There are more
 * claims than entries, so backends have claims left.
 */
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

/* The slot of this claim, which may have ended; NULL: it is not known any more. */
static ZklDetached *
find(uint64 number)
{
	ZklDetached *slot = &detached->slots[number % detached->nslots];

	return slot->number == number ? slot : NULL;
}

/* Take detached_lock.  NULL: the claim has ended. */
static ZklDetached *
lock_existing(uint64 number, LWLockMode mode)
{
	ZklDetached *slot;

	LWLockAcquire(detached->lock, mode);
	slot = find(number);
	return slot != NULL && slot->claim != NULL ? slot : NULL;
}

/* This needs no lock, because a request checks the process again. */
int
zkl_detached_owner(void)
{
	return detached->owner_pid;
}

/*
 * The functions of backends
 */

ZklBeginning
zkl_detached_request(const char *path, int64 hold_limit, ZklClaimant *claimant,
					 uint64 *number)
{
	ZklBeginning beginning = ZKL_BEGIN_OWNERLESS;
	ZklClaim   *claim;
	ZklDetached *slot;
	int			limit = 0;

	LWLockAcquire(detached->lock, LW_EXCLUSIVE);
	if (detached->owner_pid != claimant->pid)
		;						/* another claims process runs */
	else if (!zkl_linger_quota_begin_claim(path, detached->nfree))
		beginning = ZKL_BEGIN_BOUND;
	else
	{
		slot = free_slot();
		claimant->proc_number = detached->owner_proc;
		claimant->detached = slot - detached->slots + 1;

		/*
		 * A superuser's transaction may use the claim, so its znode must not
		 * rule that out.
		 */
		claimant->superuser = true;
		beginning = zkl_claim_begin(path, ZKL_MODE_LOCK, &limit, 0, claimant, &claim);
		if (beginning == ZKL_BEGUN)
		{
			memset(slot, 0, sizeof(*slot));
			slot->number = *number = detached->last;
			slot->claim = claim;
			strlcpy(slot->path, path, sizeof(slot->path));
			slot->role = claim->role;
			detached->nfree--;
			note_asked(slot, hold_limit);
			ZKL_FAULT_POINT("detached-begun");	/* under detached_lock */
			ask(slot);
		}
		else
			zkl_linger_quota_end_claim(path, MyProc->roleId);
	}
	LWLockRelease(detached->lock);
	return beginning;
}

/* The slot for the next number.  One is free, because the role is below its bound. */
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

bool
zkl_detached_look(uint64 number, ZklDetachedInfo *info)
{
	bool		existed;

	LWLockAcquire(detached->lock, LW_SHARED);
	existed = number > detached->nslots && number <= detached->last;
	copy(find(number), info);
	LWLockRelease(detached->lock);
	return existed;
}

bool
zkl_detached_next(int *place, ZklDetachedInfo *info)
{
	bool		found = false;

	LWLockAcquire(detached->lock, LW_SHARED);
	while (!found && *place < detached->nslots)
	{
		const ZklDetached *slot = &detached->slots[(*place)++];

		if (slot->claim == NULL)
			continue;
		copy(slot, info);
		found = info->claim.state != ZKL_CLAIM_LOST;
	}
	LWLockRelease(detached->lock);
	return found;
}

/* slot = NULL: nothing is known of the claim but that it has ended. */
static void
copy(const ZklDetached *slot, ZklDetachedInfo *info)
{
	memset(info, 0, sizeof(*info));
	if (slot != NULL)
		info->slot = *slot;
	if (info->slot.claim != NULL)
		info->claim = *slot->claim;
	if (info->slot.claim == NULL || is_lost(&info->slot))
		info->claim.state = ZKL_CLAIM_LOST;
	else if (info->claim.state == ZKL_CLAIM_HELD)
		info->in_doubt = zkl_claim_status(slot->claim, 0) == ZKL_STATUS_DOUBT;
}

/*
 * Is the claim about to end, because it was lost?  The claims process may not
 * have noticed yet.  This function notes in the slot, or in a copy of it, how
 * the claim was lost.
 */
static bool
is_lost(ZklDetached *slot)
{
	if (slot->claim->state == ZKL_CLAIM_WAITING ||
		zkl_claim_status(slot->claim, 0) != ZKL_STATUS_LOST)
		return false;
	slot->loss = zkl_claim_status_loss(slot->claim, &slot->lost_at);
	return true;
}

bool
zkl_detached_begin_wait(uint64 number)
{
	ZklDetached *slot = lock_existing(number, LW_EXCLUSIVE);
	bool		mine = slot == NULL || slot->waiter == NULL;

	if (slot != NULL && mine)
		slot->waiter = MyProc;
	LWLockRelease(detached->lock);
	return mine;
}

void
zkl_detached_end_wait(int code, Datum number)
{
	ZklDetached *slot = lock_existing(DatumGetUInt64(number), LW_EXCLUSIVE);

	if (slot != NULL)
	{
		slot->waiter = NULL;
		note_asked(slot, slot->hold_limit);
	}
	LWLockRelease(detached->lock);
}

ZklTicketStatus
zkl_detached_ticket(uint64 number, int64 *czxid, char znode[ZKL_ZNODE_SIZE])
{
	ZklDetached *slot = lock_existing(number, LW_SHARED);
	ZklTicketStatus status = ZKL_TICKET_SOON;

	if (slot != NULL && slot->claim->state == ZKL_CLAIM_WAITING)
		status = zkl_claim_status_ticket(slot->claim, czxid, znode);
	LWLockRelease(detached->lock);
	return status;
}

void
zkl_detached_note_deadlock(uint64 number)
{
	ZklDetached *slot = lock_existing(number, LW_SHARED);

	if (slot != NULL)
		zkl_lock_stat_failed(slot->claim, ERRCODE_T_R_DEADLOCK_DETECTED);
	LWLockRelease(detached->lock);
}

bool
zkl_detached_renew(uint64 number, int64 hold_limit)
{
	ZklDetached *slot = lock_existing(number, LW_EXCLUSIVE);
	bool		renewed = slot != NULL &&
	(slot->claim->state == ZKL_CLAIM_WAITING ||
	 zkl_claim_renew(slot->claim, zkl_now() + hold_limit));

	if (renewed)
		note_asked(slot, hold_limit);
	LWLockRelease(detached->lock);
	return renewed;
}

bool
zkl_detached_release(uint64 number)
{
	ZklDetached *slot = lock_existing(number, LW_EXCLUSIVE);
	bool		released = slot != NULL && !is_lost(slot);

	if (slot != NULL)
		end(slot);
	LWLockRelease(detached->lock);
	return released;
}

ZklClaim *
zkl_detached_use(uint64 number, const ZklClaimant *claimant)
{
	ZklDetached *slot = lock_existing(number, LW_SHARED);
	ZklClaim   *claim = slot != NULL ? zkl_claim_use(slot->claim, claimant) : NULL;

	LWLockRelease(detached->lock);
	return claim;
}

/* What happens to a claim.  The caller has detached_lock, exclusively. */

/*
 * Request the lock, as a claim that waits.  Only the first claim in line
 * requests the ticket from the worker, and is woken whenever there is news.
 */
static void
ask(ZklDetached *slot)
{
	ZklClaim   *claim = slot->claim;
	ZklAnswer	answer;

	Assert(LWLockHeldByMeInMode(detached->lock, LW_EXCLUSIVE));
	answer = zkl_grant_request(claim, false, true);
	if (answer == ZKL_ANSWER_DOUBT)
		look_by(zkl_now() + DOUBT_INTERVAL);
	else if (answer == ZKL_ANSWER_FAILED)
	{
		slot->failure = claim->failure;
		end(slot);
	}
	else if (answer == ZKL_ANSWER_HELD)
	{
		ZKL_FAULT_POINT("detached-granted");	/* under detached_lock */
		zkl_claim_set_hold_limit(claim, zkl_now() + slot->hold_limit);
		wake_waiter(slot);
	}
}

/*
 * The slot says why the claim ended, unless it was released or the claims
 * process ends.  Transactions that use the claim keep the ticket, until they
 * end.
 */
static void
end(ZklDetached *slot)
{
	ZklClaim   *claim = slot->claim;

	Assert(LWLockHeldByMeInMode(detached->lock, LW_EXCLUSIVE));
	ZKL_FAULT_POINT("detached-ending"); /* under detached_lock */
	slot->claim = NULL;
	zkl_linger_quota_end_claim(slot->path, claim->login);
	zkl_claim_end(claim);
	detached->nfree++;
	wake_waiter(slot);
}

static void
wake_waiter(const ZklDetached *slot)
{
	if (slot->waiter != NULL)
		SetLatch(&slot->waiter->procLatch);
}

static void
note_asked(ZklDetached *slot, int64 hold_limit)
{
	slot->hold_limit = hold_limit;
	slot->asked_until = zkl_now() + hold_limit;
	look_by(slot->asked_until);
}

/*
 * The claims process looks at all claims that wait when the first of them may
 * have to end, rather than at each change of a claim.  So most changes do not
 * wake it.  It looks at most ten times a second, so a claim may end a tenth of
 * a second late.
 */
static void
look_by(int64 moment)
{
	moment = Max(moment, detached->looked_at + ZKL_LOOK_INTERVAL);
	if (moment >= detached->look_at)
		return;
	detached->look_at = moment;
	zkl_detached_wake_owner();
}

void
zkl_detached_wake_owner(void)
{
	if (detached->owner_pid != 0)
		SetLatch(&zkl_proc(detached->owner_proc)->procLatch);
}

/*
 * The claims process
 */

void
zkl_detached_begin_owner(void)
{
	LWLockAcquire(detached->lock, LW_EXCLUSIVE);
	Assert(detached->owner_pid == 0);
	detached->owner_pid = MyProcPid;
	detached->owner_proc = zkl_my_proc_number();
	LWLockRelease(detached->lock);
}

/* Backends get detached_lock in between. */
ZklClaim *
zkl_detached_tend(int64 *look_at)
{
	for (;;)
	{
		ZklClaim   *claim;

		ZKL_FAULT_POINT("claims-woken");
		LWLockAcquire(detached->lock, LW_EXCLUSIVE);
		claim = zkl_lock_table_next_due();
		if (claim == NULL && zkl_now() >= detached->look_at)
			look_at_waiting(zkl_now());
		*look_at = detached->look_at;
		if (claim == NULL || claim->detached == ZKL_DETACHED_LEADERSHIP)
		{
			LWLockRelease(detached->lock);
			return claim;
		}
		look_at_due(&detached->slots[claim->detached - 1]);
		LWLockRelease(detached->lock);
	}
}

static void
look_at_due(ZklDetached *slot)
{
	if (is_lost(slot))
		end(slot);
	else if (slot->claim->state == ZKL_CLAIM_WAITING)
		ask(slot);
}

static void
look_at_waiting(int64 now)
{
	detached->look_at = ZKL_FOREVER;
	detached->looked_at = now;
	for (int i = 0; i < detached->nslots; i++)
	{
		ZklDetached *slot = &detached->slots[i];

		if (slot->claim == NULL || slot->claim->state != ZKL_CLAIM_WAITING)
			continue;
		if (slot->waiter != NULL)
			note_asked(slot, slot->hold_limit);
		if (slot->asked_until <= now)
		{
			slot->loss = ZKL_LOSS_HOLD_LIMIT;
			slot->lost_at = now;
			end(slot);
		}
		else
		{
			look_by(slot->asked_until);
			ask(slot);
		}
	}
}

/*
 * The claims process exits.  No claim begins until the next claims process
 * has started.
 */
void
zkl_detached_end_owner(void)
{
	LWLockAcquire(detached->lock, LW_EXCLUSIVE);
	for (int i = 0; i < detached->nslots; i++)
	{
		ZklDetached *slot = &detached->slots[i];

		if (slot->claim == NULL)
			continue;
		(void) is_lost(slot);
		end(slot);
	}
	detached->owner_pid = 0;
	LWLockRelease(detached->lock);
}
