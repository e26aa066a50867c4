/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  A claim asks for its lock, and is granted it.
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
static ZklAnswer ask_for_ticket(ZklClaim *claim, bool only_tries,
								const char *about);
static ZklAnswer ask_for_leases(ZklClaim *claim, bool only_tries,
								const char *about);
static void note_asker(ZklClaim *claim, bool only_tries, const char *about);
static ZklAnswer answer_owned(ZklClaim *claim, int64 now);
static void hold(ZklClaim *claim, uint64 epoch, int64 now);

/*
 * A claim of an old generation must not hold the lock: its local lock does not
 * keep newcomers out, who take that of the new generation.  Claims on leases
 * have no local lock.
 */
ZklAnswer
zkl_grant_request(ZklClaim *claim, bool only_tries, const char *about)
{
	ZklEntry   *entry = claim->entry;
	ZklAnswer	answer = ZKL_ANSWER_NONE;

	zkl_entry_lock(entry);
	Assert(claim->state == ZKL_CLAIM_WAITING);

	if (claim->generation != entry->generation &&
		claim->mode != ZKL_MODE_LEASE)
		answer = ZKL_ANSWER_STALE;
	else if (claim->failure != ZKL_FAILURE_NONE)
		answer = ZKL_ANSWER_FAILED;
	else if (pg_atomic_read_u32(&zkl_lock_table->shutting_down))
		answer = ZKL_ANSWER_SHUTDOWN;
	else if (claim->mode == ZKL_MODE_LEASE)
		answer = ask_for_leases(claim, only_tries, about);
	else
		answer = ask_for_ticket(claim, only_tries, about);
	if (!only_tries &&
		(answer == ZKL_ANSWER_QUEUED || answer == ZKL_ANSWER_ASKING))
		claim->waited = true;
	zkl_entry_unlock(entry->hash);
	return answer;
}

/*
 * A stuck znode may be gone by now, or can be deleted; the worker finds out.
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
 * Without "about", this takes only what is there: the caller has yet to write
 * the text, and then calls again.  With it, the claim is marked as needing the
 * ticket before the look at the state, under the same lock.  So its backend
 * can sleep after this without missing a wake-up.
 */
static ZklAnswer
ask_for_ticket(ZklClaim *claim, bool only_tries, const char *about)
{
	ZklEntry   *entry = claim->entry;

	if (about != NULL)
	{
		need_ticket(claim);
		claim->asked |= entry->state != ZKL_ENTRY_OWNED;
	}
	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			if (about == NULL)
				break;
			if (entry->nlinked > 0)
				break;			/* leases are being deleted */
			note_asker(claim, only_tries, about);
			zkl_entry_want(entry, claim->mode);
			break;
		case ZKL_ENTRY_RELEASING:

			/*
			 * The worker deletes the old znode first.  Then it requests
			 * another ticket by itself, if a claim still needs one.
			 */
			if (about != NULL)
				note_asker(claim, only_tries, about);
			break;
		case ZKL_ENTRY_WANTED:
		case ZKL_ENTRY_QUEUED:

			/*
			 * The local lock admits no two claims of different modes.  So the
			 * claim that requested this ticket has ended, as a rule, and this
			 * claim waited behind it.
			 */
			if (about != NULL && entry->mode != claim->mode)
			{
				note_asker(claim, only_tries, about);
				zkl_entry_change_mode(entry, claim->mode);
			}
			else if (entry->state == ZKL_ENTRY_QUEUED)
				return only_tries && entry->asking ? ZKL_ANSWER_ASKING :
					ZKL_ANSWER_QUEUED;
			break;
		case ZKL_ENTRY_OWNED:

			/*
			 * A reader's ticket does not serve a writer, and a plain one no
			 * superuser.  While claims hold such a ticket, it must stay; the
			 * last of them to end wakes this backend.
			 */
			if (zkl_entry_serves(entry, claim))
				return answer_owned(claim, zkl_now());
			if (entry->nheld > 0)
				return ZKL_ANSWER_QUEUED;
			if (about != NULL)
			{
				note_asker(claim, only_tries, about);
				zkl_entry_change_mode(entry, claim->mode);
			}
			break;
	}
	return ZKL_ANSWER_NONE;
}

/*
 * Other claims, superusers' as well, may join a ticket that reads at any time,
 * so it is never plain.
 */
static void
note_asker(ZklClaim *claim, bool only_tries, const char *about)
{
	zkl_entry_note_asker(claim->entry, only_tries,
						 !claim->superuser && claim->mode != ZKL_MODE_READ,
						 claim->together, about);
}

/*
 * The server owns the lock.  This backend has the local lock, so another claim
 * is in the way only in three cases.  Its backend released the local lock with
 * pg_advisory_unlock_all(), or is about to end, or has the local lock of an
 * old generation.  That backend will wake this one.
 */
