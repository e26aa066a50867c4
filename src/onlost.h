/*-------------------------------------------------------------------------
 *
 * onlost.h
 *	  What a backend does when one of its claims is lost: zklock.on_lost.
 *
 * The worker sends it a signal.  Then a running statement is cancelled, as
 * pg_cancel_backend() does it, because that reaches it wherever it waits; or
 * the backend ends, as by pg_terminate_backend().  What PostgreSQL raises says only
 * that somebody wished so, therefore it is replaced by the error that names the
 * lock.
 *
 * Called only by backends.
 *
 * src/onlost.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ONLOST_H
#define ZKL_ONLOST_H

typedef enum ZklOnLost
{
	ZKL_ON_LOST_CANCEL,
	ZKL_ON_LOST_TERMINATE,
	ZKL_ON_LOST_NOTICE
} ZklOnLost;

/* The setting. */
extern int	zkl_on_lost;

/* From now on this backend acts on the signal. */
extern void zkl_on_lost_listen(void);

/* The signal by which the worker reaches this process. */
extern int	zkl_on_lost_signal(void);

/*
 * From now on the transaction commits, and nothing shall be cancelled: neither
 * its wait for a synchronous standby nor what comes after it.  A signal that
 * comes meanwhile counts when it has ended.
 */
extern void zkl_on_lost_commit_begins(void);
extern void zkl_on_lost_xact_ended(void);

/* Was it a loss that has cancelled the present statement? */
extern bool zkl_on_lost_has_cancelled(void);

/*
 * Call in PG_CATCH() where a statement ends, with the memory context of its
 * beginning.  Raises another error if it was cancelled for a loss.
 */
extern void zkl_on_lost_explain(MemoryContext context);

/* The same for an error that is on its way to the log and to the client. */
extern void zkl_on_lost_explain_instead(ErrorData *error);

/*
 * Call where a statement has ended well.  Where that is all that a loss does, it
 * raises a WARNING.
 */
extern void zkl_on_lost_tell(void);

#endif							/* ZKL_ONLOST_H */
