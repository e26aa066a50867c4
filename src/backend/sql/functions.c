/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  The functions that SQL calls for locks and leaderships: each unpacks
 *	  its arguments, makes one call, and returns.
 *
 * src/backend/sql/functions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/acquire.h"
#include "backend/lock/history.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/multilock.h"
#include "backend/lock/permission.h"
#include "backend/lock/reliance.h"
#include "backend/lock/semaphore.h"
#include "backend/lock/xact.h"
#include "backend/report.h"
#include "backend/sql/sqlargs.h"
#include "backend/sql/sqlrequest.h"
#include "settings.h"
#include "shared/leadership.h"
#include "shared/passes.h"

PG_FUNCTION_INFO_V1(zklock_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_xact_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_read_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_xact_read_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_write_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_xact_write_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_lock_release);
PG_FUNCTION_INFO_V1(zklock_read_lock_release);
PG_FUNCTION_INFO_V1(zklock_write_lock_release);
PG_FUNCTION_INFO_V1(zklock_semaphore_acquire);
PG_FUNCTION_INFO_V1(zklock_xact_semaphore_acquire);
PG_FUNCTION_INFO_V1(zklock_semaphore_release);
PG_FUNCTION_INFO_V1(zklock_semaphore_limit);
PG_FUNCTION_INFO_V1(zklock_semaphore_set_limit);
PG_FUNCTION_INFO_V1(zklock_multilock_acquire);
PG_FUNCTION_INFO_V1(zklock_xact_multilock_acquire);
PG_FUNCTION_INFO_V1(zklock_multilock_release);
PG_FUNCTION_INFO_V1(zklock_lock_release_all);
PG_FUNCTION_INFO_V1(zklock_lock_is_held);
PG_FUNCTION_INFO_V1(zklock_lock_is_revoked);
PG_FUNCTION_INFO_V1(zklock_lock_token);
PG_FUNCTION_INFO_V1(zklock_lock_uses);
PG_FUNCTION_INFO_V1(zklock_lock_remaining);
PG_FUNCTION_INFO_V1(zklock_path_is_allowed);
PG_FUNCTION_INFO_V1(zklock_sees_all_paths);
PG_FUNCTION_INFO_V1(zklock_is_leader);
PG_FUNCTION_INFO_V1(zklock_leader_resign);
PG_FUNCTION_INFO_V1(zklock_leader_forget);

static bool acquire(FunctionCallInfo fcinfo, ZklMode mode, ZklScope scope);
static bool acquire_semaphore(FunctionCallInfo fcinfo, ZklScope scope);
static bool acquire_multilock(FunctionCallInfo fcinfo, ZklScope scope);
static Datum wait_by(FunctionCallInfo fcinfo, const char *function,
					 PGFunction acquire);

Datum
zklock_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_MODE_LOCK, ZKL_SCOPE_SESSION));
}

Datum
zklock_xact_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_MODE_LOCK, ZKL_SCOPE_XACT));
}

Datum
zklock_read_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_MODE_READ, ZKL_SCOPE_SESSION));
}

Datum
zklock_xact_read_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_MODE_READ, ZKL_SCOPE_XACT));
}

Datum
zklock_write_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_MODE_WRITE, ZKL_SCOPE_SESSION));
}

Datum
zklock_xact_write_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_MODE_WRITE, ZKL_SCOPE_XACT));
}

Datum
zklock_lock_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_hold_counts_release(zkl_sqlargs_path(fcinfo), ZKL_MODE_LOCK, 1));
}

Datum
zklock_read_lock_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_hold_counts_release(zkl_sqlargs_path(fcinfo), ZKL_MODE_READ, 1));
}

Datum
zklock_write_lock_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_hold_counts_release(zkl_sqlargs_path(fcinfo), ZKL_MODE_WRITE, 1));
}

Datum
zklock_semaphore_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire_semaphore(fcinfo, ZKL_SCOPE_SESSION));
}

Datum
zklock_xact_semaphore_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire_semaphore(fcinfo, ZKL_SCOPE_XACT));
}

Datum
zklock_semaphore_release(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);

	PG_RETURN_BOOL(zkl_hold_counts_release(path, ZKL_MODE_LEASE,
										   zkl_sqlargs_count(fcinfo, 1, "quantity")));
}

