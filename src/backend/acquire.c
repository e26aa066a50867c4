/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Acquire and release, as the SQL functions do it.
 *
 * First the local lock decides between the backends of this server, then the
 * server's ticket decides between servers.  Both waits end at the same moment.
 *
 * src/backend/acquire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"

#include "backend/acquire.h"
#include "backend/holds.h"
#include "backend/report.h"
#include "backend/semaphore.h"
#include "backend/wait.h"
#include "backend/xact.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"

static bool acquire_first(const ZklWish *wish);
static void acquire_again(ZklLocalClaim *claim, const ZklWish *wish);
static void set_lease_time(ZklLocalClaim *claim, const ZklWish *wish);
static void warn_not_held(const ZklLocalClaim *claim, const char *path,
						  ZklMode mode, int quantity);
static const char *held_as(const ZklLocalClaim *claim);
static bool note_release(ZklLocalClaim *claim);
static ZklLocalClaim *find_held(const char *path);

/*
 * A parallel worker has no claims, whatever its leader holds.  The leader is
 * refused as well, so that no result depends on which process computes a row.
 */
void
zkl_enter(void)
{
	zkl_check_loaded();
	if (IsInParallelMode())
		ereport(ERROR,
				errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("cannot access zklock locks during a parallel operation"));
	zkl_claims_sweep();
	zkl_claims_tell_revoked();
}

bool
zkl_acquire(const ZklWish *wish)
{
	ZklLocalClaim *claim;

	zkl_enter();
	claim = zkl_claims_find(wish->path);
	if (claim != NULL && claim->kind != zkl_recipe_kind(wish->mode))
		zkl_report_other_kind(wish->path);
	if (wish->mode == ZKL_MODE_LEASE)
		return zkl_semaphore_acquire(claim, wish);
	if (claim == NULL)
	{
		zkl_counts_check_room(1);
		return acquire_first(wish);
	}
	acquire_again(claim, wish);
	return true;
}

static bool
acquire_first(const ZklWish *wish)
{
	ZklLocalClaim *claim = zkl_claims_begin(wish);
	volatile bool acquired = false;

	PG_TRY();
	{
		acquired = zkl_acquire_claim(claim, wish);
		if (acquired)
		{
			zkl_counts_add(claim, zkl_claims_part(wish->mode), wish->scope, 1);
			ZKL_FAULT_POINT("counted");
			set_lease_time(claim, wish);
		}
	}
	PG_CATCH();
	{
		zkl_claims_end(claim);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (!acquired)
		zkl_claims_end(claim);
	ZKL_FAULT_POINT("acquired");
	return acquired;
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
			return false;
		ZKL_FAULT_POINT("local-locked");
		answer = zkl_wait_for_ticket(&wait, claim->shared, NULL);
		if (answer != ZKL_ANSWER_STALE)
			return answer == ZKL_ANSWER_HELD;
		zkl_claims_unlock(claim, zkl_claims_part(wish->mode));
	}
}

bool
zkl_acquire_locally(ZklLocalClaim *claim, const ZklWish *wish)
{
	ZklPartName name = zkl_claims_part(wish->mode);
	ZklPart    *part = &claim->parts[name];
	LOCKMODE	mode = zkl_claims_lock_mode(name);
	ZklLocalWait result;

	part->lock_scope = wish->scope;
	do
	{
		zkl_local_lock_tag(&claim->tag, wish->path,
						   zkl_shared_generation(claim->shared));
		if (zkl_local_lock_try(&claim->tag, mode, wish->scope))
			result = ZKL_LOCAL_LOCKED;
		else if (wish->only_tries)
			result = ZKL_LOCAL_TIME_OVER;
		else
			result = zkl_local_lock_wait(claim->shared, &claim->tag, mode,
										 wish->scope, wish->until);
	} while (result == ZKL_LOCAL_NEW_GENERATION);

	part->locked = result == ZKL_LOCAL_LOCKED;
	return part->locked;
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

	if (part == ZKL_EXCLUSIVE && zkl_counts_total(claim, part) == 0)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("cannot acquire the write lock \"%s\" while holding its read lock",
					   zkl_show_path(wish->path)),
				claim->parts[ZKL_SHARED].session_count > 0 ?
				errhint("Release the read lock first, or acquire the write lock in its place.") :
				errhint("Acquire the write lock in its place."));

	zkl_wait_begin(&wait, wish);
	if (zkl_wait_for_certainty(&wait, claim->shared) == ZKL_STANDING_LOST)
		zkl_report_lost(ERROR, claim);
	zkl_counts_add(claim, part, wish->scope, 1);
	set_lease_time(claim, wish);
}

