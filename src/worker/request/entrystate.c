/*-------------------------------------------------------------------------
 *
 * entrystate.c
 *	  The worker's side of an entry: when it looks at the entry, and each
 *	  change that it makes.
 *
 * The worker looks at an entry when a backend has put it on the list, or when
 * its timer fires.  The timers are in a heap, so that the cost does not grow
 * with the number of locks held.
 *
 * lockentry.h has the states, and says which process makes each change.
 *
 * src/worker/request/entrystate.c
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
#include "shared/leases.h"
#include "shared/lockstat.h"
#include "shared/passes.h"
#include "worker/request/entrystate.h"

/*
 * A ticket that created its lock's directory was the first in there.  It lists
 * the znodes behind it only after this time.  Most new locks are released
 * before, and so save the list.
 */
#define LOOK_AFTER		ZKL_MS(10)

/*
 * If a lock is held for this long, a client may request its release, so the
 * worker watches the znode.
 */
#define WATCH_AFTER		ZKL_MS(100)

/*
 * When a hold limit has passed, the waiting backends have this long to return
 * with the advisory lock of the new generation.  Then the ticket counts as idle.
 */
#define HAND_ON_WITHIN	ZKL_MS(1000)

/* In the memory context of the worker's start, which lives as long as the worker. */
static pairingheap *timers = NULL;

static void lock(const ZklEntry *entry);
static ZklTicketPlace place_of(const ZklTicket *ticket);
static ZklEntry *take_off_list(void);
static void add_event(ZklWork *work, ZklTicketEventKind kind);
static void look_at_owned(ZklEntry *entry, ZklWork *work);
static void look_at_held(ZklEntry *entry, int64 now, ZklWork *work);
static int64 next_timer(const ZklEntry *entry);
static int64 describe_at(const ZklEntry *entry);
static bool describe_if_due(ZklEntry *entry, int64 now);
static void arm_timer(ZklEntry *entry);
static void disarm_timer(ZklEntry *entry);
static int	compare_timers(const pairingheap_node *a,
						   const pairingheap_node *b, void *arg);
static bool give_up_if_idle(ZklEntry *entry);
static void lose_claim(ZklClaim *claim, ZklLoss loss);
static void new_generation(ZklEntry *entry);
static bool want_again(ZklEntry *entry);
static bool end_hold_limits(ZklEntry *entry, int64 now);

/* Only the worker makes the changes of this file. */
static void
lock(const ZklEntry *entry)
{
	Assert(zkl_session_info_is_worker());
	zkl_entry_lock(entry);
}

/*
 * Looks
 */

/*
 * The heap of the dead worker is gone.  The new worker looks at an entry if it
 * had work or an armed timer, or if its state requires work of the worker.
 * The look also arms the entry's timer again.
 */
static void
adopt(ZklEntry *entry, void *arg)
{
	bool		is_needed = entry->in_work || entry->timer_armed ||
	entry->state != ZKL_ENTRY_NONE;

	entry->taken = false;
	entry->timer_armed = false;
	if (is_needed)
		zkl_entry_ask_worker(entry);
}

/*
 * The last worker may have died after it took entries off the list.  No
 * backend removes an entry while it is checked and marked, because its
 * partition is locked.
 */
void
zkl_entry_state_adopt(void)
{
	timers = pairingheap_allocate(compare_timers, NULL);
	zkl_lock_table_visit(LW_EXCLUSIVE, adopt, NULL);
}

static ZklEntry *
take_off_list(void)
{
	ZklEntry   *entry = NULL;

	SpinLockAcquire(&zkl_session_info->work_mutex);
	if (!dlist_is_empty(&zkl_session_info->work))
	{
		entry = dlist_container(ZklEntry, work_link,
								dlist_pop_head_node(&zkl_session_info->work));

		/*
		 * Until the worker has looked, a backend may take its request back.
		 * The mark keeps a backend from removing the entry while the worker
		 * still has it.
		 */
		entry->work_link.next = NULL;
		entry->taken = true;
	}
	SpinLockRelease(&zkl_session_info->work_mutex);
	return entry;
}

