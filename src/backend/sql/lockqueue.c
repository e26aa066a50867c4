/*-------------------------------------------------------------------------
 *
 * lockqueue.c
 *	  The queue of a lock in the whole cluster: the functions that read it
 *	  from ZooKeeper, show it, and make its holders release.
 *
 * src/backend/sql/lockqueue.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/lock/sqlargs.h"
#include "backend/report.h"
#include "backend/sql/lockqueue.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "protocol/fieldtext.h"
#include "shared/claimstatus.h"

PG_FUNCTION_INFO_V1(zklock_lock_queue);
PG_FUNCTION_INFO_V1(zklock_lock_queue_or_null);
PG_FUNCTION_INFO_V1(zklock_cluster_locks);
PG_FUNCTION_INFO_V1(zklock_lock_revoke);
PG_FUNCTION_INFO_V1(zklock_lock_force_release);

/* A znode that a walk has found, and the lock to which it belongs. */
typedef struct Walked
{
	char	   *path;
	ZklListingNode node;
} Walked;

static bool read_if_allowed(const char *path, ZklLockQueue *queue);
static ZklLockQueue queue_of(const char *path, const ZklListing *survey);
static ZklLockQueue *walk_queues(const char *below, int *nqueues);
static Walked *sort_by_lock(const ZklListing *walk);
static void take_from_walk(Walked *walked, const ZklListingNode *node);
static int	compare_walked(const void *a, const void *b);
static ZklListing *survey_of(const Walked *walked, int n);
static TimestampTz timestamp_of(int64 unix_ms);
static void check_privilege(Oid variant);
static void check_no_superuser(const char *path, const ZklLockQueue *queue);
static const char *child_of(const ZklPlace *place);
static void put_queue(ReturnSetInfo *set, const ZklLockQueue *queue,
					  bool with_path);
static void add_place(ZklRow *row, const char *path, int position,
					  const ZklPlace *place, const ZklListingNode *node);
static char *data_of(const ZklListingNode *node);

/*
 * Reading
 */

ZklLockQueue
zkl_lock_queue_read(const char *path)
{
	return queue_of(path, zkl_znodes_survey(path, ZKL_ZNODES_DETAILS, PG_INT64_MAX));
}

/*
 * The same, but if ZooKeeper's access control forbids it, return false
 * instead of raising an error.
 */
static bool
read_if_allowed(const char *path, ZklLockQueue *queue)
{
	const ZklListing *survey = zkl_znodes_survey_if_allowed(path);

	if (survey != NULL)
		*queue = queue_of(path, survey);
	return survey != NULL;
}

static ZklLockQueue
queue_of(const char *path, const ZklListing *survey)
{
	ZklLockQueue queue = {.path = path,.survey = survey};

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
									zkl_listing_limit(survey));
	return queue;
}

/*
 * The same for all locks at this path and below it ("" for all locks), in the
 * order of their paths.  A path is returned as it is in ZooKeeper, and need
 * not be valid.
 */
static ZklLockQueue *
walk_queues(const char *below, int *nqueues)
{
	ZklListing *walk = zkl_znodes_walk(below);
	Walked	   *walked = sort_by_lock(walk);
	ZklLockQueue *queues = palloc((walk->nnodes + 1) * sizeof(ZklLockQueue));
	int			end;

	*nqueues = 0;
	for (int begin = 0; begin < walk->nnodes; begin = end)
	{
		const char *path = walked[begin].path;
		ZklListing *survey;

		for (end = begin + 1; end < walk->nnodes; end++)
		{
			if (strcmp(walked[end].path, path) != 0)
				break;
		}
		survey = survey_of(walked + begin, end - begin);
		if (survey->nnodes > 0)
			queues[(*nqueues)++] = queue_of(path, survey);
	}
	return queues;
}

static Walked *
sort_by_lock(const ZklListing *walk)
{
	Walked	   *walked = palloc((walk->nnodes + 1) * sizeof(Walked));

	for (int i = 0; i < walk->nnodes; i++)
		take_from_walk(&walked[i], &walk->nodes[i]);
	qsort(walked, walk->nnodes, sizeof(Walked), compare_walked);
	return walked;
}

/*
 * A directory gets the path of the lock that it may be.  The name of another
 * znode becomes its name within the directory.
 */
