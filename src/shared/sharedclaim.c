/*-------------------------------------------------------------------------
 *
 * sharedclaim.c
 *	  A claim in the lock table: it begins, holds its lock, and ends.
 *
 * lockentry.h has the states, and says which process makes each change.
 *
 * src/shared/sharedclaim.c
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
#include "shared/leases.h"
#include "shared/sharedclaim.h"

static bool is_superusers_session(void);
static ZklBeginning check_use(ZklEntry *entry, ZklMode mode, int *limit);
static void make_way(ZklEntry *entry, ZklMode mode);
static void need_ticket(ZklClaim *claim);
static ZklAnswer ask_for_ticket(ZklClaim *claim, bool only_tries,
								const char *about);
static ZklAnswer ask_for_leases(ZklClaim *claim, bool only_tries,
								const char *about);
static void note_asker(ZklClaim *claim, bool only_tries, const char *about);
static ZklAnswer answer_owned(ZklClaim *claim, int64 now);
static void hold(ZklClaim *claim, uint64 epoch, int64 now);
static void note_release(ZklEntry *entry, int64 now);
static void detach(ZklClaim *claim, int64 now);

/*
 * The look at the catalog may raise an error, so it comes before the backend
 * takes a claim: no claim is left over then.
 */
ZklBeginning
zkl_shared_claim_begin(const char *path, ZklMode mode, int *limit, int quantity,
					   const char *about, int loss_signal,
					   ZklClaim **new_claim)
{
	uint32		hash = zkl_lock_table_hash(path);
	bool		superuser = is_superusers_session();
	ZklClaim   *claim = zkl_lock_table_take_claim();
	ZklEntry   *entry;
	ZklBeginning beginning = ZKL_BEGIN_FULL;

	if (claim == NULL)
		return ZKL_BEGIN_FULL;

	/* The claim is in no list yet, so no other process sees it. */
	strlcpy(claim->about, about, sizeof(claim->about));

	/*
	 * One exclusive lock covers the look, the check and the link.  So no
	 * other backend can make the path another kind of lock in between.  An
	 * entry that was just made passes the check, so it does not stay without
	 * a claim.
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
		claim->entry = entry;
		claim->proc_number = zkl_my_proc_number();
		claim->pid = MyProcPid;
		claim->loss_signal = loss_signal;
		claim->role = GetUserId();
		claim->database = MyDatabaseId;
		claim->superuser = superuser;
		claim->state = ZKL_CLAIM_WAITING;
		claim->mode = mode;
		claim->quantity = quantity;
		claim->since = zkl_now();
		claim->run = ZKL_JOBRUNS_NONE;
		claim->generation = entry->generation;
		if (mode == ZKL_MODE_LEASE)
			entry->limit = *limit;
		entry->nwaiting++;
		dlist_push_tail(&entry->claims, &claim->link);
	}
	LWLockRelease(zkl_lock_table_partition(hash));

	if (beginning != ZKL_BEGUN)
		zkl_lock_table_free_claim(claim);
	*new_claim = beginning == ZKL_BEGUN ? claim : NULL;
	return beginning;
}

/*
 * Decides as pg_terminate_backend() does, whatever role the session has set.
 * A process without a role counts as a superuser's, because no other role may
 * end it.
 */
static bool
is_superusers_session(void)
{
	return !OidIsValid(MyProc->roleId) || superuser_arg(MyProc->roleId);
}

/*
 * All claims on a lock at a time use it as the same kind, so the first stands
 * for all.
 */
static ZklBeginning
check_use(ZklEntry *entry, ZklMode mode, int *limit)
{
	bool		in_use = !dlist_is_empty(&entry->claims);

	if (in_use &&
		zkl_recipe_kind(dlist_head_element(ZklClaim, link, &entry->claims)->mode) !=
		zkl_recipe_kind(mode))
		return ZKL_BEGIN_OTHER_KIND;
	if (mode != ZKL_MODE_LEASE || entry->limit == *limit)
		return ZKL_BEGUN;
	if (in_use)
	{
		*limit = entry->limit;
		return ZKL_BEGIN_OTHER_LIMIT;
	}

	/* Idle leases belong to the old limit; give them up. */
	zkl_leases_give_up(entry);
	return ZKL_BEGUN;
}

/* Lingering tickets of another kind of lock on the path are given up first. */
static void
make_way(ZklEntry *entry, ZklMode mode)
{
	if (mode != ZKL_MODE_LEASE)
		zkl_leases_give_up(entry);
	else if (entry->state == ZKL_ENTRY_OWNED)
		zkl_entry_give_up(entry);
}

/*
 * When the worker begins a new generation, it stops counting the claims that
 * wait for the old local lock.  A claim that comes back for the new one counts
 * again.
 */
uint32
zkl_shared_claim_generation(ZklClaim *claim)
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
 * The partition is locked for the comparison and the mark together.  So a
 * worker that begins a new generation either comes before, and this returns
 * false; or it finds the mark, and cancels the wait.
 */
bool
zkl_shared_claim_begin_local_wait(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	claim->waits_locally = claim->generation == claim->entry->generation;
	zkl_entry_unlock(claim->entry->hash);
	return claim->waits_locally;
}

/* The worker cancels no wait of this claim after the mark is cleared here. */
bool
zkl_shared_claim_end_local_wait(ZklClaim *claim)
{
	bool		nudged;

	zkl_entry_lock(claim->entry);
	nudged = claim->nudged;
	claim->waits_locally = false;
	claim->nudged = false;
	zkl_entry_unlock(claim->entry->hash);
	return nudged;
}

/*
 * A claim of an old generation must not hold the lock: its local lock does not
 * keep newcomers out, who take that of the new generation.  Claims on leases
 * have no local lock.
 */
ZklAnswer
zkl_shared_claim_hold(ZklClaim *claim, bool only_tries, const char *about)
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
		need_ticket(claim);
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
						 about);
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
zkl_shared_claim_hold_at_once(ZklClaim *claim)
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
zkl_shared_claim_stop_asking(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	zkl_entry_set_needs_ticket(claim, false);
	zkl_leases_settle(claim->entry);
	zkl_entry_unlock(claim->entry->hash);
}

