/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  The functions that SQL calls: unpack, one call, return.
 *
 * src/backend/functions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/execdesc.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "backend/acquire.h"
#include "backend/held.h"
#include "backend/multilock.h"
#include "backend/permission.h"
#include "backend/release.h"
#include "backend/report.h"
#include "backend/runonce.h"
#include "backend/semaphore.h"
#include "backend/sqlargs.h"
#include "backend/xact.h"
#include "settings.h"

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
PG_FUNCTION_INFO_V1(zklock_multilock_acquire);
PG_FUNCTION_INFO_V1(zklock_xact_multilock_acquire);
PG_FUNCTION_INFO_V1(zklock_multilock_release);
PG_FUNCTION_INFO_V1(zklock_run_once);
PG_FUNCTION_INFO_V1(zklock_xact_run_once);
PG_FUNCTION_INFO_V1(zklock_lock_release_all);
PG_FUNCTION_INFO_V1(zklock_lock_is_held);
PG_FUNCTION_INFO_V1(zklock_lock_is_revoked);
PG_FUNCTION_INFO_V1(zklock_lock_token);
PG_FUNCTION_INFO_V1(zklock_lock_remaining);
PG_FUNCTION_INFO_V1(zklock_path_is_allowed);

static ZklWish begin_wish(ZklMode mode, ZklScope scope);
static bool acquire(FunctionCallInfo fcinfo, ZklMode mode, ZklScope scope);
static bool acquire_semaphore(FunctionCallInfo fcinfo, ZklScope scope);
static bool acquire_multilock(FunctionCallInfo fcinfo, ZklScope scope);
static bool run_once(FunctionCallInfo fcinfo, ZklScope scope);
static void note_if_alone(FunctionCallInfo fcinfo, ZklScope scope);
static bool is_whole_statement(const FmgrInfo *function);

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
	PG_RETURN_BOOL(zkl_release(zkl_sqlargs_path(fcinfo), ZKL_MODE_LOCK, 1));
}

Datum
zklock_read_lock_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_release(zkl_sqlargs_path(fcinfo), ZKL_MODE_READ, 1));
}

Datum
zklock_write_lock_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_release(zkl_sqlargs_path(fcinfo), ZKL_MODE_WRITE, 1));
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

	PG_RETURN_BOOL(zkl_release(path, ZKL_MODE_LEASE,
							   zkl_sqlargs_count(fcinfo, 1, "quantity")));
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
zklock_run_once(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(run_once(fcinfo, ZKL_SCOPE_SESSION));
}

Datum
zklock_xact_run_once(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(run_once(fcinfo, ZKL_SCOPE_XACT));
}

Datum
zklock_lock_release_all(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(zkl_release_all());
}

Datum
zklock_lock_is_held(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_held_certainly(zkl_sqlargs_path(fcinfo)));
}

Datum
zklock_lock_is_revoked(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_held_is_revoked(zkl_sqlargs_path(fcinfo)));
}

Datum
zklock_lock_token(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(zkl_held_token(zkl_sqlargs_path(fcinfo)));
}

