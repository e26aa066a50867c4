/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  A claim in the lock table: how it begins, changes, and ends; and whether
 *	  it is good, in doubt or lost.
 *
 * lockentry.h has the states, and says which process makes each change.
 *
 * src/shared/claim.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/claim.h"
#include "shared/entry.h"
#include "shared/grant.h"
#include "shared/leases.h"
#include "shared/lockstat.h"

typedef struct TicketSearch
{
	const char *znode;			/* what to look for */
	ZklEntry   *found;			/* the entry whose ticket the znode is */
} TicketSearch;

/* The znode with which a claim waits. */
typedef struct Ticket
{
	bool		blocked;		/* all znodes of the claim certainly have to
								 * wait */
	int64		czxid;			/* 0 if there is none yet */
	char	   *znode;
} Ticket;

void		(*zkl_claim_end_run_hook) (int *run, bool done, bool lost) = NULL;

static ZklClaim *take_claim(const ZklClaimant *claimant);
static ZklClaim *take_use(const ZklClaimant *claimant);
static void fill_in(ZklClaim *claim, const ZklClaimant *claimant);
static void attach(ZklClaim *claim, ZklEntry *entry, ZklMode mode, int64 now);
static ZklBeginning check_use(ZklEntry *entry, ZklMode mode, int *limit);
static bool uses_leases(const ZklEntry *semaphore);
static void make_way(ZklEntry *entry, ZklMode mode);
static void attach_use(ZklClaim *claim, ZklClaim *holder, int64 now);
static ZklClaim *find_hold(const ZklHoldSearch *search, ZklHold *hold);
static bool detach_use(ZklClaim *claim);
static void detach(ZklClaim *claim, int64 now);
static inline ZklClaimStatus status_until(const ZklClaim *claim, int64 now,
										  int64 margin, int64 *until);
static ZklLoss loss_of(const ZklClaim *claim, int64 *lost_at);
static ZklEntry *find_ticket(const char *path, uint32 hash, const char *znode);
static void compare_znode(ZklEntry *entry, void *arg);
static const ZklClaim *first_waiting(const ZklEntry *entry);
static void note_ticket(ZklEntry *entry, void *arg);

ZklBeginning
zkl_claim_begin(const char *path, ZklMode mode, int *limit, int quantity,
				const ZklClaimant *claimant, ZklClaim **new_claim)
{
	uint32		hash = zkl_lock_table_hash(path);
	ZklClaim   *claim = take_claim(claimant);
	ZklEntry   *entry;
	ZklBeginning beginning = ZKL_BEGIN_FULL;

	if (claim == NULL)
		return ZKL_BEGIN_FULL;

	/*
	 * One exclusive lock covers the look-up, the check and the link, so no
	 * other backend can make the path another kind of lock in between.  A new
	 * entry always passes the check, so it does not stay without a claim.
	 */
	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	entry = zkl_lock_table_find(path, hash);
	if (entry == NULL)
		entry = zkl_lock_table_make(path, hash);
	if (entry != NULL)
		beginning = check_use(entry, mode, limit);
	if (beginning == ZKL_BEGUN)
	{
		make_way(entry, mode);
		/* A claim that names no limit leaves the limit of others unchanged. */
		if (mode == ZKL_MODE_LEASE &&
			(*limit != 0 || dlist_is_empty(&entry->claims)))
			entry->limit = *limit;
		claim->limit = *limit;
		claim->quantity = quantity;
		attach(claim, entry, mode, zkl_now());
	}
	zkl_entry_unlock(hash);

	if (beginning != ZKL_BEGUN)
		zkl_lock_table_free_claim(claim);
	*new_claim = beginning == ZKL_BEGUN ? claim : NULL;
	return beginning;
}

/*
 * If the path has leases of a semaphore, or other claims, the caller begins a
 * claim that waits: the leases must be given up first, or the other claims may
 * go first.
 */
