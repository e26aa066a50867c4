/*-------------------------------------------------------------------------
 *
 * signals.h
 *	  The signals that zklock-run receives for the command.
 *
 * src/bin/signals.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SIGNALS_H
#define ZKL_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* The signal mask during waits, in which signals are delivered. */
extern sigset_t zkl_signals_unblocked;

/*
 * Set if the command is in this program's process group: the terminal's
 * signals then reach the command directly, and are not passed on.
 */
extern volatile sig_atomic_t zkl_signals_share_terminal;

/*
 * From now on, signals are blocked except during waits.  A signal that is
 * ignored, for instance because of nohup, stays ignored, here and in the
 * command.
 */
extern void zkl_signals_catch(void);

/* The next signal to pass on, or 0. */
extern int	zkl_signals_next(void);

/*
 * Is this a signal by which a terminal or its user stops a job?  The caller
 * then raises SIGSTOP instead.
 */
extern bool zkl_signals_is_stop(int number);

/* Restore what zkl_signals_catch found: in the child, or to end. */
extern void zkl_signals_restore(void);

#endif							/* ZKL_SIGNALS_H */
