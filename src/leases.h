/*-------------------------------------------------------------------------
 *
 * leases.h
 *	  The leases of a semaphore that this server has.
 *
 * Each is an entry with a ticket of its own; see locktable.h.  A lease that
 * is in hand goes to whoever asks next in this server.  Only a claim that
 * holds the semaphore's inner mutex, and so is the first in the whole
 * cluster, gets more of them from ZooKeeper.
 *
 * The caller of every function holds the semaphore's partition.  None raises
 * an error.
 *
 * src/leases.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LEASES_H
#define ZKL_LEASES_H

#include "locktable.h"

/* How many could be taken now, in this epoch? */
extern int	zkl_leases_usable(ZklEntry *semaphore, uint64 epoch);

/* Let a claim hold as many as it wants; there are enough. */
extern void zkl_leases_take(ZklClaim *claim, int64 now);

/* Take some back from a claim.  To be settled. */
extern void zkl_leases_put_back(ZklClaim *claim, int quantity, int64 now);

/* Give all leases of one claim to another. */
extern void zkl_leases_move(ZklClaim *to, ZklClaim *from);

/*
 * See to it that this many will be usable, some day.  False if the table is
 * full.
 */
extern bool zkl_leases_ask(ZklEntry *semaphore, uint64 epoch, int quantity,
						   bool only_tries, const char *about);

/* Has ZooKeeper answered for all that were asked for? */
extern bool zkl_leases_answered(ZklEntry *semaphore);

/* ... and may there be others that only linger? */
extern bool zkl_leases_asking(ZklEntry *semaphore);

/*
 * A claim has ended, or what others do has changed: decide what becomes of the
 * leases that nobody holds.  The semaphore's entry may be gone afterwards.
 */
extern void zkl_leases_settle(ZklEntry *semaphore);

/* Give up those that nobody holds: the path shall be another lock. */
extern void zkl_leases_give_up(ZklEntry *semaphore);

/*
 * What became of one lease: it is owned now; it is not any more, or never will
 * be; somebody waits for one.
 */
extern void zkl_leases_set_owned(ZklEntry *lease);
extern void zkl_leases_unlink(ZklEntry *lease);
extern void zkl_leases_set_contended(ZklEntry *semaphore);

/* Visit all that are pending or owned. */
extern void zkl_leases_visit(ZklEntry *semaphore, ZklVisitor visitor,
							 void *arg);

#endif							/* ZKL_LEASES_H */
