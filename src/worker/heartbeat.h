/*-------------------------------------------------------------------------
 *
 * heartbeat.h
 *	  Proves that the ZooKeeper session lives: heartbeats, and safe until.
 *
 * Called only by the worker, which holds no lock.  No function raises an
 * error.
 *
 * src/worker/heartbeat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HEARTBEAT_H
#define ZKL_HEARTBEAT_H

/*
 * A handle is opened, for a session with this timeout (0: a new session) that
 * an earlier worker has proved to live until then.
 */
extern void zkl_heartbeat_begin(int64 timeout, int64 safe_until);

/*
 * There is a connection: a shorter session timeout moves safe until back, and
 * the first heartbeat is the connection's barrier.
 */
extern void zkl_heartbeat_connected(void);

/* A heartbeat that was sent at this moment has been answered. */
extern void zkl_heartbeat_answered(int64 sent);

/* Send the next heartbeat if it is due, and say when that is. */
extern void zkl_heartbeat_send(void);
extern int64 zkl_heartbeat_next(void);

/* A doubt, if there is one, is over: count how long it was. */
extern void zkl_heartbeat_count_doubt(int64 now);

/* The shortest timeout that the session has had. */
extern int	zkl_heartbeat_timeout_ms(void);

#endif							/* ZKL_HEARTBEAT_H */
