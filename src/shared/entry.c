/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  The changes of an entry and its ticket: one function for each change.
 *
 * Only this file and entrystate.c, the worker's part, write the state of an
 * entry.  lockentry.h has the states, and says which process makes each change.
 *
 * src/shared/entry.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "settings.h"
#include "shared/entry.h"
#include "shared/lingerquota.h"
#include "shared/lockstat.h"

#ifdef USE_ASSERT_CHECKING
static void assert_consistent(const ZklEntry *entry);
#else
#define assert_consistent(entry)	((void) 0)
#endif
static void wake_later(Latch *latch);
static bool shall_linger(ZklEntry *entry);
static bool pays_to_linger(const ZklEntry *entry);
static ZklRecent *begin_recent(const ZklEntry *entry);
static bool is_within_linger(int64 released_at, int64 now);
static void take_back(ZklEntry *entry);
static void unlink_lease(ZklEntry *lease);
static void note_standby(ZklEntry *entry);

/*
 * The latches to set when the partition is unlocked.  A process that wakes up
 * locks the partition first.  If it woke up while the partition is locked, it
 * would have to sleep again.
 */
static Latch *late[8];
static int	nlate = 0;

void
zkl_entry_lock(const ZklEntry *entry)
{
	Assert(!zkl_lock_table_any_is_mine());
	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_EXCLUSIVE);
	assert_consistent(entry);
}

void
zkl_entry_unlock(uint32 hash)
{
	LWLockRelease(zkl_lock_table_partition(hash));
	for (int i = 0; i < nlate; i++)
		SetLatch(late[i]);
	nlate = 0;
}

/* If there is no room left for a latch, set it at once. */
static void
wake_later(Latch *latch)
{
	if (nlate < lengthof(late))
		late[nlate++] = latch;
	else
		SetLatch(latch);
}

#ifdef USE_ASSERT_CHECKING
static int
length_of(const dlist_head *list)
{
	dlist_iter	iter;
	int			length = 0;

	dlist_foreach(iter, unconstify(dlist_head *, list))
		length++;
	return length;
}

/* Invariants that hold whenever no process is changing the entry. */
static void
assert_consistent(const ZklEntry *entry)
{
	dlist_iter	iter;
	int			nheld = 0;
	int			nwaiting = 0;
	int			nneeding = 0;
	int			ndetached = 0;
	int			nleases = length_of(&entry->idle) + length_of(&entry->pending);

	Assert(entry->state != ZKL_ENTRY_OWNED || entry->owned_at != 0);
	Assert(!entry->stuck || entry->state == ZKL_ENTRY_RELEASING);
	if (zkl_lock_entry_is_lease(entry))
	{
		Assert(length_of(&entry->claims) == 0);
		Assert(entry->nheld == 0);
		Assert(entry->holder == NULL || entry->state == ZKL_ENTRY_OWNED);
		return;
	}

	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		Assert(claim->entry == entry);
		Assert(claim->nleases == length_of(&claim->leases));
		Assert(claim->state != ZKL_CLAIM_LOST || claim->loss != ZKL_LOSS_NONE);
		nheld += claim->state == ZKL_CLAIM_HELD;
		nwaiting += claim->state == ZKL_CLAIM_WAITING &&
			claim->generation == entry->generation;
		nneeding += claim->needs_ticket;
		ndetached += claim->detached != 0 && claim->state == ZKL_CLAIM_WAITING;
		nleases += claim->nleases;
	}
	Assert(entry->nheld == nheld);
	Assert(entry->nwaiting == nwaiting);
	Assert(entry->nneeding == nneeding);
	Assert(entry->ndetached == ndetached);
	Assert(entry->nleases == nleases);
	Assert(entry->nowned <= entry->nleases && entry->nleases <= entry->nlinked);
	Assert(!entry->exclusive || entry->nheld > 0);
}
#endif

/*
 * A claim has ended.  Hand the ticket on to the claims that wait; if there
 * are none, let it linger or give it up.
 */
