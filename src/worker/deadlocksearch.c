/*-------------------------------------------------------------------------
 *
 * deadlocksearch.c
 *	  The worker looks for deadlocks across servers, and breaks them.
 *
 * While records of this server are published, the worker looks each time when
 * they have changed, and after each deadlock_timeout.  It follows the graph
 * from its own records: it reads the queue of a lock that a record waits for,
 * finds out the sessions of its owners, and reads their records; and so on
 * with the locks that those wait for.  What the graph means is in waitgraph.h.
 *
 * A search that has found a deadlock is soon followed by another one, so that
 * the servers that are part of it need not wait a deadlock_timeout for each
 * other at each step.  If one of them does not answer, the searches slow down
 * again.
 * What is done about deadlocks is in deadlockcase.c.
 *
 * src/worker/deadlocksearch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "faultpoint.h"
#include "protocol/queueorder.h"
#include "protocol/waitgraph.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/deadlockcase.h"
#include "worker/deadlocksearch.h"
#include "worker/waitcontents.h"
#include "worker/waitpublisher.h"

/* Requests of a search that are under way. */
#define WINDOW			32

/*
 * While a deadlock is there: so many searches in a deadlock_timeout, at most
 * one in the constant below, and so many altogether.
 */
#define QUICK_SEARCHES	8
#define QUICK_AT_LEAST	ZKL_MS(10)
#define MAX_QUICK		40

/*
 * What a search has read is good for so long, from its beginning, and for twice
 * the time that the search before it took.  If that is not enough, the worker
 * may have stood still in between; with a slow ZooKeeper, the next search has
 * time enough.
 */
#define GOOD_FOR		ZKL_MS(1000)

typedef enum ItemKind
{
	ITEM_SYNC,
	ITEM_QUORUM,
	ITEM_QUEUE,					/* the children of a lock's directory */
	ITEM_OWNER,					/* of a znode in it */
	ITEM_SET					/* the records of a session */
} ItemKind;

typedef struct Item
{
	ItemKind	kind;
	const char *lock;			/* QUEUE: what a record waits for */
	char	   *path;			/* QUEUE: of the directory; OWNER, SET: of the
								 * znode */
	bool		of_leases;		/* QUEUE */
	int64		session;		/* SET */
} Item;

static struct
{
	char		prefix[ZKL_ROOT_SIZE];
	MemoryContext context;		/* emptied when a search begins */
	ZklWaitGraph *graph;
	bool		running;
	uint32		attempt;		/* tags requests */
	uint64		serial;			/* of the own records that it began with */
	int64		due_at;
	int64		begun_at;
	int64		took;			/* how long the last search did */
	int			nquick;			/* quick searches in a row */
	bool		found;			/* the last search has found a deadlock */

	/* while it runs */
	List	   *items;			/* of Item */
	int			nsent;
	int			nanswered;
	ZklDeadlockSeen seen;
}			search;

static void begin(const char *text, uint64 serial);
static void stop(void);
static Item *add_item(ItemKind kind, char *path);
static void send_items(void);
static void take_answer(const Item *item, const ZklSessionEvent *event);
static void add_owners(const Item *item, const ZklSessionEvent *event);
static void add_reader(const char *lock, const char *znode);
static void add_session(int64 session);
static void add_set(const Item *item, const ZklSessionEvent *event);
static void add_source(int64 session, bool own, ZklWaitSet *set);
static void advance(void);
static void finish(bool found);

void
zkl_deadlock_search_start(const char *prefix)
{
	strlcpy(search.prefix, prefix, sizeof(search.prefix));
	search.context = AllocSetContextCreate(TopMemoryContext,
										   "zklock deadlock search",
										   ALLOCSET_DEFAULT_SIZES);
	search.due_at = PG_INT64_MAX;
}

void
zkl_deadlock_search_restarted(void)
{
	stop();
}

/* Answers to what was sent before this are ignored. */
static void
stop(void)
{
	search.running = false;
	search.attempt++;
}

int64
zkl_deadlock_search_wake_at(void)
{
	return search.running ? PG_INT64_MAX : search.due_at;
}

/*
 * A search that is made for records which have changed since is finished
 * first.  What it finds of the old records is confirmed or not by the new ones.
 */
