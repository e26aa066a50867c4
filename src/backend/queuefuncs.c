/*-------------------------------------------------------------------------
 *
 * queuefuncs.c
 *	  The functions about all clients in the queue of a lock, in the whole cluster.
 *
 * src/backend/queuefuncs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/permission.h"
#include "backend/report.h"
#include "backend/sqlargs.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "shared/claimstatus.h"

PG_FUNCTION_INFO_V1(zklock_lock_queue);
PG_FUNCTION_INFO_V1(zklock_lock_revoke);
PG_FUNCTION_INFO_V1(zklock_lock_force_release);

#define QUEUE_COLUMNS	14

/* A lock's queue, in order. */
typedef struct Queue
{
	const ZklSnapshot *survey;
	ZklPlace   *places;
	int			nplaces;
} Queue;

static void check_no_superuser(const char *path, const Queue *queue);
static Queue look(const char *path);
static const char *child_of(const ZklPlace *place);
static const char *text_of(const char *path, const ZklPlace *place,
						   const ZklSnapshotNode *node);
static void put_row(ReturnSetInfo *rsinfo, const char *path, int position,
					const ZklPlace *place, const ZklSnapshotNode *node);
static char *data_of(const ZklSnapshotNode *node);
static TimestampTz timestamp_of(int64 unix_ms);

Datum
zklock_lock_queue(PG_FUNCTION_ARGS)
{
	const char *path;
	Queue		queue;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	queue = look(path);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < queue.nplaces; i++)
		put_row((ReturnSetInfo *) fcinfo->resultinfo, path, i + 1,
				&queue.places[i], &queue.survey->nodes[queue.places[i].index]);
	return (Datum) 0;
}

/* A holder that has released meanwhile is no error. */
Datum
zklock_lock_revoke(PG_FUNCTION_ARGS)
{
	const char *path;
	Queue		queue;
	int			asked = 0;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	queue = look(path);
	for (int i = 0; i < queue.nplaces; i++)
	{
		if (queue.places[i].holds)
			asked += zkl_znodes_revoke(path, child_of(&queue.places[i]));
	}
	PG_RETURN_INT32(asked);
}

/*
 * Deletes the znodes of all holders.  The servers that hold the lock see the
 * deletion as a loss.
 */
Datum
zklock_lock_force_release(PG_FUNCTION_ARGS)
{
	const char *path;
	Queue		queue;
	int			removed = 0;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	queue = look(path);

	/* For all holders, before the first znode is deleted. */
	if (!superuser())
		check_no_superuser(path, &queue);
	for (int i = 0; i < queue.nplaces; i++)
	{
		const char *child = child_of(&queue.places[i]);

		if (!queue.places[i].holds)
			continue;

		/*
		 * Log first, because the release may happen even if no answer comes.
		 */
		ereport(LOG,
				errmsg("role \"%s\" releases lock \"%s\" by force",
					   GetUserNameFromId(GetUserId(), false),
					   zkl_display_path(path)),
				errdetail("It deletes the znode \"%s\".", zkl_znode_text_show(child)));
		removed += zkl_znodes_delete(path, child);
	}
	PG_RETURN_INT32(removed);
}

/*
 * As for pg_terminate_backend(): only superusers may take a lock that a
 * superuser may hold.  A znode of zklock that says "superuser=f" serves no
 * superuser as long as it exists.  So it does not matter that some time passes
 * before it is deleted.
 */
static void
check_no_superuser(const char *path, const Queue *queue)
{
	for (int i = 0; i < queue->nplaces; i++)
	{
		const ZklPlace *place = &queue->places[i];
		const char *data = queue->survey->nodes[place->index].data;
		const char *word = data ? zkl_znode_text_field(data, "superuser") : NULL;

		if (place->holds && (place->client != ZKL_CLIENT_ZKLOCK ||
							 word == NULL || strcmp(word, "f") != 0))
			ereport(ERROR,
					errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied to release lock \"%s\" by force",
						   zkl_display_path(path)),
					errdetail("Only superusers may release a lock that a superuser may hold, and znode \"%s\" does not rule that out.",
							  zkl_znode_text_show(child_of(place))));
	}
}

/*
 * Read the lock's directory with all details, and put the clients into the
 * order of the queue.
 */
