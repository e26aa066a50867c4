/*-------------------------------------------------------------------------
 *
 * sqlargs.c
 *	  The arguments of the SQL functions, checked.
 *
 * src/backend/sql/sqlargs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/sql/sqlargs.h"
#include "protocol/path.h"
#include "settings.h"

/* PostgreSQL's own timeouts have this limit. */
#define MAX_TIMEOUT_MS	((int64) INT_MAX)

/*
 * Perhaps no process notices that a detached claim was forgotten, so it ends
 * after a day.
 */
#define MAX_CLAIM_TIME_MS	INT64CONST(86400000)

/* More paths would delay other backends too much. */
#define MAX_PATHS	1000

static const char *given_path(FunctionCallInfo fcinfo, bool *escaped);
static const char *remembered_path(const text *given, bool *escaped);
static const char *valid_path(const text *given, bool *escaped);
static void check_not_escaped(const char *path, bool escaped);
static void check_lease_time(int64 hold_limit);

const char *
zkl_sqlargs_path(FunctionCallInfo fcinfo)
{
	bool		escaped;
	const char *path = given_path(fcinfo, &escaped);

	check_not_escaped(path, escaped);
	zkl_permission_check_path(path);
	return path;
}

const char *
zkl_sqlargs_shown_path(FunctionCallInfo fcinfo)
{
	const char *path = zkl_sqlargs_any_path(fcinfo);

	zkl_permission_check_shown(path);
	return path;
}

const char *
zkl_sqlargs_taken_path(FunctionCallInfo fcinfo)
{
	const char *path = zkl_sqlargs_any_path(fcinfo);

	zkl_permission_check_taken(path);
	return path;
}

const char *
zkl_sqlargs_any_path(FunctionCallInfo fcinfo)
{
	bool		escaped;

	return given_path(fcinfo, &escaped);
}

static const char *
given_path(FunctionCallInfo fcinfo, bool *escaped)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid lock path"),
				errdetail("The path is null."));
	return remembered_path(PG_GETARG_TEXT_PP(0), escaped);
}

/*
 * A backend that acquires a lock usually releases it soon, and checking its
 * path costs more than PostgreSQL's own lock.  So remember the last path that
 * passed, as it was given, before the conversion.
 */
static const char *
remembered_path(const text *given, bool *escaped)
{
	static char passed[ZKL_PATH_SIZE];
	static char passed_as[ZKL_PATH_SIZE];
	static int	passed_length = -1;
	static bool passed_escaped = false;
	int			length = VARSIZE_ANY_EXHDR(given);

	if (length != passed_length ||
		memcmp(VARDATA_ANY(given), passed_as, length) != 0)
	{
		bool		is_escaped;
		const char *path = valid_path(given, &is_escaped);

		/*
		 * In another encoding, the path may be too long to be remembered;
		 * then it is converted each time.
		 */
		passed_length = length <= sizeof(passed_as) ? length : -1;
		if (passed_length == length)
			memcpy(passed_as, VARDATA_ANY(given), length);
		strlcpy(passed, path, sizeof(passed));
		passed_escaped = is_escaped;
	}
	*escaped = passed_escaped;
	return passed;
}

/*
 * In a database whose encoding lacks a character of a path, views show the
 * path with escapes.  This escaped text, as an argument, stands for the path.
 */
static const char *
valid_path(const text *given, bool *escaped)
{
	char	   *shown = text_to_cstring(given);
	const char *unescaped;
	const char *path;
	const char *fault;

	/* Without this, a session's first call takes any escapes for a path. */
	zkl_display_prepare();
	unescaped = strstr(shown, "\\x") ? zkl_display_unescape(shown) : NULL;
	path = unescaped ? unescaped : pg_server_to_any(shown, strlen(shown), PG_UTF8);
	*escaped = unescaped != NULL;

	fault = zkl_path_fault(path);
	if (fault != NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid lock path: \"%s\"", shown),
				errdetail("%s", fault));
	return path;
}

/*
 * In a database with UTF8, the same text is the name of another lock.  So a
 * function that acquires does not accept the escaped text.
 */
static void
check_not_escaped(const char *path, bool escaped)
{
	if (escaped)
		ereport(ERROR,
				errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
				errmsg("lock \"%s\" has a path with characters that encoding \"%s\" lacks",
					   zkl_display_path(path), GetDatabaseEncodingName()),
				errdetail("Only functions that look at a lock, or take it from its holders, accept the text with escapes."),
				errhint("Use the path in a database with encoding \"UTF8\"."));
}

