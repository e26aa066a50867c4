/*-------------------------------------------------------------------------
 *
 * servers.c
 *	  The functions about the servers of the cluster.
 *
 * src/backend/sql/servers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/lock/reliance.h"
#include "backend/report.h"
#include "backend/row.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "protocol/serverrecord.h"
#include "settings.h"
#include "shared/leadership.h"

PG_FUNCTION_INFO_V1(zklock_version);
PG_FUNCTION_INFO_V1(zklock_servers);
PG_FUNCTION_INFO_V1(zklock_server_records);
PG_FUNCTION_INFO_V1(zklock_cluster_status);
PG_FUNCTION_INFO_V1(zklock_server_status);
PG_FUNCTION_INFO_V1(zklock_leaderships);

static void list_servers(FunctionCallInfo fcinfo, bool all_columns);
static void put_server(ReturnSetInfo *set, const ZklListingNode *node, bool all_columns);
static void add_system(ZklRow *row, const ZklListingNode *node);
static void append_refused(StringInfo refused, const char *path);
static void put_leadership(ReturnSetInfo *set, const char *path);

/*
 * The version of the library that this server has loaded.  It may be older than
 * the one that is installed, until the server is restarted.
 */
Datum
zklock_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(ZKLOCK_VERSION));
}

Datum
zklock_servers(PG_FUNCTION_ARGS)
{
	list_servers(fcinfo, false);
	return (Datum) 0;
}

/* Also returns the columns that version 1.2 has added to the view zk_servers. */
Datum
zklock_server_records(PG_FUNCTION_ARGS)
{
	zkl_report_unless_loaded();
	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_servers", 0, NULL);
	list_servers(fcinfo, true);
	return (Datum) 0;
}

/* Znodes of other clients have no such text, and are left out. */
static void
list_servers(FunctionCallInfo fcinfo, bool all_columns)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklListing *survey;

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_status", 0, NULL);
	survey = zkl_znodes_list(ZKL_COMMAND_SERVERS, ZKL_SERVERRECORD_DIRECTORY, ZKL_FOREVER, ZKL_PATIENCE_LOOK);
	for (int i = 0; i < survey->nnodes; i++)
	{
		if (survey->nodes[i].data != NULL &&
			zkl_znode_text_field(survey->nodes[i].data, "server") != NULL)
			put_server(set, &survey->nodes[i], all_columns);
	}
}

static void
put_server(ReturnSetInfo *set, const ZklListingNode *node, bool all_columns)
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
	if (all_columns)
		add_system(&row, node);
	zkl_row_put(set, &row);
}

/*
 * The record of a server before version 1.2 lacks this field.  PostgreSQL
 * shows the identifier as bigint, too.
 */
static void
add_system(ZklRow *row, const ZklListingNode *node)
{
	char	   *identifier = zkl_znode_text_field(node->data, "system");
	char	   *standby = zkl_znode_text_field(node->data, "standby");
	bool		seen = zkl_permission_may_see(InvalidOid);

	zkl_row_add_if(row, seen && identifier != NULL,
				   Int64GetDatum(identifier ? (int64) strtoull(identifier, NULL, 10) : 0));
	zkl_row_add_if(row, seen && standby != NULL,
				   BoolGetDatum(standby != NULL && strcmp(standby, "yes") == 0));
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

/*
 * The columns that version 1.2 has added to the view zk_status.  The margin
 * is the commit guard's.
 */
Datum
zklock_server_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklRow		row = {0};
	uint64		ends = pg_atomic_read_u64(&zkl_session_info->certificate_until);

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_status", 0, NULL);
	zkl_row_add(&row, BoolGetDatum(zkl_reliance_is_required() &&
								   !zkl_reliance_has_required(ZKL_MS(zkl_commit_margin))));
	zkl_row_add_if(&row, zkl_permission_may_see(InvalidOid),
				   BoolGetDatum(pg_atomic_read_u32(&zkl_session_info->tls) != 0));
	zkl_row_add(&row, Int32GetDatum(pg_atomic_read_u32(&zkl_lock_table->clones)));
	zkl_row_add_time_if(&row, ends != 0 && zkl_permission_may_see(InvalidOid),
						(int64) ends * USECS_PER_SEC);
	zkl_row_put(set, &row);
	return (Datum) 0;
}

/* The same as zk_is_leader(), but the transaction does not rely on the result. */
Datum
zklock_leaderships(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	const char *at = zkl_leader_of;
	Oid			type = TEXTOID;
	char		path[ZKL_SETTINGS_LEADER_SIZE];

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_is_leader", 1, &type);

	/* Either list may name a path twice. */
	while (zkl_settings_next_leader(&at, path))
	{
		if (!zkl_settings_lists_leader(at, path))
			put_leadership(set, path);
	}
	at = zkl_commit_requires;
	while (zkl_settings_next_leader(&at, path))
	{
		if (!zkl_settings_lists_leader(at, path) &&
			!zkl_settings_lists_leader(zkl_leader_of, path))
			put_leadership(set, path);
	}
	return (Datum) 0;
}

static void
put_leadership(ReturnSetInfo *set, const char *path)
{
	ZklRow		row = {0};
	int64		token;
	int64		until;

	if (!zkl_permission_shows(path))
		return;
	zkl_row_add_text(&row, zkl_display_path(path));
	zkl_row_add(&row, BoolGetDatum(zkl_leadership_status(path, ZKL_MS(zkl_commit_margin), &token,
														 &until) == ZKL_STATUS_GOOD));
	zkl_row_put(set, &row);
}
