/*-------------------------------------------------------------------------
 *
 * path.h
 *	  What may be the path of a lock, the lists of paths in settings, and the
 *	  names of znodes that belong to paths.
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
#include <stddef.h>
#include <stdint.h>

#define ZKL_PATH_SIZE	256		/* with the terminating null */
#define ZKL_PATH_COMPONENTS	16	/* an acquire makes a znode for each */
#define ZKL_ROOT_SIZE	128		/* the chroot or zklock.root, with the null */

/*
 * The directory below the root for znodes of zklock that belong to no lock,
 * and the directories in it for the records of leaderships, jobs and waits.
 * The text of a znode about waits is shorter than ZKL_PATH_WAITS_SIZE.
 */
#define ZKL_PATH_RESERVED	".zklock"
#define ZKL_PATH_LEADERS	"/" ZKL_PATH_RESERVED "/leaders"
#define ZKL_PATH_JOBS		"/" ZKL_PATH_RESERVED "/jobs"
#define ZKL_PATH_WAITS		"/" ZKL_PATH_RESERVED "/waits"
#define ZKL_PATH_WAITS_SIZE 65536

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
 * Check zklock.root, or a connect string's chroot, as zkl_path_fault checks a
 * path.  A root or chroot may be "/" or empty, and must be shorter.
 */
extern const char *zkl_path_root_fault(const char *root);

/* This value of zklock.allowed_paths allows every path. */
#define ZKL_PATH_LIST_ALL	"*"

/*
 * Get the next element of a list of paths that commas separate, without the
 * blanks around it; NULL at the end.  "at" begins as the list and moves on.
 * An element between two commas may be empty.  The result points into the
 * list.
 */
extern const char *zkl_path_list_next(const char **at, size_t *length);

/*
 * A value of zklock.allowed_paths.  An element "/jobs/" allows all paths below
 * "/jobs", but not "/jobs" itself.  "/jobs" allows just this path.
 *
 * fault: NULL if the list is valid, else a sentence that names the rule it
 * breaks.  allows: an element that is not valid allows nothing.
 */
extern const char *zkl_path_list_fault(const char *list);
extern bool zkl_path_list_allows(const char *list, const char *path);

/*
 * The name of a znode that belongs to a path: the path without its first
 * slash, with "%2F" for a slash and "%25" for a percent sign, so it is one
 * component.  The second function returns false if no path has that name.
 */
#define ZKL_PATH_NAME_SIZE	(3 * ZKL_PATH_SIZE)
extern void zkl_path_name(const char *path, char name[ZKL_PATH_NAME_SIZE]);
extern bool zkl_path_of_name(const char *name, char path[ZKL_PATH_SIZE]);

/* Write an ID made of 16 random bytes. */
#define ZKL_PATH_ID_SIZE	33
extern void zkl_path_make_id(const uint8_t random[16], char id[ZKL_PATH_ID_SIZE]);

#endif							/* ZKL_PATH_H */