ZklClaim *
zkl_claim_begin_held(const char *path, uint32 hash, ZklMode mode,
					 uint32 generation, const ZklClaimant *claimant)
{
	ZklClaim   *claim = take_claim(claimant);
	ZklEntry   *entry;
	bool		held = false;

	if (claim == NULL)
		return NULL;
	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	entry = zkl_lock_table_find(path, hash);
	if (entry != NULL && entry->state == ZKL_ENTRY_OWNED &&
		entry->generation == generation && entry->nlinked == 0 &&
		dlist_is_empty(&entry->claims))
	{
		int64		now = zkl_now();

		attach(claim, entry, mode, now);
		held = zkl_grant_owned(claim, now);
		if (!held)
		{
			entry->nwaiting--;
			dlist_delete(&claim->link);
		}
	}
	zkl_entry_unlock(hash);
	if (held)
		return claim;
	zkl_lock_table_free_claim(claim);
	return NULL;
}

/* The claim is in no list yet, so no other process sees it. */
static ZklClaim *
take_claim(const ZklClaimant *claimant)
{
	ZklClaim   *claim = zkl_lock_table_take_claim();

	if (claim != NULL)
		fill_in(claim, claimant);
	return claim;
}

/*
 * The place for the uses of this process stays filled in, because a use must
 * cost next to nothing.  Fields that a use changes are set again when it is
 * attached.
 */
static ZklClaim *
take_use(const ZklClaimant *claimant)
{
	ZklClaim   *claim = zkl_lock_table_take_use();

	if (claim->pid == 0 || claim->role != GetUserId() ||
		strcmp(claim->owner_text, claimant->owner_text) != 0)
		fill_in(claim, claimant);
	claim->superuser = claimant->superuser;
	return claim;
}

static void
fill_in(ZklClaim *claim, const ZklClaimant *claimant)
{
	Assert(!zkl_session_info_is_worker() && !zkl_lock_table_any_is_mine());
	claim->proc_number = claimant->proc_number;
	claim->pid = claimant->pid;
	claim->loss_signal = claimant->loss_signal;
	claim->detached = claimant->detached;
	claim->login = MyProc->roleId;
	claim->role = GetUserId();
	claim->database = MyDatabaseId;
	claim->superuser = claimant->superuser;
	claim->run = ZKL_RUN_NONE;

	/* Both buffers have room for any text of a claim. */
	memcpy(claim->owner_text, claimant->owner_text, strlen(claimant->owner_text) + 1);
}

/* Link the claim to the entry, WAITING.  The caller holds the partition. */
static void
attach(ZklClaim *claim, ZklEntry *entry, ZklMode mode, int64 now)
{
	Assert(zkl_lock_table_is_mine(entry));
	claim->entry = entry;
	claim->state = ZKL_CLAIM_WAITING;
	claim->mode = mode;
	claim->since = now;
	claim->generation = entry->generation;
	entry->nwaiting++;
	if (claim->detached != 0)
		zkl_entry_take_turn(entry);
	dlist_push_tail(&entry->claims, &claim->link);
}

/*
 * Superusers are recognized as in pg_terminate_backend(), whatever role the
 * session has set.  A process without a role counts as a superuser's, because
 * no other role may end it.
 */
ZklClaimant
zkl_claim_claimant(const char *owner_text, int loss_signal)
{
	ZklClaimant claimant = {.owner_text = owner_text,.loss_signal = loss_signal};

	claimant.proc_number = zkl_my_proc_number();
	claimant.pid = MyProcPid;
	claimant.superuser = !OidIsValid(MyProc->roleId) ||
		superuser_arg(MyProc->roleId);
	return claimant;
}

/*
 * All claims on a lock at a time use it as the same kind, so it is enough to
 * check the first one.
 */
static ZklBeginning
check_use(ZklEntry *entry, ZklMode mode, int *limit)
{
	bool		in_use = !dlist_is_empty(&entry->claims);

	if (in_use &&
		zkl_recipe_kind(dlist_head_element(ZklClaim, link, &entry->claims)->mode) !=
		zkl_recipe_kind(mode))
		return ZKL_BEGIN_OTHER_KIND;
	if (mode != ZKL_MODE_LEASE || *limit == 0 || entry->limit == *limit)
		return ZKL_BEGUN;
	in_use = uses_leases(entry);
	if (in_use && entry->limit != 0)
	{
		*limit = entry->limit;
		return ZKL_BEGIN_OTHER_LIMIT;
	}

	/* Idle leases belong to the old limit; give them up. */
	if (!in_use)
		zkl_leases_give_up(entry);
	return ZKL_BEGUN;
}

