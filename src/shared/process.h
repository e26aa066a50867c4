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

#include "postmaster/bgworker.h"

/* A background process of this name.  It starts again a second after an error. */
extern BackgroundWorker zkl_process_describe(const char *name, const char *function);

/*
 * For the claims process.  begin: connect to no database.  look_at_signals: exit if the
 * process was terminated; true if the settings were read again.
 */
extern void zkl_process_begin(void);
extern bool zkl_process_look_at_signals(void);

/*
 * Sleep until the latch is set, but not beyond this moment of zkl_now(), nor beyond a
 * minute unless that is ZKL_FOREVER.  Then reset the latch, so that the caller looks
 * after that.  "event" is the caller's own; see zkl_wait_event().  This serves interrupts.
 */
extern void zkl_process_sleep(int64 until, const char *name, uint32 *event);

#endif							/* ZKL_PROCESS_H */
