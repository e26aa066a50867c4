/*-------------------------------------------------------------------------
 *
 * xact.h
 *	  What transactions and savepoints do to claims, and the commit guard.
 *
 * Called only by backends.
 *
 * src/backend/xact.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_XACT_H
#define ZKL_XACT_H

#include "backend/claims.h"
#include "compat.h"

/*
 * If this backend has claims, make the commit guard the first of all
 * transaction callbacks.  Call when a claim begins, and on every way out of a
 * statement, nested ones and errors included: the statement may have
 * registered callbacks that commit on other servers.
 */
extern void zkl_xact_keep_guard_first(void);

/* The transaction runs a statement that may write, perhaps on another server. */
extern void zkl_xact_note_write(void);

/*
 * The transaction runs DISCARD ALL, which must be its only statement.  It may
 * drop temporary tables and stop listening, but relies on no lock for that.
 */
extern void zkl_xact_note_discard(void);

/*
 * A claim is released that is lost or in doubt.  What this transaction wrote
 * was not protected, so the commit guard must refuse it although the claim is
 * gone.  If the user has been told, a transaction that only reads is not told
 * again.
 */
extern void zkl_xact_note_release(const ZklLocalClaim *claim,
								  ZklStanding standing, bool told);

/* Was one of the released claims lost?  The second puts that into an error. */
extern bool zkl_xact_released_lost(void);
extern void zkl_xact_report_released_instead(ErrorData *error);

/*
 * This function acquired a lock with transaction scope, and the client's
 * statement does nothing else.  The user is warned at the commit, unless the
 * transaction has done something else until then.
 */
extern void zkl_xact_note_alone(const char *function);

/* A claim gets a hold limit: from now on the guard looks at each commit. */
extern void zkl_xact_note_lease_time(void);

#endif							/* ZKL_XACT_H */