/* A claim whose leases are all lost uses none, however long it stays. */
static bool
uses_leases(const ZklEntry *semaphore)
{
	dlist_iter	iter;

	dlist_foreach(iter, &unconstify(ZklEntry *, semaphore)->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state != ZKL_CLAIM_LOST || claim->nleases > 0)
			return true;
	}
	return false;
}

/* Give up the lingering tickets of another kind of lock on the path. */
static void
make_way(ZklEntry *entry, ZklMode mode)
{
	if (mode != ZKL_MODE_LEASE)
		zkl_leases_give_up(entry);
	else if (entry->state == ZKL_ENTRY_OWNED)
		zkl_entry_give_up(entry);
}

/*
 * When the worker begins a new generation, it no longer counts the claims
 * that wait for the old advisory lock.  A claim whose backend returns for the
 * new generation is counted again.
 */
uint32
zkl_claim_generation(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;

	zkl_entry_lock(entry);
	if (claim->generation != entry->generation)
	{
		claim->generation = entry->generation;
		entry->nwaiting++;
	}
	zkl_entry_unlock(entry->hash);
	return claim->generation;
}

/*
 * Compare and mark while the partition is locked.  If a worker begins a new
 * generation before that, this returns false.  A worker that begins one later
 * finds the mark, and ends the wait.
 */
bool
zkl_claim_begin_local_wait(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	claim->waits_locally = claim->generation == claim->entry->generation;
	claim->waited |= claim->waits_locally;
	zkl_entry_unlock(claim->entry->hash);
	return claim->waits_locally;
}

/*
 * After the mark is cleared here, the worker does not end a wait of this
 * claim.
 */
void
zkl_claim_end_local_wait(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	claim->waits_locally = false;
	claim->nudged = false;
	zkl_entry_unlock(claim->entry->hash);
}

bool
zkl_claim_merge(ZklClaim *claim, ZklClaim *second)
{
	ZklEntry   *semaphore = claim->entry;
	bool		both_held;

	/*
	 * Both claims must be held at the same moment: the leases of a lost claim
	 * may already be another client's.
	 */
	zkl_entry_lock(semaphore);
	both_held = claim->state == ZKL_CLAIM_HELD &&
		second->state == ZKL_CLAIM_HELD;
	if (both_held)
	{
		zkl_leases_move(claim, second);
		semaphore->nheld--;
		dlist_delete(&second->link);
	}
	zkl_entry_unlock(semaphore->hash);
	if (both_held)
		zkl_lock_table_free_claim(second);
	return both_held;
}

void
zkl_claim_release_leases(ZklClaim *claim, int quantity)
{
	ZklEntry   *semaphore = claim->entry;
	int64		now = zkl_now();

	zkl_entry_lock(semaphore);
	zkl_leases_put_back(claim, quantity, now);
	zkl_entry_note_release(semaphore, now);
	zkl_leases_settle(semaphore);
	zkl_entry_unlock(semaphore->hash);
}

void
zkl_claim_downgrade(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;

	zkl_entry_lock(entry);
	claim->mode = ZKL_MODE_READ;
	if (claim->state == ZKL_CLAIM_HELD)
		zkl_entry_stop_excluding(entry);
	zkl_entry_unlock(entry->hash);
}

void
zkl_claim_set_hold_limit(ZklClaim *claim, int64 hold_until)
{
	zkl_entry_lock(claim->entry);
	/* The use of a detached claim must not outlast the detached claim. */
	claim->hold_until = claim->is_use ?
		Min(claim->hold_until, hold_until) : hold_until;

	/* The worker's timer may be armed for a later moment than this limit. */
	zkl_entry_ask_worker(claim->entry);
	zkl_entry_unlock(claim->entry->hash);
}