bool
zkl_entry_state_any_work(void)
{
	bool		any;

	SpinLockAcquire(&zkl_session_info->work_mutex);
	any = !dlist_is_empty(&zkl_session_info->work);
	SpinLockRelease(&zkl_session_info->work_mutex);
	return any;
}

ZklEntry *
zkl_entry_state_next(ZklWork *work)
{
	ZklEntry   *entry = take_off_list();
	uint32		hash;

	memset(work, 0, sizeof(*work));
	if (entry == NULL)
		return NULL;
	hash = entry->hash;
	lock(entry);

	/*
	 * A backend may have put the entry on the list again since it was taken
	 * off.
	 */
	SpinLockAcquire(&zkl_session_info->work_mutex);
	entry->in_work = entry->work_link.next != NULL;
	entry->taken = false;
	SpinLockRelease(&zkl_session_info->work_mutex);

	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:

			/*
			 * Stuck leases keep the entry, so it still exists for the retry.
			 * Without stuck leases, the entry may be gone after the call.
			 */
			work->retry = entry->nstuck > 0;
			zkl_entry_remove_if_unused(entry);
			break;
		case ZKL_ENTRY_WANTED:

			/*
			 * From now on the request is under way.  A backend cannot take it
			 * back; it can only give the ticket up.
			 */
			entry->seen = true;
			add_event(work, ZKL_EVENT_WANT);
			break;
		case ZKL_ENTRY_QUEUED:
			work->standby = true;
			break;
		case ZKL_ENTRY_OWNED:
			look_at_owned(entry, work);
			break;
		case ZKL_ENTRY_RELEASING:
			add_event(work, ZKL_EVENT_UNWANT);
			break;
	}
	zkl_entry_unlock(hash);
	return entry;
}

static void
add_event(ZklWork *work, ZklTicketEventKind kind)
{
	Assert(work->nevents < ZKL_WORK_EVENTS);
	work->events[work->nevents++] = kind;
}

static void
look_at_owned(ZklEntry *entry, ZklWork *work)
{
	/*
	 * A backend or the worker has changed the entry's mode to READ, and the
	 * znode is still a writer's.
	 */
	if (entry->mode != entry->ticket.mode)
		add_event(work, ZKL_EVENT_DOWNGRADE);

	/*
	 * The lock changes hands within the server.  Before more backends get the
	 * lock, the worker must know whether other clients wait.
	 */
	if (entry->handed_on && !entry->list_asked)
	{
		entry->list_asked = true;
		add_event(work, ZKL_EVENT_LOOK);
	}
	if (entry->recheck_asked)
		add_event(work, ZKL_EVENT_RECHECK);
	entry->recheck_asked = false;
	/* ZKL_EPOCH_NONE: this server has deleted the znode. */
	if (entry->epoch == ZKL_EPOCH_NONE)
		add_event(work, ZKL_EVENT_SELF_CHANGED);
	arm_timer(entry);
}

/*
 * To be cheap, a release does not move the timer.  So the timer may fire while
 * the lock is held again, or too early.
 */
ZklEntry *
zkl_entry_state_next_due(int64 until, ZklWork *work)
{
	ZklEntry   *entry;
	uint32		hash;
	int64		now = zkl_now();
	bool		any_over;

	memset(work, 0, sizeof(*work));
	if (zkl_entry_state_wake_at() > until)
		return NULL;
	entry = pairingheap_container(ZklEntry, timer, pairingheap_first(timers));
	hash = entry->hash;
	ZKL_FAULT_POINT("timer-fired");
	lock(entry);

	/*
	 * The armed timer has kept the entry.  If nothing arms it again, the
	 * entry may be removed below.
	 */
	disarm_timer(entry);
	any_over = end_hold_limits(entry, now);
	if (entry->state == ZKL_ENTRY_OWNED &&
		now >= entry->idle_at + ZKL_MS(zkl_linger) && give_up_if_idle(entry))
		add_event(work, ZKL_EVENT_UNWANT);
	else if (entry->state == ZKL_ENTRY_OWNED)
	{
		look_at_held(entry, now, work);
		arm_timer(entry);
	}
	else
		zkl_entry_remove_if_unused(entry);
	zkl_entry_unlock(hash);

	if (any_over)
		ZKL_FAULT_POINT("lease-time-marked");
	return entry;
}

