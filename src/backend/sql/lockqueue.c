/*-------------------------------------------------------------------------
 *
 * lockqueue.c
 *	  The queue of a lock in the whole cluster: the functions that read it
 *	  from ZooKeeper, show it, make its holders release, and tell which
 *	  clients keep a backend of this server waiting.
 *
 * src/backend/sql/lockqueue.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/report.h"
#include "backend/row.h"
#include "backend/sql/sqlargs.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "faultpoint.h"
#include "protocol/fieldtext.h"
#include "shared/claim.h"
#include "shared/detached.h"

PG_FUNCTION_INFO_V1(zklock_lock_queue);
PG_FUNCTION_INFO_V1(zklock_lock_queue_or_null);
PG_FUNCTION_INFO_V1(zklock_cluster_locks);
PG_FUNCTION_INFO_V1(zklock_lock_revoke);
PG_FUNCTION_INFO_V1(zklock_lock_force_release);
PG_FUNCTION_INFO_V1(zklock_blockers);

/* A lock's queue, in order. */
typedef struct LockQueue
{
	const char *path;
	const ZklListing *survey;
	ZklPlace   *places;
	int			nplaces;
} LockQueue;

/* A znode that a walk has found, and the lock to which it belongs. */
typedef struct Walked
{
	char	   *path;
	ZklListingNode node;
} Walked;

#define INNER_SUFFIX	"/" ZKL_LOCKS

/* A lock for which the backend waits. */
typedef struct WaitedLock
{
	char		path[ZKL_PATH_SIZE];	/* for a semaphore, a second row is
										 * for its inner mutex; see "where" */
	ZklWhere	where;			/* the directory in which it waits */
	ZklMode		mode;			/* mode of this server's ticket, or of the
								 * claim */
	char		znode[ZKL_ZNODE_SIZE];	/* znode of this server's ticket; or
										 * empty */
	bool		queued;			/* this server's ticket is in the queue */
	bool		owned;			/* this server's ticket owns the lock */
	List	   *blockers;		/* a list of LocalBlocker */
} WaitedLock;

/* A claim of another backend of this server that blocks the backend. */
typedef struct LocalBlocker
{
	ZklMode		mode;
	bool		holds;
	Oid			role;
	int64		since;
	char		owner_text[ZKL_OWNER_TEXT_SIZE];
} LocalBlocker;

typedef struct Search
{
	int			pid;
	int			detached;		/* of the claim for which it waits; 0: none */
	List	   *locks;			/* a list of WaitedLock */
} Search;

static LockQueue read_queue(const char *path);
static LockQueue queue_of(const char *path, const ZklListing *survey);
static LockQueue *walk_queues(const char *below, int *nqueues);
static Walked *sort_by_lock(const ZklListing *walk);
static void take_from_walk(Walked *walked, const ZklListingNode *node);
static int	compare_walked(const void *a, const void *b);
static ZklListing *survey_of(const Walked *walked, int n);
static const ZklListingNode *node_at(const LockQueue *queue, const ZklPlace *place);
static const char *text_of(const char *path, const ZklPlace *place,
						   const ZklListingNode *node);
static int	for_each_holder(const char *path,
							bool (*change) (const char *path, const ZklPlace *holder));
static bool request_release(const char *path, const ZklPlace *holder);
static bool release_by_force(const char *path, const ZklPlace *holder);
static bool keep_downgraded(LockQueue *queue, const LockQueue *before);
static bool is_downgraded(const ZklPlace *writer, const char *name);
static void check_no_superuser(const char *path, const LockQueue *queue);
static const char *child_of(const ZklPlace *place);
static void put_queue(ReturnSetInfo *set, const LockQueue *queue,
					  bool of_many);
static bool add_place(ZklRow *row, const char *path, int position,
					  const ZklPlace *place, const ZklListingNode *node);
static void add_foreign(ZklRow *row, const ZklPlace *place,
						const ZklListingNode *node, bool is_understood);
static void add_since(ZklRow *row, const ZklListingNode *node);
static const char *data_of(const ZklListingNode *node);
static int	claim_awaited_by(int pid);
static void search_entry(ZklEntry *entry, void *arg);
static WaitedLock *waited_lock(const ZklEntry *entry, const ZklClaim *claim);
static LocalBlocker *local_blocker(const ZklClaim *claim);
static bool is_in_way(const ZklClaim *other, const ZklClaim *claim,
					  bool came_before);
static void find_inner_mutexes(List *locks);
static void put_remote(ReturnSetInfo *set, const WaitedLock *lock);
static bool is_without_process(const char *text);
static void put_local(ReturnSetInfo *set, const WaitedLock *lock,
					  const LocalBlocker *blocker);
