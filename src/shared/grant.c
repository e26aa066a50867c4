/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  A claim requests its lock, and is granted it.
 *
 * lockentry.h has the states of a claim, and says which process makes each
 * change.  The grant itself is hold(), under the lock of the partition.
 *
 * src/shared/grant.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "settings.h"
#include "shared/entry.h"
#include "shared/grant.h"
#include "shared/leases.h"
#include "shared/lockstat.h"

static void need_ticket(ZklClaim *claim);
static void ask_for_other_ticket(ZklClaim *claim);
static bool needs_other_ticket(const ZklClaim *claim);
static ZklAnswer ask_for_ticket(ZklClaim *claim, bool requests);
static ZklAnswer ask_for_leases(ZklClaim *claim, bool requests);
static bool suits_limit(const ZklClaim *claim, int usable);
static ZklAnswer answer_owned(ZklClaim *claim, int64 now);
static bool is_its_turn(const ZklClaim *claim);
static void hold(ZklClaim *claim, uint64 epoch, int64 now);

/*
 * A claim of an old generation must not hold the lock.  Its advisory lock does
 * not exclude newcomers, because they take the advisory lock of the new
 * generation.  Claims on leases have no advisory lock.
 */
ZklAnswer
zkl_grant_request(ZklClaim *claim, bool only_tries, bool requests)
{
	ZklEntry   *entry = claim->entry;
	ZklAnswer	answer = ZKL_ANSWER_NONE;

	Assert(!zkl_session_info_is_worker());
	zkl_entry_lock(entry);
	Assert(claim->state == ZKL_CLAIM_WAITING);
	claim->only_tries = only_tries;

	if (claim->generation != entry->generation &&
		claim->mode != ZKL_MODE_LEASE)
		answer = ZKL_ANSWER_STALE;
	else if (claim->failure == ZKL_FAILURE_LIMIT)
	{
		/* The backend finds out what is wrong, and reports it. */
		claim->failure = ZKL_FAILURE_NONE;
		answer = ZKL_ANSWER_STALE;
	}
	else if (claim->failure != ZKL_FAILURE_NONE)
		answer = ZKL_ANSWER_FAILED;
	else if (pg_atomic_read_u32(&zkl_lock_table->shutting_down))
		answer = ZKL_ANSWER_SHUTDOWN;

	/*
	 * Of the claims of the claims process, only the first one requests the
	 * ticket.
	 */
	else if (claim->detached != 0 && zkl_entry_first_detached(entry) != claim)
		answer = ZKL_ANSWER_QUEUED;
	else if (claim->mode == ZKL_MODE_LEASE)
		answer = ask_for_leases(claim, requests);
	else
		answer = ask_for_ticket(claim, requests);
	if (!only_tries &&
		(answer == ZKL_ANSWER_QUEUED || answer == ZKL_ANSWER_ASKING))
		claim->waited = true;
	zkl_entry_unlock(entry->hash);
	return answer;
}

/*
 * A stuck znode may be gone by now, or ZooKeeper may allow its delete; let
 * the worker find out.
 */
static void
need_ticket(ZklClaim *claim)
{
	/* From here on, each change of the ticket sets this backend's latch. */
	zkl_entry_set_needs_ticket(claim, true);
	if (claim->entry->nstuck > 0)
		zkl_entry_ask_worker(claim->entry);
}

/*
 * Without "requests", this only grants what the server owns already.  With
 * "requests", the function marks the claim as needing the ticket, and then
 * looks at the state under the same lock.  So the backend can sleep afterwards
 * without missing a wake-up.
 */
static ZklAnswer
ask_for_ticket(ZklClaim *claim, bool requests)
{
	ZklEntry   *entry = claim->entry;

	if (requests)
	{
		need_ticket(claim);
		claim->asked |= entry->state != ZKL_ENTRY_OWNED;
	}
	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			if (!requests)
				break;
			if (entry->nlinked > 0)
				break;			/* leases are being deleted */
			zkl_entry_note_asker(entry, claim);
			zkl_entry_want(entry, claim->mode);
			break;
		case ZKL_ENTRY_RELEASING:

			/*
			 * The worker deletes the old znode first.  Then it requests
			 * another ticket by itself, if a claim still needs one.
			 */
			break;
		case ZKL_ENTRY_WANTED:
		case ZKL_ENTRY_QUEUED:
			if (requests && needs_other_ticket(claim))
				ask_for_other_ticket(claim);
			else if (entry->state == ZKL_ENTRY_QUEUED)
				return claim->only_tries && entry->place.asking ? ZKL_ANSWER_ASKING :
					ZKL_ANSWER_QUEUED;
			break;
		case ZKL_ENTRY_OWNED:
			if (!is_its_turn(claim))
				return ZKL_ANSWER_QUEUED;

			/*
			 * A reader's ticket cannot serve a writer, and a ticket that
			 * excludes superusers cannot serve a superuser.  The ticket must
			 * stay while claims hold it; the end of the last one wakes this
			 * backend.
			 */
			if (zkl_entry_serves(entry, claim))
				return answer_owned(claim, zkl_now());
			if (entry->nheld > 0)
				return ZKL_ANSWER_QUEUED;
			if (requests)
				ask_for_other_ticket(claim);
			break;
	}
	return ZKL_ANSWER_NONE;
}

