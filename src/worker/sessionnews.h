/*-------------------------------------------------------------------------
 *
 * sessionnews.h
 *	  What the log and zk_status say about the ZooKeeper session.
 *
 * Each piece of news is logged once.  Called only by the worker, which holds
 * no lock.  No function raises an error.
 *
 * src/worker/sessionnews.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONNEWS_H
#define ZKL_SESSIONNEWS_H

/* Call these in each turn: without a connection, and in any case. */
extern void zkl_session_news_unreachable(void);
extern void zkl_session_news_doubt(void);

/* There is a connection; is_new: there was none before. */
extern void zkl_session_news_connected(bool is_new);

/* The session has expired, so nothing is in doubt any more. */
extern void zkl_session_news_expired(void);

/*
 * ZooKeeper has refused a write to this znode because it has changed, and the
 * connected server still shows it as it was: so the servers differ.
 */
extern void zkl_session_news_difference(const char *znode);

/* An error, for zk_status. */
extern void zkl_session_news_error(const char *error);

/*
 * ZooKeeper refuses this server, or its credentials cannot be read; and it has
 * accepted this server.
 */
extern void zkl_session_news_refused(const char *error);
extern bool zkl_session_news_is_refused(void);
extern void zkl_session_news_accepted(void);

#endif							/* ZKL_SESSIONNEWS_H */
