/*-------------------------------------------------------------------------
 *
 * entrystate.c
 *	  The worker's changes of an entry's state.
 *
 * lockentry.h has the states, and says which process makes each change.
 *
 * src/worker/entrystate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/entry.h"
#include "shared/jobruns.h"
#include "shared/kept.h"
#include "shared/leases.h"
#include "shared/lockstat.h"
#include "worker/entrystate.h"

/*
 * When a hold limit has passed, the waiting backends have so long to come back
 * with the local lock of the new generation, before the ticket counts as idle.
 */
#define HAND_ON_WITHIN	ZKL_MS(1000)

static void lose_claim(ZklClaim *claim, ZklLoss loss);
static void new_generation(ZklEntry *entry);
static bool want_again(ZklEntry *entry);

void
zkl_entry_state_set_queued(ZklEntry *entry)
{
	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_WANTED || entry->state == ZKL_ENTRY_QUEUED)
	{
		/*
		 * Backends that try wait for both: that the ticket is queued, and
		 * that the one before it has answered.
		 */
		bool		is_news = entry->state == ZKL_ENTRY_WANTED ||
		entry->asking != entry->ticket.asking;

		entry->state = ZKL_ENTRY_QUEUED;
		entry->asking = entry->ticket.asking;
		entry->czxid = entry->ticket.czxid;
		strlcpy(entry->znode, entry->ticket.name, sizeof(entry->znode));
		strlcpy(entry->front, entry->ticket.front, sizeof(entry->front));
		entry->front_is_next = strcmp(entry->ticket.front,
									  entry->ticket.predecessor) == 0;
		if (entry->ticket.state == ZKL_TICKET_WATCHING)
			entry->before[0] = '\0';	/* until the ticket has read it */
		if (is_news)
			zkl_entry_wake_needing(entry);
	}
	zkl_entry_unlock(entry->hash);
}

/* The text is for users to see, so its end may be missing. */
void
zkl_entry_state_note_before(ZklEntry *entry, const char *data, int length)
{
	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_QUEUED)
		strlcpy(entry->before, data,
				Min((Size) length + 1, sizeof(entry->before)));
	zkl_entry_unlock(entry->hash);
}

/*
 * Only the worker writes this field, so it reads it without the lock.  Most
 * steps change nothing.
 */
void
zkl_entry_state_note_blocked(ZklEntry *entry)
{
	bool		only_tries = false;
	bool		blocked = entry->ticket.state == ZKL_TICKET_QUEUED;

	if (blocked && entry->ticket.mode == ZKL_MODE_READ)
		blocked = !zkl_recipe_is_zklock(entry->ticket.predecessor, &only_tries) ||
			!only_tries;
	if (blocked == entry->blocked)
		return;
	zkl_entry_lock(entry);
	entry->blocked = blocked;
	zkl_entry_unlock(entry->hash);
}

bool
zkl_entry_state_set_owned(ZklEntry *entry, bool contended)
{
	bool		wanted;

	zkl_entry_lock(entry);
	wanted = entry->state == ZKL_ENTRY_WANTED ||
		entry->state == ZKL_ENTRY_QUEUED;
	if (wanted)
	{
		/*
		 * Claims are granted only while the session has this epoch.  Their
		 * tokens are made of the czxid and the number of the claim.
		 */
		entry->state = ZKL_ENTRY_OWNED;
		entry->epoch = pg_atomic_read_u64(&zkl_session_info_mine->epoch);
		entry->czxid = entry->ticket.czxid;
		strlcpy(entry->znode, entry->ticket.name, sizeof(entry->znode));
		entry->claim_number = 0;
		entry->comes_back = false;

		/*
		 * All that is known of other clients comes from this ticket's lists.
		 * Nothing of an earlier ticket may stay.
		 */
		entry->contended = contended;
		entry->recheck_asked = false;
		entry->answered = false;
		entry->asking = false;
		entry->revoked = false;
		/* A reader's ticket may serve superusers after all. */
		entry->plain &= zkl_entry_state_says_plain(entry);
		entry->list_asked = entry->ticket.listed;
		entry->handed_on = false;
		entry->watch_asked = false;
		entry->described_at = 0;
		entry->owned_at = zkl_now();
		/* From pending to idle: any claim on the semaphore may take it. */
		if (entry->semaphore != NULL)
			zkl_leases_set_owned(entry);
		zkl_entry_ask_worker(entry);	/* for its timer */
		zkl_entry_wake_needing(entry);
	}
	zkl_entry_unlock(entry->hash);
	return wanted;
}

