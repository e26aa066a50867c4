/*-------------------------------------------------------------------------
 *
 * path.h
 *	  What may be the path of a lock.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation.
 *
 * src/protocol/path.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PATH_H
#define ZKL_PATH_H

#include <stdbool.h>

#define ZKL_PATH_SIZE	256		/* with the terminating null */
#define ZKL_PATH_COMPONENTS	16	/* an acquire makes a znode for each */
#define ZKL_ROOT_SIZE	128		/* the chroot or zklock.root, with the null */

/* The directory below the root for znodes of zklock that belong to no lock. */
#define ZKL_PATH_RESERVED	".zklock"

#define ZKL_DIR_SIZE	(ZKL_ROOT_SIZE + ZKL_PATH_SIZE + 8) /* with room for
															 * "/leases" */

/*
 * Check the path of a lock, which is in UTF-8.
 *
 * Returns NULL if the path is valid, else a sentence that names the rule it
 * breaks.
 */
extern const char *zkl_path_fault(const char *path);

/*
 * The same check for zklock.root and for a connect string's chroot.  These
 * may be "/" or empty, and must be shorter.
 */
extern const char *zkl_path_root_fault(const char *root);

#endif							/* ZKL_PATH_H */
