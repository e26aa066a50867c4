/*-------------------------------------------------------------------------
 *
 * sessionkeeper.h
 *	  Keeps the ZooKeeper session: opens it, and continues it.
 *
 * Called only by worker.c.  An error ends the worker (worker.c).
 *
 * src/worker/session/sessionkeeper.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONKEEPER_H
#define ZKL_SESSIONKEEPER_H

/*
 * Open the session, if it is not open.  If no address is known yet, a later
 * call opens it.
 */
extern void zkl_session_keeper_tend(void);

/*
 * Handle the events of the last turn: replies, watches, the end of the
 * session.
 */
extern void zkl_session_keeper_handle_events(void);

/* When to call tend or handle_events next; PG_INT64_MAX: after an event. */
extern int64 zkl_session_keeper_wake_at(void);

/*
 * The configuration was reloaded: use the credentials, certificates and
 * passwords that the files of identity.c have now, and the servers that
 * zklock.hosts has.
 */
extern void zkl_session_keeper_reload(void);

/*
 * Is there no connection, while the session may still live?  A caller that
 * wants to close the session then waits a little.
 */
extern bool zkl_session_keeper_may_connect(void);

/*
 * End the session, if ZooKeeper can be reached.  The caller has waited for the
 * replies that were outstanding.  If not "answered", the session file stays:
 * there still are some, or ZooKeeper has not replied just now.
 */
extern void zkl_session_keeper_close(bool answered);

#endif							/* ZKL_SESSIONKEEPER_H */