static Queue
look(const char *path)
{
	ZklSnapshot *survey = zkl_znodes_survey(path, ZKL_ZNODES_DETAILS, PG_INT64_MAX);
	Queue		queue = {.survey = survey};

	queue.places = palloc0(Max(1, survey->nnodes) * sizeof(ZklPlace));
	for (int i = 0; i < survey->nnodes; i++)
	{
		ZklPlace   *place = &queue.places[i];

		place->index = i;
		place->where = survey->nodes[i].where;
		place->name = survey->nodes[i].name;
		place->czxid = survey->nodes[i].czxid;
		place->owner = survey->nodes[i].owner;
	}
	queue.nplaces = zkl_queue_order(queue.places, survey->nnodes,
									zkl_snapshot_limit(survey));
	return queue;
}

/* As seen from the lock's directory. */
static const char *
child_of(const ZklPlace *place)
{
	switch (place->where)
	{
		case ZKL_WHERE_LOCK:
			break;
		case ZKL_WHERE_LEASES:
			return psprintf(ZKL_LEASES "/%s", place->name);
		case ZKL_WHERE_LOCKS:
			return psprintf(ZKL_LOCKS "/%s", place->name);
	}
	return place->name;
}

/*
 * Rows
 */

/*
 * One row.  A column is null where a foreign client has written what zklock
 * does not understand, or where this user may not see it.
 */
static void
put_row(ReturnSetInfo *rsinfo, const char *path, int position,
		const ZklPlace *place, const ZklSnapshotNode *node)
{
	Datum		values[QUEUE_COLUMNS] = {0};
	bool		nulls[QUEUE_COLUMNS] = {0};
	char	   *data = NULL;

	values[0] = Int32GetDatum(position);
	values[1] = CStringGetTextDatum(zkl_znode_text_show(child_of(place)));
	values[2] = CStringGetTextDatum(zkl_queue_order_kind_name(place->kind));
	values[3] = CStringGetTextDatum(zkl_queue_order_mode_name(place));
	values[4] = BoolGetDatum(place->holds);
	values[5] = CStringGetTextDatum(zkl_queue_order_client_name(place->client));

	memset(nulls + 6, true, QUEUE_COLUMNS - 6);
	if (node->detailed && zkl_permission_may_see(InvalidOid))
	{
		values[11] = TimestampTzGetDatum(timestamp_of(node->ctime_ms));
		nulls[11] = false;
	}
	if (node->data != NULL && !(place->client == ZKL_CLIENT_ZKLOCK &&
								zkl_znode_text_put(values + 6, nulls + 6,
												   text_of(path, place, node))))
		data = data_of(node);
	if (data != NULL)
	{
		values[12] = CStringGetTextDatum(data);
		nulls[12] = false;
	}

	/* The names of unknown clients tell nothing about what they wait for. */
	values[13] = BoolGetDatum(place->client != ZKL_CLIENT_KAZOO);
	nulls[13] = place->client == ZKL_CLIENT_UNKNOWN;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * The text of one of zklock's znodes.  For a ticket of this server the lock
 * table knows more: which backend has the lock at this moment, or that none
 * does.
 */
static const char *
text_of(const char *path, const ZklPlace *place, const ZklSnapshotNode *node)
{
	char	   *about = palloc(ZKL_ABOUT_SIZE);

	if (place->where == ZKL_WHERE_LOCKS)
		path = psprintf("%s/" ZKL_LOCKS, path);
	if (!zkl_claim_status_describe(path, place->name, about))
		return node->data;
	return about[0] != '\0' ? about :
		pnstrdup(node->data, strcspn(node->data, " ")); /* just the server's
														 * name */
}

/* A foreign znode's data, if one can show them.  They may have been cut. */
static char *
data_of(const ZklSnapshotNode *node)
{
	int			length = pg_encoding_verifymbstr(PG_UTF8, node->data,
												 node->data_length);

	if (length < node->data_length &&
		(node->data_length < ZKL_SNAPSHOT_DATA_SIZE ||
		 node->data_length - length >= pg_encoding_max_length(PG_UTF8)))
		return NULL;
	for (int i = 0; i < length; i++)
	{
		if ((unsigned char) node->data[i] < ' ' || node->data[i] == 0x7f)
			return NULL;
	}
	return unconstify(char *, zkl_display_path(pnstrdup(node->data, length)));
}

/*
 * ZooKeeper counts milliseconds since 1970, PostgreSQL microseconds since
 * 2000.
 */
static TimestampTz
timestamp_of(int64 unix_ms)
{
	return unix_ms * 1000 -
		(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}
