/*-------------------------------------------------------------------------
 *
 * blockers.c
 *	  zk_blockers: which clients keep a backend of this server waiting.
 *
 * The lock table says for which locks the backend waits, and which backends
 * of this server block it.  If this server does not own the lock, the lock's
 * queue in ZooKeeper says which other clients block it.
 *
 * src/backend/sql/blockers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/report.h"
#include "backend/sql/lockqueue.h"
#include "backend/znodetext.h"
#include "shared/claimstatus.h"

PG_FUNCTION_INFO_V1(zklock_blockers);

#define INNER_SUFFIX	"/" ZKL_LOCKS

/* A lock for which the backend waits. */
typedef struct WaitedLock
{
	char		path[ZKL_PATH_SIZE];	/* for a semaphore, a second row is
										 * for its inner mutex; see "where" */
	ZklWhere	where;			/* the directory in which it waits */
	ZklMode		mode;			/* of this server's ticket, or the claim's */
	char		znode[ZKL_ZNODE_SIZE];	/* of this server's ticket; or empty */
	bool		queued;			/* ... which is in the queue */
	bool		owned;			/* ... or is the first one there */
} WaitedLock;

/* A claim of another backend of this server that blocks the backend. */
typedef struct LocalBlocker
{
	int			lock;			/* index of the waited lock */
	ZklMode		mode;
	bool		holds;
	Oid			role;
	int64		since;
	char		about[ZKL_ABOUT_SIZE];
} LocalBlocker;

typedef struct Search
{
	int			pid;
	WaitedLock *locks;
	int			nlocks;
	int			max_locks;
	LocalBlocker *blockers;
	int			nblockers;
	int			max_blockers;
} Search;

static void search_entry(ZklEntry *entry, void *arg);
static void add_lock(Search *search, const ZklEntry *entry,
					 const ZklClaim *claim);
static void add_blocker(Search *search, const ZklClaim *claim);
static bool is_in_way(const ZklClaim *other, const ZklClaim *claim,
					  bool came_before);
static void find_inner_mutexes(Search *search);
static void put_remote(ReturnSetInfo *set, const WaitedLock *lock);
static bool is_without_process(const char *text);
static void put_local(ReturnSetInfo *set, const WaitedLock *lock,
					  const LocalBlocker *blocker);
static void add_place(ZklRow *row, const char *path, const ZklPlace *place);

/*
 * The rows are not from one moment: after the look at the lock table, each
 * queue is read from ZooKeeper.
 */
Datum
zklock_blockers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set;
	Search		search = {.pid = PG_GETARG_INT32(0)};

	zkl_report_unless_loaded();
	set = zkl_row_begin_set(fcinfo);
	for (int i = 0; i < ZKL_PARTITIONS; i++)
		zkl_lock_table_browse(i, search_entry, &search);
	find_inner_mutexes(&search);
	for (int i = 0; i < search.nlocks; i++)
	{
		if (!zkl_permission_allows(search.locks[i].path))
			continue;
		put_remote(set, &search.locks[i]);
		for (int j = 0; j < search.nblockers; j++)
		{
			if (search.blockers[j].lock == i)
				put_local(set, &search.locks[i], &search.blockers[j]);
		}
	}
	return (Datum) 0;
}

/*
 * The look at the lock table
 */

/*
 * Called with the partition locked, so only copy here.  While a backend waits
 * for more leases of a semaphore, it has two claims on it.
 */
static void
search_entry(ZklEntry *entry, void *arg)
{
	Search	   *search = arg;
	const ZklClaim *waiting = NULL;
	bool		came_before = true;
	dlist_iter	iter;

	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->pid == search->pid && claim->state == ZKL_CLAIM_WAITING)
			waiting = claim;
	}
	if (waiting == NULL)
		return;
	add_lock(search, entry, waiting);
	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim == waiting)
			came_before = false;
		else if (is_in_way(claim, waiting, came_before))
			add_blocker(search, claim);
	}
}

static void
add_lock(Search *search, const ZklEntry *entry, const ZklClaim *claim)
{
	WaitedLock *lock;

	if (search->nlocks == search->max_locks)
	{
		search->max_locks = Max(4, 2 * search->max_locks);
		search->locks = search->locks == NULL ?
			palloc(search->max_locks * sizeof(WaitedLock)) :
			repalloc(search->locks, search->max_locks * sizeof(WaitedLock));
	}
	lock = &search->locks[search->nlocks++];
	memset(lock, 0, sizeof(*lock));
	strlcpy(lock->path, entry->path, sizeof(lock->path));
	strlcpy(lock->znode, entry->znode, sizeof(lock->znode));
	lock->where = claim->mode == ZKL_MODE_LEASE ? ZKL_WHERE_LEASES : ZKL_WHERE_LOCK;
	lock->queued = entry->state == ZKL_ENTRY_QUEUED;
	lock->mode = lock->queued ? entry->mode : claim->mode;
	lock->owned = entry->state == ZKL_ENTRY_OWNED;
}