bool
zkl_entry_state_set_contended(ZklEntry *entry)
{
	uint32		hash = entry->hash;
	bool		lingered = false;

	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		bool		is_news = !entry->contended;

		entry->contended = true;
		lingered = zkl_entry_state_give_up_if_idle(entry);
		if (!lingered && is_news)
			zkl_entry_ask_worker(entry);	/* for its timer */

		/*
		 * No backend of this server writes, so readers of other servers need
		 * not wait.
		 */
		if (!lingered && entry->nheld > 0 && !entry->exclusive)
			zkl_entry_downgrade(entry);
		/* A client that waits for one lease waits for all of them. */
		if (entry->semaphore != NULL && is_news)
			zkl_leases_set_contended(entry->semaphore);
	}
	zkl_entry_unlock(hash);
	return lingered;
}

/*
 * A ticket that is about to be downgraded does not answer: readers need no
 * answer, and tickets that write will ask the reader's znode anew.
 */
bool
zkl_entry_state_shall_answer(ZklEntry *entry)
{
	bool		shall_answer;

	zkl_entry_lock(entry);

	/*
	 * The write costs a round trip, so it waits until a try has asked, or the
	 * lock is held for longer.
	 */
	shall_answer = entry->state == ZKL_ENTRY_OWNED && entry->contended &&
		entry->semaphore == NULL && entry->mode == entry->ticket.mode &&
		!zkl_entry_is_idle(entry) &&
		(entry->ticket.asked ||
		 zkl_now() >= entry->owned_at + ZKL_WATCH_AFTER);
	entry->answered |= shall_answer;
	zkl_entry_unlock(entry->hash);
	return shall_answer;
}

/*
 * The znode of a reader's ticket never says that it is plain, because
 * superusers may join.  The mode of a ticket may have changed since a backend
 * requested it.
 */
bool
zkl_entry_state_says_plain(const ZklEntry *entry)
{
	return entry->plain && entry->ticket.mode != ZKL_MODE_READ;
}

/* Once the ticket is given up, entry->about may be about the next ticket. */
bool
zkl_entry_state_copy_about(ZklEntry *entry, char about[ZKL_ABOUT_SIZE])
{
	bool		owned;

	zkl_entry_lock(entry);
	owned = entry->state == ZKL_ENTRY_OWNED;
	if (owned)
		strlcpy(about, entry->about, ZKL_ABOUT_SIZE);
	zkl_entry_unlock(entry->hash);
	return owned;
}

/* ... and its znode is right whatever it says. */
bool
zkl_entry_state_is_described(ZklEntry *entry, const char *data, int length)
{
	bool		described;

	zkl_entry_lock(entry);
	described = entry->state != ZKL_ENTRY_OWNED ||
		zkl_recipe_is_about(data, length, entry->about);
	zkl_entry_unlock(entry->hash);
	return described;
}

void
zkl_entry_state_set_uncontended(ZklEntry *entry)
{
	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		entry->contended = false;
		/* Claims that had to leave the turn to other clients may join now. */
		zkl_entry_wake_needing(entry);
	}
	zkl_entry_unlock(entry->hash);
}

void
zkl_entry_state_set_downgraded(ZklEntry *entry)
{
	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		/*
		 * All that was known of the writer's znode must be found out anew for
		 * the reader's.
		 */
		entry->contended = false;
		entry->answered = false;
		entry->plain = false;	/* the reader's znode does not say plain */
		zkl_entry_wake_needing(entry);
		strlcpy(entry->znode, entry->ticket.name, sizeof(entry->znode));
	}
	zkl_entry_unlock(entry->hash);
}

bool
zkl_entry_state_set_revoked(ZklEntry *entry)
{
	bool		lingered = false;

	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		entry->revoked = true;

		/*
		 * Otherwise the claims keep the lock, and the ticket goes when they
		 * have ended.
		 */
		lingered = zkl_entry_state_give_up_if_idle(entry);
		pg_atomic_fetch_add_u64(&zkl_lock_table->revocations, 1);
	}
	zkl_entry_unlock(entry->hash);
	return lingered;
}

/* The caller, in the worker, deletes the znode. */
bool
zkl_entry_state_give_up_if_idle(ZklEntry *entry)
{
	if (!zkl_entry_is_idle(entry))
		return false;
	zkl_lock_stat_given_up(entry);
	entry->state = ZKL_ENTRY_RELEASING;
	zkl_kept_end(entry);
	/* No claim may take the lease any more. */
	if (entry->semaphore != NULL)
		zkl_entry_unlink_lease(entry);
	return true;
}

