/*-------------------------------------------------------------------------
 *
 * lockdirectory.h
 *	  Which directory in ZooKeeper belongs to which entry.
 *
 * Functions lock partitions themselves, so the caller holds none.  The entries
 * that they return stay while the worker looks at them, because only the
 * worker takes tickets away.
 *
 * Called only by the worker's files.
 *
 * src/worker/lockdirectory.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCKDIRECTORY_H
#define ZKL_LOCKDIRECTORY_H

#include "nodes/pg_list.h"

#include "shared/locktable.h"

/* A worker starts.  All directories have this prefix. */
extern void zkl_lock_directory_start(const char *prefix);
extern int	zkl_lock_directory_prefix_length(void);

/*
 * Write the directory of an entry's ticket.  "directory" has room for
 * ZKL_DIR_SIZE.
 */
extern void zkl_lock_directory_of(const ZklEntry *entry, char *directory);

/*
 * Is the directory of an entry's ticket likely to exist?  It is if a call of
 * note() said so a short time ago.
 */
extern bool zkl_lock_directory_is_likely(const ZklEntry *entry);
extern void zkl_lock_directory_note(const ZklEntry *entry);

/*
 * The entry whose ticket is of this session and in this directory; NULL: none.
 */
extern ZklEntry *zkl_lock_directory_find(const char *directory, size_t length);

/* The leases that have a ticket, in this directory or of this semaphore. */
extern List *zkl_lock_directory_find_leases(const char *directory,
											size_t length);
extern List *zkl_lock_directory_leases_of(ZklEntry *semaphore);

#endif							/* ZKL_LOCKDIRECTORY_H */
