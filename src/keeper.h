/*-------------------------------------------------------------------------
 *
 * keeper.h
 *	  Keeps the session: opens it, carries it on, proves that it lives.
 *
 * Called only by worker.c.
 *
 * src/keeper.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_KEEPER_H
#define ZKL_KEEPER_H

/* Open the session where it is not.  May resolve names, and wait for that. */
extern void zkl_keeper_tend(void);

/* Do what became of the last turn: replies, watches, the session's fate. */
extern void zkl_keeper_handle_events(void);

/* Send a heartbeat if it is time for one. */
extern void zkl_keeper_send_heartbeat(void);

/* When the next of these is due; PG_INT64_MAX: something must happen first. */
extern int64 zkl_keeper_wake_at(void);

/* Is the session open with other servers than zklock.hosts says now? */
extern bool zkl_keeper_has_other_hosts(void);

/*
 * End the session, if ZooKeeper can be reached.  The caller has seen to it
 * that no reply is outstanding.
 */
extern void zkl_keeper_close(void);

#endif							/* ZKL_KEEPER_H */
