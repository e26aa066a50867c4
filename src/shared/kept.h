/*-------------------------------------------------------------------------
 *
 * kept.h
 *	  How many tickets the server keeps for which role.
 *
 * A ticket that lingers takes room from others, and no session holds it.  So it
 * counts for the role that released it last, from then until the server does not
 * own it any more, also while claims hold it.  Each count belongs to the roles
 * whose numbers are equal modulo ZKL_KEPT_ROLES.
 *
 * Locks.  "kept_for" of an entry is protected by its partition, and the counts are
 * atomics.  No function raises an error.
 *
 * src/shared/kept.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_KEPT_H
#define ZKL_KEPT_H

#include "shared/lockentry.h"

#define ZKL_KEPT_ROLES	256

/* For the shared-memory hooks: once in the postmaster, once in each process. */
extern void zkl_kept_request(void);
extern void zkl_kept_startup(void);

/*
 * Count the entry's ticket for the role of this process, if there is room, and return
 * whether there is.  There is as long as half of all entries, and half of the bytes
 * of the ZooKeeper session, are free.  After that, share.h decides.
 */
extern bool zkl_kept_begin(ZklEntry *entry);

/* The server does not own the ticket any more, or gives it up. */
extern void zkl_kept_end(ZklEntry *entry);

#endif							/* ZKL_KEPT_H */
