/*-------------------------------------------------------------------------
 *
 * cancel.h
 *	  From a cancel by zklock to the error that says why.
 *
 * zklock cancels a statement as pg_cancel_backend() does, because a cancel
 * reaches a statement wherever it waits.  PostgreSQL's error would only
 * mention a user's request.  So it is given another text while it is being
 * raised, wherever that is.
 *
 * Called only by backends.  No function raises an error by itself.
 *
 * src/backend/lock/cancel.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CANCEL_H
#define ZKL_CANCEL_H

/*
 * For a signal handler: cancel the present statement.  "explain" is called
 * while the error is being raised, and puts the reason into it, or leaves it
 * as it is.  If a statement is cancelled twice before any error, the first
 * reason stays.
 */
extern void zkl_cancel_statement(void (*explain) (void), SIGNAL_ARGS);

/*
 * Was the present statement cancelled by zkl_cancel_statement, and is the
 * error still to come?
 */
extern bool zkl_cancel_is_noted(void);

/*
 * Set in a process to which zklock sends SIGINT, such as a walsender.
 * PostgreSQL's own handler cancels the statement there and notes no reason,
 * so this function guesses the reason.
 */
extern void (*zkl_cancel_guess) (void);

/*
 * Call this at the start of the process, when a message is reported, at the
 * end of each transaction and savepoint, and before each statement that is
 * not nested in another one.
 */
extern void zkl_cancel_listen(void);

#endif							/* ZKL_CANCEL_H */