static void add_blocker(ZklRow *row, const char *path, const ZklPlace *place);

/*
 * Reading
 */

/*
 * Read the lock's directory with all details, and put the clients into the
 * order of the queue.
 */
static LockQueue
read_queue(const char *path)
{
	return queue_of(path, zkl_znodes_list(ZKL_COMMAND_SURVEY, path, ZKL_FOREVER, ZKL_PATIENCE_LOOK));
}

static LockQueue
queue_of(const char *path, const ZklListing *survey)
{
	LockQueue	queue = {.path = path,.survey = survey};

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
 * Read the queues of all locks at this path and below it ("" for all locks),
 * in the order of their paths.  A path is returned as it is in ZooKeeper, and
 * need not be valid.
 */
static LockQueue *
walk_queues(const char *below, int *nqueues)
{
	ZklListing *walk = zkl_znodes_list(ZKL_COMMAND_WALK, below, ZKL_FOREVER, ZKL_PATIENCE_LOOK);
	Walked	   *walked = sort_by_lock(walk);
	LockQueue  *queues = palloc((walk->nnodes + 1) * sizeof(LockQueue));
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

	/*
	 * A semaphore's directory contains the directories "leases" and "locks".
	 */
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

/* The data that were read from the znode at this place. */
static const ZklListingNode *
node_at(const LockQueue *queue, const ZklPlace *place)
{
	return &queue->survey->nodes[place->index];
}

/*
 * The text of one of zklock's znodes.  For a ticket of this server, the lock
 * table says which backend has the lock at this moment.  If no backend has
 * it, the text has only the server's name.
 */
static const char *
text_of(const char *path, const ZklPlace *place, const ZklListingNode *node)
{
	char	   *owner_text = palloc(ZKL_OWNER_TEXT_SIZE);

	if (place->where == ZKL_WHERE_LOCKS)
		path = psprintf("%s/" ZKL_LOCKS, path);
	if (!zkl_claim_status_describe(path, place->name, owner_text))
		return node->data;
	return owner_text[0] != '\0' ? owner_text :
		pnstrdup(node->data, strcspn(node->data, " ")); /* only the server's
														 * name */
}

/*
 * SQL functions
 */

Datum
zklock_lock_queue(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	LockQueue	queue = read_queue(zkl_sqlargs_shown_path(fcinfo));

	put_queue(set, &queue, false);
	return (Datum) 0;
}

/*
 * The queues of all locks.  Only roles that may see the work of other roles
 * can call it.
 */
Datum
zklock_cluster_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	int			nqueues;
	LockQueue  *queues = walk_queues(PG_ARGISNULL(0) ? "" : zkl_sqlargs_any_path(fcinfo),
									 &nqueues);

	for (int i = 0; i < nqueues; i++)
	{
		if (zkl_permission_shows(queues[i].path))
			put_queue(set, &queues[i], true);
	}
	return (Datum) 0;
}

/*
 * For the views that read several queues: a queue that may not be read must
 * not hide the others.
 */
Datum
zklock_lock_queue_or_null(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklRow		nothing = {0};
	Oid			types = TEXTOID;
	const char *path;
	const ZklListing *survey;

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_lock_queue", 1, &types);
	path = zkl_sqlargs_shown_path(fcinfo);
	survey = zkl_znodes_survey_if_allowed(path);
	if (survey != NULL)
	{
		LockQueue	queue = queue_of(path, survey);

		put_queue(set, &queue, false);
		return (Datum) 0;
	}
	zkl_row_add_nulls(&nothing, set->setDesc->natts);
	zkl_row_put(set, &nothing);
	return (Datum) 0;
}

Datum
zklock_lock_revoke(PG_FUNCTION_ARGS)
{
	zkl_report_unless_loaded();
	PG_RETURN_INT32(for_each_holder(zkl_sqlargs_taken_path(fcinfo), request_release));
}

/* The servers that hold the lock see the deletion as a loss. */
Datum
zklock_lock_force_release(PG_FUNCTION_ARGS)
{
	zkl_report_unless_loaded();
	PG_RETURN_INT32(for_each_holder(zkl_sqlargs_taken_path(fcinfo), release_by_force));
}

/*
 * How many znodes of holders were changed?  If a holder has released
 * meanwhile, that is not an error.  But a downgrade may have put another znode
 * of the same holder in the place of the one that was read.
 */
static int
for_each_holder(const char *path, bool (*change) (const char *path, const ZklPlace *holder))
{
	LockQueue	queue = read_queue(path);
	LockQueue	before;
	int			changed = 0;
	bool		any_gone;

	do
	{
		ZKL_FAULT_POINT("holders-read");
		any_gone = false;

		/* Check all holders before the first znode is deleted. */
		if (change == release_by_force && !superuser())
			check_no_superuser(path, &queue);
		for (int i = 0; i < queue.nplaces; i++)
		{
			if (!queue.places[i].holds)
				continue;
			if (change(path, &queue.places[i]))
				changed++;
			else
				any_gone = true;
		}
		if (!any_gone)
			break;
		before = queue;
		queue = read_queue(path);
	} while (keep_downgraded(&queue, &before));
	return changed;
}

static bool
request_release(const char *path, const ZklPlace *holder)
{
	return zkl_znodes_end(ZKL_COMMAND_REVOKE, path, child_of(holder));
}

static bool
release_by_force(const char *path, const ZklPlace *holder)
{
	const char *child = child_of(holder);
	bool		deleted;

	/* Log first, because the lock may be released even if no reply comes. */
	ereport(LOG,
			errmsg("role \"%s\" releases lock \"%s\" by force",
				   GetUserNameFromId(GetUserId(), false),
				   zkl_display_path(path)),
			errdetail("It deletes the znode \"%s\".", zkl_znode_text_show(child)));
	deleted = zkl_znodes_end(ZKL_COMMAND_DELETE, path, child);

	/*
	 * If this server holds the lock, transactions that rely on it must not
	 * commit from now on.
	 */
	zkl_claim_mark_deleted(path, holder->name);
	return deleted;
}

/*
 * Keep only the holders that have downgraded a znode of "before": all other
 * holders came later.  False if none is left.
 */
static bool
keep_downgraded(LockQueue *queue, const LockQueue *before)
{
	bool		any = false;

	for (int i = 0; i < queue->nplaces; i++)
	{
		ZklPlace   *place = &queue->places[i];
		bool		holds = place->holds;

		place->holds = false;
		for (int j = 0; j < before->nplaces && holds; j++)
			place->holds |= is_downgraded(&before->places[j], place->name);
		any |= place->holds;
	}
	return any;
}

static bool
is_downgraded(const ZklPlace *writer, const char *name)
{
	char		reader[ZKL_ZNODE_SIZE];

	if (!writer->holds || writer->client != ZKL_CLIENT_ZKLOCK ||
		writer->mode != ZKL_MODE_WRITE || strlen(writer->name) >= sizeof(reader))
		return false;
	zkl_recipe_make_downgrade(writer->name, reader);
	return strcmp(reader, name) == 0;
}

/*
 * pg_terminate_backend() has the same rule: only superusers may take a lock
 * that a superuser may hold.  If a znode of zklock says "superuser=f", its
 * ticket serves no superuser as long as the znode exists.  So it does no harm
 * that some time passes before the znode is deleted.
 */
static void
check_no_superuser(const char *path, const LockQueue *queue)
{
	for (int i = 0; i < queue->nplaces; i++)
	{
		const ZklPlace *place = &queue->places[i];
		const char *data = node_at(queue, place)->data;
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

/*
 * Put one row for each place.  If "of_many", the path comes first, and what
 * helps to understand a single queue is left out.
 */
static void
put_queue(ReturnSetInfo *set, const LockQueue *queue, bool of_many)
{
	for (int i = 0; i < queue->nplaces; i++)
	{
		const ZklPlace *place = &queue->places[i];
		const ZklListingNode *node = node_at(queue, place);
		ZklRow		row = {0};
		bool		is_understood;

		if (of_many)
			zkl_row_add_text(&row, zkl_znode_text_show(queue->path));
		is_understood = add_place(&row, queue->path, i + 1, place, node);
		if (!of_many)
			add_foreign(&row, place, node, is_understood);
		zkl_row_put(set, &row);
	}
}

/*
 * A column is null if a foreign client has written something that zklock does
 * not understand, or if this user may not see it.  Does zklock understand the
 * text?
 */
static bool
add_place(ZklRow *row, const char *path, int position, const ZklPlace *place,
		  const ZklListingNode *node)
{
	const char *text = place->client == ZKL_CLIENT_ZKLOCK && node->data != NULL ?
	text_of(path, place, node) : NULL;
	bool		is_understood;

	zkl_row_add(row, Int32GetDatum(position));
	zkl_row_add_text(row, zkl_znode_text_show(child_of(place)));
	zkl_row_add_text(row, zkl_recipe_kind_name(place->kind));
	zkl_row_add_text(row, zkl_queue_order_mode_name(place));
	zkl_row_add(row, BoolGetDatum(place->holds));
	zkl_row_add_text(row, zkl_queue_order_client_name(place->client));
	is_understood = zkl_znode_text_add(row, text);
	add_since(row, node);
	return is_understood;
}

/* The further columns about a foreign client's znode. */
static void
add_foreign(ZklRow *row, const ZklPlace *place, const ZklListingNode *node,
			bool is_understood)
{
	zkl_row_add_text(row, node->data != NULL && !is_understood ? data_of(node) : NULL);

	/*
	 * The name of an unknown client's znode does not tell what it waits for.
	 */
	zkl_row_add_if(row, place->client != ZKL_CLIENT_UNKNOWN,
				   BoolGetDatum(place->client != ZKL_CLIENT_KAZOO));
}

/*
 * When the znode was created, on ZooKeeper's clock; null if that is not known,
 * or if this user may not see it.
 */
static void
add_since(ZklRow *row, const ZklListingNode *node)
{
	zkl_row_add_time_if(row, node->detailed && zkl_permission_may_see(InvalidOid),
						node->ctime_ms * 1000);
}

/*
 * A foreign znode's data, if they can be shown.  They may have been cut off.
 */
static const char *
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
	return zkl_display_path(text);
}

/*
 * zk_blockers: which clients keep a backend of this server waiting.  The lock
 * table says for which locks the backend waits, and which backends of this
 * server block it.  If this server does not own the lock, the lock's queue in
 * ZooKeeper says which other clients block it.
 */

/*
 * The rows are not from one moment: after the look at the lock table, each
 * queue is read from ZooKeeper.
 */
Datum
zklock_blockers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	Search		search = {.pid = PG_GETARG_INT32(0)};
	ListCell   *cell;

	search.detached = claim_awaited_by(search.pid);
	for (int i = 0; i < ZKL_PARTITIONS; i++)
		zkl_lock_table_browse(i, search_entry, &search);
	find_inner_mutexes(search.locks);
	foreach(cell, search.locks)
	{
		const WaitedLock *lock = lfirst(cell);
		ListCell   *blocker;

		if (!zkl_permission_shows(lock->path))
			continue;
		put_remote(set, lock);
		foreach(blocker, lock->blockers)
			put_local(set, lock, lfirst(blocker));
	}
	return (Datum) 0;
}

/* A session in zk_claim_wait has no claim of its own that waits. */
static int
claim_awaited_by(int pid)
{
	ZklDetachedInfo info;
	int			place = 0;

	while (zkl_detached_next(&place, &info))
	{
		if (info.slot.waiter != NULL && info.slot.waiter->pid == pid)
			return info.claim.detached;
	}
	return 0;
}

/*
 * Called with the partition locked, so only copy here.  While a backend waits
 * for more leases of a semaphore, it has two claims on it.
 */
static void
search_entry(ZklEntry *entry, void *arg)
{
	Search	   *search = arg;
	WaitedLock *lock;
	const ZklClaim *waiting = NULL;
	bool		came_before = true;
	dlist_iter	iter;

	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state == ZKL_CLAIM_WAITING &&
			(claim->pid == search->pid ||
			 (search->detached != 0 && claim->detached == search->detached)))
			waiting = claim;
	}
	if (waiting == NULL)
		return;
	lock = waited_lock(entry, waiting);
	search->locks = lappend(search->locks, lock);
	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim == waiting)
			came_before = false;
		else if (is_in_way(claim, waiting, came_before))
			lock->blockers = lappend(lock->blockers, local_blocker(claim));
	}
}