bool
zkl_entry_state_set_gone(ZklEntry *entry)
{
	uint32		hash = entry->hash;
	bool		wanted;

	zkl_entry_lock(entry);
	/* The worker has disarmed the timer, so it keeps the entry no longer. */
	entry->timer_armed = false;
	zkl_entry_set_stuck(entry, false);
	wanted = want_again(entry);
	zkl_entry_unlock(hash);
	return wanted;
}

void
zkl_entry_state_set_lost(ZklEntry *entry, ZklLoss loss)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;

	zkl_entry_lock(entry);
	entry->timer_armed = false;

	/*
	 * A claim that loses one of its leases is lost as a whole.  The claim is
	 * in the semaphore's entry, and so is its count.
	 */
	if (entry->holder != NULL && entry->holder->state == ZKL_CLAIM_HELD)
	{
		lose_claim(entry->holder, loss);
		entry->semaphore->nheld--;
	}
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state == ZKL_CLAIM_HELD)
			lose_claim(claim, loss);
	}
	entry->nheld = 0;
	entry->exclusive = false;
	if (entry->semaphore != NULL)
		entry->semaphore->surveyed = false; /* other clients may have come */
	new_generation(entry);

	/*
	 * new_generation() has woken all claims, and they ask anew.  None needs
	 * this ticket any more, so the entry becomes NONE, and may be gone.
	 */
	(void) want_again(entry);
	zkl_entry_unlock(hash);
}

/*
 * A backend reads the count of losses, and then looks at the claim with the
 * partition locked.  If it finds the claim held, it locked the partition
 * before this function did.  So its count does not include this loss, and it
 * will look again.
 */
static void
lose_claim(ZklClaim *claim, ZklLoss loss)
{
	int64		now = zkl_now();

	pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
	zkl_lock_stat_lost(claim, now);
	claim->state = ZKL_CLAIM_LOST;
	claim->loss = loss;
	claim->lost_at = claim->since = now;
	zkl_job_runs_end(&claim->run, false, true);
	ZKL_FAULT_POINT("claim-marked");	/* under the partition's lock */

	/* A backend that is still acquiring relies on nothing yet. */
	if (claim->session_count + claim->xact_count > 0)
		zkl_lock_table_tell_lost(claim);
}

/*
 * Newcomers must not wait behind a backend that holds nothing any more.  A
 * claim whose backend has, or waits for, the old local lock counts as waiting
 * again when the backend has asked for the new generation.
 */
static void
new_generation(ZklEntry *entry)
{
	dlist_iter	iter;

	entry->generation++;
	entry->nwaiting = 0;
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		zkl_entry_set_needs_ticket(claim, false);
		zkl_lock_table_wake(claim);

		/*
		 * The holder of the old local lock may be idle for hours.  Only a
		 * cancel ends a wait for it.
		 */
		if (claim->waits_locally && !claim->nudged)
		{
			claim->nudged = true;
			zkl_lock_table_cancel(claim);
		}

		/* A claim on leases waits for no local lock. */
		if (claim->mode == ZKL_MODE_LEASE)
		{
			claim->generation = entry->generation;
			entry->nwaiting += claim->state == ZKL_CLAIM_WAITING;
		}
	}
}

void
zkl_entry_state_set_failed(ZklEntry *entry, ZklFailure failure, bool znode_left)
{
	ZklEntry   *asked = entry->semaphore ? entry->semaphore : entry;
	uint32		hash = entry->hash;
	dlist_iter	iter;

	zkl_entry_lock(entry);
	dlist_foreach(iter, &asked->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		/*
		 * Claims that came later, or wait for the local lock only, ask anew
		 * and may have more luck.
		 */
		if (claim->needs_ticket)
		{
			claim->failure = failure;
			zkl_entry_set_needs_ticket(claim, false);
			zkl_lock_table_wake(claim);
		}
	}

	/*
	 * Whatever the ticket was, it serves no claim any more.  If a znode is
	 * left, the entry stays until that is gone.
	 */
	zkl_entry_become_none(entry);
	if (znode_left)
	{
		entry->state = ZKL_ENTRY_RELEASING;
		zkl_entry_set_stuck(entry, entry->ticket.state == ZKL_TICKET_STUCK);
	}
	else
		entry->timer_armed = false;
	zkl_entry_remove_if_unused(entry);
	zkl_entry_unlock(hash);
}

