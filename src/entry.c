/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  Every change of an entry or a claim: one function an arrow.
 *
 * The only writer of an entry's state.  The states and who may change them
 * are in locktable.h.
 *
 * src/entry.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "compat.h"
#include "entry.h"
#include "zklock.h"

static ZklAnswer answer_owned(ZklClaim *claim, int64 now);
static void hold(ZklClaim *claim, int64 now);
static void note_asker(ZklEntry *entry, bool only_tries, const char *about);
static void detach(ZklClaim *claim, int64 now);
static void settle(ZklEntry *entry, int64 now);
static bool is_idle(const ZklEntry *entry);
static bool shall_linger(const ZklEntry *entry);
static void give_up(ZklEntry *entry);
static void want(ZklEntry *entry);
static bool want_again(ZklEntry *entry);
static void set_needs_ticket(ZklClaim *claim, bool needs_ticket);
static void wake_needing(ZklEntry *entry);
static void ask_worker(ZklEntry *entry);
static bool remove_if_unused(ZklEntry *entry);

static void
lock_entry(const ZklEntry *entry)
{
	LWLockAcquire(zkl_table_partition(entry->hash), LW_EXCLUSIVE);
}

static void
unlock_entry(uint32 hash)
{
	LWLockRelease(zkl_table_partition(hash));
}

/*
 * Called by backends
 */

ZklClaim *
zkl_entry_begin(const char *path)
{
	uint32		hash = zkl_table_hash(path);
	ZklClaim   *claim = zkl_table_take_claim();
	ZklEntry   *entry;

	if (claim == NULL)
		return NULL;

	LWLockAcquire(zkl_table_partition(hash), LW_EXCLUSIVE);
	entry = zkl_table_find(path, hash);
	if (entry == NULL)
		entry = zkl_table_make(path, hash);
	if (entry != NULL)
	{
		claim->entry = entry;
		claim->proc_number = zkl_my_proc_number();
		claim->pid = MyProcPid;
		claim->role = GetUserId();
		claim->database = MyDatabaseId;
		claim->state = ZKL_CLAIM_WAITING;
		claim->since = zkl_now();
		claim->generation = entry->generation;
		entry->nwaiting++;
		dlist_push_tail(&entry->claims, &claim->link);
	}
	LWLockRelease(zkl_table_partition(hash));

	if (entry == NULL)
	{
		zkl_table_free_claim(claim);
		return NULL;
	}
	return claim;
}

uint32
zkl_entry_generation(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;

	lock_entry(entry);
	if (claim->generation != entry->generation)
	{
		claim->generation = entry->generation;
		entry->nwaiting++;
	}
	unlock_entry(entry->hash);
	return claim->generation;
}

ZklAnswer
zkl_entry_hold(ZklClaim *claim, bool only_tries, const char *about)
{
	ZklEntry   *entry = claim->entry;
	int64		now = zkl_now();
	ZklAnswer	answer = ZKL_ANSWER_NONE;

	lock_entry(entry);
	Assert(claim->state == ZKL_CLAIM_WAITING);

	if (claim->generation != entry->generation)
		answer = ZKL_ANSWER_STALE;
	else if (claim->failure != ZKL_FAILURE_NONE)
		answer = ZKL_ANSWER_FAILED;
	else if (pg_atomic_read_u32(&zkl_shared->shutting_down))
		answer = ZKL_ANSWER_SHUTDOWN;
	else
	{
		set_needs_ticket(claim, true);
		switch (entry->state)
		{
			case ZKL_ENTRY_NONE:
				if (about != NULL)
				{
					note_asker(entry, only_tries, about);
					want(entry);
				}
				break;
			case ZKL_ENTRY_RELEASING:
				if (about != NULL)
					note_asker(entry, only_tries, about);
				break;
			case ZKL_ENTRY_WANTED:
				break;
			case ZKL_ENTRY_QUEUED:
				answer = ZKL_ANSWER_QUEUED;
				break;
			case ZKL_ENTRY_OWNED:
				answer = answer_owned(claim, now);
				break;
		}
	}
	unlock_entry(entry->hash);
	return answer;
}

