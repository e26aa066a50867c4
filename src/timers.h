/*-------------------------------------------------------------------------
 *
 * timers.h
 *	  When the worker looks at an entry again.
 *
 * A heap, so that the cost does not grow with the number of locks held.
 * Called only by the worker's files.
 *
 * src/timers.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TIMERS_H
#define ZKL_TIMERS_H

#include "locktable.h"

extern void zkl_timers_start(void);

/* Arm the timer of an entry, or move it. */
extern void zkl_timers_arm(ZklEntry *entry, int64 at);

/* Not any more. */
extern void zkl_timers_disarm(ZklEntry *entry);

/* The first moment at which one fires; PG_INT64_MAX: none is armed. */
extern int64 zkl_timers_next(void);

/* Take one that is armed, due or not; NULL: none is. */
extern ZklEntry *zkl_timers_take_any(void);

/* Take one that is due at this moment; NULL: none is. */
extern ZklEntry *zkl_timers_take_due(int64 now);

#endif							/* ZKL_TIMERS_H */
