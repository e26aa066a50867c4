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

#define ZKL_PATH_SIZE	256		/* a lock's path, with its null */
#define ZKL_PATH_COMPONENTS	16	/* an acquire makes a znode for each */
#define ZKL_ROOT_SIZE	128		/* chroot and zklock.root, with the null */

/* Below the root, this is for znodes of zklock that belong to no lock. */
#define ZKL_PATH_RESERVED	".zklock"

#define ZKL_DIR_SIZE	(ZKL_ROOT_SIZE + ZKL_PATH_SIZE + 8) /* "/leases" too */

/*
 * Check the path of a lock, given in UTF-8.
 *
 * Returns NULL if the path is valid, else a sentence that names the rule it
 * breaks.
 */
extern const char *zkl_path_fault(const char *path);

/*
 * The same for zklock.root and a connect string's chroot, which may be "/"
 * or empty and are shorter.
 */
extern const char *zkl_path_root_fault(const char *root);

#endif							/* ZKL_PATH_H */
