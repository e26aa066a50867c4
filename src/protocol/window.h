/*-------------------------------------------------------------------------
 *
 * window.h
 *	  How many requests ZooKeeper works on at a time without making one wait
 *	  for the others.
 *
 * Where a write takes long because disks and networks do, many writes take hardly
 * longer than one.  Where ZooKeeper's processors are busy, each write waits for
 * those before it.  So the window grows as long as the answers take less than
 * twice the time that they take at best, and shrinks by half when they take
 * longer.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no clock.  All times are microseconds.
 *
 * src/protocol/window.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WINDOW_H
#define ZKL_WINDOW_H

#include <stdint.h>

#define ZKL_WINDOW_MIN	2
#define ZKL_WINDOW_MAX	8

typedef struct ZklWindow
{
	int			size;
	int64_t		least;			/* an answer takes at best; 0: not known */
	int64_t		aged_at;		/* when that was last found or aged */
	int			nanswers;		/* since the size was last set ... */
	int64_t		sum;			/* ... and how long they took */
} ZklWindow;

extern void zkl_window_start(ZklWindow *window);

/* An answer came after this time. */
extern void zkl_window_answered(ZklWindow *window, int64_t took, int64_t now);

#endif							/* ZKL_WINDOW_H */
