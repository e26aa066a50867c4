/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  The changes of an entry and its ticket: one function for each arrow.
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
#include "storage/proc.h"

#include "compat.h"
#include "settings.h"
#include "shared/entry.h"
#include "shared/kept.h"
#include "shared/leases.h"
#include "shared/lockstat.h"

#ifdef USE_ASSERT_CHECKING
static void assert_consistent(const ZklEntry *entry);
#else
#define assert_consistent(entry)	((void) 0)
#endif
static void wake_later(Latch *latch);
static bool shall_linger(ZklEntry *entry);
static bool is_within_linger(int64 released_at, int64 now);
static void take_back(ZklEntry *entry);

/*
 * Whom to wake when the partition is unlocked.  The first thing that a process
 * does when it is woken is to lock the partition, so before that it would only
 * fall asleep again.
 */
static Latch *late[8];
static int	nlate = 0;

void
zkl_entry_lock(const ZklEntry *entry)
{
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

/* More of them than there is room for are woken at once. */
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

/* What is true whenever no process changes the entry. */
static void
assert_consistent(const ZklEntry *entry)
{
	dlist_iter	iter;
	int			nheld = 0;
	int			nwaiting = 0;
	int			nneeding = 0;
	int			nleases = length_of(&entry->idle) + length_of(&entry->pending);

	Assert(entry->state != ZKL_ENTRY_OWNED || entry->owned_at != 0);
	Assert(!entry->stuck || entry->state == ZKL_ENTRY_RELEASING);
	if (entry->semaphore != NULL)
	{
		Assert(length_of(&entry->claims) == 0);
		Assert((entry->nheld == 1) == (entry->holder != NULL));
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
		nleases += claim->nleases;
	}
	Assert(entry->nheld == nheld);
	Assert(entry->nwaiting == nwaiting);
	Assert(entry->nneeding == nneeding);
	Assert(entry->nleases == nleases);
	Assert(entry->nowned <= entry->nleases && entry->nleases <= entry->nlinked);
	Assert(!entry->exclusive || entry->nheld > 0);
}
#endif

/*
 * A claim has ended: hand the ticket on to the claims that wait; or else let
 * it linger, or give it up.
 */
void
zkl_entry_settle(ZklEntry *entry, int64 now)
{
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
			 * A ticket that created its directory has not been listed yet.
			 * Only a list tells whether other clients queue.  Without it, the
			 * server would hand the lock on beyond its tenure.
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
 * armed, or is armed for too late.  A timer that fires too early is armed
 * again.
 */
void
zkl_entry_settle_idle(ZklEntry *entry)
{
	Assert(zkl_entry_is_idle(entry));
	if (!shall_linger(entry))
		zkl_entry_give_up(entry);
	else if (!entry->timer_armed ||
			 entry->armed_for > entry->idle_at + ZKL_MS(zkl_linger))
		zkl_entry_ask_worker(entry);
}

/*
 * A lease that no claim holds is not idle while a claim needs leases: it is
 * one of those that the claim is collecting.
 */
bool
zkl_entry_is_idle(const ZklEntry *entry)
{
	if (entry->semaphore != NULL && entry->semaphore->nneeding > 0)
		return false;
	return entry->nheld == 0 && entry->nwaiting == 0;
}

/*
 * A ticket that lingers must keep no client waiting.  One whose znode says
 * that the lock is in use must not linger, because that text stays true until
 * its end.  And a ticket with no numbers left for tokens can serve no claim.
 *
 * A session may make any number of tickets linger, because
 * zklock.max_locks_per_backend bounds only what it holds.  So kept.h bounds what
 * a role keeps.
 */
static bool
shall_linger(ZklEntry *entry)
{
	return entry->comes_back && zkl_linger > 0 && !entry->contended &&
		!entry->answered && !entry->revoked && entry->claim_number < ZKL_CLAIM_NUMBER_MAX &&
		zkl_kept_begin(entry);
}

bool
zkl_entry_tenure_is_over(const ZklEntry *entry, int64 now)
{
	return entry->revoked ||
		(entry->contended && now - entry->owned_at >= ZKL_MS(zkl_tenure));
}

/*
 * Readers that join one after the other would keep a writer on another server
 * waiting for ever.  But a contended ticket lists no more, so that writer may
 * be gone: the worker lists once more, and wakes the claims if so.
 */
bool
zkl_entry_may_join(ZklEntry *entry, int64 now)
{
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
zkl_entry_count_claim(ZklEntry *entry, const ZklEntry *lock, int64 now)
{
	ZklRecent  *recent = zkl_lock_table_recent(lock->hash);

	entry->claim_number++;

	/*
	 * Another path may have the same slot, so the hash must agree.  Two paths
	 * with one hash do no harm: a ticket lingers, or does not.
	 */
	entry->comes_back = is_within_linger(lock->released_at, now) ||
		(recent->hash == lock->hash && is_within_linger(recent->released_at, now));
}

static bool
is_within_linger(int64 released_at, int64 now)
{
	return released_at != 0 && now - released_at <= ZKL_MS(zkl_linger);
}

/*
 * ZooKeeper gives each later znode a greater czxid, so later tickets have
 * greater tokens.  The lower bits tell the claims on one ticket apart.
 */
int64
zkl_entry_token(const ZklEntry *entry)
{
	return entry->czxid * (ZKL_CLAIM_NUMBER_MAX + 1) + entry->claim_number;
}

void
zkl_entry_downgrade(ZklEntry *entry)
{
	Assert(!entry->exclusive);
	if (entry->state != ZKL_ENTRY_OWNED || entry->mode != ZKL_MODE_WRITE)
		return;

	/*
	 * From here on no writer is granted.  The worker finds that the entry's
	 * mode differs from the ticket's, and changes the znode.
	 */
	entry->mode = ZKL_MODE_READ;
	zkl_entry_ask_worker(entry);
}

/*
 * The worker creates the znode under a name that says the mode.  Once the
 * worker has looked, a ticket of another mode takes another znode.
 */
void
zkl_entry_change_mode(ZklEntry *entry, ZklMode mode)
{
	if (entry->state == ZKL_ENTRY_WANTED && !entry->seen)
		entry->mode = mode;
	else if (entry->nheld == 0)
		zkl_entry_give_up(entry);
}

bool
zkl_entry_serves(const ZklEntry *entry, const ZklClaim *claim)
{
	Assert(claim->entry == entry);
	return zkl_recipe_serves(entry->mode, claim->mode) &&
		!(entry->plain && claim->superuser);
}

const ZklClaim *
zkl_entry_holder(const ZklEntry *entry)
{
	const ZklClaim *holder = entry->holder;
	dlist_iter	iter;

	/* Claims on leases are in the list of the semaphore's entry. */
	if (entry->semaphore != NULL)
		return holder != NULL && holder->state == ZKL_CLAIM_HELD ? holder : NULL;
	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state != ZKL_CLAIM_HELD)
			continue;

		/*
		 * The znode names this backend already, so the worker has nothing to
		 * write as long as this claim is held.
		 */
		if (strcmp(claim->about, entry->about) == 0)
			return claim;
		if (holder == NULL)
			holder = claim;
	}
	return holder;
}

void
zkl_entry_note_asker(ZklEntry *entry, bool only_tries, bool plain,
					 bool together, const char *about)
{
	entry->role = MyProc->roleId;
	entry->only_tries = only_tries;
	entry->plain = plain;
	entry->together = together;
	strlcpy(entry->about, about, sizeof(entry->about));
}

/* -> WANTED */
void
zkl_entry_want(ZklEntry *entry, ZklMode mode)
{
	Assert(entry->state == ZKL_ENTRY_NONE);
	entry->state = ZKL_ENTRY_WANTED;
	entry->mode = mode;

	/*
	 * Until the worker looks, backends may change the request or take it back
	 * without a word to ZooKeeper.
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
 * WANTED -> NONE.  The worker has not looked at the request yet, and perhaps
 * there is no worker.  If the worker has just taken the entry off its list, it
 * will still look, and find nothing to do.  The same holds if the entry has
 * come back to the list since.  So the entry must not be removed before the
 * worker has looked.
 */
static void
take_back(ZklEntry *entry)
{
	ZklSessionInfo *session = &zkl_lock_table->session[entry->session];

	Assert(entry->state == ZKL_ENTRY_WANTED && !entry->seen);
	zkl_entry_become_none(entry);
	SpinLockAcquire(&session->work_mutex);
	if (entry->work_link.next != NULL)
	{
		dlist_delete(&entry->work_link);
		entry->work_link.next = NULL;
		entry->in_work = entry->taken;
	}
	SpinLockRelease(&session->work_mutex);
	zkl_entry_remove_if_unused(entry);
}

/* -> RELEASING */
void
zkl_entry_give_up(ZklEntry *entry)
{
	Assert(entry->state != ZKL_ENTRY_NONE);
	if (entry->state == ZKL_ENTRY_OWNED)
		zkl_lock_stat_given_up(entry);

	/*
	 * A lease leaves its list at once, so no claim takes it, and another
	 * lease may be requested in its place.
	 */
	entry->state = ZKL_ENTRY_RELEASING;
	zkl_kept_end(entry);
	if (entry->semaphore != NULL)
		zkl_entry_unlink_lease(entry);
	zkl_entry_ask_worker(entry);
}

void
zkl_entry_unlink_lease(ZklEntry *lease)
{
	Assert(LWLockHeldByMeInMode(zkl_lock_table_partition(lease->hash),
								LW_EXCLUSIVE));

	/* A lease that was given up or lost before is in no list any more. */
	if (lease->lease_link.next == NULL)
		return;
	dlist_delete(&lease->lease_link);
	lease->lease_link.next = NULL;
	if (lease->holder != NULL)
		lease->holder->nleases--;
	lease->holder = NULL;
	lease->nheld = 0;

	lease->semaphore->nleases--;

	/*
	 * Without a lease here, other clients may make the path another kind of
	 * lock.
	 */
	if (lease->owned_at != 0 && --lease->semaphore->nowned == 0)
		lease->semaphore->surveyed = false;
}

void
zkl_entry_become_none(ZklEntry *entry)
{
	entry->state = ZKL_ENTRY_NONE;
	zkl_kept_end(entry);
	entry->znode[0] = '\0';
	entry->contended = false;
	entry->answered = false;
	entry->asking = false;
	entry->revoked = false;
	if (entry->semaphore != NULL)
	{
		/*
		 * The backend that was collecting this lease must request another
		 * one: the worker does not do so by itself.
		 */
		zkl_entry_unlink_lease(entry);
		zkl_entry_wake_needing(entry);
	}
}

void
zkl_entry_set_needs_ticket(ZklClaim *claim, bool needs_ticket)
{
	if (claim->needs_ticket != needs_ticket)
	{
		claim->needs_ticket = needs_ticket;
		claim->entry->nneeding += needs_ticket ? 1 : -1;
		Assert(claim->entry->nneeding >= 0);

		/* The ticket may begin or cease to stand by. */
		if (claim->entry->leader != NULL)
			zkl_entry_ask_worker(claim->entry);
	}
}

/* The claims that wait for a lease are in its semaphore's entry. */
void
zkl_entry_wake_needing(ZklEntry *entry)
{
	dlist_iter	iter;

	Assert(LWLockHeldByMe(zkl_lock_table_partition(entry->hash)));
	if (entry->semaphore != NULL)
		entry = entry->semaphore;
	if (entry->nneeding == 0)
		return;

	/* A backend that is woken looks again at what it waits for. */
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->needs_ticket)
			wake_later(zkl_lock_table_latch(claim));
	}
}

