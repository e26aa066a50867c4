/*-------------------------------------------------------------------------
 *
 * signals.h
 *	  The signals that zklock-run gets, for the command.
 *
 * src/bin/signals.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SIGNALS_H
#define ZKL_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* The mask for waits, in which signals arrive. */
extern sigset_t zkl_signals_unblocked;

/*
 * Set when the command is in this program's process group: the terminal's
 * signals reach it by themselves, and are not passed on.
 */
extern volatile sig_atomic_t zkl_signals_share_terminal;

/*
 * From here on signals are blocked, but for waits.  A signal that is ignored,
 * as by nohup, stays so, here and in the command.
 */
extern void zkl_signals_catch(void);

/* The next signal to pass on, or 0. */
extern int	zkl_signals_next(void);

/* In the child: what zkl_signals_catch found. */
extern void zkl_signals_restore(void);

#endif							/* ZKL_SIGNALS_H */
