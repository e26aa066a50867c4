/*-------------------------------------------------------------------------
 *
 * entryqueue.c
 *	  The list of entries that the worker must look at, and what it must do
 *	  about each.
 *
 * The worker looks at an entry when a backend has put it on the list, or when
 * its timer fires.
 *
 * src/worker/entryqueue.c
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
#include "shared/passes.h"
#include "worker/entryqueue.h"
#include "worker/entrystate.h"

/*
 * A ticket that created its lock's directory was the first in it.  It lists
 * the znodes behind it only after this time.  Most new locks are released
 * before, and so save the list.
 */
#define LOOK_AFTER		ZKL_MS(10)

static int64 next_timer(const ZklEntry *entry);
static void look_at_owned(ZklEntry *entry, ZklWork *work);
static void arm_timer(ZklEntry *entry, ZklWork *work);
static int64 describe_at(const ZklEntry *entry);
static bool describe_if_due(ZklEntry *entry, int64 now);

/*
 * The heap of the dead worker is gone.  The new worker looks at an entry if
 * it had work or an armed timer, or if its state requires work of the worker.
 * That also arms its timer again.
 */
static void
adopt(ZklEntry *entry, void *arg)
{
	entry->timer_set = false;
	entry->taken = false;
	if (!entry->in_work && !entry->timer_armed &&
		entry->state == ZKL_ENTRY_NONE)
		return;
	entry->timer_armed = false;
	zkl_entry_ask_worker(entry);
}

/*
 * The last worker may have died after it took entries off the list.  Lock all
 * partitions at once, so that no backend removes an entry between the look
 * and the mark.
 */
void
zkl_entry_queue_adopt(void)
{
	zkl_lock_table_visit(zkl_session_info_number(), LW_EXCLUSIVE, adopt, NULL);
}

ZklEntry *
zkl_entry_queue_next(void)
{
	ZklEntry   *entry = NULL;

	SpinLockAcquire(&zkl_session_info_mine->work_mutex);
	if (!dlist_is_empty(&zkl_session_info_mine->work))
	{
		entry = dlist_container(ZklEntry, work_link,
								dlist_pop_head_node(&zkl_session_info_mine->work));

		/*
		 * Between this and zkl_entry_queue_look(), a backend may take its
		 * request back.  The mark tells the backend that the worker still has
		 * the entry, so that the backend does not remove it.
		 */
		entry->work_link.next = NULL;
		entry->taken = true;
	}
	SpinLockRelease(&zkl_session_info_mine->work_mutex);
	return entry;
}

bool
zkl_entry_queue_any(void)
{
	bool		any;

	SpinLockAcquire(&zkl_session_info_mine->work_mutex);
	any = !dlist_is_empty(&zkl_session_info_mine->work);
	SpinLockRelease(&zkl_session_info_mine->work_mutex);
	return any;
}

ZklWork
zkl_entry_queue_look(ZklEntry *entry)
{
	uint32		hash = entry->hash;
	ZklWork		work = {0};

	zkl_entry_lock(entry);

	/*
	 * A backend may have put the entry on the list again since it was taken
	 * off.
	 */
	SpinLockAcquire(&zkl_session_info_mine->work_mutex);
	entry->in_work = entry->work_link.next != NULL;
	entry->taken = false;
	SpinLockRelease(&zkl_session_info_mine->work_mutex);

	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:

			/*
			 * Stuck leases keep the entry, so it still exists for the retry.
			 * Without them, it may be gone after this.
			 */
			work.retry = entry->nstuck > 0;
			zkl_entry_remove_if_unused(entry);
			break;
		case ZKL_ENTRY_WANTED:

			/*
			 * From now on the request is under way.  A backend cannot take it
			 * back; it can only give the ticket up.
			 */
			entry->seen = true;
			work.want = true;
			break;
		case ZKL_ENTRY_QUEUED:
			work.standby = true;
			break;
		case ZKL_ENTRY_OWNED:
			look_at_owned(entry, &work);
			break;
		case ZKL_ENTRY_RELEASING:
			work.unwant = true;
			break;
	}
	zkl_entry_unlock(hash);
	return work;
}