static void
look_at_held(ZklEntry *entry, int64 now, ZklWork *work)
{
	/* Watch for requests of other clients to release the lock. */
	if (!entry->watch_asked && now >= entry->owned_at + WATCH_AFTER)
	{
		entry->watch_asked = true;
		add_event(work, ZKL_EVENT_WATCH);
	}
	if (describe_if_due(entry, now))
		add_event(work, ZKL_EVENT_DESCRIBE);

	/*
	 * The lock is held longer than most.  From now on the worker follows the
	 * queue behind the ticket.
	 */
	if (!entry->list_asked && now >= entry->owned_at + LOOK_AFTER)
	{
		entry->list_asked = true;
		add_event(work, ZKL_EVENT_LOOK);
	}
}

/*
 * The first moment at which the worker must do something about an owned
 * ticket.
 */
static int64
next_timer(const ZklEntry *entry)
{
	int64		at = PG_INT64_MAX;
	int			left = entry->nheld;
	dlist_iter	iter;

	if (zkl_entry_is_idle(entry))
		at = entry->idle_at + ZKL_MS(zkl_linger);
	if (!entry->list_asked)
		at = Min(at, entry->owned_at + LOOK_AFTER);
	if (!entry->watch_asked)
		at = Min(at, entry->owned_at + WATCH_AFTER);
	if (entry->contended)
		at = Min(at, describe_at(entry));
	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);
		int64		due;

		/* Thousands of claims may wait after the last one that is held. */
		if (left == 0)
			break;
		left -= claim->state == ZKL_CLAIM_HELD;

		/*
		 * This server ends a hold limit, not ZooKeeper, so the timer must
		 * fire then.
		 */
		if (claim->state != ZKL_CLAIM_HELD || claim->hold_until == 0)
			continue;
		due = claim->hold_until;

		/*
		 * A use does not end before a commit that is under way.  The end of
		 * the transaction ends the use, too.
		 */
		if (claim->is_use && zkl_passes_has(claim->proc_number, entry->path))
			due = Max(due, zkl_now() + ZKL_LOOK_INTERVAL);
		at = Min(at, due);
	}
	return at;
}

/*
 * While other clients wait for a lock, its znode may name a backend that no
 * longer holds it.  A user who reads the znode might then cancel the wrong
 * backend.  So the worker writes the present holder's name when that backend
 * has held the lock for deadlock_timeout, and not more often: a lock that is
 * handed on quickly within the server causes no writes.  A handover does not
 * move the timer, so the worker looks repeatedly.
 */
static int64
describe_at(const ZklEntry *entry)
{
	const ZklClaim *holder = zkl_entry_holder(entry);
	int64		since = zkl_now();

	/*
	 * If the znode names the right holder, nothing is to be written: the
	 * result is a moment in the future, whenever this is called.
	 */
	if (holder != NULL && strcmp(holder->owner_text, entry->owner_text) != 0)
		since = Max(holder->since, entry->described_at);
	return since + Max(ZKL_MS(DeadlockTimeout), ZKL_LOOK_INTERVAL);
}

