/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Acquire a mutex or a read-write lock: the two waits.
 *
 * First the local lock decides between the backends of this server, then the
 * server's ticket decides between servers.  Both waits end at the same moment.
 *
 * src/backend/acquire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/acquire.h"
#include "backend/deadlock.h"
#include "backend/display.h"
#include "backend/enter.h"
#include "backend/holds.h"
#include "backend/loss.h"
#include "backend/wait.h"
#include "backend/xact.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"

static bool acquire_at_once(const ZklWish *wish);
static bool acquire_first(ZklLocalClaim *claim, const ZklWish *wish,
						  void *arg);
static bool is_cancelled(void);
static void acquire_again(ZklLocalClaim *claim, const ZklWish *wish);
static void set_lease_time(ZklLocalClaim *claim, const ZklWish *wish);

bool
zkl_acquire(const ZklWish *wish)
{
	ZklLocalClaim *claim = zkl_enter_to_acquire(wish);

	/*
	 * Only a claim that is new takes room in the lock table.  A further
	 * acquire counts in this backend's memory.
	 */
	if (claim == NULL)
	{
		bool		acquired;

		zkl_holds_check_room(1);
		acquired = acquire_at_once(wish) ||
			zkl_claims_begin_for(wish, acquire_first, NULL);
		ZKL_FAULT_POINT("acquired");
		return acquired;
	}
	acquire_again(claim, wish);
	return true;
}

/*
 * The usual case, for which nothing is asked and nothing is waited for.  Room to
 * count the acquire has been made, so nothing fails once the claim is held.
 */
static bool
acquire_at_once(const ZklWish *wish)
{
	ZklLocalClaim *claim = zkl_claims_begin_held(wish);

	if (claim == NULL)
		return false;
	zkl_holds_add(claim, zkl_claims_part(wish->mode), wish->scope, 1);
	set_lease_time(claim, wish);
	return true;
}

/* The first acquire of a lock by this backend. */
static bool
acquire_first(ZklLocalClaim *claim, const ZklWish *wish, void *arg)
{
	if (!zkl_acquire_claim(claim, wish))
		return false;
	zkl_holds_add(claim, zkl_claims_part(wish->mode), wish->scope, 1);
	ZKL_FAULT_POINT("counted");
	set_lease_time(claim, wish);
	return true;
}

/*
 * A backend that gets the local lock of an old generation has waited behind a
 * claim that was lost.  It starts again with the new one.
 */
bool
zkl_acquire_claim(ZklLocalClaim *claim, const ZklWish *wish)
{
	ZklWait		wait;
	ZklAnswer	answer;

	zkl_wait_begin(&wait, wish);
	ZKL_FAULT_POINT("claim-begun");
	for (;;)
	{
		if (!zkl_acquire_locally(claim, wish))
			break;
		ZKL_FAULT_POINT("local-locked");
		answer = zkl_wait_for_ticket(&wait, claim->shared, NULL);
		if (answer == ZKL_ANSWER_HELD)
			return true;
		if (answer != ZKL_ANSWER_STALE)
			break;

		/*
		 * The next round overwrites the tag, so release the old local lock
		 * first.
		 */
		zkl_claims_unlock(claim, zkl_claims_part(wish->mode));
	}
	zkl_lock_stat_failed(claim->shared, ERRCODE_LOCK_NOT_AVAILABLE);
	return false;
}

/*
 * Get the local lock of the entry's present generation.  A try takes it only
 * if that needs no wait for another backend.
 */
bool
zkl_acquire_locally(ZklLocalClaim *claim, const ZklWish *wish)
{
	ZklPartName name = zkl_claims_part(wish->mode);
	ZklPart    *part = &claim->parts[name];
	LOCKMODE	mode = zkl_claims_lock_mode(name);
	ZklLocalWait result;

	part->lock_scope = wish->scope;

	/*
	 * The worker cancels the wait when it begins a new generation, because
	 * the holder of the old local lock has lost the claim, but may keep that
	 * lock for hours.  The wait then begins again with the new tag.
	 */
	do
	{
		zkl_claims_set_generation(claim,
								  zkl_shared_claim_generation(claim->shared));
		claim->crowded = !zkl_local_lock_try(&claim->tag, mode, wish->scope);
		if (!claim->crowded)
			result = ZKL_LOCAL_LOCKED;
		else if (wish->only_tries)
			result = ZKL_LOCAL_TIME_OVER;
		else
			result = zkl_local_lock_wait(claim->shared, &claim->tag, mode,
										 wish->scope, wish->until,
										 is_cancelled);
	} while (result == ZKL_LOCAL_NEW_GENERATION);

	part->locked = result == ZKL_LOCAL_LOCKED;
	return part->locked;
}

/* Has zklock cancelled the statement, and not just the local wait? */
static bool
is_cancelled(void)
{
	return zkl_loss_has_cancelled() || zkl_deadlock_has_cancelled();
}

/*
 * Acquire a lock that this backend holds already.  If the claim is in doubt,
 * wait until the session certainly lives.  A backend that writes may read in
 * addition.  But a backend that reads must not wait to write: of two such
 * backends, each would wait for the other to stop reading.
 */
static void
acquire_again(ZklLocalClaim *claim, const ZklWish *wish)
{
	ZklPartName part = zkl_claims_part(wish->mode);
	ZklWait		wait;

	if (part == ZKL_EXCLUSIVE && zkl_claims_count(claim, part) == 0)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("cannot acquire the write lock \"%s\" while holding its read lock",
					   zkl_display_path(wish->path)),
				claim->parts[ZKL_SHARED].session_count > 0 ?
				errhint("Release the read lock first, or acquire the write lock instead of it.") :
				errhint("Acquire the write lock instead of the read lock."));

	/*
	 * The server owns the ticket already, so the backend asks the worker for
	 * nothing.
	 */
	zkl_wait_begin(&wait, wish);
	if (zkl_wait_for_certainty(&wait, claim->shared) == ZKL_STATUS_LOST)
		zkl_claims_report_lost(ERROR, claim);
	zkl_holds_add(claim, part, wish->scope, 1);
	set_lease_time(claim, wish);
}

/*
 * Each acquire with a hold limit sets the limit anew, counted from the grant.
 * The quick way of the commit guard cannot see that a limit has passed, so
 * zkl_xact_note_lease_time() turns the quick way off.
 */
static void
set_lease_time(ZklLocalClaim *claim, const ZklWish *wish)
{
	if (wish->lease_time == 0)
		return;
	zkl_xact_note_lease_time();
	zkl_shared_claim_set_lease_time(claim->shared, zkl_now() + wish->lease_time);
}