static ZklAnswer
answer_owned(ZklClaim *claim, int64 now)
{
	ZklEntry   *entry = claim->entry;

	/*
	 * Readers share the lock only with readers, and not past the tenure. Else
	 * a writer on another server would wait for ever.
	 */
	if (entry->nheld > 0 &&
		(entry->exclusive || claim->mode != ZKL_MODE_READ ||
		 !zkl_entry_may_join(entry, now)))
		return ZKL_ANSWER_QUEUED;

	/* The session may have expired, and another client may own the lock. */
	if (zkl_session_info_is_in_doubt(entry->epoch, entry->session, now))
		return ZKL_ANSWER_DOUBT;

	/*
	 * One more claim would get a token that belongs to the next czxid.  A new
	 * ticket has a greater czxid, and counts from the beginning.
	 */
	if (entry->claim_number >= ZKL_CLAIM_NUMBER_MAX)
	{
		zkl_entry_give_up(entry);
		return ZKL_ANSWER_NONE;
	}
	hold(claim, entry->epoch, now);
	return ZKL_ANSWER_HELD;
}

bool
zkl_grant_owned(ZklClaim *claim, int64 now)
{
	Assert(claim->entry->state == ZKL_ENTRY_OWNED);
	return !pg_atomic_read_u32(&zkl_lock_table->shutting_down) &&
		zkl_entry_serves(claim->entry, claim) &&
		answer_owned(claim, now) == ZKL_ANSWER_HELD;
}

/* The claim holds the inner mutex, or finds enough leases without it. */
static ZklAnswer
ask_for_leases(ZklClaim *claim, bool only_tries, const char *about)
{
	ZklEntry   *semaphore = claim->entry;
	ZklSessionInfo *session = &zkl_lock_table->session[semaphore->session];
	uint64		epoch = pg_atomic_read_u64(&session->epoch);
	int64		now = zkl_now();

	/* A try must not take leases already collected for a waiter. */
	if (only_tries && semaphore->nneeding > (claim->needs_ticket ? 1 : 0))
		return ZKL_ANSWER_QUEUED;
	if (zkl_leases_usable(semaphore, epoch) >= claim->quantity)
	{
		/*
		 * This reads the epoch again.  If the session has expired since the
		 * first look, the leases are gone, although the worker has not come
		 * to them.
		 */
		if (zkl_session_info_is_in_doubt(epoch, semaphore->session, now))
			return ZKL_ANSWER_DOUBT;
		hold(claim, epoch, now);
		return ZKL_ANSWER_HELD;
	}
	if (about == NULL)
		return ZKL_ANSWER_NONE;

	need_ticket(claim);
	claim->asked = true;
	if (semaphore->state != ZKL_ENTRY_NONE)
		return ZKL_ANSWER_NONE; /* the path was another lock until now */
	if (semaphore->nstuck > 0)
		return ZKL_ANSWER_NONE; /* until the worker has tried again */
	if (!zkl_leases_ask(semaphore, epoch, claim->quantity, only_tries, about))
		return ZKL_ANSWER_FULL;
	if (!zkl_leases_answered(semaphore))
		return ZKL_ANSWER_NONE;
	return only_tries && zkl_leases_asking(semaphore) ? ZKL_ANSWER_ASKING :
		ZKL_ANSWER_QUEUED;
}

/* "epoch" is that of the ticket, or of the leases. */
static void
hold(ZklClaim *claim, uint64 epoch, int64 now)
{
	ZklEntry   *entry = claim->entry;

	Assert(claim->state == ZKL_CLAIM_WAITING);
	Assert(claim->mode == ZKL_MODE_LEASE || entry->state == ZKL_ENTRY_OWNED);
	Assert(claim->mode == ZKL_MODE_READ || claim->mode == ZKL_MODE_LEASE ||
		   entry->nheld == 0);
	ZKL_FAULT_POINT("hold-begun");	/* under the partition's lock */

	/* zkl_leases_settle() keeps leases for the claims that still need some. */
	zkl_entry_set_needs_ticket(claim, false);
	entry->nwaiting--;
	entry->nheld++;
	Assert(entry->nwaiting >= 0);

	zkl_lock_stat_granted(claim, now);
	claim->state = ZKL_CLAIM_HELD;
	claim->since = now;

	/*
	 * If the session's epoch changes, the claim counts as in doubt at once,
	 * and as lost when the worker has marked it.
	 */
	claim->epoch = epoch;
	zkl_lock_table->nclaims[entry->hash % ZKL_PARTITIONS]++;

	if (claim->mode == ZKL_MODE_LEASE)
	{
		zkl_leases_take(claim, now);
		zkl_leases_settle(entry);
		return;
	}
	zkl_entry_count_claim(entry, entry, now);
	claim->token = zkl_entry_token(entry);

	/*
	 * A ticket that writes serves this server's readers, but keeps readers of
	 * other servers waiting.  Only other clients in the queue make a
	 * downgrade worth its write.
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
	 * This claim overtakes no backend if it is the only one that waits.
	 * Without a survey, the path may be another kind of lock for other
	 * servers.
	 */
	if (semaphore->nwaiting == 1 && semaphore->surveyed &&
		!pg_atomic_read_u32(&zkl_lock_table->shutting_down))
		held = ask_for_leases(claim, false, NULL) == ZKL_ANSWER_HELD;
	zkl_entry_unlock(semaphore->hash);
	return held;
}

/*
 * A request that went on would keep a znode in the way of other clients, while
 * the backend waits for the inner mutex again.
 */
void
zkl_grant_stop_asking(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	zkl_entry_set_needs_ticket(claim, false);
	zkl_leases_settle(claim->entry);
	zkl_entry_unlock(claim->entry->hash);
}