/*
 * The claims that use the detached claim have its token, and a hold limit
 * unless only a commit uses it.  A claim that has just passed its hold limit
 * counts as lost, whether or not the worker has marked it.
 */
bool
zkl_claim_renew(ZklClaim *claim, int64 hold_until)
{
	ZklEntry   *entry = claim->entry;
	bool		held;
	dlist_iter	iter;

	zkl_entry_lock(entry);
	held = claim->state == ZKL_CLAIM_HELD && claim->epoch != ZKL_EPOCH_NONE &&
		claim->hold_until > zkl_now();
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *other = dlist_container(ZklClaim, link, iter.cur);

		if (held && other->state == ZKL_CLAIM_HELD &&
			other->token == claim->token && other->hold_until != 0)
			other->hold_until = hold_until;
	}
	zkl_entry_ask_worker(entry);	/* it arms the timer */
	zkl_entry_unlock(entry->hash);
	return held;
}

ZklClaim *
zkl_claim_use(ZklClaim *detached, const ZklClaimant *claimant)
{
	ZklEntry   *entry = detached->entry;
	ZklClaim   *claim = take_claim(claimant);
	bool		held;

	if (claim == NULL)
		return NULL;
	zkl_entry_lock(entry);
	held = detached->state == ZKL_CLAIM_HELD &&
		detached->epoch != ZKL_EPOCH_NONE;
	if (held)
	{
		attach_use(claim, detached, zkl_now());
		claim->hold_until = detached->hold_until;
	}
	zkl_entry_unlock(entry->hash);
	if (held)
		return claim;
	zkl_lock_table_free_claim(claim);
	return NULL;
}

/*
 * The lock has a holder already, so no other claim takes this for a grant.
 * The new claim comes right after the holder's in the list, and so before all
 * claims that wait: a timer looks only at the claims that are held.
 */
static void
attach_use(ZklClaim *claim, ZklClaim *holder, int64 now)
{
	ZklEntry   *entry = holder->entry;

	Assert(zkl_lock_table_is_mine(entry));
	claim->entry = entry;
	claim->state = ZKL_CLAIM_HELD;
	claim->mode = holder->mode;
	claim->since = now;
	claim->generation = entry->generation;
	claim->is_use = true;
	claim->epoch = holder->epoch;
	claim->token = holder->token;
	claim->hold_until = 0;
	entry->nheld++;
	dlist_insert_after(&holder->link, &claim->link);
}

/*
 * The use has no hold limit: it begins only if the lock is good, and lasts as
 * long as its commit.
 */
ZklClaim *
zkl_claim_use_hold(const ZklHoldSearch *search, const ZklClaimant *claimant, ZklHold *hold)
{
	ZklClaim   *claim = NULL;
	ZklClaim   *holder;

	if (claimant != NULL)
		claim = take_use(claimant);
	LWLockAcquire(zkl_lock_table_partition(search->hash), LW_EXCLUSIVE);
	holder = find_hold(search, hold);
	if (holder != NULL)
	{
		ZKL_FAULT_POINT("hold-found");	/* while the partition is locked */
		holder->nuses++;
		if (claim != NULL)
			attach_use(claim, holder, hold->looked_at);
	}
	LWLockRelease(zkl_lock_table_partition(search->hash));
	if (holder == NULL && claim != NULL)
		zkl_lock_table_free_claim(claim);
	return holder != NULL ? claim : NULL;
}

void
zkl_claim_look_at_hold(const ZklHoldSearch *search, ZklHold *hold)
{
	LWLockAcquire(zkl_lock_table_partition(search->hash), LW_SHARED);
	(void) find_hold(search, hold);
	LWLockRelease(zkl_lock_table_partition(search->hash));
}

/*
 * The claim of the session that holds the lock, if that is good; else NULL.
 * The caller has locked the partition.
 *
 * Each claim has a token of its own.  If the search names no token, find the
 * claim with the smallest token above "after".  Skip claims of the claims
 * process, which is no session, and uses, which belong to a transaction of
 * another session.
 */