static bool
describe_if_due(ZklEntry *entry, int64 now)
{
	if (!entry->contended || now < describe_at(entry))
		return false;

	/*
	 * If a write is due, there is a holder, and the znode names another
	 * backend.
	 */
	strlcpy(entry->owner_text, zkl_entry_holder(entry)->owner_text, sizeof(entry->owner_text));
	entry->described_at = now;
	return true;
}

/*
 * Move the timer only to an earlier moment: it does no harm if it fires too
 * early.
 */
static void
arm_timer(ZklEntry *entry)
{
	int64		at = next_timer(entry);

	if (at == PG_INT64_MAX || (entry->timer_armed && entry->armed_for <= at))
		return;
	disarm_timer(entry);
	entry->timer_armed = true;
	entry->armed_for = at;
	pairingheap_add(timers, &entry->timer);
}

static void
disarm_timer(ZklEntry *entry)
{
	if (entry->timer_armed)
		pairingheap_remove(timers, &entry->timer);
	entry->timer_armed = false;
}

/* Compare, so that the earliest timer is on top of the heap. */
static int
compare_timers(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		at_a = pairingheap_const_container(ZklEntry, timer, a)->armed_for;
	int64		at_b = pairingheap_const_container(ZklEntry, timer, b)->armed_for;

	return at_a < at_b ? 1 : at_a > at_b ? -1 : 0;
}

int64
zkl_entry_state_wake_at(void)
{
	if (pairingheap_is_empty(timers))
		return PG_INT64_MAX;
	return pairingheap_container(ZklEntry, timer,
								 pairingheap_first(timers))->armed_for;
}

/* An entry that is looked at also moves its timer. */
static void
look_if_armed(ZklEntry *entry, void *arg)
{
	if (entry->timer_armed)
		zkl_entry_ask_worker(entry);
}

void
zkl_entry_state_reset_timers(void)
{
	zkl_lock_table_visit(LW_EXCLUSIVE, look_if_armed, NULL);
}

/*
 * Changes of the state
 */

static ZklTicketPlace
place_of(const ZklTicket *ticket)
{
	ZklTicketPlace place = {.czxid = ticket->czxid,.asking = ticket->asking};

	strlcpy(place.znode, ticket->name, sizeof(place.znode));
	strlcpy(place.front, ticket->front, sizeof(place.front));
	place.front_is_next = strcmp(ticket->front, ticket->predecessor) == 0;
	return place;
}

void
zkl_entry_state_set_queued(ZklEntry *entry)
{
	lock(entry);
	if (entry->state == ZKL_ENTRY_WANTED || entry->state == ZKL_ENTRY_QUEUED)
	{
		/*
		 * Backends that try wait for both: until the ticket is queued, and
		 * until the owner before it has answered.
		 */
		bool		is_news = entry->state == ZKL_ENTRY_WANTED ||
		entry->place.asking != entry->ticket.asking;

		entry->state = ZKL_ENTRY_QUEUED;
		entry->place = place_of(&entry->ticket);
		if (entry->ticket.state == ZKL_TICKET_WATCHING)
			entry->before[0] = '\0';	/* until the ticket has read it */
		if (is_news)
			zkl_entry_wake_needing(entry);
		/* A lease that no claim needs must not stay before other clients. */
		if (zkl_lock_entry_is_lease(entry) && entry->lock->nneeding == 0)
			zkl_entry_withdraw(entry);
	}
	zkl_entry_unlock(entry->hash);
}

/* The text is for users to see, so it may be cut off. */
void
zkl_entry_state_note_before(ZklEntry *entry, const char *data, int length)
{
	lock(entry);
	if (entry->state == ZKL_ENTRY_QUEUED)
		strlcpy(entry->before, data,
				Min((Size) length + 1, sizeof(entry->before)));
	zkl_entry_unlock(entry->hash);
}

/*
 * A writer that only tries does not block a reader, because its ticket soon
 * goes.  But the name says "try" for as long as the znode exists, even after
 * the try was granted, when the znode is at the front.  A writer that waits
 * does not take over the ticket of a try; see needs_other_ticket() in
 * grant.c.
 *
 * Only the worker writes this field, so it may read it without the lock.  Most
 * steps do not change it.
 */
