/*-------------------------------------------------------------------------
 *
 * jobs.c
 *	  The functions about the records of jobs.
 *
 * src/backend/jobs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/display.h"
#include "backend/permission.h"
#include "backend/report.h"
#include "backend/sqlargs.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"

PG_FUNCTION_INFO_V1(zklock_jobs);
PG_FUNCTION_INFO_V1(zklock_job_forget);

enum
{
	COLUMN_PATH,
	COLUMN_TICK,
	COLUMN_STATE,
	COLUMN_ATTEMPT,
	COLUMN_STARTED,
	COLUMN_ENDED,
	COLUMN_TOKEN,
	COLUMN_BACKEND,				/* and the four after it */
	NCOLUMNS = COLUMN_BACKEND + 5
};

static void put_row(ReturnSetInfo *rsinfo, const ZklSnapshotNode *node);
static void put_record(Datum *values, bool *nulls, const ZklJobRecord *record);
static bool may_see(const ZklJobRecord *record);
static void put_time(Datum *values, bool *nulls, int column, int64 time);

/*
 * What is not the record of any path is left out, and so are the paths that
 * this session may not use.
 */
Datum
zklock_jobs(PG_FUNCTION_ARGS)
{
	ZklSnapshot *survey;

	zkl_report_unless_loaded();
	survey = zkl_znodes_jobs();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < survey->nnodes; i++)
		put_row((ReturnSetInfo *) fcinfo->resultinfo, &survey->nodes[i]);
	return (Datum) 0;
}

static void
put_row(ReturnSetInfo *rsinfo, const ZklSnapshotNode *node)
{
	Datum		values[NCOLUMNS] = {0};
	bool		nulls[NCOLUMNS];
	char		path[ZKL_PATH_SIZE];
	ZklJobRecord record;

	if (!zkl_job_record_path(node->name, path) || !zkl_permission_allows(path))
		return;
	memset(nulls, true, sizeof(nulls));
	values[COLUMN_PATH] = CStringGetTextDatum(zkl_znode_text_show(path));
	nulls[COLUMN_PATH] = false;
	if (node->data != NULL &&
		zkl_job_record_parse(node->data, node->data_length, &record))
		put_record(values, nulls, &record);
	else
		values[COLUMN_STATE] = CStringGetTextDatum("unreadable");
	nulls[COLUMN_STATE] = false;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
put_record(Datum *values, bool *nulls, const ZklJobRecord *record)
{
	put_time(values, nulls, COLUMN_TICK, record->tick);
	values[COLUMN_STATE] = CStringGetTextDatum(zkl_job_record_state_name(record->state));
	values[COLUMN_ATTEMPT] = Int32GetDatum(record->attempt);
	nulls[COLUMN_ATTEMPT] = false;
	(void) zkl_znode_text_put(values + COLUMN_BACKEND, nulls + COLUMN_BACKEND,
							  record->about);
	if (!may_see(record))
		return;
	values[COLUMN_TOKEN] = Int64GetDatum(record->token);
	nulls[COLUMN_TOKEN] = false;
	put_time(values, nulls, COLUMN_STARTED, record->started);
	if (record->ended != 0)
		put_time(values, nulls, COLUMN_ENDED, record->ended);
}

/*
 * As zk_locks shows a claim.  The job may have run on another server, so its
 * role is known by name only.
 */
static bool
may_see(const ZklJobRecord *record)
{
	char	   *role = zkl_znode_text_field(record->about, "role");

	return zkl_permission_may_see(role == NULL ? InvalidOid :
								  get_role_oid(zkl_znode_text_show(role), true));
}

/* Null, if PostgreSQL has no such timestamp. */
static void
put_time(Datum *values, bool *nulls, int column, int64 time)
{
	if (time < PG_INT64_MIN + ZKL_JOB_EPOCH ||
		!IS_VALID_TIMESTAMP(time - ZKL_JOB_EPOCH))
		return;
	values[column] = TimestampTzGetDatum(time - ZKL_JOB_EPOCH);
	nulls[column] = false;
}

Datum
zklock_job_forget(PG_FUNCTION_ARGS)
{
	const char *path;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	ereport(LOG,
			errmsg("role \"%s\" removes the record of job \"%s\"",
				   GetUserNameFromId(GetUserId(), false),
				   zkl_display_path(path)));
	PG_RETURN_BOOL(zkl_znodes_forget(path));
}
