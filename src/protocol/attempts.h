/*-------------------------------------------------------------------------
 *
 * attempts.h
 *	  How often a server tries to connect to ZooKeeper, and how long it waits
 *	  for an answer.
 *
 * When ZooKeeper fails, it fails for many servers at once, and they must not
 * overrun it when it comes back.  The list of ZooKeeper's servers is tried once
 * at full speed, then with pauses.  The pauses grow from round to round, up to
 * a twentieth of the session timeout, and differ from server to server.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no clock.
 *
 * src/protocol/attempts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ATTEMPTS_H
#define ZKL_ATTEMPTS_H

#include <stdint.h>

/*
 * How long to pause after so many attempts on a list of nservers; 0 until the
 * whole list has been tried.  "random" is any number.
 */
extern int	zkl_attempts_pause_ms(int attempts, int nservers, int timeout_ms,
								  uint32_t random);

/*
 * How long a connect may take before the next server of the list is tried.
 */
extern int	zkl_attempts_limit_ms(int nservers, int timeout_ms);

#endif							/* ZKL_ATTEMPTS_H */