/*
 * Ask the worker to look at this entry.  The entry is not removed before that:
 * in_work stays set until the worker looks, also after the worker took the
 * entry off the list.  If the worker itself calls this, it looks before it
 * sleeps again.
 */
void
zkl_entry_ask_worker(ZklEntry *entry)
{
	ZklSessionInfo *session = &zkl_lock_table->session[entry->session];
	Latch	   *latch = session == zkl_session_info_mine ? NULL :
	zkl_lock_table_worker_latch(entry->session);

	Assert(LWLockHeldByMeInMode(zkl_lock_table_partition(entry->hash),
								LW_EXCLUSIVE));
	entry->in_work = true;
	SpinLockAcquire(&session->work_mutex);
	if (entry->work_link.next == NULL)
		dlist_push_tail(&session->work, &entry->work_link);
	SpinLockRelease(&session->work_mutex);
	if (latch != NULL)
		wake_later(latch);
}

/* An entry stays while a claim, a ticket or the worker needs it. */
bool
zkl_entry_remove_if_unused(ZklEntry *entry)
{
	ZklEntry   *semaphore = entry->semaphore;

	/*
	 * The worker's heap of timers and its list of work point to the entry,
	 * and leases point to their semaphore.
	 */
	if (entry->state != ZKL_ENTRY_NONE || !dlist_is_empty(&entry->claims) ||
		entry->timer_armed || entry->in_work || entry->nlinked > 0)
		return false;
	zkl_lock_stat_unlink(entry);
	zkl_lock_table_remove(entry);
	if (semaphore != NULL)
	{
		semaphore->nlinked--;

		/*
		 * A claim that wants the path as another kind of lock waits until the
		 * last lease is gone.
		 */
		zkl_entry_wake_needing(semaphore);
		zkl_entry_remove_if_unused(semaphore);
	}
	return true;
}

/*
 * Leases that were given up are counted in nlinked, but not in nleases.  Those
 * of them that are stuck are in nstuck, with the entry's own ticket if that
 * is.
 */
bool
zkl_entry_is_releasing(const ZklEntry *entry)
{
	return (entry->state == ZKL_ENTRY_RELEASING && !entry->stuck) ||
		entry->nlinked - entry->nleases > entry->nstuck - entry->stuck;
}

void
zkl_entry_set_stuck(ZklEntry *entry, bool stuck)
{
	ZklEntry   *lock = entry->semaphore ? entry->semaphore : entry;

	if (entry->stuck != stuck)
	{
		entry->stuck = stuck;
		lock->nstuck += stuck ? 1 : -1;
		Assert(lock->nstuck >= 0);
	}
}