void
zkl_entry_settle(ZklEntry *entry, int64 now)
{
	Assert(zkl_lock_table_is_mine(entry));
	/* Other readers still hold the lock. */
	if (entry->nheld > 0)
		return;

	if (entry->nwaiting > 0)
	{
		/*
		 * Hand the ticket on within the server, unless other clients have
		 * waited for its tenure.
		 */
		if (entry->state == ZKL_ENTRY_OWNED && zkl_entry_tenure_is_over(entry, now))
			zkl_entry_give_up(entry);
		else if (entry->state == ZKL_ENTRY_OWNED && !entry->list_asked)
		{
			/*
			 * A ticket that created its directory has not listed it yet.  The
			 * list alone shows whether other clients queue.  Without a list,
			 * the server would hand the lock on beyond its tenure.
			 */
			entry->handed_on = true;
			zkl_entry_ask_worker(entry);
		}
		zkl_entry_wake_needing(entry);
		return;
	}

	entry->idle_at = now;
	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			zkl_entry_remove_if_unused(entry);
			break;
		case ZKL_ENTRY_WANTED:
		case ZKL_ENTRY_QUEUED:
			zkl_entry_withdraw(entry);
			break;
		case ZKL_ENTRY_OWNED:
			zkl_entry_settle_idle(entry);
			break;
		case ZKL_ENTRY_RELEASING:
			break;
	}
}

/*
 * To keep releases cheap, this wakes the worker only if the timer is not
 * armed, or is armed for a later moment than needed.  A timer that fires too
 * early is armed again.
 */
void
zkl_entry_settle_idle(ZklEntry *entry)
{
	Assert(zkl_entry_is_idle(entry));
	if (!shall_linger(entry))
		zkl_entry_give_up(entry);
	else
	{
		entry->lingers = true;
		if (!entry->timer_armed ||
			entry->armed_for > entry->idle_at + ZKL_MS(zkl_linger))
			zkl_entry_ask_worker(entry);
	}
}

/*
 * While a claim needs leases, a lease that no claim holds is not idle, because
 * the claim is collecting it.
 */
bool
zkl_entry_is_idle(const ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	if (zkl_lock_entry_is_lease(entry))
		return entry->holder == NULL && entry->lock->nneeding == 0;
	return entry->nheld == 0 && entry->nwaiting == 0;
}

/*
 * A ticket may linger only if no other client waits for it.  A ticket whose
 * znode says that the lock is in use must not linger, because that text stays
 * true until the ticket's end.  And a ticket without numbers left for tokens
 * can serve no claim.
 *
 * A session may make any number of tickets linger, because
 * zklock.max_locks_per_backend bounds only what it holds.  So lingerquota.h
 * bounds the tickets that linger for a role.
 */
static bool
shall_linger(ZklEntry *entry)
{
	return entry->comes_back && zkl_linger > 0 && pays_to_linger(entry) &&
		!entry->contended &&
		!entry->answered && !entry->revoked && entry->claim_number < ZKL_CLAIM_NUMBER_MAX &&
		zkl_linger_quota_begin(entry);
}

/* Leases linger wherever a semaphore comes back: any server may take any of them. */
static bool
pays_to_linger(const ZklEntry *entry)
{
	const ZklComeback *comeback = zkl_entry_comeback(entry);

	return comeback == NULL || zkl_comeback_pays(comeback);
}

ZklComeback *
zkl_entry_comeback(const ZklEntry *entry)
{
	ZklRecent  *recent = zkl_lock_table_recent(entry->hash);

	return !zkl_lock_entry_is_lease(entry) && recent->hash == entry->hash ?
		&recent->comeback : NULL;
}

ZklComeback *
zkl_entry_begin_comeback(const ZklEntry *entry)
{
	return &begin_recent(entry)->comeback;
}

/*
 * The entry may be gone before the lock is acquired again.  The slot outlives
 * it, until another path with the same slot overwrites it.
 */
void
zkl_entry_note_release(ZklEntry *lock, int64 now)
{
	lock->released_at = now;
	begin_recent(lock)->released_at = now;
}

static ZklRecent *
begin_recent(const ZklEntry *entry)
{
	ZklRecent  *recent = zkl_lock_table_recent(entry->hash);

	Assert(zkl_lock_table_is_mine(entry));
	if (recent->hash != entry->hash)
	{
		recent->hash = entry->hash;
		recent->released_at = 0;
		zkl_comeback_start(&recent->comeback, entry->place.znode);
	}
	return recent;
}

bool
zkl_entry_tenure_is_over(const ZklEntry *entry, int64 now)
{
	Assert(zkl_lock_table_is_mine(entry));
	return entry->revoked ||
		(entry->contended && now - entry->owned_at >= ZKL_MS(zkl_tenure));
}

/*
 * If readers could always join, they would keep a writer on another server
 * waiting for ever.  But a contended ticket no longer lists the directory, so
 * the writer may be gone.  So the worker lists once more, and wakes the claims
 * if no writer is left.
 */
bool
zkl_entry_may_join(ZklEntry *entry, int64 now)
{
	Assert(zkl_lock_table_is_mine(entry));
	if (!zkl_entry_tenure_is_over(entry, now))
		return entry->claim_number < ZKL_CLAIM_NUMBER_MAX;
	if (!entry->recheck_asked)
	{
		entry->recheck_asked = true;
		zkl_entry_ask_worker(entry);
	}
	return false;
}

