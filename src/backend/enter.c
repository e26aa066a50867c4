/*-------------------------------------------------------------------------
 *
 * enter.c
 *	  What comes before everything that depends on this backend's claims.
 *
 * src/backend/enter.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"

#include "backend/enter.h"
#include "backend/holds.h"
#include "backend/report.h"

void
zkl_enter(void)
{
	zkl_enter_without_claims();
	zkl_holds_sweep();
	zkl_claims_tell_revoked();
}

/*
 * A parallel worker has no claims, whatever its leader holds.  The leader is
 * refused as well, so that no result depends on which process computes a row.
 */
void
zkl_enter_without_claims(void)
{
	zkl_report_unless_loaded();
	if (IsInParallelMode())
		ereport(ERROR,
				errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("cannot access zklock locks during a parallel operation"));
}

/*
 * A path has one kind of lock at a time, so a claim of another kind refuses
 * the acquire before anything is waited for.
 */
ZklLocalClaim *
zkl_enter_to_acquire(const ZklWish *wish)
{
	ZklLocalClaim *claim;

	zkl_enter();
	claim = zkl_claim_table_find(wish->path);
	if (claim != NULL && claim->kind != zkl_recipe_kind(wish->mode))
		zkl_report_other_kind(wish->path);
	return claim;
}
