/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *	  A backend's part in finding and breaking deadlocks across servers.
 *
 * A backend that waits for its server's ticket computes which locks cannot be
 * released before the wait is over, and leaves the answer for the first worker
 * (waits.h), which finds deadlocks.  The victim of a deadlock raises 40P01.
 *
 * Called only by backends.
 *
 * src/backend/deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DEADLOCK_H
#define ZKL_DEADLOCK_H

#include "backend/claims.h"

/*
 * Call look before each sleep in the wait for a ticket, if the lock was not
 * granted just before.  It returns the moment of zkl_now() at which to call it
 * again at the latest.  If the wait is the victim of a deadlock, it raises
 * 40P01.  Call end however the wait has ended; it never raises an error.
 */
extern int64 zkl_deadlock_look(ZklClaim *claim);
extern void zkl_deadlock_end(void);

/*
 * Another backend of this server may have found that this one's local wait is
 * part of a deadlock, and has sent the signal for losses.
 *
 * on_signal is for the signal handler, which has handled all losses up to the
 * moment "told_until" of zkl_now().  It cancels the statement if that local
 * wait goes on.  It returns false if the signal may be for a loss.
 * has_cancelled: has it cancelled the present statement?  listen: call at the
 * start of the process, at the end of each transaction and savepoint, and
 * before each statement, so that the error is 40P01 instead of the cancel.
 */
extern bool zkl_deadlock_on_signal(int64 told_until, SIGNAL_ARGS);
extern bool zkl_deadlock_has_cancelled(void);
extern void zkl_deadlock_listen(void);

#endif							/* ZKL_DEADLOCK_H */