void
zkl_entry_count_claim(ZklEntry *entry, int64 now)
{
	ZklComeback *comeback = zkl_entry_comeback(entry);

	Assert(zkl_lock_table_is_mine(entry));
	entry->claim_number++;
	if (entry->lingers && comeback != NULL)
		zkl_comeback_used(comeback);
	entry->lingers = false;
	entry->comes_back = zkl_entry_comes_back(entry->lock, now);
}

/*
 * Another path may use the same slot, so the hash must agree.  If two paths
 * have one hash, a ticket lingers or does not linger by mistake, which does no
 * harm.
 */
bool
zkl_entry_comes_back(const ZklEntry *lock, int64 now)
{
	ZklRecent  *recent = zkl_lock_table_recent(lock->hash);

	return is_within_linger(lock->released_at, now) ||
		(recent->hash == lock->hash && is_within_linger(recent->released_at, now));
}

static bool
is_within_linger(int64 released_at, int64 now)
{
	return released_at != 0 && now - released_at <= ZKL_MS(zkl_linger);
}

/*
 * ZooKeeper gives each later znode a greater czxid, so later tickets have
 * greater tokens.  The lower bits distinguish the claims on one ticket.
 */
int64
zkl_entry_token(const ZklEntry *entry)
{
	return entry->place.czxid * (ZKL_CLAIM_NUMBER_MAX + 1) + entry->claim_number;
}

void
zkl_entry_downgrade(ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	Assert(!entry->exclusive);
	if (entry->state != ZKL_ENTRY_OWNED || entry->mode != ZKL_MODE_WRITE)
		return;

	/*
	 * From here on, no writer is granted.  The worker finds that the mode of
	 * the entry differs from the mode of the ticket, and changes the znode.
	 */
	entry->mode = ZKL_MODE_READ;
	zkl_entry_ask_worker(entry);
}

/*
 * A use (use.h) may exclude readers longer than its holder does.  If no claim
 * is held, zkl_entry_settle() comes next, which decides about the ticket.
 */
void
zkl_entry_stop_excluding(ZklEntry *entry)
{
	int			left = entry->nheld;
	dlist_iter	iter;

	Assert(zkl_lock_table_is_mine(entry));
	if (!entry->exclusive)
		return;
	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (left == 0)
			break;
		if (claim->state != ZKL_CLAIM_HELD)
			continue;
		if (claim->mode != ZKL_MODE_READ)
			return;
		left--;
	}
	entry->exclusive = false;
	if (entry->nheld == 0)
		return;
	zkl_entry_downgrade(entry);

	/* Backends that got QUEUED because of the writer may join now. */
	zkl_entry_wake_needing(entry);
}

/*
 * The name of the znode contains the mode.  So once the worker has looked, a
 * ticket of another mode needs another znode.
 */
void
zkl_entry_change_mode(ZklEntry *entry, ZklMode mode)
{
	Assert(zkl_lock_table_is_mine(entry));
	if (entry->state == ZKL_ENTRY_WANTED && !entry->seen)
		entry->mode = mode;
	else if (entry->nheld == 0)
		zkl_entry_give_up(entry);
}

bool
zkl_entry_serves(const ZklEntry *entry, const ZklClaim *claim)
{
	Assert(zkl_lock_table_is_mine(entry));
	Assert(claim->entry == entry);
	return zkl_recipe_serves(entry->mode, claim->mode) &&
		!(entry->excludes_superuser && claim->superuser);
}

const ZklClaim *
zkl_entry_holder(const ZklEntry *entry)
{
	const ZklClaim *holder = entry->holder;
	int			left = entry->nheld;
	dlist_iter	iter;

	Assert(LWLockHeldByMe(zkl_lock_table_partition(entry->hash)));
	/* Claims on leases are in the list of the semaphore's entry. */
	if (zkl_lock_entry_is_lease(entry))
		return holder != NULL && holder->state == ZKL_CLAIM_HELD ? holder : NULL;
	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		/* Thousands of claims may wait after the last one that is held. */
		if (left == 0)
			break;
		if (claim->state != ZKL_CLAIM_HELD)
			continue;
		left--;

		/*
		 * The znode already names this backend, so the worker has nothing to
		 * write as long as this claim is held.
		 */
		if (strcmp(claim->owner_text, entry->owner_text) == 0)
			return claim;
		if (holder == NULL)
			holder = claim;
	}
	return holder;
}

