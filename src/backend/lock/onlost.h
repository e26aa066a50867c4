/*-------------------------------------------------------------------------
 *
 * onlost.h
 *	  What a backend does when one of its claims is lost: zklock.on_lost.
 *
 * The worker sends the backend a signal.  The backend then cancels its
 * running statement (cancel.h), or ends, as after pg_terminate_backend().  In
 * both cases, the error names the lock.
 *
 * Called only by backends, which hold no LWLock.  A function raises an error
 * only if its comment says so.
 *
 * src/backend/lock/onlost.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ONLOST_H
#define ZKL_ONLOST_H

#include "backend/lock/localclaim.h"

/* From now on this backend acts on the signal of a loss or a deadlock. */
extern void zkl_on_lost_listen(void);

/*
 * commit_begins: the transaction is about to commit.  From now on, a loss must
 * not cancel anything, not even the wait for a synchronous standby.
 *
 * xact_ended: if a loss has come since, and the lost claim outlives the
 * transaction, the loss may cancel what follows in the client's message.
 * goes_on: what follows is a part of the same command, such as CALL.  Call
 * this after the transaction's claims have ended: it also forgets which of
 * them were released while they were lost or in doubt.
 */
extern void zkl_on_lost_commit_begins(void);
extern void zkl_on_lost_xact_ended(bool goes_on);

/*
 * Call this before each statement, also a nested one.  If a loss has come
 * since the last statement, and this one can be cancelled, the function serves
 * interrupts, and so may raise ZK001 or ZK002.
 */
extern void zkl_on_lost_statement_begins(bool can_be_cancelled);

/*
 * A statement may begin and end savepoints without running another one: a
 * block of PL/pgSQL with EXCEPTION does.  Then these functions let a loss that
 * came meanwhile cancel the statement.  begins: the savepoint has begun.
 * settled: it is being released or rolled back, and its claims have ended.
 * in_statement is false for the client's own commands, such as SAVEPOINT: a
 * loss during these cancels the next statement.
 */
extern void zkl_on_lost_savepoint_begins(bool in_statement);
extern void zkl_on_lost_savepoint_settled(bool in_statement);

/*
 * For the hook for messages: if the error that is being raised ends the
 * connection because of a loss, let the error name the lock.  The error
 * context of cancel.c cannot do that: an error in a failed transaction
 * removes it, and only the next statement that PostgreSQL accepts adds it
 * again.
 */
extern void zkl_on_lost_explain_end(ErrorData *error);

/*
 * Call this where a statement has succeeded.  If zklock.on_lost only warns,
 * this raises a WARNING for a loss.
 */
extern void zkl_on_lost_tell(void);

/*
 * A claim that is lost or in doubt is being released.  What this transaction
 * wrote was not protected, so the commit guard must refuse it even though the
 * claim is gone.  If the user has been told of the loss, a transaction that
 * only reads gets no second warning.
 */
extern void zkl_on_lost_note_release(const ZklLocalClaim *claim,
									 ZklClaimStatus status, bool told);

/*
 * any: has this transaction released a claim that was lost or in doubt?
 * report: raise an ERROR for that (ZK001 or ZK002) if the transaction writes,
 * else a WARNING or nothing.
 */
extern bool zkl_on_lost_any_released(void);
extern void zkl_on_lost_report_released(bool writes);

#endif							/* ZKL_ONLOST_H */
