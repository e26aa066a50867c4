/*-------------------------------------------------------------------------
 *
 * backoff.h
 *	  How often a server tries to connect to ZooKeeper, and how long it waits
 *	  for a reply.
 *
 * When ZooKeeper fails, many PostgreSQL servers lose it at once, and they
 * must not overload it when it comes back.  The list of ZooKeeper's servers
 * is tried once at full speed, then with pauses.  The pauses grow from round
 * to round, up to a twentieth of the session timeout, and differ from server
 * to server.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no clock.
 *
 * src/protocol/backoff.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_BACKOFF_H
#define ZKL_BACKOFF_H

#include <stdint.h>

/*
 * How long to pause after this many attempts on a list of nservers.  0 until
 * each server of the list has been tried.  "random" is any number; it spreads
 * the pauses of different servers.
 */
extern int	zkl_backoff_pause_ms(int attempts, int nservers, int timeout_ms,
								 uint32_t random);

/*
 * How long a connect may take before the next server of the list is tried.
 */
extern int	zkl_backoff_limit_ms(int nservers, int timeout_ms);

#endif							/* ZKL_BACKOFF_H */