/*
 * The advisory lock excludes two claims of different modes.  So the claim that
 * requested this ticket has usually ended, and this claim waited behind it.  A
 * writer that waits does not take over the ticket of a try.  Readers on other
 * servers expect the wait of a try to end soon, so they would find no
 * deadlock.
 */
static bool
needs_other_ticket(const ZklClaim *claim)
{
	const ZklEntry *entry = claim->entry;

	return entry->mode != claim->mode ||
		(claim->mode == ZKL_MODE_WRITE && entry->only_tries && !claim->only_tries);
}

static void
ask_for_other_ticket(ZklClaim *claim)
{
	zkl_entry_note_asker(claim->entry, claim);
	zkl_entry_change_mode(claim->entry, claim->mode);
}

/*
 * The server owns the lock.  This backend has the advisory lock, so another
 * backend's claim can hold the lock only if both read, or in three cases: that
 * backend has released the advisory lock with pg_advisory_unlock_all(), or is
 * about to end, or has the advisory lock of an old generation.  Detached claims,
 * their uses, and leaderships have no advisory lock at all.  The end of such a
 * claim wakes this one.
 */
static ZklAnswer
answer_owned(ZklClaim *claim, int64 now)
{
	ZklEntry   *entry = claim->entry;

	/*
	 * Readers share the lock only with readers, and not after the tenure.
	 * Otherwise a writer on another server could wait for ever.
	 */
	if (entry->nheld > 0 &&
		(entry->exclusive || claim->mode != ZKL_MODE_READ ||
		 !zkl_entry_may_join(entry, now)))
		return ZKL_ANSWER_QUEUED;

	/*
	 * The session may have expired, and then another client may own the lock.
	 */
	if (zkl_session_info_is_in_doubt(entry->epoch, now))
		return ZKL_ANSWER_DOUBT;

	/*
	 * The token of one more claim would belong to the next czxid.  A new
	 * ticket has a greater czxid, and its numbers start again.
	 */
	if (entry->claim_number >= ZKL_CLAIM_NUMBER_MAX)
	{
		zkl_entry_give_up(entry);
		return ZKL_ANSWER_NONE;
	}
	hold(claim, entry->epoch, now);
	return ZKL_ANSWER_HELD;
}

/*
 * The advisory lock decides between backends, but the claims of the claims
 * process have none.  So the first claim that waits decides.  Claims wait in
 * the order in which they began, and claims of an old generation have to begin
 * again.
 *
 * If the first claim is of the claims process, all others wait for it.  If it
 * is a backend's, all claims without an advisory lock wait for it, even while
 * it waits for the advisory lock.  But a backend that has the advisory lock
 * then goes first, even if it came later: else it would wait for a claim of
 * the claims process, that claim for the first backend, and the first backend
 * for the advisory lock.  The claim that goes first wakes the others at its
 * end.
 */
static bool
is_its_turn(const ZklClaim *claim)
{
	const ZklEntry *entry = claim->entry;
	dlist_iter	iter;

	if (entry->ndetached == 0)
		return true;
	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		const ZklClaim *first = dlist_container(ZklClaim, link, iter.cur);

		if (first->state == ZKL_CLAIM_WAITING && first->generation == entry->generation)
			return first == claim || (first->detached == 0 && claim->detached == 0);
	}
	return true;
}

bool
zkl_grant_owned(ZklClaim *claim, int64 now)
{
	Assert(zkl_lock_table_is_mine(claim->entry));
	Assert(claim->entry->state == ZKL_ENTRY_OWNED);
	return !pg_atomic_read_u32(&zkl_lock_table->shutting_down) &&
		zkl_entry_serves(claim->entry, claim) &&
		answer_owned(claim, now) == ZKL_ANSWER_HELD;
}

/*
 * Either the claim's backend holds the inner mutex, or this server has enough
 * leases without it.
 */
