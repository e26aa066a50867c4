/*-------------------------------------------------------------------------
 *
 * timers.h
 *	  Timers: when the worker looks at an entry again.
 *
 * The timers are in a heap, so that the cost does not grow with the number of
 * locks held.  Called only by the worker's files.
 *
 * src/worker/timers.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TIMERS_H
#define ZKL_TIMERS_H

#include "shared/locktable.h"

extern void zkl_timers_start(void);

/* Arm the timer of an entry, or move it. */
extern void zkl_timers_arm(ZklEntry *entry, int64 at);

/* Disarm it, if it is armed. */
extern void zkl_timers_disarm(ZklEntry *entry);

/* The first moment at which a timer fires; PG_INT64_MAX if none is armed. */
extern int64 zkl_timers_next(void);

/* Take any entry whose timer is armed; NULL if there is none. */
extern ZklEntry *zkl_timers_take_any(void);

/* Take an entry whose timer is due at this moment; NULL if there is none. */
extern ZklEntry *zkl_timers_take_due(int64 now);

#endif							/* ZKL_TIMERS_H */