static ZklClaim *
find_hold(const ZklHoldSearch *search, ZklHold *hold)
{
	ZklEntry   *entry = zkl_lock_table_find(search->path, search->hash);
	ZklClaim   *found = NULL;
	dlist_iter	iter;

	hold->is_semaphore = false;
	hold->token = 0;
	if (entry == NULL)
		return NULL;
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->mode == ZKL_MODE_LEASE)
		{
			hold->is_semaphore = true;	/* all claims are for leases */
			return NULL;
		}
		if (claim->state == ZKL_CLAIM_WAITING || claim->detached != 0 ||
			(claim->is_use && claim->pid != MyProcPid))
			continue;
		if (search->token != 0)
		{
			if (claim->token != search->token)
				continue;
			found = claim;
			break;
		}
		if (claim->state == ZKL_CLAIM_HELD && claim->token > search->after &&
			(found == NULL || claim->token < found->token))
			found = claim;
	}
	if (found == NULL)
		return NULL;
	hold->token = found->token;
	hold->role = found->role;
	hold->superuser = found->superuser;
	hold->looked_at = zkl_now();
	hold->until = PG_INT64_MAX;
	hold->status = status_until(found, hold->looked_at, search->margin, &hold->until);
	if (hold->status == ZKL_STATUS_LOST)
		hold->loss = loss_of(found, &hold->lost_at);
	hold->excludes = entry->excludes_superuser && search->superuser;
	return hold->status == ZKL_STATUS_GOOD && !hold->excludes ? found : NULL;
}

bool
zkl_claim_set_run(ZklClaim *claim, int slot)
{
	bool		held;

	zkl_entry_lock(claim->entry);
	held = claim->state == ZKL_CLAIM_HELD;
	claim->run = slot;

	/*
	 * If the claim was lost before it had the run's slot, the worker could
	 * not end the run, so end it here.
	 */
	if (held)
		zkl_lock_table_wake_worker();
	else
		zkl_claim_end_run_hook(&claim->run, false, false);
	zkl_entry_unlock(claim->entry->hash);
	return held;
}

void
zkl_claim_end_run(ZklClaim *claim, bool done)
{
	zkl_entry_lock(claim->entry);
	zkl_claim_end_run_hook(&claim->run, done, false);
	zkl_entry_unlock(claim->entry->hash);
}

void
zkl_claim_end(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;

	/* detach() may remove the entry, so copy what is needed after it. */
	uint32		hash = entry->hash;

	zkl_entry_lock(entry);
	if (!detach_use(claim))
	{
		/*
		 * End the run before detach() gives the ticket up.  Then the worker
		 * sends the run's end first, and the next client that gets the lock
		 * finds it in the record.
		 */
		zkl_claim_end_run_hook(&claim->run, false, false);
		detach(claim, zkl_now());
	}
	zkl_entry_unlock(hash);

	/* Do this now that no process can find the claim and make it due again. */
	if (claim->detached != 0)
		zkl_lock_table_not_due(claim);
	zkl_lock_table_free_claim(claim);
	if (pg_atomic_read_u32(&zkl_lock_table->shutting_down))
		zkl_lock_table_wake_worker();
}

/*
 * A use that ends before its holder releases nothing, so nothing is to be
 * decided.  A use has neither a run nor a row of statistics.  False: the claim
 * is no use, it is lost, or no other claim holds the lock.
 */
static bool
detach_use(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;

	if (!claim->is_use || claim->state != ZKL_CLAIM_HELD || entry->nheld == 1)
		return false;
	dlist_delete(&claim->link);
	entry->nheld--;
	zkl_entry_stop_excluding(entry);
	return true;
}

/*
 * Take a claim off its entry, and decide what becomes of the ticket.  The
 * entry may be gone afterwards.
 */