void
zkl_deadlock_search_send(void)
{
	uint64		serial;
	const char *text = zkl_wait_publisher_text(&serial);

	if (!zkl_session_is_usable())
		return;
	if (text == NULL)
	{
		/* Nothing is published, so there is nothing to search for. */
		if (search.running || search.due_at != PG_INT64_MAX)
			stop();
		zkl_deadlock_case_forget();
		zkl_wait_contents_forget_searches();
		search.due_at = PG_INT64_MAX;
		return;
	}
	if (!search.running &&
		(serial != search.serial || zkl_now() >= search.due_at))
		begin(text, serial);
	if (search.running)
		send_items();
}

static void
begin(const char *text, uint64 serial)
{
	MemoryContext previous;
	char	   *copy;

	ZKL_FAULT_POINT("search-begun");
	MemoryContextReset(search.context);
	previous = MemoryContextSwitchTo(search.context);
	if (search.graph == NULL)
		search.graph = MemoryContextAlloc(TopMemoryContext,
										  sizeof(ZklWaitGraph));
	search.running = true;
	search.attempt++;
	/* What is new shall not wait for a member of an old deadlock. */
	if (serial != search.serial)
		search.nquick = 0;
	search.serial = serial;
	search.items = NIL;
	search.begun_at = zkl_now();
	memset(&search.seen, 0, sizeof(search.seen));
	search.seen.good_until = search.begun_at + GOOD_FOR + 2 * search.took;
	search.nsent = search.nanswered = 0;
	zkl_wait_graph_begin(search.graph);

	copy = pstrdup(text);
	search.seen.own = palloc(sizeof(ZklWaitSet));
	if (!zkl_wait_record_parse(copy, strlen(copy), search.seen.own))
		elog(ERROR, "could not read the waits of this server");
	add_source(zkl_session_info_mine->id, true, search.seen.own);
	for (int i = 1; i < zkl_sessions; i++)
		add_source(zkl_lock_table->session[i].id, true, NULL);

	/*
	 * ZooKeeper's server must know all that was acknowledged before this
	 * server's own records were.  Only a search that may prove something
	 * makes certain of it by a write: many servers may search for hours.
	 */
	add_item(zkl_deadlock_case_any() ? ITEM_QUORUM : ITEM_SYNC, NULL);
	MemoryContextSwitchTo(previous);
}

/*
 * Requests
 */

static Item *
add_item(ItemKind kind, char *path)
{
	Item	   *item = palloc0(sizeof(Item));

	item->kind = kind;
	item->path = path;
	search.items = lappend(search.items, item);
	return item;
}

static void
send_items(void)
{
	while (search.nsent < list_length(search.items) &&
		   search.nsent - search.nanswered < WINDOW)
	{
		ZklSessionAsk ask = {&search, search.attempt, search.nsent};
		const Item *item = list_nth(search.items, search.nsent++);

		pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
		switch (item->kind)
		{
			case ITEM_SYNC:
				zkl_session_ask_sync(ask);
				break;
			case ITEM_QUORUM:
				zkl_session_ask_quorum(ask);
				break;
			case ITEM_QUEUE:
				zkl_session_ask_children(ask, item->path);
				break;
			case ITEM_OWNER:
				zkl_session_ask_stat(ask, item->path);
				break;
			case ITEM_SET:
				zkl_session_ask_data(ask, item->path, ZKL_WAITRECORD_TEXT_SIZE);
				break;
		}
	}
}

/*
 * Answers
 */

/* If an answer was lost, the search is given up, and begins again soon. */
bool
zkl_deadlock_search_handle(const ZklSessionEvent *event)
{
	MemoryContext previous;

	if (event->tag != &search)
		return false;
	if (!search.running || event->attempt != search.attempt)
		return true;
	if (event->reply.outcome == ZKL_OUTCOME_UNKNOWN)
	{
		finish(search.found);
		return true;
	}
	ZKL_FAULT_POINT("search-answered");
	search.nanswered++;
	previous = MemoryContextSwitchTo(search.context);
	take_answer(list_nth(search.items, event->item), event);
	if (search.nanswered == list_length(search.items))
		advance();
	MemoryContextSwitchTo(previous);
	return true;
}

static void
take_answer(const Item *item, const ZklSessionEvent *event)
{
	bool		ok = event->reply.outcome == ZKL_OUTCOME_OK;

	switch (item->kind)
	{
		case ITEM_SYNC:
		case ITEM_QUORUM:
			break;
		case ITEM_QUEUE:
			if (ok)
				add_owners(item, event);
			break;
		case ITEM_OWNER:
			if (ok && event->owner != 0)
				add_session(event->owner);
			break;
		case ITEM_SET:
			add_set(item, event);
			break;
	}
}

