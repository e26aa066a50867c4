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

/* For _PG_init: from now on each claim that begins has the commit guard. */
extern void zkl_xact_init(void);

/*
 * If this backend has claims, make the commit guard the first of all
 * transaction callbacks.  Call on every way out of a statement, nested ones and
 * errors included: the statement may have registered callbacks that commit on
 * other servers.
 */
extern void zkl_xact_keep_guard_first(void);

/*
 * Call around an ExecutorRun, before the above.  No transaction ends within, so a
 * claim that begins there leaves the order of the callbacks to its end.
 */
extern void zkl_xact_begin_run(void);
extern void zkl_xact_end_run(void);

/* The transaction runs a statement that may write, perhaps on another server. */
extern void zkl_xact_note_write(void);

/*
 * The transaction runs DISCARD ALL, which must be its only statement.  It may
 * drop temporary tables and stop listening, but relies on no lock for that.
 */
extern void zkl_xact_note_discard(void);

/*
 * This function acquired a transaction-level lock, and the client's statement
 * does nothing else.  The user is warned at the commit, unless the transaction
 * has done something else until then.
 */
extern void zkl_xact_note_alone(const char *function);

/* A claim gets a hold limit: from now on the guard looks at each commit. */
extern void zkl_xact_note_lease_time(void);

#endif							/* ZKL_XACT_H */
