/*-------------------------------------------------------------------------
 *
 * loss.h
 *	  What a backend does when one of its claims is lost: zklock.on_lost.
 *
 * The worker sends the backend a signal.  The backend then cancels its running
 * statement, as pg_cancel_backend() does, because a cancel reaches a statement
 * wherever it waits; or it ends, as by pg_terminate_backend().  PostgreSQL's
 * error would name only a user's request or an administrator's command.  So the
 * error that names the lock replaces it.
 *
 * Called only by backends.
 *
 * src/backend/loss.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ONLOST_H
#define ZKL_ONLOST_H

/* From now on this backend acts on the signal. */
extern void zkl_on_lost_listen(void);

/* The signal by which the worker reaches this process. */
extern int	zkl_on_lost_signal(void);

/*
 * From now on the transaction commits, and a loss must not cancel anything:
 * neither the wait for a synchronous standby nor what comes after it.  A
 * signal that comes meanwhile takes effect when the transaction has ended.
 */
extern void zkl_on_lost_commit_begins(void);
extern void zkl_on_lost_xact_ended(void);

/* Has a loss cancelled the present statement? */
extern bool zkl_on_lost_has_cancelled(void);

/*
 * Call in PG_CATCH() where a statement ends, with the memory context of the
 * statement's beginning.  If a loss cancelled the statement, this raises the
 * error that names the lock.
 */
extern void zkl_on_lost_explain(MemoryContext context);

/*
 * The same for an error on its way to the log and the client: this replaces
 * its text.
 */
extern void zkl_on_lost_explain_instead(ErrorData *error);

/*
 * Call where a statement has succeeded.  If zklock.on_lost only tells, this
 * raises a WARNING for a loss.
 */
extern void zkl_on_lost_tell(void);

#endif							/* ZKL_ONLOST_H */