static void
take_from_walk(Walked *walked, const ZklListingNode *node)
{
	char	   *slash;

	walked->path = pstrdup(node->name);
	walked->node = *node;
	if (node->is_directory)
		return;
	slash = strrchr(walked->path, '/');
	*slash = '\0';
	walked->node.name = slash + 1;
	/* "leases" and "locks" are directories within that of the semaphore. */
	if (node->where != ZKL_WHERE_LOCK)
		*strrchr(walked->path, '/') = '\0';
}

static int
compare_walked(const void *a, const void *b)
{
	return strcmp(((const Walked *) a)->path, ((const Walked *) b)->path);
}

/* Make the survey of one lock from these znodes. */
static ZklListing *
survey_of(const Walked *walked, int n)
{
	ZklListing *survey = palloc0(sizeof(ZklListing));

	survey->exists = true;
	survey->data = "";
	survey->nodes = palloc(n * sizeof(ZklListingNode));
	for (int i = 0; i < n; i++)
	{
		const ZklListingNode *node = &walked[i].node;

		if (!node->is_directory)
			survey->nodes[survey->nnodes++] = *node;
		else if (node->data != NULL)
		{
			survey->data = node->data;
			survey->data_length = node->data_length;
		}
	}
	return survey;
}

const ZklListingNode *
zkl_lock_queue_node(const ZklLockQueue *queue, const ZklPlace *place)
{
	return &queue->survey->nodes[place->index];
}

const char *
zkl_lock_queue_text(const char *path, const ZklPlace *place, const ZklListingNode *node)
{
	char	   *about = palloc(ZKL_ABOUT_SIZE);

	if (place->where == ZKL_WHERE_LOCKS)
		path = psprintf("%s/" ZKL_LOCKS, path);
	if (!zkl_claim_status_describe(path, place->name, about))
		return node->data;
	return about[0] != '\0' ? about :
		pnstrdup(node->data, strcspn(node->data, " ")); /* only the server's
														 * name */
}

void
zkl_lock_queue_add_since(ZklRow *row, const ZklListingNode *node)
{
	zkl_row_add_if(row, node->detailed && zkl_permission_may_see(InvalidOid),
				   TimestampTzGetDatum(timestamp_of(node->ctime_ms)));
}

/*
 * ZooKeeper counts milliseconds since 1970, and PostgreSQL microseconds since
 * 2000.
 */
static TimestampTz
timestamp_of(int64 unix_ms)
{
	return unix_ms * 1000 -
		(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

/*
 * SQL functions
 */

Datum
zklock_lock_queue(PG_FUNCTION_ARGS)
{
	const char *path;
	ZklLockQueue queue;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	queue = zkl_lock_queue_read(path);
	put_queue(zkl_row_begin_set(fcinfo), &queue, false);
	return (Datum) 0;
}

/*
 * The queues of all locks.  Only roles that may see the work of other roles
 * can call it.
 */
Datum
zklock_cluster_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set;
	ZklLockQueue *queues;
	int			nqueues;

	zkl_report_unless_loaded();
	queues = walk_queues(PG_ARGISNULL(0) ? "" : zkl_sqlargs_any_path(fcinfo),
						 &nqueues);
	set = zkl_row_begin_set(fcinfo);
	for (int i = 0; i < nqueues; i++)
	{
		if (zkl_permission_allows(queues[i].path))
			put_queue(set, &queues[i], true);
	}
	return (Datum) 0;
}

/*
 * For the views that read several queues: one that may not be read must not
 * hide the others.
 */
Datum
zklock_lock_queue_or_null(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set;
	ZklRow		nothing = {0};
	const char *path;
	ZklLockQueue queue;

	zkl_report_unless_loaded();
	check_privilege(fcinfo->flinfo->fn_oid);
	path = zkl_sqlargs_path(fcinfo);
	set = zkl_row_begin_set(fcinfo);
	if (read_if_allowed(path, &queue))
	{
		put_queue(set, &queue, false);
		return (Datum) 0;
	}
	zkl_row_add_nulls(&nothing, set->setDesc->natts);
	zkl_row_put(set, &nothing);
	return (Datum) 0;
}

/*
 * A role without the privilege for zk_lock_queue, which is older, must not
 * see a queue through this variant.
 */
static void
check_privilege(Oid variant)
{
	Oid			argument = TEXTOID;
	Oid			queue = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										CStringGetDatum("zk_lock_queue"),
										PointerGetDatum(buildoidvector(&argument, 1)),
										ObjectIdGetDatum(get_func_namespace(variant)));

	if (!OidIsValid(queue) ||
		zkl_function_aclcheck(queue, GetUserId()) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, "zk_lock_queue");
}