static WaitedLock *
waited_lock(const ZklEntry *entry, const ZklClaim *claim)
{
	WaitedLock *lock = palloc0(sizeof(WaitedLock));

	strlcpy(lock->path, entry->path, sizeof(lock->path));
	strlcpy(lock->znode, entry->place.znode, sizeof(lock->znode));
	lock->where = claim->mode == ZKL_MODE_LEASE ? ZKL_WHERE_LEASES : ZKL_WHERE_LOCK;
	lock->queued = entry->state == ZKL_ENTRY_QUEUED;
	lock->mode = lock->queued ? entry->mode : claim->mode;
	lock->owned = entry->state == ZKL_ENTRY_OWNED;
	return lock;
}

static LocalBlocker *
local_blocker(const ZklClaim *claim)
{
	LocalBlocker *blocker = palloc(sizeof(LocalBlocker));

	blocker->mode = claim->mode;
	blocker->holds = claim->state == ZKL_CLAIM_HELD;
	blocker->role = claim->role;
	blocker->since = claim->since;
	strlcpy(blocker->owner_text, claim->owner_text, sizeof(blocker->owner_text));
	return blocker;
}

/*
 * Readers do not wait for readers.  The znodes of leases say which backends of
 * this server hold them, so these claims need no rows of their own.
 *
 * A backend that waits for the advisory lock waits for the holder of the advisory
 * lock, and for the backends that came before it.  If backends came at the
 * same moment, PostgreSQL's order may be another one.  The claims of the
 * claims process have no advisory lock.
 */
