/*-------------------------------------------------------------------------
 *
 * xact.h
 *	  What transactions and savepoints do to claims, and the commit guard.
 *
 * Called only by backends, which hold no LWLock.  A function raises an error
 * only if its comment says so.
 *
 * src/backend/lock/xact.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_XACT_H
#define ZKL_XACT_H

#include "backend/lock/localclaim.h"
#include "compat.h"

/* For zkl_hooks_init: registers the commit guard, in the postmaster. */
extern void zkl_xact_init(void);

/*
 * If this backend has claims, make the commit guard the first of all
 * transaction callbacks.  Call this on every way out of a statement,
 * including nested statements and errors: the statement may have registered
 * callbacks that commit on other servers.
 */
extern void zkl_xact_keep_guard_first(void);

/*
 * The number of the execution that is under way, the innermost one; 0 if there
 * is none.  hooks.c counts an execution up to its call of
 * zkl_xact_keep_guard_first().  No transaction ends within it, so if a claim
 * begins there, the callbacks need not be reordered before its end.
 */
extern uint64 zkl_xact_execution;

/*
 * How many utility statements are under way, such as CALL and DO, which may end
 * transactions?  An error leaves all of them.
 */
extern int	zkl_xact_utilities;

/*
 * The transaction is about to write: raise 25006 or 55000 unless this server
 * leads what zklock.commit_requires names, or the errors of use.h unless a
 * session holds the lock that zklock.commit_under names.  at_once: the command
 * takes effect before its commit, so a resignation waits until the transaction
 * has ended.  The next holder also waits, unless the command is in a
 * transaction block or in a function.
 */
extern void zkl_xact_require(void);
extern void zkl_xact_require_at_once(bool in_block);

/*
 * Facts about a statement that the transaction runs:
 *
 * WRITES: it may write, perhaps on another server.  REMOTE: it may begin a
 * transaction on another server, which commits together with this one.
 * DISCARDS: it is DISCARD ALL, which must be the transaction's only statement.
 * It may drop temporary tables and stop listening, but relies on no lock for
 * that.
 */
#define ZKL_XACT_WRITES		0x01
#define ZKL_XACT_REMOTE		0x02
#define ZKL_XACT_DISCARDS	0x04
extern void zkl_xact_note(int facts);

/*
 * The transaction runs a statement: LISTEN or UNLISTEN, or any other one that
 * is about more than the transaction itself.  With zklock.commit_under, this
 * may read catalogs, and so may raise an error.
 */
extern void zkl_xact_note_statement(bool listens);

/* The client has sent ROLLBACK, which succeeds. */
extern void zkl_xact_note_rollback(void);

/*
 * Call before and after a COMMIT PREPARED or ROLLBACK PREPARED, which takes
 * effect before its own transaction commits.  begin raises an error as the
 * commit guard does for a transaction that has written (xact.c).  The second
 * function comes too late for an error, and raises at most a WARNING.
 */
extern void zkl_xact_begin_prepared(void);
extern void zkl_xact_report_if_late(void);

/*
 * This function acquired a transaction-level lock, and the client's statement
 * does nothing else.  The user is warned at the commit, unless the transaction
 * has done something else until then.
 */
extern void zkl_xact_note_alone(const char *function);

/*
 * A claim gets a hold limit: from now on, the guard looks at the claims at
 * each commit.
 */
extern void zkl_xact_note_lease_time(void);

#endif							/* ZKL_XACT_H */