/* Wake-ups change nothing, so a shared lock is enough. */
static void
wake_visited(ZklEntry *entry, void *arg)
{
	dlist_iter	iter;

	dlist_foreach(iter, &entry->claims)
		zkl_lock_table_wake(dlist_container(ZklClaim, link, iter.cur));
}

void
zkl_entry_state_wake_all(void)
{
	zkl_lock_table_visit(zkl_session_info_number(), LW_SHARED, wake_visited, NULL);
}

/* The lock that the last search has found, so that few of the next ones search. */
static struct
{
	char		path[ZKL_PATH_SIZE];
	uint32		hash;
}			last_held;

static bool
note_held(const ZklEntry *entry)
{
	if (entry->nheld == 0)
		return false;
	strlcpy(last_held.path, entry->path, sizeof(last_held.path));
	last_held.hash = entry->hash;
	return true;
}

static bool
is_last_still_held(void)
{
	ZklEntry   *entry;
	bool		is_held;

	if (last_held.path[0] == '\0')
		return false;
	LWLockAcquire(zkl_lock_table_partition(last_held.hash), LW_SHARED);
	entry = zkl_lock_table_find(last_held.path, last_held.hash);
	is_held = entry != NULL && entry->nheld > 0;
	LWLockRelease(zkl_lock_table_partition(last_held.hash));
	return is_held;
}

/*
 * A worker that stops asks this in each turn.  With many locks, to search each
 * time would take longer than the rest of the turn, and keep the holders that
 * end from the partitions.
 */
bool
zkl_entry_state_any_held(void)
{
	return is_last_still_held() ||
		zkl_lock_table_any(zkl_session_info_number(), note_held);
}

/*
 * There is no znode: -> WANTED and true if a claim waits for the ticket right
 * now; -> NONE otherwise, and the entry may be gone.  A backend that waits for
 * leases requests them again by itself, if it still has the inner mutex.
 */
static bool
want_again(ZklEntry *entry)
{
	dlist_iter	iter;

	zkl_entry_become_none(entry);
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (!claim->needs_ticket)
			continue;

		/*
		 * The claim wants leases, or leases of the path still have entries.
		 * The backend decides what to do about them.
		 */
		if (claim->mode == ZKL_MODE_LEASE || entry->nlinked > 0)
		{
			zkl_lock_table_wake(claim);
			continue;
		}
		/* The caller feeds WANT at once, so the request counts as seen. */
		entry->state = ZKL_ENTRY_WANTED;
		entry->mode = claim->mode;
		entry->role = claim->role;
		strlcpy(entry->about, claim->about, sizeof(entry->about));
		entry->plain &= !claim->superuser;
		entry->seen = true;
		return true;
	}
	zkl_entry_remove_if_unused(entry);
	return false;
}

/*
 * The worker may see a leader's claim too late, or one that is gone: then it is
 * about to look again.  So most tickets need no look under the lock.
 */
bool
zkl_entry_state_is_for_leader(ZklEntry *entry)
{
	bool		for_leader;

	if (entry->leader == NULL)
		return false;
	zkl_entry_lock(entry);
	for_leader = entry->leader != NULL && entry->leader->needs_ticket &&
		entry->nneeding == 1;
	zkl_entry_unlock(entry->hash);
	return for_leader;
}

/* Claims whose hold limit has passed become LOST. */
bool
zkl_entry_state_end_lease_times(ZklEntry *entry, int64 now)
{
	bool		any = false;
	dlist_iter	iter;

	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state != ZKL_CLAIM_HELD || claim->lease_until == 0 ||
			claim->lease_until > now)
			continue;
		any = true;
		/* The ticket is still owned, and other claims of readers stay. */
		lose_claim(claim, ZKL_LOSS_LEASE_TIME);
		entry->nheld--;
		if (claim->mode != ZKL_MODE_READ)
			entry->exclusive = false;
	}
	if (any)
	{
		bool		handed_on = entry->nwaiting > 0 &&
		!zkl_entry_tenure_is_over(entry, now);

		new_generation(entry);
		if (!handed_on)
			zkl_entry_settle(entry, now);
		else if (entry->nheld == 0)
		{
			/* The waiting backends come back, for the new generation. */
			entry->idle_at = now + HAND_ON_WITHIN;
		}
	}
	return any;
}
