/*-------------------------------------------------------------------------
 *
 * permission.h
 *	  What this session may use and see.
 *
 * sqlargs.c checks each path that a function is given.  So no function checks
 * its path itself, but each that returns rows leaves out what is not allowed.
 *
 * Called only by backends.
 *
 * src/backend/permission.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PERMISSION_H
#define ZKL_PERMISSION_H

#include "backend/locallock.h"

/* May this session use, and see, this path?  The path is in UTF-8. */
extern bool zkl_permission_allows(const char *path);

/* May it see all paths? */
extern bool zkl_permission_allows_all(void);

/* Raise 42501 if it may not: for a path, and for a resource of zk_fence. */
extern void zkl_permission_check_path(const char *path);
extern void zkl_permission_check_resource(const char *resource);

/* Raise 42501 if this session may not acquire locks at this level. */
extern void zkl_permission_check_level(ZklScope scope);

/*
 * May this user see since when a backend of this role does what it does, how
 * often, and its token?  The rule is that of pg_stat_activity.  What may be
 * about any role has InvalidOid.
 */
extern bool zkl_permission_may_see(Oid role);

#endif							/* ZKL_PERMISSION_H */
