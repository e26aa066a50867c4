/*-------------------------------------------------------------------------
 *
 * sqlargs.h
 *	  The arguments of the SQL functions, checked.
 *
 * Called only by backends, in a transaction.  All functions raise 22023 for an
 * invalid argument, and another error only if its comment says so.
 *
 * src/backend/sql/sqlargs.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SQLARGS_H
#define ZKL_SQLARGS_H

#include "fmgr.h"

#include "backend/lock/localclaim.h"

/*
 * The first argument, a lock's path, in UTF-8.  The text stays until the next
 * call of one of these four functions.  Also raises 42501 if the settings for
 * roles and databases do not allow this path, and 22P05 for a path that is
 * escaped because the encoding of the database lacks characters of it.
 */
extern const char *zkl_sqlargs_path(FunctionCallInfo fcinfo);

/*
 * The first argument as zkl_sqlargs_path returns it, but the argument may be
 * escaped.  shown: for a function that only shows the lock.  taken: for a
 * function that takes the lock from its holders.  Both also raise 42501.  any:
 * for a function that neither shows nor changes anything by itself.
 */
extern const char *zkl_sqlargs_shown_path(FunctionCallInfo fcinfo);
extern const char *zkl_sqlargs_taken_path(FunctionCallInfo fcinfo);
extern const char *zkl_sqlargs_any_path(FunctionCallInfo fcinfo);

/*
 * The first argument, an array of paths of locks, in the current memory
 * context.  Also raises 22004, 22P05, 42501 and 54000.
 */
extern const char **zkl_sqlargs_paths(FunctionCallInfo fcinfo, int *npaths);

/* A number greater than zero; "name" is for the message. */
extern int	zkl_sqlargs_count(FunctionCallInfo fcinfo, int argument,
							  const char *name);

/*
 * Turn the timeout and lock_timeout into moments.  A null timeout: no limit.
 * Zero: a try.
 */
extern void zkl_sqlargs_timeout(FunctionCallInfo fcinfo, int argument,
								ZklLockRequest *request);

/* A time span in microseconds, which must not be null. */
extern int64 zkl_sqlargs_duration(FunctionCallInfo fcinfo, int argument,
								  const char *name);

/* The hold limit.  Null: the lock is held until it is released. */
extern void zkl_sqlargs_lease_time(FunctionCallInfo fcinfo, int argument,
								   ZklLockRequest *request);

/* The lease time of a detached claim: from 100 ms to a day. */
extern int64 zkl_sqlargs_claim_time(FunctionCallInfo fcinfo, int argument);

/*
 * For other arguments: "name" is for the message, and "hint" may be NULL.  The
 * caller of zkl_sqlargs_interval has checked that the argument is not null.
 */
extern void zkl_sqlargs_check_not_null(FunctionCallInfo fcinfo, int argument,
									   const char *name);
extern int64 zkl_sqlargs_interval(FunctionCallInfo fcinfo, int argument,
								  const char *name, int64 max_ms,
								  const char *hint);

#endif							/* ZKL_SQLARGS_H */
