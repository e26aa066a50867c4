/*-------------------------------------------------------------------------
 *
 * process.h
 *	  What zklock's processes do alike: begin, look at signals, sleep.
 *
 * src/shared/process.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PROCESS_H
#define ZKL_PROCESS_H

#include "compat.h"

/*
 * Called from _PG_init: have the postmaster start a background process of this
 * name.  It starts again a second after an error.  If there are too many
 * background workers, the server log says so, and names the process.
 */
extern void zkl_process_register(const char *name, const char *function);

/* This process was told to terminate: is the reason that the server shuts down? */
extern bool zkl_process_server_is_stopping(void);

/* Say in the server log that this process alone was terminated, and exit. */
ZKL_NORETURN extern void zkl_process_exit_terminated(void);

/*
 * For the claims process.  begin: connect to no database.  look_at_signals:
 * exit if the process was terminated; true if the settings were read again.
 */
extern void zkl_process_begin(void);
extern bool zkl_process_look_at_signals(void);

/*
 * Sleep until the latch is set, but not beyond this moment of zkl_now(), nor
 * beyond a minute unless that is ZKL_FOREVER.  Then reset the latch.  The
 * caller looks afterwards, so it misses no wake-up.  "event" is the caller's
 * own; see zkl_wait_event().  This processes interrupts, so it may raise an
 * error.
 */
extern void zkl_process_sleep(int64 until, const char *name, uint32 *event);

#endif							/* ZKL_PROCESS_H */
