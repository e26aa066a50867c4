/*-------------------------------------------------------------------------
 *
 * directories.h
 *	  Which directory in ZooKeeper belongs to which entry.
 *
 * Functions lock partitions themselves.  Only the worker takes tickets away, so
 * what they return stays while it looks at it.
 *
 * Called only by the worker's files.
 *
 * src/directories.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DIRECTORIES_H
#define ZKL_DIRECTORIES_H

#include "nodes/pg_list.h"

#include "locktable.h"

/* A worker starts; all directories have this prefix. */
extern void zkl_directories_start(const char *prefix);
extern int	zkl_directories_prefix_length(void);

/* Write the directory of an entry's ticket; there is room for ZKL_DIR_SIZE. */
extern void zkl_directories_of(const ZklEntry *entry, char *directory);

/*
 * Is the directory of an entry's ticket likely to be there?  It was a short time
 * ago, if it was noted.
 */
extern bool zkl_directories_is_likely(const ZklEntry *entry);
extern void zkl_directories_note(const ZklEntry *entry);

/* The entry with a ticket of this session whose directory this is; NULL: none. */
extern ZklEntry *zkl_directories_find(const char *directory, size_t length);

/* The leases with tickets whose directory this is, or of this semaphore. */
extern List *zkl_directories_find_leases(const char *directory,
										 size_t length);
extern List *zkl_directories_leases_of(ZklEntry *semaphore);

#endif							/* ZKL_DIRECTORIES_H */