/*
 * The clients that own the lock.  Of a semaphore, all that have leases count:
 * one that only waits for leases names none in its records.  The readers in the
 * queue that do not own the lock are kept for the proof.
 */
static void
add_owners(const Item *item, const ZklSessionEvent *event)
{
	int			n = event->reply.nchildren;
	ZklPlace   *places = palloc0((n + 1) * sizeof(ZklPlace));

	for (int i = 0; i < n; i++)
	{
		places[i].index = i;
		places[i].where = ZKL_WHERE_LOCK;
		places[i].name = event->reply.children[i];
		places[i].holds = true;
	}
	if (!item->of_leases)
		n = zkl_queue_order(places, n, 0);
	for (int i = 0; i < n; i++)
	{
		if (places[i].holds)
			add_item(ITEM_OWNER, psprintf("%s/%s", item->path, places[i].name));
		else if (places[i].mode == ZKL_MODE_READ)
			add_reader(item->lock, places[i].name);
	}
	pfree(places);
}

static void
add_reader(const char *lock, const char *znode)
{
	ZklDeadlockReader *reader = palloc(sizeof(ZklDeadlockReader));

	reader->path = lock;
	reader->znode = pstrdup(znode);
	search.seen.readers = lappend(search.seen.readers, reader);
}

static void
add_session(int64 session)
{
	char		name[ZKL_WAITRECORD_NAME_SIZE];
	ListCell   *cell;

	if (zkl_wait_graph_has(search.graph, session))
		return;
	foreach(cell, search.items)
	{
		const Item *item = lfirst(cell);

		if (item->kind == ITEM_SET && item->session == session)
			return;
	}
	zkl_wait_record_name(session, name);
	add_item(ITEM_SET, psprintf("%s/%s", zkl_wait_publisher_directory(),
								name))->session = session;
}

/*
 * The records of a session; or where they are, if it is not the first session
 * of its server.
 */
static void
add_set(const Item *item, const ZklSessionEvent *event)
{
	const int	length = strlen(ZKL_WAIT_PUBLISHER_SEE);
	ZklWaitSet *set = NULL;
	char	   *text;
	uint64		other;

	if (event->reply.outcome == ZKL_OUTCOME_OK)
	{
		text = palloc(event->data_length + 1);

		memcpy(text, event->data, event->data_length);
		text[		event->data_length] = '\0';

		if (strncmp(text, ZKL_WAIT_PUBLISHER_SEE, length) == 0)
		{
			if (sscanf(text +length, "%16" SCNx64, &other) == 1)
				add_session((int64) other);
		}
		else
		{
			set = palloc(sizeof(ZklWaitSet));
			if (!zkl_wait_record_parse(text, event->data_length, set))
				set = NULL;
		}
	}
	add_source(item->session, false, set);
}

/* The sources are kept for the proof, which makes a graph of its own. */
static void
add_source(int64 session, bool own, ZklWaitSet *set)
{
	ZklDeadlockSource *source = palloc(sizeof(ZklDeadlockSource));

	source->session = session;
	source->own = own;
	source->set = set;
	search.seen.sources = lappend(search.seen.sources, source);
	zkl_wait_graph_add(search.graph, session, own, set);
}

/* All that was asked is answered: go on with the next lock, or decide. */
static void
advance(void)
{
	const ZklWaitRecord *record = zkl_wait_graph_next(search.graph);
	Item	   *item;

	if (record == NULL)
	{
		ZKL_FAULT_POINT("search-complete");
		finish(zkl_deadlock_case_decide(search.graph, &search.seen));
		return;
	}
	item = add_item(ITEM_QUEUE, psprintf("%s%s%s", search.prefix, record->path,
										 record->mode == ZKL_MODE_LEASE ?
										 "/" ZKL_LEASES : ""));
	item->lock = record->path;
	item->of_leases = record->mode == ZKL_MODE_LEASE;
}

static void
finish(bool found)
{
	int64		period = ZKL_MS(zkl_wait_contents_timeout_ms());

	search.took = zkl_now() - search.begun_at;
	search.nquick = found ? search.nquick + 1 : 0;
	search.found = found;
	if (found && search.nquick <= MAX_QUICK)
		period = Max(QUICK_AT_LEAST, period / QUICK_SEARCHES);
	search.due_at = zkl_now() + period;
	stop();
}
