/*-------------------------------------------------------------------------
 *
 * leases.h
 *	  The leases of a semaphore that this server has.
 *
 * Each lease is an entry with a ticket of its own; see lockentry.h.  An idle
 * lease goes to the next claim of this server that wants one.  Only a claim
 * that holds the semaphore's inner mutex, and so is the first in the whole
 * cluster, or that only tries, gets more of them from ZooKeeper.
 *
 * The caller of every function holds the semaphore's partition, exclusively,
 * unless the comment of a function says otherwise.  No function raises an
 * error.
 *
 * src/shared/leases.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LEASES_H
#define ZKL_LEASES_H

#include "shared/locktable.h"

/* How many idle leases could a claim take now, in this epoch? */
extern int	zkl_leases_usable(ZklEntry *semaphore, uint64 epoch);

/*
 * Let a claim take as many leases as it wants.  The caller has checked that
 * enough are usable.
 */
extern void zkl_leases_take(ZklClaim *claim, int64 now);

/* Take this many back from a claim.  The caller settles them afterwards. */
extern void zkl_leases_put_back(ZklClaim *claim, int quantity, int64 now);

/* Give all leases of one claim to another. */
extern void zkl_leases_move(ZklClaim *to, ZklClaim *from);

/*
 * Request leases, until as many as the claim wants are usable or under way.
 * False if the table is full.
 */
extern bool zkl_leases_ask(const ZklClaim *claim, uint64 epoch);

/*
 * How many leases has the semaphore?  The stored limit counts; without one,
 * the number that the claims name; ZKL_LIMIT_NONE if they name none.
 * lockentry.h says why the caller needs no lock.
 */
extern int	zkl_leases_limit(const ZklEntry *semaphore);

/*
 * The worker has read the stored limit, while this server has leases.  A claim
 * that needs leases may request more now.
 */
extern void zkl_leases_set_stored(ZklEntry *semaphore, int stored);

/*
 * No claim takes the leases that this server owns now.  Those that are held
 * stay with their claims.
 */
extern void zkl_leases_retire(ZklEntry *semaphore);

/* Has ZooKeeper answered all requests for leases? */
extern bool zkl_leases_answered(const ZklEntry *semaphore);

/* May other servers' leases that go first be merely lingering? */
extern bool zkl_leases_asking(ZklEntry *semaphore);

/*
 * A claim has ended, or the other clients in the queue have changed: decide
 * what becomes of the leases that no claim holds.  The semaphore's entry may
 * be gone afterwards.
 */
extern void zkl_leases_settle(ZklEntry *semaphore);

/*
 * Give up the leases that no claim holds, because a claim wants the path as
 * another lock.
 */
extern void zkl_leases_give_up(ZklEntry *semaphore);

/*
 * What became of a lease: the server owns it now, and gives it up if no claim
 * needs it and it shall not linger; another client waits for a lease.
 */
extern void zkl_leases_set_owned(ZklEntry *lease);
extern void zkl_leases_set_contended(ZklEntry *semaphore);

/* Visit all leases that are pending or owned.  A shared lock is enough. */
extern void zkl_leases_visit(ZklEntry *semaphore, ZklVisitor visitor,
							 void *arg);

#endif							/* ZKL_LEASES_H */
