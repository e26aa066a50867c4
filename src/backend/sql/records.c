/*-------------------------------------------------------------------------
 *
 * records.c
 *	  The functions about the records in ZooKeeper: those of jobs, of waits, and
 *	  of servers.
 *
 * src/backend/sql/records.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/lock/runonce.h"
#include "backend/lock/sqlargs.h"
#include "backend/report.h"
#include "backend/row.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "protocol/serverrecord.h"
#include "protocol/waitrecord.h"
#include "settings.h"
#include "shared/leadership.h"

PG_FUNCTION_INFO_V1(zklock_jobs);
PG_FUNCTION_INFO_V1(zklock_job_forget);
PG_FUNCTION_INFO_V1(zklock_waits);
PG_FUNCTION_INFO_V1(zklock_servers);
PG_FUNCTION_INFO_V1(zklock_cluster_status);

static void put_job(ReturnSetInfo *set, const ZklListingNode *node);
static void add_job(ZklRow *row, const ZklJobRecord *record);
static Oid	role_of(const ZklJobRecord *record);
static void check_no_superuser(const char *path);
static void put_waits(ReturnSetInfo *rsinfo, const ZklWaitSet *set);
static void put_wait(ReturnSetInfo *rsinfo, const ZklWaitSet *set,
					 const ZklWaitRecord *record);
static void add_details(ZklRow *row, const ZklWaitSet *set,
						const ZklWaitRecord *record);
static void put_server(ReturnSetInfo *set, const ZklListingNode *node);
static void append_refused(StringInfo refused, const char *path);

/*
 * Jobs
 */

/*
 * Leave out znodes whose names belong to no path, and paths that this session
 * may not use.
 */
Datum
zklock_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklListing *survey = zkl_znodes_list(ZKL_COMMAND_JOBS, ZKL_JOBRECORD_DIRECTORY, ZKL_FOREVER);

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

	if (!zkl_path_of_name(node->name, path) || !zkl_permission_allows(path))
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

/* The backend is shown as zk_locks shows that of a claim. */
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
	(void) zkl_znode_text_add(row, record->about);
}

/*
 * The job may have run on another server, so only the name of its role is
 * known.  InvalidOid if this server has no such role.
 */
static Oid
role_of(const ZklJobRecord *record)
{
	char	   *role = zkl_znode_text_field(record->about, "role");

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
	PG_RETURN_BOOL(zkl_znodes_end(ZKL_COMMAND_DELETE, ZKL_JOBRECORD_DIRECTORY, record));
}

/*
 * The rule is that of zk_lock_force_release: otherwise a member of
 * pg_signal_backend could make a superuser's job run again.  A superuser's
 * run that begins at this moment, in place of another role's run, may still
 * lose its record.
 */
static void
check_no_superuser(const char *path)
{
	ZklJobZnode znode;
	ZklJobRecord record;
	Oid			role = InvalidOid;

	zkl_run_once_read(path, &znode);
	if (!znode.exists)
		return;
	if (zkl_job_record_parse(znode.text, znode.length, &record))
		role = role_of(&record);
	if (!OidIsValid(role) || superuser_arg(role))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied to remove the record of job \"%s\"",
					   zkl_display_path(path)),
				errdetail("Only superusers may remove the record of a superuser's job, and this record does not rule that out."));
}

/*
 * Published waits
 */

/* Leave out znodes that have no records of zklock. */
Datum
zklock_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = zkl_row_begin_set(fcinfo);
	ZklListing *survey = zkl_znodes_list(ZKL_COMMAND_WAITS, ZKL_WAITRECORD_DIRECTORY, ZKL_FOREVER);
	ZklWaitSet *set = palloc(sizeof(ZklWaitSet));

	for (int i = 0; i < survey->nnodes; i++)
	{
		const ZklListingNode *node = &survey->nodes[i];
		char	   *text;

		if (node->data == NULL)
			continue;

		/* The parser changes the text, and needs a null behind it. */
		text = pnstrdup(node->data, node->data_length);

		if (strlen(text) == node->data_length &&
			zkl_wait_record_parse(text, node->data_length, set))
			put_waits(rsinfo, set);
	}
	return (Datum) 0;
}

static void
put_waits(ReturnSetInfo *rsinfo, const ZklWaitSet *set)
{
	for (int i = 0; i < set->nrecords; i++)
	{
		if (zkl_permission_allows(set->records[i].path))
			put_wait(rsinfo, set, &set->records[i]);
	}
}

/*
 * As in pg_stat_activity, any role sees that a backend waits.  Only roles
 * that may see statistics see what the backend holds meanwhile, and since
 * when it waits.
 */
