/*-------------------------------------------------------------------------
 *
 * leadership.c
 *	  Does this server lead?  A leadership's claim, as backends see it.
 *
 * src/shared/leadership.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/entry.h"
#include "shared/leadership.h"

static int64 forbid(ZklClaim *claim);

/*
 * The claims process acts for the server, so the claim has no role.  Backends
 * of this server find the claim through the entry.
 */
void
zkl_leadership_begin(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	claim->entry->leader = claim;
	claim->role = InvalidOid;
	zkl_entry_unlock(claim->entry->hash);
}

void
zkl_leadership_allow(ZklClaim *claim, bool may_commit)
{
	bool		could_commit;

	zkl_entry_lock(claim->entry);
	could_commit = claim->may_commit;
	claim->may_commit = may_commit;

	/* A commit guard whose session requires the leadership has to look again. */
	if (could_commit && !may_commit)
		pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);

	/* A resignation, if there was one, has set a pause, which must stay. */
	if (!claim->resigned)
		zkl_leadership_end_pause(claim->entry->path);
	zkl_entry_unlock(claim->entry->hash);
}

/*
 * A claim that has resigned still holds the lock until the claims process has
 * ended it, but no transaction may rely on it any more.  Where the caller's
 * own zklock.commit_requires names the leadership, the claims process must
 * also have found that this history may lead.  So no process has to act when
 * that setting changes.  The caller holds the path's partition.
 */
static bool
leads(const ZklClaim *claim)
{
	return claim != NULL && claim->state == ZKL_CLAIM_HELD && !claim->resigned &&
		(claim->may_commit ||
		 !zkl_settings_lists_leader(zkl_commit_requires, claim->entry->path));
}

/* The caller holds the path's partition. */
static ZklClaim *
find_leader(const char *path, uint32 hash)
{
	ZklEntry   *entry = zkl_lock_table_find(path, hash);

	return entry ? entry->leader : NULL;
}

ZklClaimStatus
zkl_leadership_status(const char *path, int64 margin, int64 *token,
					  int64 *until)
{
	uint32		hash = zkl_lock_table_hash(path);
	LWLock	   *partition = zkl_lock_table_partition(hash);
	ZklClaimStatus status = ZKL_STATUS_LOST;
	const ZklClaim *claim;
	int64		needed;

	/*
	 * Read the clock while the partition is locked, so that no wait can make
	 * the reading old.
	 */
	LWLockAcquire(partition, LW_SHARED);
	needed = zkl_now() + margin;
	claim = find_leader(path, hash);

	if (leads(claim))
	{
		*token = claim->token;
		*until = zkl_session_info_until(claim->epoch);
		status = needed < *until ? ZKL_STATUS_GOOD : ZKL_STATUS_DOUBT;
	}
	LWLockRelease(partition);
	return status;
}

bool
zkl_leadership_is_held(const char *path, int64 token)
{
	uint32		hash = zkl_lock_table_hash(path);
	const ZklClaim *claim;
	bool		held;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	claim = find_leader(path, hash);
	held = claim != NULL && claim->state == ZKL_CLAIM_HELD &&
		claim->token == token &&
		!zkl_session_info_is_in_doubt(claim->epoch, zkl_now());
	LWLockRelease(zkl_lock_table_partition(hash));
	return held;
}

/*
 * The slot with the pause of this path, or else the slot whose pause ends
 * first.  That slot is usually free: the server has no more paths than there
 * are slots, and the claims process ends the pauses of other paths.  The
 * caller holds pauses_mutex.
 */
static ZklPause *
find_pause(const char *path)
{
	ZklPause   *first = zkl_lock_table->pauses;

	for (int i = 0; i < ZKL_LEADERS_MAX; i++)
	{
		ZklPause   *pause = &zkl_lock_table->pauses[i];

		if (strcmp(pause->path, path) == 0)
			return pause;
		if (pause->until < first->until)
			first = pause;
	}
	return first;
}

/* A refusal, which has a reason, does not shorten the pause. */
static void
set_pause(const char *path, int64 until, const char *why)
{
	ZklPause   *pause;

	SpinLockAcquire(&zkl_lock_table->pauses_mutex);
	pause = find_pause(path);
	if (why[0] != '\0' && strcmp(pause->path, path) == 0)
		until = Max(until, pause->until);
	strlcpy(pause->path, path, sizeof(pause->path));
	strlcpy(pause->why, why, sizeof(pause->why));
	pause->until = until;
	SpinLockRelease(&zkl_lock_table->pauses_mutex);
}

void
zkl_leadership_refuse(const char *path, int64 until, const char *why)
{
	set_pause(path, until, why);
}

int64
zkl_leadership_paused_until(const char *path)
{
	const ZklPause *pause;
	int64		until;

	SpinLockAcquire(&zkl_lock_table->pauses_mutex);
	pause = find_pause(path);
	until = strcmp(pause->path, path) == 0 ? pause->until : 0;
	SpinLockRelease(&zkl_lock_table->pauses_mutex);
	return until;
}

void
zkl_leadership_end_pause(const char *path)
{
	if (zkl_leadership_paused_until(path) != 0)
		set_pause(path, 0, "");
}

bool
zkl_leadership_is_refused(const char *path, char why[ZKL_WHY_SIZE])
{
	const ZklPause *pause;

	SpinLockAcquire(&zkl_lock_table->pauses_mutex);
	pause = find_pause(path);
	strlcpy(why, strcmp(pause->path, path) == 0 ? pause->why : "", ZKL_WHY_SIZE);
	SpinLockRelease(&zkl_lock_table->pauses_mutex);
	return why[0] != '\0';
}

/*
 * The partition stays locked until the pause is set, so of two calls for the
 * same path the later one takes effect.
 */
ZklResignation
zkl_leadership_resign(const char *path, int64 until, int64 *relied_until)
{
	uint32		hash = zkl_lock_table_hash(path);
	ZklResignation result = ZKL_RESIGN_NO_CANDIDATE;
	ZklClaim   *claim;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	claim = find_leader(path, hash);
	if (claim != NULL)
	{
		result = leads(claim) ? ZKL_RESIGN_LED : ZKL_RESIGN_QUEUED;
		*relied_until = forbid(claim);
		set_pause(path, until, "");

		/* Wake the claims process, so that it ends the claim. */
		zkl_lock_table_wake(claim);
	}
	else if (zkl_leadership_paused_until(path) > zkl_now())
	{
		result = ZKL_RESIGN_QUEUED;
		set_pause(path, until, "");
	}
	LWLockRelease(zkl_lock_table_partition(hash));
	return result;
}

int64
zkl_leadership_stop(ZklClaim *claim)
{
	uint32		hash = claim->entry->hash;
	int64		relied_until;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	relied_until = forbid(claim);
	LWLockRelease(zkl_lock_table_partition(hash));
	return relied_until;
}

/*
 * Make the commit guards of transactions that rely on the leadership look
 * again; they will find it resigned.  If a guard reads the count of losses
 * before this raises it, it has read "safe until" even earlier.  So it cannot
 * rely on a later moment than the one that this returns.  The caller holds
 * the partition exclusively.
 */
static int64
forbid(ZklClaim *claim)
{
	claim->resigned = true;
	pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
	if (claim->state != ZKL_CLAIM_HELD)
		return 0;
	return zkl_session_info_until(claim->epoch);
}
