/*-------------------------------------------------------------------------
 *
 * release.c
 *	  Release, as the SQL functions do it.
 *
 * src/backend/lock/release.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/onlost.h"
#include "backend/lock/release.h"

static void warn_not_held(const ZklLocalClaim *claim, const char *path,
						  ZklMode mode, int quantity);
static const char *held_as(const ZklLocalClaim *claim);
static bool note_release(ZklLocalClaim *claim);

bool
zkl_release(const char *path, ZklMode mode, int quantity)
{
	ZklPartName part = zkl_local_claim_part(mode);
	ZklLocalClaim *claim;
	bool		held;

	zkl_hold_counts_update();
	claim = zkl_local_claim_find(path);
	if (claim == NULL || claim->kind != zkl_recipe_kind(mode) ||
		claim->parts[part].session_count < quantity)
	{
		warn_not_held(claim, path, mode, quantity);
		return false;
	}

	/*
	 * Check the claim before the release, which may end it.  The acquire is
	 * released even if the claim was lost.
	 */
	held = note_release(claim);
	zkl_hold_counts_take_session(claim, part, quantity);
	return held;
}

/*
 * Warn that the lock is not held.  "claim" is what this session has on the
 * path, of any kind; or NULL.
 */
static void
warn_not_held(const ZklLocalClaim *claim, const char *path, ZklMode mode,
			  int quantity)
{
	const char *shown = zkl_display_path(path);
	const char *release = claim ? zkl_local_claim_release_function(claim) : NULL;
	bool		same_kind = claim && claim->kind == zkl_recipe_kind(mode);

	/* The session has fewer leases than the call wants to release. */
	if (same_kind && mode == ZKL_MODE_LEASE && release != NULL)
		ereport(WARNING,
				errmsg("you do not own %d session-level leases of semaphore \"%s\"",
					   quantity, shown));
	else if (claim != NULL &&
			 (release == NULL ||
			  (same_kind && claim->parts[zkl_local_claim_part(mode)].xact_count > 0)))
		ereport(WARNING,
				errmsg("you do not own lock \"%s\"", shown),
				errdetail("This session holds it until the end of the transaction."));
	else
		ereport(WARNING,
				errmsg("you do not own lock \"%s\"", shown),
				claim == NULL ? 0 :
				errdetail("This session holds it %s.", held_as(claim)),
				claim == NULL ? 0 :
				errhint("Use \"%s\" to release it.", release));
}

/* For the detail: how this session holds the lock. */
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

	zkl_hold_counts_update();

	/*
	 * Each round releases all session-level acquires of one claim, so the
	 * list of such claims becomes empty.
	 */
	while ((claim = zkl_hold_counts_first_session()) != NULL)
	{
		note_release(claim);
		released += zkl_hold_counts_take_all_session(claim);
	}
	return released;
}

/*
 * Note the release of a claim.  If it was lost, tell the user, and let the
 * commit guard know: the transaction may have written without protection.
 * Return whether the claim was held.
 */
static bool
note_release(ZklLocalClaim *claim)
{
	ZklClaimStatus standing = zkl_claim_status(claim->shared, 0);

	zkl_on_lost_note_release(claim, standing, true);
	if (standing != ZKL_STATUS_LOST)
		return true;
	zkl_local_claim_report_lost(WARNING, claim);
	return false;
}
