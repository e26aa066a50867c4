/*-------------------------------------------------------------------------
 *
 * lockqueue.h
 *	  The queue of a lock in the whole cluster, read from ZooKeeper.
 *
 * Called only by backends, which hold no LWLock.
 *
 * src/backend/sql/lockqueue.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCKQUEUE_H
#define ZKL_LOCKQUEUE_H

#include "backend/row.h"
#include "shared/listing.h"

/* A lock's queue, in order. */
typedef struct ZklLockQueue
{
	const char *path;
	const ZklListing *survey;
	ZklPlace   *places;
	int			nplaces;
} ZklLockQueue;

/*
 * Read the lock's directory with all details, and put the clients into the
 * order of the queue.  Raises the errors of zkl_znodes_survey().
 */
extern ZklLockQueue zkl_lock_queue_read(const char *path);

/* What was read from the znode at this place. */
extern const ZklListingNode *zkl_lock_queue_node(const ZklLockQueue *queue,
												 const ZklPlace *place);

/*
 * The text of one of zklock's znodes.  For a ticket of this server, the lock
 * table says which backend has the lock at this moment.  If no backend has
 * it, the text has only the server's name.
 */
extern const char *zkl_lock_queue_text(const char *path, const ZklPlace *place,
									   const ZklListingNode *node);

/*
 * When the znode was created, on ZooKeeper's clock; null if that is not known,
 * or if this user may not see it.
 */
extern void zkl_lock_queue_add_since(ZklRow *row, const ZklListingNode *node);

#endif							/* ZKL_LOCKQUEUE_H */
