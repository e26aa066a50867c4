/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  What becomes of an entry and its ticket: one function an arrow.
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

static bool is_idle(const ZklEntry *entry);
static bool shall_linger(const ZklEntry *entry);
static bool want_again(ZklEntry *entry);
static void take_back(ZklEntry *entry);
static void wake_needing(ZklEntry *entry);
static void ask_worker(ZklEntry *entry);

void
zkl_entry_lock(const ZklEntry *entry)
{
	LWLockAcquire(zkl_table_partition(entry->hash), LW_EXCLUSIVE);
}

void
zkl_entry_unlock(uint32 hash)
{
	LWLockRelease(zkl_table_partition(hash));
}

/* A claim has ended: who is the next, or what becomes of the ticket? */
void
zkl_entry_settle(ZklEntry *entry, int64 now)
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
			zkl_entry_give_up(entry);
		wake_needing(entry);
		return;
	}

	entry->idle_at = now;
	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			zkl_entry_remove_if_unused(entry);
			break;
		case ZKL_ENTRY_WANTED:
			if (entry->seen)
				zkl_entry_give_up(entry);
			else
				take_back(entry);
			break;
		case ZKL_ENTRY_QUEUED:
			zkl_entry_give_up(entry);
			break;
		case ZKL_ENTRY_OWNED:
			if (!shall_linger(entry))
				zkl_entry_give_up(entry);
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
		zkl_entry_lock(entry);
		entry->timer_armed = false;
		ask_worker(entry);
		zkl_entry_unlock(entry->hash);
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

	zkl_entry_lock(entry);

	/* Somebody may have asked again since it was taken off the list. */
	SpinLockAcquire(&zkl_shared->work_mutex);
	entry->in_work = entry->work_link.next != NULL;
	SpinLockRelease(&zkl_shared->work_mutex);

	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			zkl_entry_remove_if_unused(entry);
			break;
		case ZKL_ENTRY_WANTED:
			entry->seen = true;
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
	zkl_entry_unlock(hash);
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

	zkl_entry_lock(entry);
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
		zkl_entry_remove_if_unused(entry);
	zkl_entry_unlock(hash);
	return work;
}

void
zkl_entry_set_queued(ZklEntry *entry)
{
	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_WANTED)
	{
		entry->state = ZKL_ENTRY_QUEUED;
		strlcpy(entry->znode, entry->ticket.name, sizeof(entry->znode));
		wake_needing(entry);
	}
	zkl_entry_unlock(entry->hash);
}

bool
zkl_entry_set_owned(ZklEntry *entry, bool contended)
{
	bool		wanted;

	zkl_entry_lock(entry);
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
	zkl_entry_unlock(entry->hash);
	return wanted;
}

bool
zkl_entry_set_contended(ZklEntry *entry)
{
	bool		lingered = false;

	zkl_entry_lock(entry);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		entry->contended = true;
		if (is_idle(entry))
		{
			entry->state = ZKL_ENTRY_RELEASING;
			lingered = true;
		}
	}
	zkl_entry_unlock(entry->hash);
	return lingered;
}

bool
zkl_entry_set_gone(ZklEntry *entry)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;
	bool		wanted;

	zkl_entry_lock(entry);
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->ended)
			zkl_table_wake(claim);
	}
	wanted = want_again(entry);
	zkl_entry_unlock(hash);
	return wanted;
}

void
zkl_entry_set_lost(ZklEntry *entry, ZklLoss loss)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;

	pg_atomic_fetch_add_u64(&zkl_shared->losses, 1);
	zkl_entry_lock(entry);
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		zkl_entry_set_needs_ticket(claim, false);
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
	 * with the old local lock, or for it, counts again when it has asked for
	 * the new one.
	 */
	entry->generation++;
	entry->nheld = 0;
	entry->nwaiting = 0;
	(void) want_again(entry);
	zkl_entry_unlock(hash);
	pg_atomic_fetch_add_u64(&zkl_shared->losses, 1);
}

void
zkl_entry_set_failed(ZklEntry *entry, ZklFailure failure, bool znode_left)
{
	uint32		hash = entry->hash;
	dlist_iter	iter;

	zkl_entry_lock(entry);
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->needs_ticket)
		{
			claim->failure = failure;
			zkl_entry_set_needs_ticket(claim, false);
			zkl_table_wake(claim);
		}
	}
	entry->state = znode_left ? ZKL_ENTRY_RELEASING : ZKL_ENTRY_NONE;
	zkl_entry_remove_if_unused(entry);
	zkl_entry_unlock(hash);
}

static void
wake_visited(ZklEntry *entry, void *arg)
{
	dlist_iter	iter;

	dlist_foreach(iter, &entry->claims)
		zkl_table_wake(dlist_container(ZklClaim, link, iter.cur));
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
void
zkl_entry_want(ZklEntry *entry)
{
	Assert(entry->state == ZKL_ENTRY_NONE);
	entry->state = ZKL_ENTRY_WANTED;
	entry->seen = false;
	ask_worker(entry);
}

/*
 * WANTED -> NONE: the worker knows nothing of the wish yet, and perhaps there
 * is no worker.  If it has just taken the entry off its list, it will come to
 * look, and finds nothing to do.
 */
static void
take_back(ZklEntry *entry)
{
	Assert(entry->state == ZKL_ENTRY_WANTED && !entry->seen);
	entry->state = ZKL_ENTRY_NONE;
	SpinLockAcquire(&zkl_shared->work_mutex);
	if (entry->work_link.next != NULL)
	{
		dlist_delete(&entry->work_link);
		entry->work_link.next = NULL;
		entry->in_work = false;
	}
	SpinLockRelease(&zkl_shared->work_mutex);
	zkl_entry_remove_if_unused(entry);
}

/* -> RELEASING */
void
zkl_entry_give_up(ZklEntry *entry)
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
		entry->seen = true;
		return true;
	}
	entry->state = ZKL_ENTRY_NONE;
	zkl_entry_remove_if_unused(entry);
	return false;
}

void
zkl_entry_set_needs_ticket(ZklClaim *claim, bool needs_ticket)
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
bool
zkl_entry_remove_if_unused(ZklEntry *entry)
{
	if (entry->state != ZKL_ENTRY_NONE || !dlist_is_empty(&entry->claims) ||
		entry->timer_armed || entry->in_work)
		return false;
	zkl_table_remove(entry);
	return true;
}
