/*-------------------------------------------------------------------------
 *
 * lineup.h
 *	  Who queues for a lock, in which order, and who of them holds it.
 *
 * What recipe.h decides for one znode of our own is decided here for all of
 * them, whoever made them, to be shown and to find the holders.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no clock.
 *
 * src/lineup.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LINEUP_H
#define ZKL_LINEUP_H

#include "recipe.h"

/* In which of a lock's directories a znode is. */
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
	int			index;			/* the caller's own, to find its way back */
	ZklWhere	where;
	const char *name;
	int64_t		czxid;			/* 0: not known */
	int64_t		owner;			/* session; 0: none, or not known */

	/* found out */
	ZklKind		kind;
	ZklMode		mode;
	ZklClient	client;
	const char *key;			/* NULL where the name has none */
	bool		holds;
} ZklPlace;

/*
 * Bring the places into the order of the queue, those that are in no queue
 * behind all others, and fill in what is to be found out.  Returns how many
 * are in the queue.
 *
 * First comes the queue of the lock's own directory, then the leases in the
 * order of their creation, then the queue of "locks", whose members hold
 * nothing yet: they are acquiring a lease.
 *
 * Every child of "leases" is a lease, whatever its name; but only if one of
 * them has the name of a lease or the limit is known.  Else it is not a
 * semaphore, but another path that ends with "leases".  "limit" is how many the semaphore has,
 * 0 if that is not known.  The newest that are too many wait; and so do those
 * that the owner of the first znode in "locks" has made since, for they are
 * had all at once or not at all.
 */
extern int	zkl_lineup(ZklPlace *places, int nplaces, int limit);

/* What a place's mode is called: 'lock', 'write', 'read', 'lease'. */
extern const char *zkl_lineup_mode_name(const ZklPlace *place);
extern const char *zkl_lineup_kind_name(ZklKind kind);
extern const char *zkl_lineup_client_name(ZklClient client);

#endif							/* ZKL_LINEUP_H */