/*
 * The server owns the lock.  Another claim can be HELD although we have the
 * local lock only when its backend dropped that lock behind our back, with
 * pg_advisory_unlock_all(), or is on its way out; it will wake us.
 */
static ZklAnswer
answer_owned(ZklClaim *claim, int64 now)
{
	ZklEntry   *entry = claim->entry;
	ZklSessionInfo *session = &zkl_shared->session[entry->session];

	if (entry->nheld > 0)
		return ZKL_ANSWER_QUEUED;
	if (!zkl_session_is_safe(entry->session, now) ||
		pg_atomic_read_u64(&session->epoch) != entry->epoch)
		return ZKL_ANSWER_DOUBT;
	if (entry->claim_number >= ZKL_CLAIM_NUMBER_MAX)
	{
		give_up(entry);
		return ZKL_ANSWER_NONE;
	}
	hold(claim, now);
	return ZKL_ANSWER_HELD;
}

static void
hold(ZklClaim *claim, int64 now)
{
	ZklEntry   *entry = claim->entry;
	ZklRecent  *recent = zkl_table_recent(entry->hash);

	set_needs_ticket(claim, false);
	entry->nwaiting--;
	entry->nheld++;
	Assert(entry->nheld == 1 && entry->nwaiting >= 0);

	entry->claim_number++;
	entry->comes_back = recent->hash == entry->hash &&
		recent->released_at != 0 &&
		now - recent->released_at <= ZKL_MS(zkl_linger);

	claim->state = ZKL_CLAIM_HELD;
	claim->since = now;
	claim->token = entry->czxid * (ZKL_CLAIM_NUMBER_MAX + 1) +
		entry->claim_number;
	zkl_shared->nclaims[entry->hash % ZKL_PARTITIONS]++;
}

ZklStanding
zkl_entry_standing(ZklClaim *claim, int64 margin)
{
	ZklEntry   *entry = claim->entry;
	ZklStanding standing = ZKL_STANDING_GOOD;

	LWLockAcquire(zkl_table_partition(entry->hash), LW_SHARED);
	if (claim->state != ZKL_CLAIM_HELD)
		standing = ZKL_STANDING_LOST;

	/* The worker raises the epoch first, then comes to mark each claim. */
	else if (entry->epoch !=
			 pg_atomic_read_u64(&zkl_shared->session[entry->session].epoch) ||
			 !zkl_session_is_safe(entry->session, zkl_now() + margin))
		standing = ZKL_STANDING_DOUBT;
	LWLockRelease(zkl_table_partition(entry->hash));
	return standing;
}

void
zkl_entry_end(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	uint32		hash = entry->hash;

	lock_entry(entry);
	detach(claim, zkl_now());
	unlock_entry(hash);

	zkl_table_free_claim(claim);
	if (pg_atomic_read_u32(&zkl_shared->shutting_down))
		zkl_table_wake_worker();
}

bool
zkl_entry_end_and_stay(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	uint32		hash = entry->hash;
	bool		stay;

	lock_entry(entry);

	/* The ticket of a held claim keeps the entry. */
	stay = claim->state == ZKL_CLAIM_HELD;
	detach(claim, zkl_now());
	if (stay)
		stay = entry->state == ZKL_ENTRY_RELEASING;
	if (stay)
	{
		/* Now this keeps it: a claim that counts nowhere. */
		claim->ended = true;
		dlist_push_tail(&entry->claims, &claim->link);
	}
	unlock_entry(hash);

	if (!stay)
		zkl_table_free_claim(claim);
	return stay;
}

bool
zkl_entry_is_released(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	bool		released;

	lock_entry(entry);
	released = entry->state != ZKL_ENTRY_RELEASING;
	unlock_entry(entry->hash);
	return released;
}

