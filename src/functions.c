/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  The functions that SQL calls: unpack, one call, return.
 *
 * src/functions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "report.h"
#include "zklock.h"

PG_FUNCTION_INFO_V1(zklock_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_xact_lock_acquire);
PG_FUNCTION_INFO_V1(zklock_lock_release);
PG_FUNCTION_INFO_V1(zklock_lock_release_all);
PG_FUNCTION_INFO_V1(zklock_lock_is_held);
PG_FUNCTION_INFO_V1(zklock_lock_token);

static bool acquire(FunctionCallInfo fcinfo, ZklScope scope);
static const char *path_argument(FunctionCallInfo fcinfo);
static void timeout_argument(FunctionCallInfo fcinfo, ZklWish *wish);
static void refuse_lease_time(FunctionCallInfo fcinfo);

Datum
zklock_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_SCOPE_SESSION));
}

Datum
zklock_xact_lock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, ZKL_SCOPE_XACT));
}

Datum
zklock_lock_release(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_release(path_argument(fcinfo)));
}

Datum
zklock_lock_release_all(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(zkl_release_all());
}

Datum
zklock_lock_is_held(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zkl_is_held(path_argument(fcinfo)));
}

Datum
zklock_lock_token(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(zkl_token(path_argument(fcinfo)));
}

static bool
acquire(FunctionCallInfo fcinfo, ZklScope scope)
{
	ZklWish		wish = {.scope = scope};

	zkl_check_loaded();
	wish.path = path_argument(fcinfo);
	timeout_argument(fcinfo, &wish);
	refuse_lease_time(fcinfo);
	return zkl_acquire(&wish);
}

/* The first argument, checked and in UTF-8. */
static const char *
path_argument(FunctionCallInfo fcinfo)
{
	char	   *given;
	char	   *path;
	const char *fault;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid lock path"),
				errdetail("The path is null."));

	given = text_to_cstring(PG_GETARG_TEXT_PP(0));
	path = pg_server_to_any(given, strlen(given), PG_UTF8);
	fault = zkl_path_fault(path);
	if (fault != NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid lock path: \"%s\"", given),
				errdetail("%s", fault));
	return path;
}

/* The second argument becomes a moment.  Null: no limit.  Zero: only try. */
static void
timeout_argument(FunctionCallInfo fcinfo, ZklWish *wish)
{
	Interval   *timeout;
	double		microseconds;

	wish->until = ZKL_FOREVER;
	wish->only_tries = false;
	if (PG_ARGISNULL(1))
		return;

	timeout = PG_GETARG_INTERVAL_P(1);
	microseconds = (double) timeout->time +
		((double) timeout->day + (double) timeout->month * DAYS_PER_MONTH) *
		USECS_PER_DAY;
	if (microseconds < 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("timeout must not be negative"));
	if (microseconds > (double) INT_MAX * 1000.0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("timeout is too large"),
				errdetail("It must not exceed %d ms.", INT_MAX),
				errhint("Use NULL to wait without a limit."));
	wish->until = zkl_now() + (int64) microseconds;
	wish->only_tries = microseconds == 0;
}

static void
refuse_lease_time(FunctionCallInfo fcinfo)
{
	if (!PG_ARGISNULL(2))
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("lease time is not supported yet"));
}