/* Null if the semaphore has no limit. */
Datum
zklock_semaphore_limit(PG_FUNCTION_ARGS)
{
	Oid			types = TEXTOID;
	int			limit;

	zkl_report_unless_loaded();
	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_lock_queue", 1, &types);
	limit = zkl_semaphore_limit(zkl_sqlargs_shown_path(fcinfo));
	if (limit == ZKL_LIMIT_NONE)
		PG_RETURN_NULL();
	PG_RETURN_INT32(limit);
}

Datum
zklock_semaphore_set_limit(PG_FUNCTION_ARGS)
{
	const char *path;
	int			limit;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	limit = PG_ARGISNULL(1) ? ZKL_LIMIT_NONE : PG_GETARG_INT32(1);
	if (!PG_ARGISNULL(1) && limit < 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("limit of a semaphore must not be negative"));
	zkl_semaphore_set_limit(path, limit);
	PG_RETURN_VOID();
}

Datum
zklock_multilock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire_multilock(fcinfo, ZKL_SCOPE_SESSION));
}

Datum
zklock_xact_multilock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire_multilock(fcinfo, ZKL_SCOPE_XACT));
}

Datum
zklock_multilock_release(PG_FUNCTION_ARGS)
{
	int			npaths;
	const char **paths = zkl_sqlargs_paths(fcinfo, &npaths);

	PG_RETURN_BOOL(zkl_multilock_release(paths, npaths));
}

Datum
zklock_lock_release_all(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(zkl_hold_counts_release_all());
}

Datum
zklock_lock_is_held(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_hold_counts_is_held(zkl_sqlargs_path(fcinfo)));
}

Datum
zklock_lock_is_revoked(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_hold_counts_is_revoked(zkl_sqlargs_path(fcinfo)));
}

Datum
zklock_lock_token(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(zkl_hold_counts_token(zkl_sqlargs_path(fcinfo)));
}

Datum
zklock_lock_uses(PG_FUNCTION_ARGS)
{
	Oid			type = TEXTOID;

	zkl_report_unless_loaded();
	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_lock_token", 1, &type);
	PG_RETURN_INT64(zkl_hold_counts_uses(zkl_sqlargs_path(fcinfo)));
}

Datum
zklock_lock_remaining(PG_FUNCTION_ARGS)
{
	int64		remaining;
	Interval   *result;

	if (!zkl_hold_counts_remaining(zkl_sqlargs_path(fcinfo), &remaining))
		PG_RETURN_NULL();
	result = palloc0(sizeof(Interval));
	result->time = Max(remaining, 0);
	PG_RETURN_INTERVAL_P(result);
}

Datum
zklock_path_is_allowed(PG_FUNCTION_ARGS)
{
	zkl_report_unless_loaded();
	PG_RETURN_BOOL(zkl_permission_allows(zkl_sqlargs_any_path(fcinfo)));
}

Datum
zklock_sees_all_paths(PG_FUNCTION_ARGS)
{
	Oid			types = TEXTOID;

	zkl_report_unless_loaded();
	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_path_is_allowed", 1, &types);
	PG_RETURN_BOOL(zkl_permission_shows_all());
}

/*
 * The procedures, which wait without a snapshot.  The functions above do the
 * work, and know by their context that they serve a CALL.  But the functions
 * have other names in C: a server that replays the catalogs of a newer one,
 * and has an older library loaded, must raise an error.  The older functions
 * would return false, but to a caller of a procedure, each CALL that returns
 * has acquired the lock.
 */