void
zkl_entry_leave(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	uint32		hash = entry->hash;

	lock_entry(entry);
	Assert(claim->ended);
	dlist_delete(&claim->link);
	remove_if_unused(entry);
	unlock_entry(hash);
	zkl_table_free_claim(claim);
}

/*
 * Take a claim off its entry, and settle what becomes of the ticket.  The
 * entry may be gone afterwards.
 */
static void
detach(ZklClaim *claim, int64 now)
{
	ZklEntry   *entry = claim->entry;

	dlist_delete(&claim->link);
	switch (claim->state)
	{
		case ZKL_CLAIM_WAITING:
			set_needs_ticket(claim, false);
			if (claim->generation == entry->generation)
				entry->nwaiting--;
			settle(entry, now);
			break;
		case ZKL_CLAIM_HELD:
			{
				ZklRecent  *recent = zkl_table_recent(entry->hash);

				recent->hash = entry->hash;
				recent->released_at = now;
				entry->nheld--;
				settle(entry, now);
			}
			break;
		case ZKL_CLAIM_LOST:
			remove_if_unused(entry);
			break;
	}
}

/* A claim has ended: who is the next, or what becomes of the ticket? */
static void
settle(ZklEntry *entry, int64 now)
{
	if (entry->nheld > 0)
		return;

	if (entry->nwaiting > 0)
	{
		/*
		 * Hand the ticket on within the server, unless others have waited for
		 * its tenure.
		 */
		if (entry->state == ZKL_ENTRY_OWNED && entry->contended &&
			now - entry->owned_at >= ZKL_MS(zkl_tenure))
			give_up(entry);
		wake_needing(entry);
		return;
	}

	entry->idle_at = now;
	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			remove_if_unused(entry);
			break;
		case ZKL_ENTRY_WANTED:
		case ZKL_ENTRY_QUEUED:
			give_up(entry);
			break;
		case ZKL_ENTRY_OWNED:
			if (!shall_linger(entry))
				give_up(entry);
			else if (!entry->timer_armed)
				ask_worker(entry);
			break;
		case ZKL_ENTRY_RELEASING:
			break;
	}
}

/* An owned ticket that is idle lingers. */
static bool
is_idle(const ZklEntry *entry)
{
	return entry->nheld == 0 && entry->nwaiting == 0;
}

static bool
shall_linger(const ZklEntry *entry)
{
	return entry->comes_back && zkl_linger > 0 && !entry->contended &&
		entry->claim_number < ZKL_CLAIM_NUMBER_MAX;
}

/*
 * Called only by the worker
 */

void
zkl_entry_adopt_work(void)
{
	int			nentries;
	ZklEntry  **entries = zkl_table_collect(&nentries);

	/*
	 * The last worker may have died with entries in its hands.  Only a worker
	 * takes these marks away, so such entries stay until we come to them.
	 */
	for (int i = 0; i < nentries; i++)
	{
		ZklEntry   *entry = entries[i];

		if (!entry->in_work && !entry->timer_armed &&
			entry->state == ZKL_ENTRY_NONE)
			continue;
		lock_entry(entry);
		entry->timer_armed = false;
		ask_worker(entry);
		unlock_entry(entry->hash);
	}
	pfree(entries);
}

ZklEntry *
zkl_entry_next_work(void)
{
	ZklEntry   *entry = NULL;

	SpinLockAcquire(&zkl_shared->work_mutex);
	if (!dlist_is_empty(&zkl_shared->work))
	{
		entry = dlist_container(ZklEntry, work_link,
								dlist_pop_head_node(&zkl_shared->work));
		entry->work_link.next = NULL;
	}
	SpinLockRelease(&zkl_shared->work_mutex);
	return entry;
}

