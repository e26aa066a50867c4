/*-------------------------------------------------------------------------
 *
 * jobfuncs.c
 *	  The functions that run jobs, and the functions about the records of jobs.
 *
 * src/jobs/jobfuncs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/report.h"
#include "backend/row.h"
#include "backend/sql/sqlargs.h"
#include "backend/sql/sqlrequest.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "jobs/runonce.h"
#include "settings.h"

/*
 * The spacing of ticks is not a timeout: a job may run once a year.  This
 * allows a million days.
 */
#define MAX_SPACING_MS	INT64CONST(86400000000000)

PG_FUNCTION_INFO_V1(zklock_run_once);
PG_FUNCTION_INFO_V1(zklock_xact_run_once);
PG_FUNCTION_INFO_V1(zklock_jobs);
PG_FUNCTION_INFO_V1(zklock_job_forget);

static bool run_once(FunctionCallInfo fcinfo, ZklScope scope);
static ZklJobTick tick_argument(FunctionCallInfo fcinfo, int tick, int retry,
								int spacing);
static void put_job(ReturnSetInfo *set, const ZklListingNode *node);
static void add_job(ZklRow *row, const ZklJobRecord *record);
static Oid	role_of(const ZklJobRecord *record);
static void check_no_superuser(const char *path);

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

static bool
run_once(FunctionCallInfo fcinfo, ZklScope scope)
{
	ZklLockRequest request = zkl_sql_request_begin(fcinfo, ZKL_MODE_LOCK, scope);
	ZklJobTick	tick;

	request.path = zkl_sqlargs_path(fcinfo);
	tick = tick_argument(fcinfo, 1, 3, 4);
	zkl_sqlargs_timeout(fcinfo, 2, &request);
	return zkl_sql_request_end(fcinfo, &request, zkl_run_once_begin(&request, &tick));
}

/*
 * Near the end of time the number overflows.  Such a tick is refused anyway,
 * because it is in the future.
 */
static ZklJobTick
tick_argument(FunctionCallInfo fcinfo, int tick, int retry, int spacing)
{
	ZklJobTick	result = {0};

	zkl_sqlargs_check_not_null(fcinfo, tick, "tick");
	if (TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(tick)))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("tick must be finite"));
	zkl_sqlargs_check_not_null(fcinfo, retry, "retry");
	if (pg_add_s64_overflow(PG_GETARG_TIMESTAMPTZ(tick), ZKL_POSTGRES_EPOCH,
							&result.tick))
		result.tick = PG_INT64_MAX;
	result.retry = PG_GETARG_BOOL(retry);
	if (!PG_ARGISNULL(spacing))
		result.spacing = zkl_sqlargs_interval(fcinfo, spacing, "spacing",
											  MAX_SPACING_MS,
											  "Use NULL to tell all ticks apart.");
	return result;
}

/*
 * Leave out znodes whose names belong to no path, and paths that this session
 * may not use.
 */
Datum
zklock_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklListing *survey = zkl_znodes_list(ZKL_COMMAND_JOBS, ZKL_PATH_JOBS, ZKL_FOREVER, ZKL_PATIENCE_LOOK);

	for (int i = 0; i < survey->nnodes; i++)
		put_job(set, &survey->nodes[i]);
	return (Datum) 0;
}

static void
put_job(ReturnSetInfo *set, const ZklListingNode *node)
{
	ZklRow		row = {0};
	char		path[ZKL_PATH_SIZE];
	ZklJobRecord record;

	if (!zkl_path_of_name(node->name, path) || !zkl_permission_shows(path))
		return;
	zkl_row_add_text(&row, zkl_znode_text_show(path));
	if (node->data != NULL &&
		zkl_job_record_parse(node->data, node->data_length, &record))
		add_job(&row, &record);
	else
	{
		zkl_row_add_nulls(&row, 1);
		zkl_row_add_text(&row, "unreadable");
		zkl_row_add_nulls(&row, set->setDesc->natts - row.ncolumns);
	}
	zkl_row_put(set, &row);
}

/* Show the backend as zk_locks shows the backend of a claim. */
static void
add_job(ZklRow *row, const ZklJobRecord *record)
{
	bool		seen = zkl_permission_may_see(role_of(record));

	zkl_row_add_time_if(row, true, record->tick);
	zkl_row_add_text(row, zkl_job_record_state_name(record->state));
	zkl_row_add(row, Int32GetDatum(record->attempt));
	zkl_row_add_time_if(row, seen, record->started);
	zkl_row_add_time_if(row, seen && record->ended != 0, record->ended);
	zkl_row_add_if(row, seen, Int64GetDatum(record->token));
	(void) zkl_znode_text_add(row, record->owner_text);
}

/*
 * The job may have run on another server, so only the name of its role is
 * known.  InvalidOid if this server has no such role.
 */
static Oid
role_of(const ZklJobRecord *record)
{
	char	   *role = zkl_znode_text_field(record->owner_text, "role");

	return role == NULL ? InvalidOid :
		get_role_oid(zkl_znode_text_show(role), true);
}

Datum
zklock_job_forget(PG_FUNCTION_ARGS)
{
	const char *path;
	char		record[ZKL_PATH_NAME_SIZE];

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	if (!superuser())
		check_no_superuser(path);
	ereport(LOG,
			errmsg("role \"%s\" removes the record of job \"%s\"",
				   GetUserNameFromId(GetUserId(), false),
				   zkl_display_path(path)));
	zkl_path_name(path, record);
	PG_RETURN_BOOL(zkl_znodes_end(ZKL_COMMAND_DELETE, ZKL_PATH_JOBS, record));
}

/*
 * As for zk_lock_force_release, only a superuser may forget a superuser's run:
 * otherwise a member of pg_signal_backend could make the job run again.  A
 * superuser's run that begins at this moment, in place of another role's run,
 * may still lose its record.
 */
static void
check_no_superuser(const char *path)
{
	ZklJobZnode znode;
	ZklJobRecord record;
	Oid			role = InvalidOid;

	(void) zkl_run_once_read(path, ZKL_FOREVER, ZKL_PATIENCE_LOOK, &znode);
	if (!znode.exists)
		return;
	if (zkl_job_record_parse(znode.data, znode.length, &record))
		role = role_of(&record);
	if (!OidIsValid(role) || superuser_arg(role))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied to remove the record of job \"%s\"",
					   zkl_display_path(path)),
				errdetail("Only superusers may remove the record of a superuser's job, and this record does not rule that out."));
}
