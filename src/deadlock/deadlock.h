/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *	  A backend's part in finding and breaking deadlocks across servers.
 *
 * A backend that waits for its server's ticket, or until a detached claim is
 * granted, computes which locks cannot be released before the wait is over.  It
 * puts the result into shared memory (waits.h) for the worker, which finds
 * deadlocks.  The victim of a deadlock raises 40P01.
 *
 * Called only by backends.
 *
 * src/deadlock/deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DEADLOCK_H
#define ZKL_DEADLOCK_H

#include "backend/lock/localclaim.h"

/* A wait.  The path and the text are the caller's, and stay until it ends. */
typedef struct ZklAwaited
{
	const char *path;
	ZklMode		mode;
	const char *owner_text;		/* this backend */
	ZklClaim   *claim;			/* the claim that waits; NULL: this backend
								 * waits for a detached claim */
	uint64		detached;		/* number of the detached claim */
} ZklAwaited;

/*
 * Call look before each sleep in such a wait, after checking that the lock is
 * not granted.  It returns the moment of zkl_now() by which to call it again.
 * If the wait is the victim of a deadlock, it raises 40P01.  Call end however
 * the wait has ended, FATAL included: it is for PG_ENSURE_ERROR_CLEANUP, and
 * never raises an error.
 */
extern int64 zkl_deadlock_look(const ZklAwaited *awaited);
extern void zkl_deadlock_end(int code, Datum arg);

/*
 * The other side: another backend of this server has found that this
 * backend's local wait is part of a deadlock, and has sent it the signal for
 * losses.
 *
 * on_signal is for the signal handler, which has handled all losses up to the
 * moment "told_until" of zkl_now().  It cancels the statement if that local
 * wait still goes on.  It returns false if the signal may be for a loss, too.
 * The error of that cancel is 40P01.  explain_likely is for a process to which
 * zklock sends SIGINT, while the error of a cancel is being raised: if the
 * deadlock is the probable cause, the error becomes 40P01.
 */
extern bool zkl_deadlock_on_signal(int64 told_until, SIGNAL_ARGS);
extern bool zkl_deadlock_explain_likely(void);

#endif							/* ZKL_DEADLOCK_H */
