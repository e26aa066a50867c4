/*-------------------------------------------------------------------------
 *
 * permission.h
 *	  What this session may use and see.
 *
 * sqlargs.c checks each path that is an argument, so the functions themselves
 * do not check it again.  But each function that returns rows leaves out the
 * paths that this session may not see.
 *
 * Called only by backends.  Functions may read catalogs, so no LWLock may be
 * held, unless the comment of a function says otherwise.
 *
 * src/backend/lock/permission.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PERMISSION_H
#define ZKL_PERMISSION_H

#include "backend/lock/advisorylock.h"

/*
 * May this session use this path, or all paths?  The path is in UTF-8.  Reads
 * no catalog, and raises no error.
 */
extern bool zkl_permission_allows(const char *path);
extern bool zkl_permission_allows_all(void);

/* May this session see this path, or all paths, in views and queues? */
extern bool zkl_permission_shows(const char *path);
extern bool zkl_permission_shows_all(void);

/*
 * Raise 42501 if this session may not use the path, see it, or take its lock
 * from the holders.
 */
extern void zkl_permission_check_path(const char *path);
extern void zkl_permission_check_shown(const char *path);
extern void zkl_permission_check_taken(const char *path);

/*
 * Raise 42501 if no backend may have a claim on the path: the commits of all
 * backends depend on the path, or on one above it.
 */
extern void zkl_permission_check_claim(const char *path);

/* Raise 42501 if this session may not use the resource of zk_fence. */
extern void zkl_permission_check_resource(const char *resource);

/* Raise 42501 if this session may not acquire locks at this level. */
extern void zkl_permission_check_level(ZklScope scope);

/*
 * Raise 42501 if this user may not execute an older function of the extension,
 * which has this name and these types of arguments.  "called" is the function
 * that was called.
 *
 * Each function or procedure that a version after 1.0 adds, and that PUBLIC
 * may execute, makes this check with the function of its kind in 1.0.  An
 * administrator may have withdrawn the older function from PUBLIC before the
 * update, and the update must let nobody in again.  Privileges that the
 * update's script sets would not suffice, because a dump leaves them out.
 */
extern void zkl_permission_check_older(Oid called, const char *older,
									   int nargs, const Oid *types);

/*
 * May this user see the details of a backend of this role: since when it holds
 * or waits, how often, and its token?  pg_stat_activity has the same rule.
 * Use InvalidOid for details that may concern any role.
 */
extern bool zkl_permission_may_see(Oid role);

#endif							/* ZKL_PERMISSION_H */