Datum
zklock_lock_remaining(PG_FUNCTION_ARGS)
{
	int64		remaining;
	Interval   *result;

	if (!zkl_held_remaining(zkl_sqlargs_path(fcinfo), &remaining))
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

/*
 * Each function that acquires begins with this.  Without shared memory nothing
 * works, so that is checked before the arguments.
 */
static ZklWish
begin_wish(ZklMode mode, ZklScope scope)
{
	ZklWish		wish = {.mode = mode,.scope = scope};

	zkl_report_unless_loaded();
	zkl_permission_check_level(scope);
	return wish;
}

/* Behind each function that acquires a mutex or a read-write lock. */
static bool
acquire(FunctionCallInfo fcinfo, ZklMode mode, ZklScope scope)
{
	ZklWish		wish = begin_wish(mode, scope);
	bool		acquired;

	wish.path = zkl_sqlargs_path(fcinfo);
	zkl_sqlargs_timeout(fcinfo, 1, &wish);
	zkl_sqlargs_lease_time(fcinfo, 2, &wish);
	acquired = zkl_acquire(&wish);
	if (acquired)
		note_if_alone(fcinfo, scope);
	return acquired;
}

static bool
acquire_semaphore(FunctionCallInfo fcinfo, ZklScope scope)
{
	ZklWish		wish = begin_wish(ZKL_MODE_LEASE, scope);
	bool		acquired;

	wish.path = zkl_sqlargs_path(fcinfo);
	wish.limit = zkl_sqlargs_count(fcinfo, 1, "number of leases");
	zkl_sqlargs_timeout(fcinfo, 2, &wish);
	wish.quantity = zkl_sqlargs_count(fcinfo, 3, "quantity");
	acquired = zkl_semaphore_acquire(&wish);
	if (acquired)
		note_if_alone(fcinfo, scope);
	return acquired;
}

static bool
acquire_multilock(FunctionCallInfo fcinfo, ZklScope scope)
{
	ZklWish		wish = begin_wish(ZKL_MODE_LOCK, scope);
	int			npaths;
	const char **paths;
	bool		acquired;

	paths = zkl_sqlargs_paths(fcinfo, &npaths);
	zkl_sqlargs_timeout(fcinfo, 1, &wish);
	acquired = zkl_multilock_acquire(paths, npaths, &wish);
	if (acquired && npaths > 0)
		note_if_alone(fcinfo, scope);
	return acquired;
}

static bool
run_once(FunctionCallInfo fcinfo, ZklScope scope)
{
	ZklWish		wish = begin_wish(ZKL_MODE_LOCK, scope);
	ZklJobTick	tick;
	bool		started;

	wish.path = zkl_sqlargs_path(fcinfo);
	tick = zkl_sqlargs_tick(fcinfo, 1, 3, 4);
	zkl_sqlargs_timeout(fcinfo, 2, &wish);
	started = zkl_run_once_begin(&wish, &tick);
	if (started)
		note_if_alone(fcinfo, scope);
	return started;
}

/*
 * A transaction-level lock that is acquired outside of a transaction block, by
 * a statement that does nothing else, guards nothing: the commit will say so.
 */
static void
note_if_alone(FunctionCallInfo fcinfo, ZklScope scope)
{
	if (scope == ZKL_SCOPE_XACT && !IsTransactionBlock() &&
		is_whole_statement(fcinfo->flinfo))
		zkl_xact_note_alone(get_func_name(fcinfo->flinfo->fn_oid));
}

/*
 * Is it the client's own statement that calls this function, and nothing but
 * this function?  Where that is not certain, it is not.  A statement of a function,
 * a procedure or a trigger runs in the portal of the client's statement, or in one
 * with a name.
 */
static bool
is_whole_statement(const FmgrInfo *function)
{
	Portal		portal = ActivePortal;
	const PlannedStmt *statement;
	bool		found = false;
	ListCell   *cell;

	if (MyBackendType != B_BACKEND || portal == NULL ||
		portal->name[0] != '\0' || portal->strategy != PORTAL_ONE_SELECT ||
		portal->queryDesc == NULL)
		return false;

	/*
	 * A SELECT without FROM, WHERE or subqueries, whose columns all call this
	 * function.
	 */
	statement = portal->queryDesc->plannedstmt;
	if (statement->subplans != NIL || !IsA(statement->planTree, Result) ||
		outerPlan(statement->planTree) != NULL ||
		statement->planTree->qual != NIL ||
		((Result *) statement->planTree)->resconstantqual != NULL)
		return false;

	foreach(cell, statement->planTree->targetlist)
	{
		Expr	   *column = lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(column, FuncExpr) ||
			((FuncExpr *) column)->funcid != function->fn_oid ||
			contain_volatile_functions((Node *) ((FuncExpr *) column)->args))
			return false;

		/* This very call, not another one of the same function. */
		found |= (Node *) column == function->fn_expr;
	}
	return found;
}
