/*-------------------------------------------------------------------------
 *
 * window.c
 *	  How many requests ZooKeeper can process at a time without making one
 *	  wait for the others.
 *
 * src/protocol/window.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/window.h"

#include <assert.h>
#include <string.h>

/* Forget the best time slowly: ZooKeeper may have become slower for good. */
#define AGE		INT64_C(600000000)

static void note_least(ZklWindow *window, int64_t took, int64_t now);

void
zkl_window_start(ZklWindow *window)
{
	memset(window, 0, sizeof(*window));
	window->size = ZKL_WINDOW_MAX;
}

void
zkl_window_answered(ZklWindow *window, int64_t took, int64_t now)
{
	assert(took >= 0);
	assert(window->size >= ZKL_WINDOW_MIN && window->size <= ZKL_WINDOW_MAX);

	note_least(window, took, now);
	window->sum += took;
	if (++window->nanswers < window->size)
		return;
	if (window->sum < 2 * window->least * window->nanswers)
		window->size += window->size < ZKL_WINDOW_MAX;
	else
		window->size = window->size / 2 > ZKL_WINDOW_MIN ? window->size / 2 : ZKL_WINDOW_MIN;
	window->nanswers = 0;
	window->sum = 0;
}

static void
note_least(ZklWindow *window, int64_t took, int64_t now)
{
	if (window->least == 0 || took < window->least)
		window->least = took > 0 ? took : 1;
	else if (now - window->aged_at >= AGE)
		window->least += window->least / 8 + 1;
	else
		return;
	window->aged_at = now;
}