static void
add_blocker(Search *search, const ZklClaim *claim)
{
	LocalBlocker *blocker;

	if (search->nblockers == search->max_blockers)
	{
		search->max_blockers = Max(16, 2 * search->max_blockers);
		search->blockers = search->blockers == NULL ?
			palloc(search->max_blockers * sizeof(LocalBlocker)) :
			repalloc(search->blockers,
					 search->max_blockers * sizeof(LocalBlocker));
	}
	blocker = &search->blockers[search->nblockers++];
	blocker->lock = search->nlocks - 1;
	blocker->mode = claim->mode;
	blocker->holds = claim->state == ZKL_CLAIM_HELD;
	blocker->role = claim->role;
	blocker->since = claim->since;
	strlcpy(blocker->about, claim->about, sizeof(blocker->about));
}

/*
 * Readers do not wait for readers.  The znodes of leases say which backends
 * of this server hold them, so these claims need no rows of their own.
 *
 * A backend that waits for the local lock waits for the holder of the local
 * lock, and for the backends that came before it.  If backends came at the
 * same moment, PostgreSQL's order may be another one.  A detached
 * claim has no local lock.
 */
static bool
is_in_way(const ZklClaim *other, const ZklClaim *claim, bool came_before)
{
	if (claim->mode == ZKL_MODE_LEASE || other->state == ZKL_CLAIM_LOST ||
		(claim->mode == ZKL_MODE_READ && other->mode == ZKL_MODE_READ))
		return false;
	return other->state == ZKL_CLAIM_HELD ||
		(came_before && other->detached != 0) ||
		(claim->waits_locally && (came_before || other->needs_ticket));
}

/*
 * A backend that waits for leases first waits for the semaphore's inner
 * mutex.  To the user, that is also a wait for the semaphore.
 */
static void
find_inner_mutexes(Search *search)
{
	for (int i = 0; i < search->nlocks; i++)
	{
		WaitedLock *lock = &search->locks[i];
		int			length = strlen(lock->path) - strlen(INNER_SUFFIX);

		for (int j = 0; j < search->nlocks && length > 0; j++)
		{
			const WaitedLock *semaphore = &search->locks[j];

			if (semaphore->mode == ZKL_MODE_LEASE &&
				strlen(semaphore->path) == length &&
				strncmp(semaphore->path, lock->path, length) == 0 &&
				strcmp(lock->path + length, INNER_SUFFIX) == 0)
			{
				lock->path[length] = '\0';
				lock->where = ZKL_WHERE_LOCKS;
				break;
			}
		}
	}
}

/*
 * Rows
 */

/*
 * Clients in the queue in ZooKeeper.  Leases that this server owns without a
 * claim block no backend: they are kept for the backend that collects them.
 */
static void
put_remote(ReturnSetInfo *set, const WaitedLock *lock)
{
	ZklContender me = {0};
	ZklLockQueue queue;

	if (lock->owned)
		return;
	if (lock->queued)
		(void) zkl_recipe_parse(lock->znode, &me);
	queue = zkl_lock_queue_read(lock->path);
	for (int i = 0; i < queue.nplaces; i++)
	{
		const ZklPlace *place = &queue.places[i];
		const ZklListingNode *node = zkl_lock_queue_node(&queue, place);
		const char *text = place->client == ZKL_CLIENT_ZKLOCK && node->data != NULL ?
		zkl_lock_queue_text(lock->path, place, node) : "";
		ZklRow		row = {0};

		if (!zkl_queue_order_is_in_way(place, lock->where, lock->mode, me.key) ||
			strcmp(place->name, lock->znode) == 0 ||
			(place->where == ZKL_WHERE_LEASES && is_without_process(text)))
			continue;
		add_place(&row, lock->path, place);
		(void) zkl_znode_text_add(&row, text);
		zkl_lock_queue_add_since(&row, node);
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
	add_place(&row, lock->path, &place);
	(void) zkl_znode_text_add(&row, blocker->about);
	zkl_row_add_moment_if(&row, zkl_permission_may_see(blocker->role), blocker->since);
	zkl_row_put(set, &row);
}

static void
add_place(ZklRow *row, const char *path, const ZklPlace *place)
{
	zkl_row_add_text(row, zkl_display_path(path));
	zkl_row_add_text(row, zkl_queue_order_mode_name(place));
	zkl_row_add(row, BoolGetDatum(place->holds));
	zkl_row_add_text(row, zkl_queue_order_client_name(place->client));
}