void
zkl_entry_state_note_blocked(ZklEntry *entry)
{
	bool		only_tries = false;
	bool		blocked = entry->ticket.state == ZKL_TICKET_QUEUED;

	if (blocked && entry->ticket.mode == ZKL_MODE_READ)
		blocked = !zkl_recipe_is_zklock(entry->ticket.predecessor, &only_tries) ||
			!only_tries ||
			strcmp(entry->ticket.predecessor, entry->ticket.front) == 0;
	if (blocked == entry->blocked)
		return;
	lock(entry);
	entry->blocked = blocked;
	zkl_entry_unlock(entry->hash);
}

bool
zkl_entry_state_set_owned(ZklEntry *entry, bool contended)
{
	bool		wanted;

	lock(entry);
	wanted = entry->state == ZKL_ENTRY_WANTED ||
		entry->state == ZKL_ENTRY_QUEUED;
	if (wanted)
	{
		/*
		 * Claims are granted only while the session has this epoch.  Their
		 * tokens are made of the czxid and the number of the claim.
		 */
		entry->state = ZKL_ENTRY_OWNED;
		entry->epoch = pg_atomic_read_u64(&zkl_session_info->epoch);
		entry->place = place_of(&entry->ticket);
		entry->claim_number = 0;
		entry->comes_back = false;
		entry->lingers = false;

		/*
		 * Servers that read at the same time do not take the lock from each
		 * other, so the numbers of their znodes tell nothing.
		 */
		if (entry->ticket.mode != ZKL_MODE_READ &&
			zkl_entry_comeback(entry) != NULL)
			zkl_comeback_owned(zkl_entry_comeback(entry), entry->place.znode);

		/*
		 * Everything that is known of other clients comes from this ticket's
		 * lists.  Nothing may remain from an earlier ticket.
		 */
		entry->contended = contended;
		entry->recheck_asked = false;
		entry->answered = false;
		entry->revoked = false;

		/*
		 * Once the mode is a reader's, the ticket may serve superusers again.
		 */
		entry->excludes_superuser &= zkl_entry_state_excludes_superuser(entry);
		entry->list_asked = entry->ticket.listed;
		entry->handed_on = false;
		entry->watch_asked = false;
		entry->described_at = 0;
		entry->owned_at = zkl_now();

		/*
		 * The lease changes from pending to idle: any claim on the semaphore
		 * may take it.
		 */
		if (zkl_lock_entry_is_lease(entry))
			zkl_leases_set_owned(entry);
		zkl_entry_ask_worker(entry);	/* it arms the timer */
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

	lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		bool		is_news = !entry->contended;

		entry->contended = true;
		lingered = give_up_if_idle(entry);
		if (lingered && zkl_entry_comeback(entry) != NULL)
			zkl_comeback_taken(zkl_entry_comeback(entry));
		if (!lingered && is_news)
			zkl_entry_ask_worker(entry);	/* it arms the timer */

		/*
		 * No backend of this server writes, so the readers of other servers
		 * need not wait.
		 */
		if (!lingered && entry->nheld > 0 && !entry->exclusive)
			zkl_entry_downgrade(entry);
		/* A client that waits for one lease waits for all of them. */
		if (zkl_lock_entry_is_lease(entry) && is_news)
			zkl_leases_set_contended(entry->lock);
	}
	zkl_entry_unlock(hash);
	return lingered;
}

/*
 * A ticket that is about to be downgraded does not answer: readers need no
 * answer, and tickets of writers will query the reader's znode instead.
 */