static ZklAnswer
ask_for_leases(ZklClaim *claim, bool requests)
{
	ZklEntry   *semaphore = claim->entry;
	uint64		epoch = pg_atomic_read_u64(&zkl_session_info->epoch);
	int			usable = zkl_leases_usable(semaphore, epoch);
	int64		now = zkl_now();

	if (!suits_limit(claim, usable))
		return ZKL_ANSWER_STALE;
	/* A try must not take leases already collected for a waiter. */
	if (claim->only_tries && semaphore->nneeding > (claim->needs_ticket ? 1 : 0))
		return ZKL_ANSWER_QUEUED;
	if (usable >= claim->quantity)
	{
		/*
		 * Check the epoch again.  If the session has expired since the first
		 * look, the leases are gone, even if the worker has not processed
		 * them yet.
		 */
		if (zkl_session_info_is_in_doubt(epoch, now))
			return ZKL_ANSWER_DOUBT;
		hold(claim, epoch, now);
		return ZKL_ANSWER_HELD;
	}
	if (!requests)
		return ZKL_ANSWER_NONE;

	need_ticket(claim);
	claim->asked = true;
	if (semaphore->state != ZKL_ENTRY_NONE)
		return ZKL_ANSWER_NONE; /* the path was another lock until now */
	if (semaphore->nstuck > 0)
		return ZKL_ANSWER_NONE; /* until the worker has tried again */
	if (!zkl_leases_ask(claim, epoch))
		return ZKL_ANSWER_FULL;
	if (!zkl_leases_answered(semaphore))
		return ZKL_ANSWER_NONE;
	return claim->only_tries && zkl_leases_asking(semaphore) ? ZKL_ANSWER_ASKING :
		ZKL_ANSWER_QUEUED;
}

/*
 * A claim that names no limit must not take leases that were acquired without
 * a stored one.  A claim that names another limit than the stored one is
 * refused.
 */
static bool
suits_limit(const ZklClaim *claim, int usable)
{
	int			stored = claim->entry->stored;

	if (claim->limit == 0)
		return stored != ZKL_LIMIT_NONE || usable == 0;
	return stored == ZKL_LIMIT_NONE || stored == claim->limit;
}

/* "epoch" is the epoch of the ticket, or of the leases. */
static void
hold(ZklClaim *claim, uint64 epoch, int64 now)
{
	ZklEntry   *entry = claim->entry;

	Assert(zkl_lock_table_is_mine(entry) && !zkl_session_info_is_worker());
	Assert(claim->state == ZKL_CLAIM_WAITING);
	Assert(claim->mode == ZKL_MODE_LEASE || entry->state == ZKL_ENTRY_OWNED);
	Assert(claim->mode == ZKL_MODE_READ || claim->mode == ZKL_MODE_LEASE ||
		   entry->nheld == 0);
	ZKL_FAULT_POINT("hold-begun");	/* while the partition is locked */

	/*
	 * Do this after the grant: zkl_leases_settle() keeps leases for the
	 * claims that still need some.
	 */
	zkl_entry_set_needs_ticket(claim, false);
	entry->nwaiting--;
	entry->nheld++;
	Assert(entry->nwaiting >= 0);

	zkl_lock_stat_granted(claim, now);
	claim->state = ZKL_CLAIM_HELD;
	claim->since = now;
	if (claim->detached != 0)
		zkl_entry_pass_turn(entry);

	/*
	 * From now on, if the session's epoch changes, the claim counts as in
	 * doubt at once, and as lost when the worker has marked it.
	 */
	claim->epoch = epoch;
	zkl_lock_table->nclaims[entry->hash % ZKL_PARTITIONS]++;

	if (claim->mode == ZKL_MODE_LEASE)
	{
		zkl_leases_take(claim, now);
		zkl_leases_settle(entry);
		return;
	}
	zkl_entry_count_claim(entry, now);
	claim->token = zkl_entry_token(entry);

	/*
	 * A writer's ticket serves this server's readers, but keeps readers of
	 * other servers waiting.  A downgrade is worth its write only if other
	 * clients queue.
	 */
	if (claim->mode != ZKL_MODE_READ)
		entry->exclusive = true;
	else if (entry->contended)
		zkl_entry_downgrade(entry);
}

bool
zkl_grant_at_once(ZklClaim *claim)
{
	ZklEntry   *semaphore = claim->entry;
	bool		held = false;

	zkl_entry_lock(semaphore);

	/*
	 * If this is the only claim that waits, it overtakes no backend.  Without
	 * a survey, the path may be another kind of lock for other servers.
	 */
	if (semaphore->nwaiting == 1 && semaphore->surveyed &&
		!pg_atomic_read_u32(&zkl_lock_table->shutting_down))
		held = ask_for_leases(claim, false) == ZKL_ANSWER_HELD;
	zkl_entry_unlock(semaphore->hash);
	return held;
}

/*
 * Withdraw the claim's requests: they would keep a znode in the queue before
 * other clients, while the backend waits for the inner mutex again.  And
 * retire the leases that this server has, because they may belong to another
 * limit.
 */
void
zkl_grant_begin_anew(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	zkl_entry_set_needs_ticket(claim, false);
	zkl_leases_retire(claim->entry);
	zkl_entry_unlock(claim->entry->hash);
}
