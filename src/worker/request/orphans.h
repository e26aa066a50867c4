/*-------------------------------------------------------------------------
 *
 * orphans.h
 *	  Deletes the znodes that lost creates have made late.
 *
 * A connection ends while a create is under way, and the barrier of the next
 * connection is answered.  The list after it does not show the znode, so the
 * ticket goes on without it.  Mostly, the create has then failed for good:
 * ZooKeeper's leader refuses what comes through the server of the old
 * connection, because the session has moved to another one.  But the client
 * may have tried the old server again meanwhile, while a partition held up
 * that server's messages.  Then the leader gets them all at once.  The create
 * comes first, and then the message that the session has moved back; the
 * leader applies the move before it processes the create.  Now the znode
 * exists, and no ticket knows it: an ORPHAN, for which all other clients
 * would wait until the session ends.
 *
 * The present connection cannot survive this: its next write is refused,
 * because the session has moved away from it.  So the worker looks for orphans
 * after the barrier of each connection, and deletes what it finds.
 *
 *		row			from -> to			when
 *		free		-> QUIET			a ticket found no znode
 *		QUIET		-> LISTING			a new connection: the list is requested
 *		LISTING		-> QUIET			the list does not show it
 *					-> DELETING			the list shows it
 *		DELETING	-> free				it is deleted
 *		LISTING, DELETING -> LISTING	the answer was lost
 *		any			-> free				a connection has worked for five minutes;
 *										or the session has expired
 *
 * The rows are in shared memory.  The state is the ask that is under way: none
 * in a row that is QUIET, as each row is when a worker starts, because it has
 * no connection yet.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/worker/request/orphans.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ORPHANS_H
#define ZKL_ORPHANS_H

#include "storage/lwlock.h"

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_orphans_size(void);
extern void zkl_orphans_attach(void *memory, LWLockPadded *locks, bool is_new);

/* A worker starts, perhaps with the session of its predecessor. */
extern void zkl_orphans_start(void);

/*
 * A ticket in this directory gives up the search for a znode with this UUID.
 * If the table is full, the oldest row makes room.
 */
extern void zkl_orphans_note(const char *directory, const char *uuid);

/*
 * May an orphan still come?  Then the session must send writes, since only a
 * write shows that the session has moved away from the connection.
 */
extern bool zkl_orphans_may_come(void);

/* A quorum has answered a write of the present connection. */
extern void zkl_orphans_proved(int64 now);

/* The session has a new connection: look for orphans.  Or it has expired. */
extern void zkl_orphans_reconnected(void);
extern void zkl_orphans_expired(void);

#endif							/* ZKL_ORPHANS_H */
