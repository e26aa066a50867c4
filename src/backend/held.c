/*-------------------------------------------------------------------------
 *
 * held.c
 *	  What a backend may ask about the locks that it holds.
 *
 * src/backend/held.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/enter.h"
#include "backend/held.h"
#include "backend/reliance.h"
#include "backend/report.h"
#include "settings.h"

static ZklLocalClaim *find_held(const char *path);
static ZklLocalClaim *certainly_held(const char *path, ZklLocalClaim *claim);

bool
zkl_held_certainly(const char *path)
{
	ZklLocalClaim *claim;

	zkl_enter();
	claim = zkl_claim_table_find(path);
	return claim != NULL &&
		zkl_claim_status(claim->shared, 0) == ZKL_STATUS_GOOD;
}

/*
 * No lock is needed for the token and the hold limit: no other process writes
 * them (lockentry.h).
 */
int64
zkl_held_token(const char *path)
{
	ZklLocalClaim *claim;
	int64		token;

	zkl_enter();
	claim = zkl_claim_table_find(path);
	if (claim == NULL && zkl_reliance_token(path, &token))
		return token;
	return certainly_held(path, claim)->shared->token;
}

bool
zkl_held_remaining(const char *path, int64 *remaining)
{
	ZklLocalClaim *claim = find_held(path);

	*remaining = claim->shared->lease_until - zkl_now();
	return claim->shared->lease_until != 0;
}

bool
zkl_held_is_revoked(const char *path)
{
	return zkl_claim_status_is_revoked(find_held(path)->shared);
}

/* The claim of a lock that this backend certainly holds; else an error. */
static ZklLocalClaim *
find_held(const char *path)
{
	zkl_enter();
	return certainly_held(path, zkl_claim_table_find(path));
}

static ZklLocalClaim *
certainly_held(const char *path, ZklLocalClaim *claim)
{
	if (claim == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("you do not own lock \"%s\"", zkl_display_path(path)));
	switch (zkl_claim_status(claim->shared, 0))
	{
		case ZKL_STATUS_GOOD:
			break;
		case ZKL_STATUS_DOUBT:
			zkl_report_doubt(path);
			break;
		case ZKL_STATUS_LOST:
			zkl_claims_report_lost(ERROR, claim);
			break;
	}
	return claim;
}