static void
look_at_owned(ZklEntry *entry, ZklWork *work)
{
	/*
	 * A backend or the worker has changed the entry's mode to READ, and the
	 * znode is still a writer's.
	 */
	work->downgrade = entry->mode != entry->ticket.mode;
	work->deleted = entry->epoch == ZKL_EPOCH_NONE;
	work->recheck = entry->recheck_asked;
	entry->recheck_asked = false;

	/*
	 * The lock changes hands within the server.  Before that goes on for
	 * long, the worker must know whether other clients wait.
	 */
	if (entry->handed_on && !entry->list_asked)
		work->look = entry->list_asked = true;
	arm_timer(entry, work);
}

/*
 * To be cheap, a release does not move the timer.  So it may fire while the
 * lock is held again, or too early.
 */
ZklWork
zkl_entry_queue_timer_fired(ZklEntry *entry)
{
	uint32		hash = entry->hash;
	ZklWork		work = {0};
	int64		now = zkl_now();
	bool		any_over;

	ZKL_FAULT_POINT("timer-fired");
	zkl_entry_lock(entry);

	/*
	 * The armed timer has kept the entry.  If nothing arms it again, the
	 * entry may be removed below.
	 */
	entry->timer_armed = false;
	any_over = zkl_entry_state_end_lease_times(entry, now);
	if (entry->state == ZKL_ENTRY_OWNED)
	{
		if (zkl_entry_is_idle(entry) && now >= entry->idle_at + ZKL_MS(zkl_linger))
			work.unwant = zkl_entry_state_give_up_if_idle(entry);

		/*
		 * The lock is held longer than most.  From now on the worker follows
		 * the queue behind the ticket.
		 */
		if (!work.unwant && !entry->list_asked &&
			now >= entry->owned_at + LOOK_AFTER)
			work.look = entry->list_asked = true;

		/*
		 * And from later on, watch for requests of other clients to release
		 * the lock.
		 */
		if (!work.unwant && !entry->watch_asked &&
			now >= entry->owned_at + ZKL_WATCH_AFTER)
			work.watch = entry->watch_asked = true;
		work.describe = !work.unwant && describe_if_due(entry, now);
	}
	if (entry->state == ZKL_ENTRY_OWNED)
		arm_timer(entry, &work);
	else
		zkl_entry_remove_if_unused(entry);
	zkl_entry_unlock(hash);

	if (any_over)
		ZKL_FAULT_POINT("lease-time-marked");
	return work;
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
		at = Min(at, entry->owned_at + ZKL_WATCH_AFTER);
	if (entry->contended)
		at = Min(at, describe_at(entry));
	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		/* Thousands of detached claims may wait after the last one. */
		if (left == 0)
			break;
		left -= claim->state == ZKL_CLAIM_HELD;

		/*
		 * This server ends a hold limit, not ZooKeeper, so the timer must
		 * fire then.
		 */
		if (claim->state != ZKL_CLAIM_HELD || claim->lease_until == 0)
			continue;
		at = Min(at, claim->lease_until);

		/* It has passed, and a commit is still under way. */
		if (claim->is_use && at == claim->lease_until)
			at = Max(at, zkl_now() + ZKL_PASSES_POLL);
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
	if (holder != NULL && strcmp(holder->about, entry->about) != 0)
		since = Max(holder->since, entry->described_at);
	return since + ZKL_MS(DeadlockTimeout);
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
	strlcpy(entry->about, zkl_entry_holder(entry)->about, sizeof(entry->about));
	entry->described_at = now;
	return true;
}

/*
 * Move the timer only to an earlier moment: it does no harm if it fires too
 * early.
 */
static void
arm_timer(ZklEntry *entry, ZklWork *work)
{
	int64		at = next_timer(entry);

	if (at == PG_INT64_MAX || (entry->timer_armed && entry->armed_for <= at))
		return;
	entry->timer_armed = true;
	entry->armed_for = at;
	work->timer_at = at;
}