ZklWork
zkl_entry_look(ZklEntry *entry, int64 *timer_at)
{
	uint32		hash = entry->hash;
	ZklWork		work = ZKL_WORK_NOTHING;

	lock_entry(entry);
	entry->in_work = false;
	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			remove_if_unused(entry);
			break;
		case ZKL_ENTRY_WANTED:
			work = ZKL_WORK_WANT;
			break;
		case ZKL_ENTRY_QUEUED:
			break;
		case ZKL_ENTRY_OWNED:
			if (is_idle(entry) && !entry->timer_armed)
			{
				entry->timer_armed = true;
				*timer_at = entry->idle_at + ZKL_MS(zkl_linger);
				work = ZKL_WORK_TIMER;
			}
			break;
		case ZKL_ENTRY_RELEASING:
			work = ZKL_WORK_UNWANT;
			break;
	}
	unlock_entry(hash);
	return work;
}

/*
 * The timer is lazy: releases do not move it, so it may fire while the lock
 * is held again, or too early.
 */
ZklWork
zkl_entry_timer_fired(ZklEntry *entry, int64 *timer_at)
{
	uint32		hash = entry->hash;
	ZklWork		work = ZKL_WORK_NOTHING;

	lock_entry(entry);
	entry->timer_armed = false;
	if (entry->state == ZKL_ENTRY_OWNED && is_idle(entry))
	{
		*timer_at = entry->idle_at + ZKL_MS(zkl_linger);
		if (zkl_now() >= *timer_at)
		{
			entry->state = ZKL_ENTRY_RELEASING;
			work = ZKL_WORK_UNWANT;
		}
		else
		{
			entry->timer_armed = true;
			work = ZKL_WORK_TIMER;
		}
	}
	else
		remove_if_unused(entry);
	unlock_entry(hash);
	return work;
}

void
zkl_entry_set_queued(ZklEntry *entry)
{
	lock_entry(entry);
	if (entry->state == ZKL_ENTRY_WANTED)
	{
		entry->state = ZKL_ENTRY_QUEUED;
		strlcpy(entry->znode, entry->ticket.name, sizeof(entry->znode));
		wake_needing(entry);
	}
	unlock_entry(entry->hash);
}

bool
zkl_entry_set_owned(ZklEntry *entry, bool contended)
{
	bool		wanted;

	lock_entry(entry);
	wanted = entry->state == ZKL_ENTRY_WANTED ||
		entry->state == ZKL_ENTRY_QUEUED;
	if (wanted)
	{
		entry->state = ZKL_ENTRY_OWNED;
		entry->epoch =
			pg_atomic_read_u64(&zkl_shared->session[entry->session].epoch);
		entry->czxid = entry->ticket.czxid;
		strlcpy(entry->znode, entry->ticket.name, sizeof(entry->znode));
		entry->claim_number = 0;
		entry->comes_back = false;
		entry->contended = contended;
		entry->owned_at = zkl_now();
		wake_needing(entry);
	}
	unlock_entry(entry->hash);
	return wanted;
}

bool
zkl_entry_set_contended(ZklEntry *entry)
{
	bool		lingered = false;

	lock_entry(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		entry->contended = true;
		if (is_idle(entry))
		{
			entry->state = ZKL_ENTRY_RELEASING;
			lingered = true;
		}
	}
	unlock_entry(entry->hash);
	return lingered;
}

bool
zkl_entry_set_gone(ZklEntry *entry)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;
	bool		wanted;

	lock_entry(entry);
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->ended)
			zkl_table_wake(claim);
	}
	wanted = want_again(entry);
	unlock_entry(hash);
	return wanted;
}