bool
zkl_entry_state_shall_answer(ZklEntry *entry)
{
	bool		shall_answer;

	lock(entry);

	/*
	 * The write costs a round trip, so it waits until a try has queried the
	 * znode, or until the lock has been held for a while.
	 */
	shall_answer = entry->state == ZKL_ENTRY_OWNED && entry->contended &&
		!zkl_lock_entry_is_lease(entry) && entry->mode == entry->ticket.mode &&
		!zkl_entry_is_idle(entry) &&
		(entry->ticket.asked ||
		 zkl_now() >= entry->owned_at + WATCH_AFTER);
	entry->answered |= shall_answer;
	zkl_entry_unlock(entry->hash);
	return shall_answer;
}

/*
 * The znode of a reader's ticket never says that the ticket serves no
 * superuser, because superusers may join it.  The mode may have changed since
 * a backend requested the ticket.
 */
bool
zkl_entry_state_excludes_superuser(const ZklEntry *entry)
{
	return entry->excludes_superuser && entry->ticket.mode != ZKL_MODE_READ;
}

/*
 * When the ticket has been given up, entry->owner_text may already be for the
 * next ticket.
 */
bool
zkl_entry_state_copy_owner_text(ZklEntry *entry, char owner_text[ZKL_OWNER_TEXT_SIZE])
{
	bool		owned;

	lock(entry);
	owned = entry->state == ZKL_ENTRY_OWNED;
	if (owned)
		strlcpy(owner_text, entry->owner_text, ZKL_OWNER_TEXT_SIZE);
	zkl_entry_unlock(entry->hash);
	return owned;
}

void
zkl_entry_state_set_uncontended(ZklEntry *entry)
{
	lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		entry->contended = false;
		/* Claims that had to let other clients go first may join now. */
		zkl_entry_wake_needing(entry);
	}
	zkl_entry_unlock(entry->hash);
}

/*
 * Called when the request is sent, not at its reply: the last claim may end
 * before the reply, and the number is used up all the same.
 */
void
zkl_entry_state_note_downgrade(ZklEntry *entry)
{
	lock(entry);
	zkl_comeback_downgraded(zkl_entry_begin_comeback(entry));
	zkl_entry_unlock(entry->hash);
}

void
zkl_entry_state_set_downgraded(ZklEntry *entry)
{
	lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		/*
		 * These facts were about the writer's znode.  The ticket finds them
		 * out anew for the reader's znode.
		 */
		entry->contended = false;
		entry->answered = false;
		entry->excludes_superuser = false;	/* superusers may join a reader's
											 * ticket */
		entry->place = place_of(&entry->ticket);

		/*
		 * zk_lock_force_release() may have found the writer's znode gone
		 * because this downgrade had replaced it.  The reader's znode still
		 * exists.  Claims that were marked as lost stay so; the next claims
		 * need the ticket.
		 */
		if (entry->epoch == ZKL_EPOCH_NONE)
			entry->epoch = pg_atomic_read_u64(&zkl_session_info->epoch);
		zkl_entry_wake_needing(entry);
	}
	zkl_entry_unlock(entry->hash);
}

bool
zkl_entry_state_set_revoked(ZklEntry *entry)
{
	bool		lingered = false;

	lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		entry->revoked = true;

		/*
		 * If the ticket did not linger, the claims keep the lock, and the
		 * ticket is given up when they have ended.
		 */
		lingered = give_up_if_idle(entry);
		pg_atomic_fetch_add_u64(&zkl_lock_table->revocations, 1);
	}
	zkl_entry_unlock(entry->hash);
	return lingered;
}

bool
zkl_entry_state_set_queried(ZklEntry *entry)
{
	bool		lingered = false;

	lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		lingered = give_up_if_idle(entry);
		entry->answered |= !lingered;
	}
	zkl_entry_unlock(entry->hash);
	return lingered;
}

/*
 * OWNED -> RELEASING, and true, if no claim holds the lock or waits for it.
 * Then the caller deletes the znode.
 */
static bool
give_up_if_idle(ZklEntry *entry)
{
	if (!zkl_entry_is_idle(entry))
		return false;
	zkl_entry_become_releasing(entry);
	return true;
}