static void
detach(ZklClaim *claim, int64 now)
{
	ZklEntry   *entry = claim->entry;

	Assert(zkl_lock_table_is_mine(entry) && !zkl_session_info_is_worker());
	zkl_lock_stat_ended(claim, now);
	dlist_delete(&claim->link);
	zkl_entry_set_needs_ticket(claim, false);
	if (entry->leader == claim)
	{
		/*
		 * The guards of transactions that rely on the leadership must look
		 * again.
		 */
		pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
		entry->leader = NULL;

		/*
		 * The next leader must be another server, so the ticket must not
		 * linger: this server's next claim for the leadership would take it.
		 */
		entry->revoked |= claim->state == ZKL_CLAIM_HELD;
	}
	zkl_leases_put_back(claim, claim->nleases, now);
	switch (claim->state)
	{
		case ZKL_CLAIM_WAITING:

			/* A claim of an older generation is not counted. */
			if (claim->generation == entry->generation)
				entry->nwaiting--;
			if (claim->detached != 0)
				zkl_entry_pass_turn(entry);
			break;
		case ZKL_CLAIM_HELD:
			entry->nheld--;
			zkl_entry_note_release(entry, now);
			zkl_entry_stop_excluding(entry);
			break;
		case ZKL_CLAIM_LOST:
			break;
	}
	if (claim->mode == ZKL_MODE_LEASE)
		zkl_leases_settle(entry);

	/*
	 * The loss of the claim has settled its ticket, which may serve other
	 * claims by now.
	 */
	else if (claim->state == ZKL_CLAIM_LOST)
		zkl_entry_remove_if_unused(entry);
	else
		zkl_entry_settle(entry, now);
}

/*
 * The status of a claim, and facts about its lock
 */

ZklClaimStatus
zkl_claim_status(ZklClaim *claim, int64 margin)
{
	int64		until = PG_INT64_MAX;

	return zkl_claim_status_until(claim, margin, &until);
}

ZklClaimStatus
zkl_claim_status_until(ZklClaim *claim, int64 margin, int64 *until)
{
	LWLock	   *partition = zkl_lock_table_partition(claim->entry->hash);
	ZklClaimStatus status;

	LWLockAcquire(partition, LW_SHARED);
	status = status_until(claim, zkl_now(), margin, until);
	LWLockRelease(partition);
	return status;
}

/*
 * The caller has read the clock after it locked the partition, so that the
 * wait for the lock cannot make the reading old.
 */
static inline ZklClaimStatus
status_until(const ZklClaim *claim, int64 now, int64 margin, int64 *until)
{
	ZklClaimStatus status = ZKL_STATUS_GOOD;
	int64		needed = now + margin;
	int64		good_until;

	/*
	 * After an expiry, the worker first raises the epoch, and marks each
	 * claim later.
	 */
	good_until = zkl_session_info_until(claim->epoch);
	if (good_until <= needed)
		status = ZKL_STATUS_DOUBT;

	/*
	 * A claim counts as lost from the moment of its hold limit, or from the
	 * moment at which this server has deleted its znode, even if the worker
	 * has not marked it yet.
	 */
	if (claim->hold_until != 0)
		good_until = Min(good_until, claim->hold_until);
	if (claim->state != ZKL_CLAIM_HELD || claim->epoch == ZKL_EPOCH_NONE ||
		(claim->hold_until != 0 && claim->hold_until <= needed))
		status = ZKL_STATUS_LOST;
	if (status == ZKL_STATUS_GOOD)
		*until = Min(*until, good_until);
	return status;
}

ZklLoss
zkl_claim_status_loss(ZklClaim *claim, int64 *lost_at)
{
	LWLock	   *partition = zkl_lock_table_partition(claim->entry->hash);
	ZklLoss		loss;

	LWLockAcquire(partition, LW_SHARED);
	loss = loss_of(claim, lost_at);
	LWLockRelease(partition);
	return loss;
}

/*
 * If the worker has not marked the claim, either this server has deleted its
 * znode, or its hold limit has passed.  The caller has locked the partition.
 */