static bool
is_in_way(const ZklClaim *other, const ZklClaim *claim, bool came_before)
{
	if (claim->mode == ZKL_MODE_LEASE || other->state == ZKL_CLAIM_LOST ||
		(claim->mode == ZKL_MODE_READ && other->mode == ZKL_MODE_READ))
		return false;
	return other->state == ZKL_CLAIM_HELD ||
		(came_before && (other->detached != 0 || claim->detached != 0)) ||
		(claim->waits_locally && (came_before || other->needs_ticket));
}

/*
 * A backend that waits for leases first waits for the semaphore's inner
 * mutex.  To the user, that is also a wait for the semaphore.
 */
static void
find_inner_mutexes(List *locks)
{
	ListCell   *cell;
	ListCell   *other;

	foreach(cell, locks)
	{
		WaitedLock *lock = lfirst(cell);
		int			length = strlen(lock->path) - strlen(INNER_SUFFIX);

		if (length <= 0 || strcmp(lock->path + length, INNER_SUFFIX) != 0)
			continue;
		foreach(other, locks)
		{
			const WaitedLock *semaphore = lfirst(other);

			if (semaphore->mode == ZKL_MODE_LEASE &&
				strlen(semaphore->path) == length &&
				strncmp(semaphore->path, lock->path, length) == 0)
			{
				lock->path[length] = '\0';
				lock->where = ZKL_WHERE_LOCKS;
				break;
			}
		}
	}
}