/*
 * Each acquire with a hold limit sets the limit anew, counted from the grant.
 */
static void
set_lease_time(ZklLocalClaim *claim, const ZklWish *wish)
{
	if (wish->lease_time == 0)
		return;
	zkl_xact_note_lease_time();
	zkl_shared_set_lease_time(claim->shared, zkl_now() + wish->lease_time);
}

bool
zkl_release(const char *path, ZklMode mode, int quantity)
{
	ZklPartName part = zkl_claims_part(mode);
	ZklLocalClaim *claim;
	bool		held;

	zkl_enter();
	claim = zkl_claims_find(path);
	if (claim == NULL || claim->kind != zkl_recipe_kind(mode) ||
		claim->parts[part].session_count < quantity)
	{
		warn_not_held(claim, path, mode, quantity);
		return false;
	}

	held = note_release(claim);
	zkl_counts_take_session(claim, part, quantity);
	return held;
}

/* "claim" is what this session has on the path, of whatever kind; or NULL. */
static void
warn_not_held(const ZklLocalClaim *claim, const char *path, ZklMode mode,
			  int quantity)
{
	const char *shown = zkl_show_path(path);
	const char *release = claim ? zkl_claims_release_function(claim) : NULL;
	bool		same_kind = claim && claim->kind == zkl_recipe_kind(mode);

	if (same_kind && mode == ZKL_MODE_LEASE && release != NULL)
		ereport(WARNING,
				errmsg("you do not own %d leases of semaphore \"%s\" with session scope",
					   quantity, shown));
	else if (claim != NULL &&
			 (release == NULL ||
			  (same_kind && claim->parts[zkl_claims_part(mode)].xact_count > 0)))
		ereport(WARNING,
				errmsg("you do not own lock \"%s\"", shown),
				errdetail("It is held to the end of the transaction."));
	else
		ereport(WARNING,
				errmsg("you do not own lock \"%s\"", shown),
				claim == NULL ? 0 :
				errdetail("This session holds it %s.", held_as(claim)),
				claim == NULL ? 0 :
				errhint("Use \"%s\" to release it.", release));
}

static const char *
held_as(const ZklLocalClaim *claim)
{
	switch (claim->kind)
	{
		case ZKL_KIND_MUTEX:
			break;
		case ZKL_KIND_READ_WRITE:
			return claim->parts[ZKL_EXCLUSIVE].session_count > 0 ?
				_("for writing") : _("for reading");
		case ZKL_KIND_SEMAPHORE:
			return _("as a semaphore");
	}
	return _("as a mutex");
}

int
zkl_release_all(void)
{
	ZklLocalClaim *claim;
	int			released = 0;

	zkl_enter();
	while ((claim = zkl_counts_first_session()) != NULL)
	{
		note_release(claim);
		released += zkl_counts_take_all_session(claim);
	}
	return released;
}

/*
 * Releasing a lost lock tells the user so, and the commit guard notes it: the
 * transaction may have written without protection.  Returns whether the claim
 * was held.
 */
static bool
note_release(ZklLocalClaim *claim)
{
	ZklStanding standing = zkl_shared_standing(claim->shared, 0);

	zkl_xact_note_release(claim, standing, true);
	if (standing != ZKL_STANDING_LOST)
		return true;
	zkl_report_lost(WARNING, claim);
	return false;
}

bool
zkl_is_held(const char *path)
{
	ZklLocalClaim *claim;

	zkl_enter();
	claim = zkl_claims_find(path);
	return claim != NULL &&
		zkl_shared_standing(claim->shared, 0) == ZKL_STANDING_GOOD;
}

int64
zkl_token(const char *path)
{
	return find_held(path)->shared->token;
}

bool
zkl_remaining(const char *path, int64 *remaining)
{
	ZklLocalClaim *claim = find_held(path);

	*remaining = claim->shared->lease_until - zkl_now();
	return claim->shared->lease_until != 0;
}

bool
zkl_is_revoked(const char *path)
{
	return zkl_shared_is_revoked(find_held(path)->shared);
}

/* The claim of a lock that this backend certainly holds; else an error. */
static ZklLocalClaim *
find_held(const char *path)
{
	ZklLocalClaim *claim;

	zkl_enter();
	claim = zkl_claims_find(path);
	if (claim == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("you do not own lock \"%s\"", zkl_show_path(path)));
	switch (zkl_shared_standing(claim->shared, 0))
	{
		case ZKL_STANDING_GOOD:
			break;
		case ZKL_STANDING_DOUBT:
			zkl_report_doubt(path);
			break;
		case ZKL_STANDING_LOST:
			zkl_report_lost(ERROR, claim);
			break;
	}
	return claim;
}
