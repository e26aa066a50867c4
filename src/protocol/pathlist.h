/*-------------------------------------------------------------------------
 *
 * pathlist.h
 *	  A list of paths in a setting, separated by commas.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation.
 *
 * src/protocol/pathlist.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PATHLIST_H
#define ZKL_PATHLIST_H

#include <stdbool.h>
#include <stddef.h>

/* This value of zklock.allowed_paths allows every path. */
#define ZKL_PATHLIST_ALL	"*"

/*
 * The next element of a list, without the blanks around it; NULL at the end.
 * "at" begins as the list and moves on.  An element between two commas may be
 * empty.  The result points into the list.
 */
extern const char *zkl_pathlist_next(const char **at, size_t *length);

/*
 * A value of zklock.allowed_paths.  An element "/jobs/" allows all paths below
 * "/jobs", but not "/jobs" itself.  "/jobs" allows just this path.
 *
 * fault: NULL if the list is valid, else a sentence that names the rule it
 * breaks.  allows: an element that is not valid allows nothing.
 */
extern const char *zkl_pathlist_fault(const char *list);
extern bool zkl_pathlist_allows(const char *list, const char *path);

#endif							/* ZKL_PATHLIST_H */
