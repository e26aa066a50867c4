/*-------------------------------------------------------------------------
 *
 * sharedclaim.c
 *	  A claim in the lock table: it begins, holds its lock, and ends.
 *
 * The states and who may change them are in locktable.h.
 *
 * src/sharedclaim.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "compat.h"
#include "entry.h"
#include "sharedclaim.h"
#include "zklock.h"

static ZklAnswer answer_owned(ZklClaim *claim, int64 now);
static void hold(ZklClaim *claim, int64 now);
static void note_asker(ZklEntry *entry, bool only_tries, const char *about);
static void detach(ZklClaim *claim, int64 now);

ZklClaim *
zkl_shared_begin(const char *path)
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
zkl_shared_generation(ZklClaim *claim)
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

ZklAnswer
zkl_shared_hold(ZklClaim *claim, bool only_tries, const char *about)
{
	ZklEntry   *entry = claim->entry;
	ZklAnswer	answer = ZKL_ANSWER_NONE;

	zkl_entry_lock(entry);
	Assert(claim->state == ZKL_CLAIM_WAITING);

	if (claim->generation != entry->generation)
		answer = ZKL_ANSWER_STALE;
	else if (claim->failure != ZKL_FAILURE_NONE)
		answer = ZKL_ANSWER_FAILED;
	else if (pg_atomic_read_u32(&zkl_shared->shutting_down))
		answer = ZKL_ANSWER_SHUTDOWN;
	else
	{
		if (about != NULL)
			zkl_entry_set_needs_ticket(claim, true);
		switch (entry->state)
		{
			case ZKL_ENTRY_NONE:
				if (about != NULL)
				{
					note_asker(entry, only_tries, about);
					zkl_entry_want(entry);
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
				answer = answer_owned(claim, zkl_now());
				break;
		}
	}
	zkl_entry_unlock(entry->hash);
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
		zkl_entry_give_up(entry);
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

	zkl_entry_set_needs_ticket(claim, false);
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
zkl_shared_standing(ZklClaim *claim, int64 margin)
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
zkl_shared_end(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	uint32		hash = entry->hash;

	zkl_entry_lock(entry);
	detach(claim, zkl_now());
	zkl_entry_unlock(hash);

	zkl_table_free_claim(claim);
	if (pg_atomic_read_u32(&zkl_shared->shutting_down))
		zkl_table_wake_worker();
}

bool
zkl_shared_end_and_stay(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	uint32		hash = entry->hash;
	bool		stay;

	zkl_entry_lock(entry);

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
	zkl_entry_unlock(hash);

	if (!stay)
		zkl_table_free_claim(claim);
	return stay;
}

bool
zkl_shared_is_released(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	bool		released;

	zkl_entry_lock(entry);
	released = entry->state != ZKL_ENTRY_RELEASING;
	zkl_entry_unlock(entry->hash);
	return released;
}

void
zkl_shared_leave(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	uint32		hash = entry->hash;

	zkl_entry_lock(entry);
	Assert(claim->ended);
	dlist_delete(&claim->link);
	zkl_entry_remove_if_unused(entry);
	zkl_entry_unlock(hash);
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
			zkl_entry_set_needs_ticket(claim, false);
			if (claim->generation == entry->generation)
				entry->nwaiting--;
			zkl_entry_settle(entry, now);
			break;
		case ZKL_CLAIM_HELD:
			{
				ZklRecent  *recent = zkl_table_recent(entry->hash);

				recent->hash = entry->hash;
				recent->released_at = now;
				entry->nheld--;
				zkl_entry_settle(entry, now);
			}
			break;
		case ZKL_CLAIM_LOST:
			zkl_entry_remove_if_unused(entry);
			break;
	}
}

/* Remember who asked for the ticket; its znode will say so. */
static void
note_asker(ZklEntry *entry, bool only_tries, const char *about)
{
	entry->only_tries = only_tries;
	strlcpy(entry->about, about, sizeof(entry->about));
}
