/*-------------------------------------------------------------------------
 *
 * lockdirectory.h
 *	  Which directory in ZooKeeper belongs to which entry.
 *
 * Functions lock partitions themselves, so the caller holds none.  The
 * entries that they return stay while the worker uses them, because only the
 * worker removes tickets.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/worker/request/lockdirectory.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCKDIRECTORY_H
#define ZKL_LOCKDIRECTORY_H

#include "nodes/pg_list.h"

#include "shared/locktable.h"

/* A worker starts.  "prefix" precedes the path of each lock. */
extern void zkl_lock_directory_start(const char *prefix);
extern int	zkl_lock_directory_prefix_length(void);

/*
 * Write the directory of an entry's ticket.  "directory" has room for
 * ZKL_DIR_SIZE.
 */
extern void zkl_lock_directory_of(const ZklEntry *entry, char *directory);

/* Write the path of the znode with a semaphore's limit. */
extern void zkl_lock_directory_limit(const ZklEntry *semaphore, char *path);

/*
 * Is the directory of an entry's ticket likely to exist?  It is if
 * zkl_lock_directory_note() was called for it a short time ago.
 */
extern bool zkl_lock_directory_is_likely(const ZklEntry *entry);
extern void zkl_lock_directory_note(const ZklEntry *entry);

/*
 * is_parent_likely, note_parent: as is_likely and note, for the directory
 * above the entry's.  note_removed: ZooKeeper has removed the entry's
 * directory since it was noted, so directories that were noted before are
 * likely gone, too.  forget_parent: the directory above the entry's is not
 * there.
 */
extern bool zkl_lock_directory_is_parent_likely(const ZklEntry *entry);
extern void zkl_lock_directory_note_parent(const ZklEntry *entry);
extern void zkl_lock_directory_note_removed(const ZklEntry *entry);
extern void zkl_lock_directory_forget_parent(const ZklEntry *entry);

/*
 * The entry whose ticket is in this session and in this directory; NULL if
 * there is none.
 */
extern ZklEntry *zkl_lock_directory_find(const char *directory, size_t length);

/*
 * The leases with a ticket that are in this directory, or that belong to this
 * semaphore.
 */
extern List *zkl_lock_directory_find_leases(const char *directory,
											size_t length);
extern List *zkl_lock_directory_leases_of(ZklEntry *semaphore);

#endif							/* ZKL_LOCKDIRECTORY_H */
