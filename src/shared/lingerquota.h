/*-------------------------------------------------------------------------
 *
 * lingerquota.h
 *	  How many tickets the server keeps for each role.
 *
 * A lingering ticket takes room from others, and no session holds it.  So it
 * counts for the role that released it last, from then until the server no
 * longer owns it, even while claims hold it again.  A detached claim counts
 * like such a ticket as long as it exists.  Each count belongs to the roles
 * whose numbers are equal modulo ZKL_LINGER_QUOTA_ROLES.
 *
 * Locks.  "kept_for" of an entry is protected by its partition, and the counts
 * are atomics.  No function raises an error.
 *
 * src/shared/lingerquota.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LINGER_QUOTA_H
#define ZKL_LINGER_QUOTA_H

#include "storage/lwlock.h"

#include "shared/lockentry.h"

#define ZKL_LINGER_QUOTA_ROLES	256

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_linger_quota_size(void);
extern void zkl_linger_quota_attach(void *memory, LWLockPadded *locks, bool is_new);

/*
 * If there is room, count the entry's ticket for the role of this session, or,
 * in a background process of zklock, for the role that requested the ticket.
 * Returns whether there was room.  There is room as long as half of all
 * entries, and half of the bytes of the ZooKeeper session, are free.  Beyond
 * that, rolequota.h decides.
 */
extern bool zkl_linger_quota_begin(ZklEntry *entry);

/* The server no longer owns the ticket, or gives it up. */
extern void zkl_linger_quota_end(ZklEntry *entry);

/*
 * begin_claim: count a detached claim on this path for the role of this
 * process, if rolequota.h allows it with "nfree" free claims.  end_claim: the
 * claim has ended; "role" is the role that had logged in.
 */
extern bool zkl_linger_quota_begin_claim(const char *path, int nfree);
extern void zkl_linger_quota_end_claim(const char *path, Oid role);

#endif							/* ZKL_LINGER_QUOTA_H */