bool
zkl_shared_claim_merge(ZklClaim *claim, ZklClaim *second)
{
	ZklEntry   *semaphore = claim->entry;
	bool		both_held;

	/*
	 * Both claims must be held at the same moment.  The leases of a lost
	 * claim may be another client's by now.
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
zkl_shared_claim_release_leases(ZklClaim *claim, int quantity)
{
	ZklEntry   *semaphore = claim->entry;
	int64		now = zkl_now();

	zkl_entry_lock(semaphore);
	zkl_leases_put_back(claim, quantity, now);
	note_release(semaphore, now);
	zkl_leases_settle(semaphore);
	zkl_entry_unlock(semaphore->hash);
}

void
zkl_shared_claim_downgrade(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;

	zkl_entry_lock(entry);
	claim->mode = ZKL_MODE_READ;
	if (claim->state == ZKL_CLAIM_HELD)
	{
		entry->exclusive = false;
		zkl_entry_downgrade(entry);

		/*
		 * Backends that were told QUEUED because of the writer may join now.
		 */
		zkl_entry_wake_needing(entry);
	}
	zkl_entry_unlock(entry->hash);
}

void
zkl_shared_claim_set_lease_time(ZklClaim *claim, int64 lease_until)
{
	zkl_entry_lock(claim->entry);
	claim->lease_until = lease_until;

	/* The worker's timer may be armed for a later moment than this limit. */
	zkl_entry_ask_worker(claim->entry);
	zkl_entry_unlock(claim->entry->hash);
}

bool
zkl_shared_claim_set_run(ZklClaim *claim, int slot)
{
	bool		held;

	zkl_entry_lock(claim->entry);
	held = claim->state == ZKL_CLAIM_HELD;
	claim->run = slot;

	/*
	 * The worker lost the claim before it had the run's slot, and so could
	 * not end the run.
	 */
	if (!held)
		zkl_job_runs_end(&claim->run, false, false);
	zkl_entry_unlock(claim->entry->hash);
	return held;
}

void
zkl_shared_claim_end_run(ZklClaim *claim, bool done)
{
	zkl_entry_lock(claim->entry);
	zkl_job_runs_end(&claim->run, done, false);
	zkl_entry_unlock(claim->entry->hash);
}

void
zkl_shared_claim_end(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;

	/* detach() may remove the entry, so what comes after needs copies. */
	uint32		hash = entry->hash;
	int			session = entry->session;

	zkl_entry_lock(entry);

	/*
	 * The run must have ended before detach() gives the ticket up.  Then the
	 * worker sends the run's end first, and the next client that gets the
	 * lock finds it in the record.
	 */
	zkl_job_runs_end(&claim->run, false, false);
	detach(claim, zkl_now());
	zkl_entry_unlock(hash);

	zkl_lock_table_free_claim(claim);
	if (pg_atomic_read_u32(&zkl_lock_table->shutting_down))
		zkl_lock_table_wake_worker(session);
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
	if (entry->leader == claim)
	{
		/* The guards of transactions that rely on it must look again. */
		pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
		entry->leader = NULL;
	}
	zkl_entry_set_needs_ticket(claim, false);
	zkl_leases_put_back(claim, claim->nleases, now);
	switch (claim->state)
	{
		case ZKL_CLAIM_WAITING:

			/* A claim of an older generation is not counted. */
			if (claim->generation == entry->generation)
				entry->nwaiting--;
			break;
		case ZKL_CLAIM_HELD:
			note_release(entry, now);
			entry->nheld--;
			if (claim->mode != ZKL_MODE_READ)
				entry->exclusive = false;
			break;
		case ZKL_CLAIM_LOST:
			break;
	}
	if (claim->mode == ZKL_MODE_LEASE)
		zkl_leases_settle(entry);

	/*
	 * The loss of the claim has settled the ticket.  By now the ticket may
	 * serve other claims.
	 */
	else if (claim->state == ZKL_CLAIM_LOST)
		zkl_entry_remove_if_unused(entry);
	else
		zkl_entry_settle(entry, now);
}

/*
 * Note the release: if the lock is acquired again soon, its ticket will
 * linger.
 */
static void
note_release(ZklEntry *entry, int64 now)
{
	/*
	 * The entry may be gone before the lock comes back; the slot outlives it.
	 * But another path with the same slot may overwrite that.
	 */
	ZklRecent  *recent = zkl_lock_table_recent(entry->hash);

	entry->released_at = now;
	recent->hash = entry->hash;
	recent->released_at = now;
}
