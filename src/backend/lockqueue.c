/*-------------------------------------------------------------------------
 *
 * lockqueue.c
 *	  The queue of a lock in the whole cluster, read from ZooKeeper.
 *
 * src/backend/lockqueue.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lockqueue.h"
#include "backend/permission.h"
#include "backend/znodes.h"
#include "shared/claimstatus.h"

static TimestampTz timestamp_of(int64 unix_ms);

ZklLockQueue
zkl_lock_queue_read(const char *path)
{
	ZklSnapshot *survey = zkl_znodes_survey(path, ZKL_ZNODES_DETAILS, PG_INT64_MAX);
	ZklLockQueue queue = {.survey = survey};

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

const ZklSnapshotNode *
zkl_lock_queue_node(const ZklLockQueue *queue, const ZklPlace *place)
{
	return &queue->survey->nodes[place->index];
}

const char *
zkl_lock_queue_text(const char *path, const ZklPlace *place, const ZklSnapshotNode *node)
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

void
zkl_lock_queue_put_since(Datum *value, bool *null, const ZklSnapshotNode *node)
{
	*null = !node->detailed || !zkl_permission_may_see(InvalidOid);
	if (!*null)
		*value = TimestampTzGetDatum(timestamp_of(node->ctime_ms));
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
