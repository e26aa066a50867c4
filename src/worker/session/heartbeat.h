/*-------------------------------------------------------------------------
 *
 * heartbeat.h
 *	  Proves that the ZooKeeper session lives: signs of life, and safe until.
 *
 * Called only by the worker, which holds no lock.  No function raises an
 * error.
 *
 * src/worker/session/heartbeat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HEARTBEAT_H
#define ZKL_HEARTBEAT_H

#include "zookeeper/session.h"

/*
 * A handle is opened.  If it continues a session, pass the session's timeout,
 * and the moment up to which an earlier worker has proved that the session
 * lives.  For a new session, pass 0.
 */
extern void zkl_heartbeat_begin(int64 timeout, int64 safe_until);

/*
 * A connection has begun.  A shorter session timeout moves safe until back.
 * The first sign of life is the connection's barrier.
 */
extern void zkl_heartbeat_connected(void);

/* The reply to a sign of life has come. */
extern void zkl_heartbeat_answered(const ZklSessionEvent *event);

/*
 * Call the first function when the worker has sent a write other than a
 * heartbeat, and the second for each reply or answer, which may be to a write.
 */
extern void zkl_heartbeat_wrote(void);
extern void zkl_heartbeat_note_reply(const ZklSessionEvent *event);

/*
 * zkl_heartbeat_send sends the next sign of life if it is due, and gives up a
 * connection on which no reply comes.  zkl_heartbeat_next says when to call
 * it again.
 */
extern void zkl_heartbeat_send(void);
extern int64 zkl_heartbeat_next(void);

/* Called in each turn: publish that the session is idle, if it is. */
extern void zkl_heartbeat_tend(void);

/* If there was a doubt, it is over: add its length to the statistics. */
extern void zkl_heartbeat_count_doubt(int64 now);

/* The shortest timeout that the session has had. */
extern int	zkl_heartbeat_timeout_ms(void);

#endif							/* ZKL_HEARTBEAT_H */
