/*-------------------------------------------------------------------------
 *
 * backoff.c
 *	  How often a server tries to connect to ZooKeeper, and how long it waits
 *	  for an answer.
 *
 * src/protocol/backoff.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/backoff.h"

#include <assert.h>

#define MIN_PAUSE_MS	50
#define MIN_LIMIT_MS	200

/*
 * A server pauses after each round through the whole list, not after each
 * attempt.
 */
int
zkl_backoff_pause_ms(int attempts, int nservers, int timeout_ms,
					 uint32_t random)
{
	int			rounds = attempts / nservers;
	int			longest = timeout_ms / 20;
	int			pause;

	assert(attempts > 0 && nservers > 0);
	if (attempts % nservers != 0)
		return 0;
	if (longest < 2 * MIN_PAUSE_MS)
		longest = 2 * MIN_PAUSE_MS;
	pause = MIN_PAUSE_MS << (rounds < 10 ? rounds : 10);
	if (pause > longest)
		pause = longest;
	return pause / 2 + random % (pause / 2 + 1);
}

int
zkl_backoff_limit_ms(int nservers, int timeout_ms)
{
	int			limit = timeout_ms / (3 * nservers);

	return limit > MIN_LIMIT_MS ? limit : MIN_LIMIT_MS;
}
