/*-------------------------------------------------------------------------
 *
 * standing.h
 *	  How a claim stands, and what is known about its lock.
 *
 * All functions lock the entry's partition themselves; none raises an error.
 *
 * Called only by backends.
 *
 * src/standing.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_STANDING_H
#define ZKL_STANDING_H

#include "locktable.h"

/* What became of a claim that was held. */
typedef enum ZklStanding
{
	ZKL_STANDING_GOOD,
	ZKL_STANDING_DOUBT,			/* good again if the session comes back */
	ZKL_STANDING_LOST			/* or its lease time is over */
} ZklStanding;

/*
 * How does a claim stand that was held?  Good means: until the session has
 * "margin" microseconds more to live, at least.
 */
extern ZklStanding zkl_shared_standing(ZklClaim *claim, int64 margin);

/* Why and when was it lost? */
extern ZklLoss zkl_shared_loss(ZklClaim *claim, int64 *lost_at);

/* Has somebody asked for the lock that this claim holds? */
extern bool zkl_shared_is_revoked(ZklClaim *claim);

/*
 * Is no znode of the lock on its way to be deleted?  If not, the claim's latch
 * will be set.
 */
extern bool zkl_shared_is_settled(ZklClaim *claim);

/* Is a znode of the lock on its way to be deleted?  No claim is needed to ask. */
extern bool zkl_shared_is_releasing(const char *path);

/*
 * Is it known that the path is no other kind of lock?  A claim that gets leases
 * has to find that out, unless another claim of the server has done so since the
 * server has had any.
 */
extern bool zkl_shared_is_surveyed(ZklClaim *claim);
extern void zkl_shared_set_surveyed(ZklClaim *claim);

/*
 * Is this znode of the path (or of its leases) a ticket of this server?  Then say
 * who holds the lock by it now, or waits for it: as a znode's text, which is empty
 * where no backend does.
 */
extern bool zkl_shared_describe(const char *path, const char *znode,
								char about[ZKL_ABOUT_SIZE]);

#endif							/* ZKL_STANDING_H */