/*
 * Clients in the queue in ZooKeeper.  Leases that this server owns without a
 * claim block no backend: they are kept for the backend that collects them.
 * Another znode of this server's session is its ticket, even if the server has
 * not heard yet that the ticket is there.
 */
static void
put_remote(ReturnSetInfo *set, const WaitedLock *lock)
{
	ZklContender me = {0};
	LockQueue	queue;
	int64		session;

	if (lock->owned)
		return;
	if (lock->queued)
		(void) zkl_recipe_parse(lock->znode, &me);
	queue = read_queue(lock->path);
	session = zkl_lock_table_session_id();
	for (int i = 0; i < queue.nplaces; i++)
	{
		const ZklPlace *place = &queue.places[i];
		const ZklListingNode *node = node_at(&queue, place);
		const char *text = place->client == ZKL_CLIENT_ZKLOCK && node->data != NULL ?
		text_of(lock->path, place, node) : "";
		ZklRow		row = {0};

		if (!zkl_queue_order_is_in_way(place, lock->where, lock->mode, me.key) ||
			strcmp(place->name, lock->znode) == 0 ||
			(place->where == ZKL_WHERE_LEASES ? is_without_process(text) :
			 place->owner == session))
			continue;
		add_blocker(&row, lock->path, place);
		(void) zkl_znode_text_add(&row, text);
		add_since(&row, node);
		zkl_row_put(set, &row);
	}
}

/* Does the text name a server, and no process? */
static bool
is_without_process(const char *text)
{
	const char *pid = zkl_znode_text_field(text, "pid");

	return zkl_znode_text_field(text, "server") != NULL &&
		(pid == NULL || atoi(pid) <= 0);
}

/* Backends of this server. */
static void
put_local(ReturnSetInfo *set, const WaitedLock *lock,
		  const LocalBlocker *blocker)
{
	ZklPlace	place = {.where = lock->where,.mode = blocker->mode,
	.client = ZKL_CLIENT_ZKLOCK,.holds = blocker->holds};
	ZklRow		row = {0};

	/* The holder of the inner mutex waits for leases. */
	if (lock->where == ZKL_WHERE_LOCKS)
		place.holds = false;
	place.kind = zkl_recipe_kind(place.mode);
	add_blocker(&row, lock->path, &place);
	(void) zkl_znode_text_add(&row, blocker->owner_text);
	zkl_row_add_moment_if(&row, zkl_permission_may_see(blocker->role), blocker->since);
	zkl_row_put(set, &row);
}

static void
add_blocker(ZklRow *row, const char *path, const ZklPlace *place)
{
	zkl_row_add_text(row, zkl_display_path(path));
	zkl_row_add_text(row, zkl_queue_order_mode_name(place));
	zkl_row_add(row, BoolGetDatum(place->holds));
	zkl_row_add_text(row, zkl_queue_order_client_name(place->client));
}