bool
zkl_entry_state_set_gone(ZklEntry *entry)
{
	uint32		hash = entry->hash;
	bool		wanted;

	lock(entry);

	/* The timer no longer keeps the entry. */
	disarm_timer(entry);
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

	lock(entry);
	disarm_timer(entry);

	/*
	 * A claim that loses one of its leases is lost as a whole.  Both the
	 * claim and its count are in the semaphore's entry.
	 */
	if (entry->holder != NULL && entry->holder->state == ZKL_CLAIM_HELD)
	{
		lose_claim(entry->holder, loss);
		entry->lock->nheld--;
	}
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state == ZKL_CLAIM_HELD)
			lose_claim(claim, loss);
	}
	entry->nheld = 0;
	entry->exclusive = false;
	if (zkl_lock_entry_is_lease(entry))
		entry->lock->surveyed = false;	/* other clients may have come */
	new_generation(entry);

	/*
	 * new_generation() has woken all claims, and each requests its lock
	 * again.  No claim needs this ticket any more, so the entry becomes NONE,
	 * and may be gone.
	 */
	(void) want_again(entry);
	zkl_entry_unlock(hash);
}

/*
 * Mark the claim and count the loss, in this order.  A backend reads the
 * count of losses, and then looks at the claim with the partition locked.  If
 * it finds the claim held, it locked the partition before this function did.
 * So its count does not include this loss, and it will look again.
 */
static void
lose_claim(ZklClaim *claim, ZklLoss loss)
{
	int64		now = zkl_now();

	Assert(zkl_lock_table_is_mine(claim->entry) && claim->state == ZKL_CLAIM_HELD);
	pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
	zkl_lock_stat_lost(claim, now);
	claim->state = ZKL_CLAIM_LOST;
	claim->loss = loss;
	claim->since = now;
	zkl_claim_end_run_hook(&claim->run, false, true);
	ZKL_FAULT_POINT("claim-marked");	/* while the partition is locked */

	/* A backend that is still acquiring does not rely on the lock yet. */
	if (claim->detached != 0)
		zkl_lock_table_wake(claim);
	else if (claim->session_count + claim->xact_count > 0)
		zkl_lock_table_signal(claim, claim->loss_signal);
}

/*
 * Newcomers must not wait behind a backend that no longer holds anything.  If
 * a claim's backend has the old advisory lock, or waits for it, the claim counts
 * as waiting again once the backend has requested the new generation.
 */
static void
new_generation(ZklEntry *entry)
{
	ZklClaim   *first;
	dlist_iter	iter;

	entry->generation++;
	entry->nwaiting = 0;
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		zkl_entry_set_needs_ticket(claim, false);
		if (claim->detached == 0)
			zkl_lock_table_wake(claim);

		/*
		 * The holder of the old advisory lock may be idle for hours, so no
		 * backend must go on waiting for the old lock.
		 */
		if (claim->waits_locally && !claim->nudged)
		{
			claim->nudged = true;
			zkl_lock_table_signal(claim, ZKL_NUDGE_SIGNAL);
		}

		/*
		 * A claim on leases does not wait for an advisory lock, nor does a
		 * detached one.
		 */
		if (claim->mode == ZKL_MODE_LEASE || claim->detached != 0)
		{
			claim->generation = entry->generation;
			entry->nwaiting += claim->state == ZKL_CLAIM_WAITING;
		}
	}

	/*
	 * Wake only the first of perhaps thousands of detached claims; each of
	 * the others requests the lock when its turn comes.
	 */
	first = zkl_entry_first_detached(entry);
	if (first != NULL)
		zkl_lock_table_wake(first);
}