#define WAIT_PROCEDURE(kind) \
PG_FUNCTION_INFO_V1(zklock_##kind##_wait); \
Datum \
zklock_##kind##_wait(PG_FUNCTION_ARGS) \
{ \
	return wait_by(fcinfo, "zk_" #kind "_acquire", zklock_##kind##_acquire); \
} \
extern int	no_such_variable

WAIT_PROCEDURE(lock);
WAIT_PROCEDURE(xact_lock);
WAIT_PROCEDURE(read_lock);
WAIT_PROCEDURE(xact_read_lock);
WAIT_PROCEDURE(write_lock);
WAIT_PROCEDURE(xact_write_lock);
WAIT_PROCEDURE(semaphore);
WAIT_PROCEDURE(xact_semaphore);
WAIT_PROCEDURE(multilock);
WAIT_PROCEDURE(xact_multilock);

static Datum
wait_by(FunctionCallInfo fcinfo, const char *function, PGFunction acquire)
{
	Oid		   *types;
	int			ntypes;

	(void) get_func_signature(fcinfo->flinfo->fn_oid, &types, &ntypes);
	zkl_permission_check_older(fcinfo->flinfo->fn_oid, function, ntypes, types);
	return acquire(fcinfo);
}

/*
 * The leaderships of this server
 */

Datum
zklock_is_leader(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);
	int64		token = 0;
	int64		until;

	zkl_report_unless_usable();

	/*
	 * Use the margin of the commit guard: with less, the guard would refuse
	 * the commit.
	 */
	if (zkl_leadership_status(path, ZKL_MS(zkl_commit_margin),
							  &token, &until) != ZKL_STATUS_GOOD)
		PG_RETURN_BOOL(false);
	if (zkl_reliance_note(path, token))
		zkl_xact_keep_guard_first();
	PG_RETURN_BOOL(true);
}

Datum
zklock_leader_resign(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);
	int64		pause = zkl_sqlargs_duration(fcinfo, 1, "pause");
	int64		relied_until = 0;
	ZklResignation result;

	zkl_report_unless_loaded();
	result = zkl_leadership_resign(path, zkl_now() + pause, &relied_until);

	/*
	 * Wait for the transactions that have passed the guard, as the claims
	 * process does.  A caller that moves work to another server wants to know
	 * that the commits here are over.
	 */
	for (int64 poll = ZKL_PASSES_POLL; zkl_now() < relied_until && zkl_passes_any(path);
		 poll = Min(2 * poll, ZKL_LOOK_INTERVAL))
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(poll);
	}
	if (result == ZKL_RESIGN_NO_CANDIDATE)
		ereport(WARNING,
				errmsg("this server does not stand for the leadership of \"%s\"",
					   zkl_display_path(path)));
	PG_RETURN_BOOL(result == ZKL_RESIGN_LED);
}

/* This also works on a server that does not stand for the leadership. */
Datum
zklock_leader_forget(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);

	zkl_report_unless_loaded();
	PG_RETURN_BOOL(zkl_history_forget(path));
}

/*
 * Acquiring
 */

/*
 * The common end of the functions that acquire a mutex or a read-write lock.
 */
static bool
acquire(FunctionCallInfo fcinfo, ZklMode mode, ZklScope scope)
{
	ZklLockRequest request = zkl_sql_request_begin(fcinfo, mode, scope);

	request.path = zkl_sqlargs_path(fcinfo);
	zkl_sqlargs_timeout(fcinfo, 1, &request);
	zkl_sqlargs_lease_time(fcinfo, 2, &request);
	return zkl_sql_request_end(fcinfo, &request, zkl_acquire(&request));
}

static bool
acquire_semaphore(FunctionCallInfo fcinfo, ZklScope scope)
{
	ZklLockRequest request = zkl_sql_request_begin(fcinfo, ZKL_MODE_LEASE, scope);

	request.path = zkl_sqlargs_path(fcinfo);
	/* Null: the limit that is stored. */
	if (!PG_ARGISNULL(1))
		request.limit = zkl_sqlargs_count(fcinfo, 1, "number of leases");
	zkl_sqlargs_timeout(fcinfo, 2, &request);
	request.quantity = zkl_sqlargs_count(fcinfo, 3, "quantity");
	return zkl_sql_request_end(fcinfo, &request, zkl_semaphore_acquire(&request));
}

static bool
acquire_multilock(FunctionCallInfo fcinfo, ZklScope scope)
{
	ZklLockRequest request = zkl_sql_request_begin(fcinfo, ZKL_MODE_LOCK, scope);
	int			npaths;
	const char **paths;
	bool		acquired;

	paths = zkl_sqlargs_paths(fcinfo, &npaths);
	zkl_sqlargs_timeout(fcinfo, 1, &request);
	acquired = zkl_multilock_acquire(paths, npaths, &request);
	return npaths > 0 ? zkl_sql_request_end(fcinfo, &request, acquired) : acquired;
}
