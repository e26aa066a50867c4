/*-------------------------------------------------------------------------
 *
 * heartbeat.h
 *	  Proves that the ZooKeeper session lives: signs of life, and safe until.
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

#include "zookeeper/session.h"

/*
 * A handle is opened, for a session with this timeout (0: a new session) that
 * an earlier worker has proved to live until then.
 */
extern void zkl_heartbeat_begin(int64 timeout, int64 safe_until);

/*
 * There is a connection: a shorter session timeout moves safe until back, and
 * the first sign of life is the connection's barrier.
 */
extern void zkl_heartbeat_connected(void);

/* A sign of life has been answered. */
extern void zkl_heartbeat_answered(const ZklSessionEvent *event);

/*
 * The worker has just sent a write, other than a heartbeat.  And: this reply or
 * answer has come, which may be that of a write.
 */
extern void zkl_heartbeat_wrote(void);
extern void zkl_heartbeat_note_reply(const ZklSessionEvent *event);

/*
 * Send the next sign of life if it is due, give up a connection that does not
 * answer, and say when it is time for either.
 */
extern void zkl_heartbeat_send(void);
extern int64 zkl_heartbeat_next(void);

/* In each turn: publish that the session is idle, if it is. */
extern void zkl_heartbeat_tend(void);

/* A doubt, if there is one, is over: count how long it was. */
extern void zkl_heartbeat_count_doubt(int64 now);

/* The shortest timeout that the session has had. */
extern int	zkl_heartbeat_timeout_ms(void);

#endif							/* ZKL_HEARTBEAT_H */