/*
 * Other claims, also of superusers, may join a reader's ticket at any time,
 * and take an idle lease.  So the znodes of readers' tickets and of leases
 * never exclude superusers.
 */
void
zkl_entry_note_asker(ZklEntry *entry, const ZklClaim *claim)
{
	Assert(zkl_lock_table_is_mine(entry));
	entry->role = claim->login;
	entry->only_tries = claim->only_tries;
	entry->excludes_superuser = !claim->superuser && claim->mode != ZKL_MODE_READ &&
		claim->mode != ZKL_MODE_LEASE;
	entry->in_multilock = claim->in_multilock;
	strlcpy(entry->owner_text, claim->owner_text, sizeof(entry->owner_text));
}

/* -> WANTED */
void
zkl_entry_want(ZklEntry *entry, ZklMode mode)
{
	Assert(zkl_lock_table_is_mine(entry));
	Assert(entry->state == ZKL_ENTRY_NONE);
	entry->state = ZKL_ENTRY_WANTED;
	entry->mode = mode;

	/*
	 * Until the worker looks, backends may change the request or take it back
	 * without any request to ZooKeeper.
	 */
	entry->seen = false;
	zkl_entry_ask_worker(entry);
}

void
zkl_entry_withdraw(ZklEntry *entry)
{
	Assert(entry->state == ZKL_ENTRY_WANTED ||
		   entry->state == ZKL_ENTRY_QUEUED);
	if (entry->state == ZKL_ENTRY_WANTED && !entry->seen)
		take_back(entry);
	else
		zkl_entry_give_up(entry);
}

/*
 * WANTED -> NONE.  The worker has not looked at the request yet, or there is
 * no worker.  If the worker has just taken the entry off its list, it will
 * still look, and find nothing to do.  So the entry must not be removed before
 * the worker has looked.
 */
static void
take_back(ZklEntry *entry)
{
	zkl_entry_become_none(entry);
	SpinLockAcquire(&zkl_session_info->work_mutex);
	if (entry->work_link.next != NULL)
	{
		dlist_delete(&entry->work_link);
		entry->work_link.next = NULL;
		entry->in_work = entry->taken;
	}
	SpinLockRelease(&zkl_session_info->work_mutex);
	zkl_entry_remove_if_unused(entry);
}

void
zkl_entry_give_up(ZklEntry *entry)
{
	zkl_entry_become_releasing(entry);
	zkl_entry_ask_worker(entry);
}

void
zkl_entry_become_releasing(ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	Assert(entry->state != ZKL_ENTRY_NONE && entry->state != ZKL_ENTRY_RELEASING);
	if (entry->state == ZKL_ENTRY_OWNED)
		zkl_lock_stat_given_up(entry);

	/*
	 * A lease leaves its list at once, so that no claim takes it, and another
	 * lease may be requested in its place.
	 */
	entry->state = ZKL_ENTRY_RELEASING;
	zkl_linger_quota_end(entry);
	unlink_lease(entry);
}

/*
 * The server no longer owns the lease, or never will.  Does nothing for an
 * entry that is not a lease.
 */
static void
unlink_lease(ZklEntry *lease)
{
	/* A lease that was given up or lost before is in no list. */
	if (lease->lease_link.next == NULL)
		return;
	dlist_delete(&lease->lease_link);
	lease->lease_link.next = NULL;
	if (lease->holder != NULL)
		lease->holder->nleases--;
	lease->holder = NULL;

	/* Without a lease, this server does not watch the limit. */
	if (--lease->lock->nleases == 0)
		lease->lock->stored = ZKL_LIMIT_NONE;

	/*
	 * Without a lease of this server, other clients may make the path another
	 * kind of lock.
	 */
	if (lease->owned_at != 0 && --lease->lock->nowned == 0)
		lease->lock->surveyed = false;
}

void
zkl_entry_become_none(ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	Assert(zkl_session_info_is_worker() ||
		   (entry->state == ZKL_ENTRY_WANTED && !entry->seen));
	entry->state = ZKL_ENTRY_NONE;
	zkl_linger_quota_end(entry);
	memset(&entry->place, 0, sizeof(entry->place));
	entry->contended = false;
	entry->answered = false;
	entry->revoked = false;
	if (zkl_lock_entry_is_lease(entry))
	{
		/*
		 * The backend that was collecting this lease must request another
		 * one; the worker does not do so.
		 */
		unlink_lease(entry);
		zkl_entry_wake_needing(entry);
	}
}

