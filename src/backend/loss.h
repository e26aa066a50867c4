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
#ifndef ZKL_LOSS_H
#define ZKL_LOSS_H

#include "backend/claims.h"

/* From now on this backend acts on the signal. */
extern void zkl_loss_listen(void);

/*
 * From now on the transaction commits, and a loss must not cancel anything:
 * neither the wait for a synchronous standby nor what comes after it.  A
 * signal that comes meanwhile takes effect when the transaction has ended.
 */
extern void zkl_loss_commit_begins(void);
extern void zkl_loss_xact_ended(void);

/* Has a loss cancelled the present statement? */
extern bool zkl_loss_has_cancelled(void);

/*
 * Call in PG_CATCH() where a statement ends, with the memory context of the
 * statement's beginning.  If a loss cancelled the statement, this raises the
 * error that names the lock.
 */
extern void zkl_loss_explain(MemoryContext context);

/*
 * The same for an error on its way to the log and the client: this replaces
 * its text.
 */
extern void zkl_loss_explain_instead(ErrorData *error);

/*
 * Call where a statement has succeeded.  If zklock.on_lost only tells, this
 * raises a WARNING for a loss.
 */
extern void zkl_loss_tell(void);

/*
 * A claim is released that is lost or in doubt.  What this transaction wrote
 * was not protected, so the commit guard must refuse it although the claim is
 * gone.  If the user has been told, a transaction that only reads is not told
 * again.
 */
extern void zkl_loss_note_release(const ZklLocalClaim *claim,
								  ZklClaimStatus standing, bool told);

/*
 * Has this transaction released such a claim?  report raises ERROR for it if
 * the transaction writes, else a WARNING or nothing.  forget: the transaction
 * has ended.
 */
extern bool zkl_loss_any_released(void);
extern void zkl_loss_report_released(bool writes);
extern void zkl_loss_forget_released(void);

#endif							/* ZKL_LOSS_H */
