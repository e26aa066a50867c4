/*-------------------------------------------------------------------------
 *
 * sessionlog.h
 *	  What the log and zk_status say about the ZooKeeper session.
 *
 * Each piece of news is logged once.  Called only by the worker, which holds
 * no lock.  No function raises an error, except for lack of memory.
 *
 * src/worker/request/sessionlog.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONLOG_H
#define ZKL_SESSIONLOG_H

/*
 * Call these in each turn, the first one only without a connection.  It tells
 * whether an attempt to connect has failed.
 */
extern bool zkl_session_log_unreachable(void);
extern void zkl_session_log_doubt(void);

/* Other servers are used from now on: forget a refusal, and what was logged. */
extern void zkl_session_log_forget(void);

/*
 * The first function reports that no name has an address.  The second tells
 * whether ZooKeeper has been unreachable for a while.
 */
extern void zkl_session_log_nowhere(void);
extern bool zkl_session_log_is_away(void);

/* There is a connection; is_new: the session had none before. */
extern void zkl_session_log_connected(bool is_new);

/*
 * ZooKeeper has refused a write to this znode because the znode has changed,
 * but the connected server still shows the old data: so ZooKeeper's servers
 * differ.
 */
extern void zkl_session_log_difference(const char *znode);

/* The server owns a ticket with this czxid. */
extern void zkl_session_log_czxid(int64 czxid);

/* Note an error for zk_status. */
extern void zkl_session_log_error(const char *error);

/*
 * The first function reports that ZooKeeper refuses this server, or that its
 * credentials cannot be read; the second that ZooKeeper has accepted this
 * server.
 */
extern void zkl_session_log_refused(const char *error);
extern bool zkl_session_log_is_refused(void);
extern void zkl_session_log_accepted(void);

#endif							/* ZKL_SESSIONLOG_H */
