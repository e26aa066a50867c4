/*-------------------------------------------------------------------------
 *
 * leadership.c
 *	  Does this server lead?  The claim of the leader process, as backends see it.
 *
 * src/shared/leadership.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/entry.h"
#include "shared/leadership.h"

/*
 * The leader process stands for the server, so its claim names no role.
 * Backends of this server find the claim through the entry.
 */
void
zkl_leadership_begin(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	claim->entry->leader = claim;
	claim->role = InvalidOid;
	zkl_entry_unlock(claim->entry->hash);
}

/*
 * A backend needs the ticket only once it has the local lock.  Claims are in
 * the order in which they began, so those behind the leader's came later.
 */
bool
zkl_leadership_is_its_turn(ZklClaim *claim)
{
	bool		its_turn = true;
	dlist_iter	iter;

	LWLockAcquire(zkl_lock_table_partition(claim->entry->hash), LW_SHARED);
	dlist_foreach(iter, &claim->entry->claims)
	{
		const ZklClaim *other = dlist_container(ZklClaim, link, iter.cur);

		if (other == claim)
			break;
		if (other->state == ZKL_CLAIM_WAITING && other->needs_ticket)
			its_turn = false;
	}
	LWLockRelease(zkl_lock_table_partition(claim->entry->hash));
	return its_turn;
}

/* The caller holds the path's partition. */
static ZklClaim *
find_leader(const char *path, uint32 hash)
{
	ZklEntry   *entry = zkl_lock_table_find(path, hash);

	return entry ? entry->leader : NULL;
}

ZklClaimStatus
zkl_leadership_standing(const char *path, int64 margin, int64 *token)
{
	uint32		hash = zkl_lock_table_hash(path);
	LWLock	   *partition = zkl_lock_table_partition(hash);
	ZklClaimStatus standing = ZKL_STATUS_LOST;
	const ZklClaim *claim;
	int64		until;

	/* The clock is read when no wait can make the reading old any more. */
	LWLockAcquire(partition, LW_SHARED);
	until = zkl_now() + margin;
	claim = find_leader(path, hash);

	/*
	 * A claim that has resigned still holds the lock until the leader process
	 * has ended it.  But no transaction may rely on it any more.
	 */
	if (claim != NULL && claim->state == ZKL_CLAIM_HELD && !claim->resigned)
	{
		*token = claim->token;
		standing = zkl_session_info_is_in_doubt(claim->epoch, claim->entry->session,
												until) ?
			ZKL_STATUS_DOUBT : ZKL_STATUS_GOOD;
	}
	LWLockRelease(partition);
	return standing;
}

ZklResignation
zkl_leadership_resign(const char *path, int64 until)
{
	uint32		hash = zkl_lock_table_hash(path);
	ZklResignation result = ZKL_RESIGN_NO_CANDIDATE;
	ZklClaim   *claim;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	claim = find_leader(path, hash);
	if (claim != NULL)
	{
		result = claim->state == ZKL_CLAIM_HELD && !claim->resigned ?
			ZKL_RESIGN_LED : ZKL_RESIGN_QUEUED;
		claim->resigned = true;
		claim->resigned_until = until;

		/*
		 * The commit guards of transactions that rely on the leadership must
		 * look again.  The leader process wakes up, and ends its claim.
		 */
		pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
		zkl_lock_table_wake(claim);
	}
	LWLockRelease(zkl_lock_table_partition(hash));
	return result;
}

bool
zkl_leadership_has_resigned(ZklClaim *claim, int64 *until)
{
	bool		resigned;

	LWLockAcquire(zkl_lock_table_partition(claim->entry->hash), LW_SHARED);
	resigned = claim->resigned;
	*until = claim->resigned_until;
	LWLockRelease(zkl_lock_table_partition(claim->entry->hash));
	return resigned;
}