static void
put_wait(ReturnSetInfo *rsinfo, const ZklWaitSet *set,
		 const ZklWaitRecord *record)
{
	ZklRow		row = {0};

	zkl_row_add_text(&row, zkl_znode_text_show(record->path));
	zkl_row_add_text(&row, zkl_recipe_mode_name(record->mode));
	zkl_row_add_if(&row, record->mode == ZKL_MODE_LEASE, Int32GetDatum(record->leases));
	(void) zkl_znode_text_add(&row, record->about);
	if (zkl_permission_may_see(InvalidOid))
		add_details(&row, set, record);
	else
		zkl_row_add_nulls(&row, 3);
	zkl_row_put(rsinfo, &row);
}

/* Since when it waits; the paths of what it holds, and the processes that hold it. */
static void
add_details(ZklRow *row, const ZklWaitSet *set, const ZklWaitRecord *record)
{
	Datum	   *paths = palloc(sizeof(Datum) * (record->nholds + 1));
	Datum	   *pids = palloc(sizeof(Datum) * (record->nholds + 1));
	int			nholds = 0;

	for (int i = 0; i < record->nholds; i++)
	{
		const ZklWaitHold *hold = &set->holds[record->first_hold + i];

		if (!zkl_permission_allows(hold->path))
			continue;
		paths[nholds] = CStringGetTextDatum(zkl_znode_text_show(hold->path));
		pids[nholds++] = Int32GetDatum(hold->pid);
	}
	zkl_row_add_time_if(row, record->since >= 0, record->since);
	zkl_row_add(row, PointerGetDatum(construct_array(paths, nholds, TEXTOID, -1,
													 false, TYPALIGN_INT)));
	zkl_row_add(row, PointerGetDatum(construct_array(pids, nholds, INT4OID, 4,
													 true, TYPALIGN_INT)));
}

/*
 * Servers
 */

/* Znodes of other clients have no such text, and are left out. */
Datum
zklock_servers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklListing *survey;

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_status", 0, NULL);
	survey = zkl_znodes_list(ZKL_COMMAND_SERVERS, ZKL_SERVERRECORD_DIRECTORY, ZKL_FOREVER);
	for (int i = 0; i < survey->nnodes; i++)
	{
		if (survey->nodes[i].data != NULL &&
			zkl_znode_text_field(survey->nodes[i].data, "server") != NULL)
			put_server(set, &survey->nodes[i]);
	}
	return (Datum) 0;
}

static void
put_server(ReturnSetInfo *set, const ZklListingNode *node)
{
	static const char *const names[] = {"server", "zklock", "postgresql", "host"};
	ZklRow		row = {0};

	for (int i = 0; i < lengthof(names); i++)
	{
		char	   *field = zkl_znode_text_field(node->data, names[i]);

		/* As with times, only some roles may see the addresses of servers. */
		if (strcmp(names[i], "host") == 0 && !zkl_permission_may_see(InvalidOid))
			field = NULL;
		zkl_row_add_text(&row, field != NULL ? zkl_znode_text_show(field) : NULL);
	}
	zkl_row_add_time_if(&row, node->detailed && zkl_permission_may_see(InvalidOid),
						node->ctime_ms * 1000);
	zkl_row_put(set, &row);
}

/* What this server knows without a request to ZooKeeper. */
Datum
zklock_cluster_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklRow		row = {0};
	StringInfoData refused;
	const char *at = zkl_leader_of;
	char		path[ZKL_SETTINGS_LEADER_SIZE];
	char		birth[ZKL_SERVERRECORD_BIRTH_SIZE];

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_status", 0, NULL);
	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	strlcpy(birth, zkl_lock_table->birth, sizeof(birth));
	LWLockRelease(zkl_lock_table_session_lock());

	zkl_row_add_text(&row, birth[0] != '\0' ? birth : NULL);
	zkl_row_add_counter(&row, &zkl_lock_table->counters.ensembles);
	zkl_row_add(&row, Int32GetDatum(pg_atomic_read_u32(&zkl_lock_table->namesakes)));
	initStringInfo(&refused);
	while (zkl_settings_next_leader(&at, path))
		append_refused(&refused, path);
	zkl_row_add_text(&row, refused.len > 0 ? refused.data : NULL);
	zkl_row_put(set, &row);
	return (Datum) 0;
}

/* A server's name in the reason may be of any encoding. */
static void
append_refused(StringInfo refused, const char *path)
{
	char		why[ZKL_WHY_SIZE];

	if (zkl_leadership_is_refused(path, why))
		appendStringInfo(refused, "%s%s: %s", refused->len > 0 ? "\n" : "",
						 zkl_display_path(path), zkl_znode_text_show(why));
}
