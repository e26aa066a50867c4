/*-------------------------------------------------------------------------
 *
 * queueorder.h
 *	  The queue of a lock: its znodes, their order, and the holders.
 *
 * recipe.h decides about one znode of this server.  This file decides about
 * all znodes in the queue, whatever client made them.  The result is shown to
 * users, and names the holders.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no clock.
 *
 * src/protocol/queueorder.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_QUEUEORDER_H
#define ZKL_QUEUEORDER_H

#include "protocol/recipe.h"

/* The directory of a lock that a znode is in. */
typedef enum ZklWhere
{
	ZKL_WHERE_LOCK,				/* the lock's own */
	ZKL_WHERE_LEASES,			/* "leases" in it */
	ZKL_WHERE_LOCKS				/* "locks" in it */
} ZklWhere;

#define ZKL_NWHERE	(ZKL_WHERE_LOCKS + 1)

typedef struct ZklPlace
{
	/* given */
	int			index;			/* the caller's own number for the place */
	ZklWhere	where;
	const char *name;
	int64_t		czxid;			/* 0: not known */
	int64_t		owner;			/* session; 0: none, or not known */

	/* filled in by zkl_queue_order */
	ZklKind		kind;
	ZklMode		mode;
	ZklClient	client;
	const char *key;			/* NULL if the name has none */
	bool		holds;
} ZklPlace;

/*
 * Sort the places in the order of the queue, with those that are in no queue
 * at the end, and fill in the rest.  Returns how many are in the queue.
 *
 * First comes the queue of the lock's own directory, then the leases in the
 * order of their creation, then the queue of "locks".  The members of "locks"
 * hold nothing yet: they are acquiring leases.
 *
 * Every child of "leases" is a lease, whatever its name, if one of them has
 * the name of a lease or the limit is known.  Otherwise the path is no
 * semaphore, and "leases" is the directory of another lock.  "limit" is the
 * number of the semaphore's leases, 0 if it is not known.  The newest leases
 * above the limit wait.  The client of the first znode in "locks" is
 * collecting leases, and gets all of them or none.  So the leases that it has
 * made since that znode wait, too.
 */
extern int	zkl_queue_order(ZklPlace *places, int nplaces, int limit);

/*
 * Does a client that waits in this directory wait for this place?  The client
 * wants a lock of this mode; "key" is its znode's key; NULL: it has no znode
 * yet, and so comes last.  A waiter for a lease waits for all leases that are
 * held.  The result is also true for the client's own znode.
 */
extern bool zkl_queue_order_is_in_way(const ZklPlace *place, ZklWhere where,
									  ZklMode mode, const char *key);

/* The name of a place's mode: 'acquiring' in "locks", or as in recipe.h. */
extern const char *zkl_queue_order_mode_name(const ZklPlace *place);
extern const char *zkl_queue_order_client_name(ZklClient client);

#endif							/* ZKL_QUEUEORDER_H */