/* If a holder has released meanwhile, that is not an error. */
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
 * Delete the znodes of all holders.  The servers that hold the lock see the
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

	/* Check all holders before the first znode is deleted. */
	if (!superuser())
		check_no_superuser(path, &queue);
	for (int i = 0; i < queue.nplaces; i++)
	{
		const char *child = child_of(&queue.places[i]);

		if (!queue.places[i].holds)
			continue;

		/*
		 * Log first, because the lock may be released even if no reply comes.
		 */
		ereport(LOG,
				errmsg("role \"%s\" releases lock \"%s\" by force",
					   GetUserNameFromId(GetUserId(), false),
					   zkl_display_path(path)),
				errdetail("It deletes the znode \"%s\".", zkl_znode_text_show(child)));
		removed += zkl_znodes_delete(path, child);

		/*
		 * If this server holds the lock, transactions that rely on it must
		 * not commit from now on.
		 */
		zkl_claim_status_note_deleted(path, queue.places[i].name);
	}
	PG_RETURN_INT32(removed);
}

/*
 * The rule is that of pg_terminate_backend(): only superusers may take a lock
 * that a superuser may hold.  If a znode of zklock says "superuser=f", its
 * ticket serves no superuser as long as the znode exists.  So it does no harm
 * that some time passes before the znode is deleted.
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

/* The znode's path within the lock's directory. */
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

/* Put one row for each place.  If "with_path", the path comes first. */
static void
put_queue(ReturnSetInfo *set, const ZklLockQueue *queue, bool with_path)
{
	for (int i = 0; i < queue->nplaces; i++)
	{
		const ZklPlace *place = &queue->places[i];
		ZklRow		row = {0};

		if (with_path)
			zkl_row_add_text(&row, zkl_znode_text_show(queue->path));
		add_place(&row, queue->path, i + 1, place,
				  zkl_lock_queue_node(queue, place));
		zkl_row_put(set, &row);
	}
}

/*
 * A column is null if a foreign client has written something that zklock does
 * not understand, or if this user may not see it.
 */
static void
add_place(ZklRow *row, const char *path, int position, const ZklPlace *place,
		  const ZklListingNode *node)
{
	const char *text = place->client == ZKL_CLIENT_ZKLOCK && node->data != NULL ?
	zkl_lock_queue_text(path, place, node) : NULL;
	bool		is_understood;

	zkl_row_add(row, Int32GetDatum(position));
	zkl_row_add_text(row, zkl_znode_text_show(child_of(place)));
	zkl_row_add_text(row, zkl_recipe_kind_name(place->kind));
	zkl_row_add_text(row, zkl_queue_order_mode_name(place));
	zkl_row_add(row, BoolGetDatum(place->holds));
	zkl_row_add_text(row, zkl_queue_order_client_name(place->client));
	is_understood = zkl_znode_text_add(row, text);
	zkl_lock_queue_add_since(row, node);
	zkl_row_add_text(row, node->data != NULL && !is_understood ? data_of(node) : NULL);

	/*
	 * The name of an unknown client's znode does not tell what it waits for.
	 */
	zkl_row_add_if(row, place->client != ZKL_CLIENT_UNKNOWN,
				   BoolGetDatum(place->client != ZKL_CLIENT_KAZOO));
}

/*
 * A foreign znode's data, if they can be shown.  They may have been cut off.
 */
static char *
data_of(const ZklListingNode *node)
{
	int			length = pg_encoding_verifymbstr(PG_UTF8, node->data,
												 node->data_length);
	char	   *text;
	char	   *shown;

	if (length < node->data_length &&
		(node->data_length < ZKL_LISTING_DATA_SIZE ||
		 node->data_length - length >= pg_encoding_max_length(PG_UTF8)))
		return NULL;
	text = pnstrdup(node->data, length);

	shown = palloc(4 * strlen(text) + 1);
	zkl_field_text_show(text, shown);
	/* The text has control characters. */
	if (strcmp(text, shown) != 0)
		return NULL;
	return unconstify(char *, zkl_display_path(text));
}
