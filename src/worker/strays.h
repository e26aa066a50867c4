/*-------------------------------------------------------------------------
 *
 * strays.h
 *	  Deletes the znodes that lost creates have made late.
 *
 * A connection ends while a create is under way, and the barrier of the next
 * connection is answered.  The list after it does not show the znode, so the
 * ticket goes on without it.  Mostly, the create has then failed for good:
 * ZooKeeper's leader refuses what comes through the server of the old
 * connection, because the session has moved to another one.  But if the client
 * has meanwhile tried the old server again, and a partition has held up what
 * that server had to say, then the leader gets all of it at once.  The create
 * comes first, and then the word that the session has moved back, which the
 * leader heeds before it looks at the create.  Now the znode exists, and no
 * ticket knows it: a STRAY, for which all other clients would wait until the
 * session ends.
 *
 * The present connection cannot survive this: its next write is refused,
 * because the session has moved away from it.  So the worker looks for strays
 * after the barrier of each connection, and deletes what it finds.
 *
 *		row			from -> to			when
 *		free		-> QUIET			a ticket found no znode
 *		QUIET		-> DUE				a new connection
 *		DUE			-> LISTING			the request for the list was sent
 *		LISTING		-> QUIET			the list does not show it
 *					-> DELETING			the list shows it
 *		DELETING	-> free				it is deleted
 *		LISTING, DELETING -> DUE		the answer was lost
 *		any			-> free				a connection has worked for five minutes;
 *										or the session has expired
 *
 * The rows are in shared memory, and these states in the worker.  A worker that
 * starts has no connection yet, so each row begins as QUIET.
 *
 * Called only by the worker's files.
 *
 * src/worker/strays.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_STRAYS_H
#define ZKL_STRAYS_H

#include "zookeeper/session.h"

/* A worker starts, perhaps with the session of its predecessor. */
extern void zkl_strays_start(void);

/*
 * A ticket in this directory gives up the search for a znode with this UUID.
 * If the table is full, the oldest row makes room.
 */
extern void zkl_strays_note(const char *directory, const char *uuid);

/*
 * May one still come?  Then the session must send writes, since only a write
 * shows that the session has moved away from the connection.
 */
extern bool zkl_strays_may_come(void);

/* A quorum has answered a write of the present connection. */
extern void zkl_strays_proved(int64 now);

/*
 * The session has a new connection; its handle is gone, and with it all
 * replies; it has expired.
 */
extern void zkl_strays_reconnected(void);
extern void zkl_strays_restarted(void);
extern void zkl_strays_expired(void);

/* Send what is due. */
extern void zkl_strays_send(void);

/* Handle an answer.  False if it is the answer to another file's request. */
extern bool zkl_strays_handle(const ZklSessionEvent *event);

#endif							/* ZKL_STRAYS_H */
