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
#include "utils/tuplestore.h"

#include "backend/display.h"
#include "backend/lockqueue.h"
#include "backend/permission.h"
#include "backend/report.h"
#include "backend/sqlargs.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"

PG_FUNCTION_INFO_V1(zklock_lock_queue);
PG_FUNCTION_INFO_V1(zklock_lock_revoke);
PG_FUNCTION_INFO_V1(zklock_lock_force_release);

#define QUEUE_COLUMNS	14

static void check_no_superuser(const char *path, const ZklLockQueue *queue);
static const char *child_of(const ZklPlace *place);
static void put_row(ReturnSetInfo *rsinfo, const char *path, int position,
					const ZklPlace *place, const ZklSnapshotNode *node);
static char *data_of(const ZklSnapshotNode *node);

Datum
zklock_lock_queue(PG_FUNCTION_ARGS)
{
	const char *path;
	ZklLockQueue queue;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	queue = zkl_lock_queue_read(path);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < queue.nplaces; i++)
		put_row((ReturnSetInfo *) fcinfo->resultinfo, path, i + 1,
				&queue.places[i],
				zkl_lock_queue_node(&queue, &queue.places[i]));
	return (Datum) 0;
}

/* A holder that has released meanwhile is no error. */
Datum
zklock_lock_revoke(PG_FUNCTION_ARGS)
{
	const char *path;
	ZklLockQueue queue;
	int			asked = 0;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	queue = zkl_lock_queue_read(path);
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
	ZklLockQueue queue;
	int			removed = 0;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	queue = zkl_lock_queue_read(path);

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
check_no_superuser(const char *path, const ZklLockQueue *queue)
{
	for (int i = 0; i < queue->nplaces; i++)
	{
		const ZklPlace *place = &queue->places[i];
		const char *data = zkl_lock_queue_node(queue, place)->data;
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
	zkl_lock_queue_put_since(&values[11], &nulls[11], node);
	if (node->data != NULL && !(place->client == ZKL_CLIENT_ZKLOCK &&
								zkl_znode_text_put(values + 6, nulls + 6,
												   zkl_lock_queue_text(path, place, node))))
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