bool
zkl_entry_set_lost(ZklEntry *entry, ZklLoss loss)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;
	bool		wanted;

	lock_entry(entry);
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		set_needs_ticket(claim, false);
		if (claim->state == ZKL_CLAIM_HELD)
		{
			claim->state = ZKL_CLAIM_LOST;
			claim->loss = loss;
			claim->lost_at = claim->since = zkl_now();
		}
		zkl_table_wake(claim);
	}

	/*
	 * Newcomers shall not wait behind who holds nothing any more.  Who waits
	 * for the old local lock counts again when it has asked for the new one.
	 */
	entry->generation++;
	entry->nheld = 0;
	entry->nwaiting = 0;
	wanted = want_again(entry);
	unlock_entry(hash);
	return wanted;
}

void
zkl_entry_set_failed(ZklEntry *entry, ZklFailure failure, bool znode_left)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;

	lock_entry(entry);
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->needs_ticket)
			claim->failure = failure;
	}
	wake_needing(entry);
	entry->state = znode_left ? ZKL_ENTRY_RELEASING : ZKL_ENTRY_NONE;
	remove_if_unused(entry);
	unlock_entry(hash);
}

static void
wake_visited(ZklEntry *entry, void *arg)
{
	wake_needing(entry);
}

void
zkl_entry_wake_all(void)
{
	zkl_table_visit(wake_visited, NULL);
}

static void
note_held(ZklEntry *entry, void *arg)
{
	if (entry->nheld > 0)
		*(bool *) arg = true;
}

bool
zkl_entry_any_held(void)
{
	bool		any = false;

	zkl_table_visit(note_held, &any);
	return any;
}

/*
 * Helpers; the caller holds the partition
 */

/* -> WANTED */
static void
want(ZklEntry *entry)
{
	Assert(entry->state == ZKL_ENTRY_NONE);
	entry->state = ZKL_ENTRY_WANTED;
	ask_worker(entry);
}

/* -> RELEASING */
static void
give_up(ZklEntry *entry)
{
	Assert(entry->state != ZKL_ENTRY_NONE);
	entry->state = ZKL_ENTRY_RELEASING;
	ask_worker(entry);
}

/*
 * There is no znode: -> WANTED and true if somebody waits for the ticket
 * right now; -> NONE otherwise, and the entry may be gone.
 */
static bool
want_again(ZklEntry *entry)
{
	entry->znode[0] = '\0';
	entry->contended = false;
	if (entry->nneeding > 0)
	{
		entry->state = ZKL_ENTRY_WANTED;
		return true;
	}
	entry->state = ZKL_ENTRY_NONE;
	remove_if_unused(entry);
	return false;
}

/* Remember who asked for the ticket; its znode will say so. */
static void
note_asker(ZklEntry *entry, bool only_tries, const char *about)
{
	entry->only_tries = only_tries;
	strlcpy(entry->about, about, sizeof(entry->about));
}

static void
set_needs_ticket(ZklClaim *claim, bool needs_ticket)
{
	if (claim->needs_ticket != needs_ticket)
	{
		claim->needs_ticket = needs_ticket;
		claim->entry->nneeding += needs_ticket ? 1 : -1;
	}
}

static void
wake_needing(ZklEntry *entry)
{
	dlist_iter	iter;

	if (entry->nneeding == 0)
		return;
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->needs_ticket)
			zkl_table_wake(claim);
	}
}

/*
 * Let the worker look at this entry.  It is not removed before that: the mark
 * stays until the worker looks, also after it took the entry off the list.
 */
static void
ask_worker(ZklEntry *entry)
{
	entry->in_work = true;
	SpinLockAcquire(&zkl_shared->work_mutex);
	if (entry->work_link.next == NULL)
		dlist_push_tail(&zkl_shared->work, &entry->work_link);
	SpinLockRelease(&zkl_shared->work_mutex);
	zkl_table_wake_worker();
}

/* An entry stays while a claim, a ticket or the worker needs it. */
static bool
remove_if_unused(ZklEntry *entry)
{
	if (entry->state != ZKL_ENTRY_NONE || !dlist_is_empty(&entry->claims) ||
		entry->timer_armed || entry->in_work)
		return false;
	zkl_table_remove(entry);
	return true;
}
