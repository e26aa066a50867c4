/*-------------------------------------------------------------------------
 *
 * window.h
 *	  How many requests ZooKeeper can process at a time without making one
 *	  wait for the others.
 *
 * If writes are slow because of disks and networks, many writes at a time
 * take hardly longer than one.  If ZooKeeper's processors are busy, each
 * write waits for those before it.  So the window grows while replies take
 * less than twice the best time, and shrinks by half when they take longer.
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
	int64_t		least;			/* the best time of a reply; 0 if not known */
	int64_t		aged_at;		/* when the best time was last found or aged */
	int			nanswers;		/* replies since the size was last set */
	int64_t		sum;			/* how long these replies took in total */
} ZklWindow;

extern void zkl_window_start(ZklWindow *window);

/* A reply came after this time. */
extern void zkl_window_answered(ZklWindow *window, int64_t took, int64_t now);

#endif							/* ZKL_WINDOW_H */