static ZklLoss
loss_of(const ZklClaim *claim, int64 *lost_at)
{
	ZklLoss		loss = ZKL_LOSS_HOLD_LIMIT;

	*lost_at = claim->hold_until;
	if (claim->state == ZKL_CLAIM_LOST)
	{
		loss = claim->loss;
		*lost_at = claim->since;
	}
	else if (claim->epoch == ZKL_EPOCH_NONE)
	{
		loss = ZKL_LOSS_DELETED;
		*lost_at = zkl_now();
	}
	return loss;
}

/*
 * A claim on leases has a znode for each of them, and other clients can
 * request the release of each.
 */
bool
zkl_claim_status_is_revoked(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	bool		revoked = false;
	dlist_iter	iter;

	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	if (claim->state == ZKL_CLAIM_HELD)
	{
		revoked = entry->revoked;
		dlist_foreach(iter, &claim->leases)
			revoked |= dlist_container(ZklEntry, lease_link, iter.cur)->revoked;
	}
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	return revoked;
}

int64
zkl_claim_status_uses(const ZklClaim *claim)
{
	int64		nuses;

	LWLockAcquire(zkl_lock_table_partition(claim->entry->hash), LW_SHARED);
	nuses = claim->nuses;
	LWLockRelease(zkl_lock_table_partition(claim->entry->hash));
	return nuses;
}

/*
 * If the claim was lost, its leases were lost as well.  Then other clients
 * may have made the path another kind of lock since the survey.
 */
void
zkl_claim_mark_surveyed(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	if (claim->state == ZKL_CLAIM_HELD)
		claim->entry->surveyed = true;
	zkl_entry_unlock(claim->entry->hash);
}

bool
zkl_claim_status_is_settled(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	bool		settled;

	zkl_entry_lock(entry);

	/*
	 * Look at the znodes and set the mark under one lock.  If the last znode
	 * goes after the look, the worker finds the mark and sets the latch.
	 */
	settled = !zkl_entry_is_releasing(entry);
	zkl_entry_set_needs_ticket(claim, !settled);
	zkl_entry_unlock(entry->hash);
	return settled;
}

bool
zkl_claim_status_is_releasing(const char *path)
{
	uint32		hash = zkl_lock_table_hash(path);
	const ZklEntry *entry;
	bool		releasing;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	entry = zkl_lock_table_find(path, hash);
	releasing = entry != NULL && zkl_entry_is_releasing(entry);
	LWLockRelease(zkl_lock_table_partition(hash));
	return releasing;
}

/*
 * A claim on leases has no ticket, so this server knows nothing about other
 * clients.
 */
ZklObstacle
zkl_claim_status_obstacle(const ZklClaim *claim)
{
	const ZklEntry *entry = claim->entry;
	const ZklClaim *holder = NULL;
	ZklObstacle obstacle = {0};

	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	if (entry->state == ZKL_ENTRY_QUEUED)
	{
		obstacle.holds = entry->place.front_is_next;
		strlcpy(obstacle.owner_text, entry->before, sizeof(obstacle.owner_text));
		strlcpy(obstacle.front, entry->place.front, sizeof(obstacle.front));
	}
	else if (entry->state == ZKL_ENTRY_OWNED)
		holder = zkl_entry_holder(entry);
	if (holder != NULL)
	{
		obstacle.holds = true;
		strlcpy(obstacle.owner_text, holder->owner_text, sizeof(obstacle.owner_text));
	}
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	return obstacle;
}

/*
 * A queued znode is for the claim that waits, and an owned one for the claim
 * that holds.  A ticket that lingers or is given up is for no backend.
 */
bool
zkl_claim_status_describe(const char *path, const char *znode,
						  char owner_text[ZKL_OWNER_TEXT_SIZE])
{
	uint32		hash = zkl_lock_table_hash(path);
	const ZklEntry *entry;
	const ZklClaim *claim = NULL;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	entry = find_ticket(path, hash, znode);
	if (entry != NULL && entry->state == ZKL_ENTRY_QUEUED)
		claim = first_waiting(entry->lock);
	else if (entry != NULL && entry->state == ZKL_ENTRY_OWNED)
		claim = zkl_entry_holder(entry);
	strlcpy(owner_text, claim ? claim->owner_text : "", ZKL_OWNER_TEXT_SIZE);
	LWLockRelease(zkl_lock_table_partition(hash));
	return entry != NULL;
}