void
zkl_entry_state_set_failed(ZklEntry *entry, ZklFailure failure, bool znode_left)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;

	lock(entry);
	dlist_foreach(iter, &entry->lock->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		/*
		 * Claims that came later, or that wait only for the advisory lock,
		 * request the ticket again and may succeed.
		 */
		if (claim->needs_ticket)
		{
			claim->failure = failure;
			zkl_entry_set_needs_ticket(claim, false);
			zkl_lock_table_wake(claim);
		}
	}

	/*
	 * The ticket serves no claim any more.  If a znode is left, the entry
	 * stays until the znode is gone.
	 */
	zkl_entry_become_none(entry);
	if (znode_left)
	{
		entry->state = ZKL_ENTRY_RELEASING;
		zkl_entry_set_stuck(entry, entry->ticket.state == ZKL_TICKET_STUCK);
	}
	else
		disarm_timer(entry);
	zkl_entry_remove_if_unused(entry);
	zkl_entry_unlock(hash);
}

/* If all leases were given up by now, the limit that was read is ignored. */
void
zkl_entry_state_set_limit(ZklEntry *semaphore, int stored)
{
	uint32		hash = semaphore->hash;

	lock(semaphore);
	if (semaphore->nleases > 0)
		zkl_leases_set_stored(semaphore, stored);
	zkl_entry_unlock(hash);
}

/* Waking changes no data, so a shared lock is enough. */
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
	zkl_lock_table_visit(LW_SHARED, wake_visited, NULL);
}

/*
 * No znode is left.  -> WANTED, and true, if a claim still waits for the
 * ticket; otherwise -> NONE, and the entry may be gone.  A backend that waits
 * for leases requests them again by itself, if it still has the inner mutex.
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
		 * The claim is for leases, or the entry still has leases.  The
		 * backend decides what becomes of the leases.
		 */
		if (claim->mode == ZKL_MODE_LEASE || entry->nlinked > 0)
		{
			zkl_lock_table_wake(claim);
			continue;
		}

		/*
		 * The caller feeds WANT to the ticket at once, so mark the request as
		 * seen.
		 */
		Assert(entry->state == ZKL_ENTRY_NONE);
		zkl_entry_note_asker(entry, claim);
		entry->state = ZKL_ENTRY_WANTED;
		entry->mode = claim->mode;
		entry->seen = true;
		return true;
	}
	zkl_entry_remove_if_unused(entry);
	return false;
}

/*
 * The worker may see a leader's claim late, or see one that is gone; in both
 * cases it is about to look again.  So for most tickets it need not lock the
 * partition.
 */
bool
zkl_entry_state_is_for_leader(ZklEntry *entry)
{
	bool		for_leader;

	if (entry->leader == NULL)
		return false;
	lock(entry);
	for_leader = entry->leader != NULL && entry->leader->needs_ticket &&
		entry->nneeding == 1 && entry->ndetached == 1;
	zkl_entry_unlock(entry->hash);
	return for_leader;
}

/* Claims whose hold limit has passed become LOST.  True if there was one. */
static bool
end_hold_limits(ZklEntry *entry, int64 now)
{
	bool		any = false;
	int			left = entry->nheld;
	dlist_iter	iter;

	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		/* Thousands of claims may wait after the last one that is held. */
		if (left == 0)
			break;
		left -= claim->state == ZKL_CLAIM_HELD;
		if (claim->state != ZKL_CLAIM_HELD || claim->hold_until == 0 ||
			claim->hold_until > now)
			continue;

		/*
		 * The use of a detached claim is kept while its transaction is
		 * between its commit guard and its end.
		 */
		if (claim->is_use && zkl_passes_has(claim->proc_number, entry->path))
			continue;
		any = true;
		/* The ticket is still owned, and the claims of other readers stay. */
		lose_claim(claim, ZKL_LOSS_HOLD_LIMIT);
		entry->nheld--;
		zkl_entry_stop_excluding(entry);
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
			/* The waiting backends return for the new generation. */
			entry->idle_at = now + HAND_ON_WITHIN;
		}
	}
	return any;
}