const char **
zkl_sqlargs_paths(FunctionCallInfo fcinfo, int *npaths)
{
	ArrayType  *array;
	Datum	   *values;
	bool	   *nulls;
	const char **paths;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid array of lock paths"),
				errdetail("The array is null."));
	array = PG_GETARG_ARRAYTYPE_P(0);
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls,
					  npaths);
	if (*npaths > MAX_PATHS)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("too many locks: %d", *npaths),
				errdetail("At most %d can be acquired together.", MAX_PATHS));

	paths = palloc(sizeof(char *) * (*npaths + 1));
	for (int i = 0; i < *npaths; i++)
	{
		bool		escaped;

		if (nulls[i])
			ereport(ERROR,
					errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					errmsg("array of lock paths must not contain nulls"));
		paths[i] = valid_path(DatumGetTextPP(values[i]), &escaped);
		check_not_escaped(paths[i], escaped);
		zkl_permission_check_path(paths[i]);
	}
	return paths;
}

int
zkl_sqlargs_count(FunctionCallInfo fcinfo, int argument, const char *name)
{
	if (PG_ARGISNULL(argument) || PG_GETARG_INT32(argument) < 1)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s must be greater than zero", name));
	return PG_GETARG_INT32(argument);
}

void
zkl_sqlargs_timeout(FunctionCallInfo fcinfo, int argument, ZklLockRequest *request)
{
	int64		microseconds;

	/*
	 * The times count from here, so all waits of an acquire end at the same
	 * moment.
	 */
	request->until = ZKL_FOREVER;
	request->lock_timeout_at = LockTimeout > 0 ?
		zkl_now() + ZKL_MS(LockTimeout) : ZKL_FOREVER;
	request->only_tries = false;
	if (PG_ARGISNULL(argument))
		return;

	microseconds = zkl_sqlargs_interval(fcinfo, argument, "timeout",
										MAX_TIMEOUT_MS,
										"Use NULL to wait without a limit.");
	request->until = zkl_now() + microseconds;
	request->only_tries = microseconds == 0;
}

void
zkl_sqlargs_lease_time(FunctionCallInfo fcinfo, int argument, ZklLockRequest *request)
{
	if (PG_ARGISNULL(argument))
		return;
	request->hold_limit = zkl_sqlargs_interval(fcinfo, argument, "lease time",
											   MAX_TIMEOUT_MS,
											   "Use NULL to hold the lock without a limit.");
	check_lease_time(request->hold_limit);
}

int64
zkl_sqlargs_claim_time(FunctionCallInfo fcinfo, int argument)
{
	int64		hold_limit;

	zkl_sqlargs_check_not_null(fcinfo, argument, "lease time");
	hold_limit = zkl_sqlargs_interval(fcinfo, argument, "lease time",
									  MAX_CLAIM_TIME_MS, NULL);
	check_lease_time(hold_limit);
	return hold_limit;
}

void
zkl_sqlargs_check_not_null(FunctionCallInfo fcinfo, int argument, const char *name)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s must not be null", name));
}

static void
check_lease_time(int64 hold_limit)
{
	/*
	 * A shorter time would make several processes look at the lock too often.
	 */
	if (hold_limit < ZKL_LOOK_INTERVAL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("lease time must be at least %d ms",
					   (int) (ZKL_LOOK_INTERVAL / ZKL_MS(1))));
}

int64
zkl_sqlargs_duration(FunctionCallInfo fcinfo, int argument, const char *name)
{
	zkl_sqlargs_check_not_null(fcinfo, argument, name);
	return zkl_sqlargs_interval(fcinfo, argument, name, MAX_TIMEOUT_MS, NULL);
}

/* Convert to microseconds. */
int64
zkl_sqlargs_interval(FunctionCallInfo fcinfo, int argument, const char *name,
					 int64 max_ms, const char *hint)
{
	Interval   *interval = PG_GETARG_INTERVAL_P(argument);
	double		microseconds = (double) interval->time +
	((double) interval->day + (double) interval->month * DAYS_PER_MONTH) *
	USECS_PER_DAY;

	if (microseconds < 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s must not be negative", name));

	if (microseconds > (double) max_ms * 1000.0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s is too large", name),
				errdetail("It must not exceed %lld ms.", (long long) max_ms),
				hint == NULL ? 0 : errhint("%s", hint));
	return (int64) microseconds;
}