void
zkl_entry_set_needs_ticket(ZklClaim *claim, bool needs_ticket)
{
	Assert(zkl_lock_table_is_mine(claim->entry));
	if (claim->needs_ticket != needs_ticket)
	{
		claim->needs_ticket = needs_ticket;
		claim->entry->nneeding += needs_ticket ? 1 : -1;
		Assert(claim->entry->nneeding >= 0);
		note_standby(claim->entry);
	}
}

/* The claims that wait for a lease are in its semaphore's entry. */
void
zkl_entry_wake_needing(ZklEntry *entry)
{
	int			left = entry->lock->nneeding;
	dlist_iter	iter;

	Assert(zkl_lock_table_is_mine(entry));
	if (left == 0)
		return;

	/*
	 * A backend that wakes up looks again at what it waits for.  Many
	 * detached claims may come after the last claim that needs the ticket.
	 */
	dlist_foreach(iter, &entry->lock->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (!claim->needs_ticket)
			continue;
		wake_later(zkl_lock_table_latch(claim));
		if (--left == 0)
			break;
	}
}

/* Claims that wait are in the order in which they began. */
ZklClaim *
zkl_entry_first_detached(const ZklEntry *entry)
{
	dlist_iter	iter;

	Assert(zkl_lock_table_is_mine(entry));
	if (entry->ndetached == 0)
		return NULL;
	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->detached != 0 && claim->state == ZKL_CLAIM_WAITING)
			return claim;
	}
	return NULL;
}

void
zkl_entry_take_turn(ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	entry->ndetached++;
	note_standby(entry);
}

void
zkl_entry_pass_turn(ZklEntry *entry)
{
	ZklClaim   *next;

	Assert(zkl_lock_table_is_mine(entry));
	entry->ndetached--;
	note_standby(entry);
	next = zkl_entry_first_detached(entry);
	if (next != NULL)
		wake_later(zkl_lock_table_latch(next));
}

/* Have the worker check whether the ticket of a leadership stands by. */
static void
note_standby(ZklEntry *entry)
{
	if (entry->leader != NULL)
		zkl_entry_ask_worker(entry);
}

/*
 * Put the entry on the worker's list, and wake the worker.  The entry is not
 * removed before the worker has looked: in_work stays set until then, also
 * after the worker took the entry off the list.  If the worker itself calls
 * this, it looks before it sleeps again.
 */
void
zkl_entry_ask_worker(ZklEntry *entry)
{
	Latch	   *latch = zkl_lock_table_worker_latch();

	Assert(zkl_lock_table_is_mine(entry));
	entry->in_work = true;
	SpinLockAcquire(&zkl_session_info->work_mutex);
	if (entry->work_link.next == NULL)
		dlist_push_tail(&zkl_session_info->work, &entry->work_link);
	SpinLockRelease(&zkl_session_info->work_mutex);
	if (latch != NULL && latch != MyLatch)
		wake_later(latch);
}

/* An entry stays while a claim, a ticket or the worker needs it. */
bool
zkl_entry_remove_if_unused(ZklEntry *entry)
{
	ZklEntry   *lock = entry->lock;

	Assert(zkl_lock_table_is_mine(entry));

	/*
	 * The worker's heap of timers and its list of work point to the entry,
	 * and leases point to their semaphore.
	 */
	if (entry->state != ZKL_ENTRY_NONE || !dlist_is_empty(&entry->claims) ||
		entry->timer_armed || entry->in_work || entry->nlinked > 0)
		return false;
	zkl_lock_stat_unlink(entry);
	zkl_lock_table_remove(entry);
	if (lock != entry)
	{
		lock->nlinked--;

		/*
		 * A claim that wants the path as another kind of lock waits until the
		 * last lease is gone.
		 */
		zkl_entry_wake_needing(lock);
		zkl_entry_remove_if_unused(lock);
	}
	return true;
}

/*
 * Leases that were given up are counted in nlinked, but not in nleases.
 * nstuck counts the stuck leases, and the entry's own ticket if that is stuck.
 */
bool
zkl_entry_is_releasing(const ZklEntry *entry)
{
	Assert(LWLockHeldByMe(zkl_lock_table_partition(entry->hash)));
	return (entry->state == ZKL_ENTRY_RELEASING && !entry->stuck) ||
		entry->nlinked - entry->nleases > entry->nstuck - entry->stuck;
}

void
zkl_entry_set_stuck(ZklEntry *entry, bool stuck)
{
	Assert(zkl_lock_table_is_mine(entry));
	if (entry->stuck != stuck)
	{
		entry->stuck = stuck;
		entry->lock->nstuck += stuck ? 1 : -1;
		Assert(entry->lock->nstuck >= 0);
	}
}