/*
 * The entry of the lock, or of one of its leases, whose ticket has this znode;
 * NULL if there is none.  The caller holds the partition of the lock and its
 * leases.
 */
static ZklEntry *
find_ticket(const char *path, uint32 hash, const char *znode)
{
	ZklEntry   *lock = zkl_lock_table_find(path, hash);
	TicketSearch search = {znode, NULL};

	if (lock != NULL)
	{
		compare_znode(lock, &search);
		zkl_leases_visit(lock, compare_znode, &search);
	}
	return search.found;
}

static void
compare_znode(ZklEntry *entry, void *arg)
{
	TicketSearch *search = arg;

	if (strcmp(entry->place.znode, search->znode) == 0)
		search->found = entry;
}

/*
 * The first claim that needs the ticket.  Claims that wait are in the order in
 * which they began.
 */
static const ZklClaim *
first_waiting(const ZklEntry *entry)
{
	dlist_iter	iter;

	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->needs_ticket)
			return claim;
	}
	return NULL;
}

/*
 * Mark the claims, and then raise the count of losses.  If a commit guard
 * found a claim good before this, it has read the old count, and will look
 * again: see lose_claim() in entrystate.c.
 */
void
zkl_claim_mark_deleted(const char *path, const char *znode)
{
	uint32		hash = zkl_lock_table_hash(path);
	ZklEntry   *entry;
	dlist_iter	iter;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	entry = find_ticket(path, hash, znode);
	if (entry != NULL && entry->state == ZKL_ENTRY_OWNED)
	{
		entry->epoch = ZKL_EPOCH_NONE;
		if (entry->holder != NULL)
			entry->holder->epoch = ZKL_EPOCH_NONE;
		dlist_foreach(iter, &entry->claims)
			dlist_container(ZklClaim, link, iter.cur)->epoch = ZKL_EPOCH_NONE;
		pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
		zkl_entry_ask_worker(entry);
	}
	zkl_entry_unlock(hash);
}

/*
 * The pending leases of a semaphore are those that its waiting claim
 * requests.  If this server already has all leases, none is pending, and the
 * claim waits for other claims of this server.
 */
ZklTicketStatus
zkl_claim_status_ticket(ZklClaim *claim, int64 *czxid,
						char znode[ZKL_ZNODE_SIZE])
{
	ZklEntry   *entry = claim->entry;
	Ticket		ticket = {true, 0, znode};
	bool		in_touch;
	dlist_iter	iter;

	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	if (claim->mode != ZKL_MODE_LEASE)
		note_ticket(entry, &ticket);
	else
	{
		dlist_foreach(iter, &entry->pending)
			note_ticket(dlist_container(ZklEntry, lease_link, iter.cur), &ticket);
		if (dlist_is_empty(&entry->pending))
			zkl_leases_visit(entry, note_ticket, &ticket);
	}
	/* An idle session may have expired without notice. */
	in_touch = zkl_now() < zkl_session_info_in_touch_until() &&
		zkl_session_info_is_safe(zkl_now());
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	*czxid = ticket.czxid;
	if (!in_touch)
		return ZKL_TICKET_DOUBT;
	return ticket.blocked && ticket.czxid != 0 ? ZKL_TICKET_WAITS :
		ZKL_TICKET_SOON;
}

/* On an owned ticket, a claim may also wait for claims of its own server. */
static void
note_ticket(ZklEntry *entry, void *arg)
{
	Ticket	   *ticket = arg;

	if (entry->state != ZKL_ENTRY_OWNED &&
		(entry->state != ZKL_ENTRY_QUEUED || !entry->blocked))
		ticket->blocked = false;
	else if (entry->place.czxid > ticket->czxid)
	{
		ticket->czxid = entry->place.czxid;
		strlcpy(ticket->znode, entry->place.znode, ZKL_ZNODE_SIZE);
	}
}
