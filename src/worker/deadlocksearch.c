/*-------------------------------------------------------------------------
 *
 * deadlocksearch.c
 *	  The worker looks for deadlocks across servers, and breaks them.
 *
 * While records of this server are published, the worker searches whenever
 * they have changed, and after each deadlock_timeout.  It follows the graph
 * from its own records: it reads the queue of a lock that a record waits for,
 * finds out the sessions of its owners, and reads their records.  Then it
 * does the same with the locks that those records wait for.  What the graph
 * means is in waitgraph.h.
 *
 * A search that has found a deadlock is soon followed by another one, so that
 * the servers that are part of it need not wait a deadlock_timeout for each
 * other at each step.  If one of them does not answer, the searches slow down
 * again.
 * deadlockproof.c decides what to do about a deadlock.
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
#include "worker/ask.h"
#include "worker/deadlockproof.h"
#include "worker/deadlocksearch.h"
#include "worker/waitcontents.h"
#include "worker/waitpublisher.h"

/*
 * While there is a deadlock: this many searches in a deadlock_timeout, with
 * at least the pause below between two, and this many in a row.
 */
#define QUICK_SEARCHES	8
#define QUICK_AT_LEAST	ZKL_MS(10)
#define MAX_QUICK		40

/*
 * What a search has read is valid for this long from its beginning, and for
 * twice the time that the search before it took.  If a search takes longer,
 * the worker may have been suspended.  If only ZooKeeper is slow, the next
 * search has enough time.
 */
#define GOOD_FOR		ZKL_MS(1000)

typedef enum ItemKind
{
	ITEM_SYNC,
	ITEM_QUORUM,
	ITEM_QUEUE,					/* the children of the directory of a lock */
	ITEM_OWNER,					/* a znode in it */
	ITEM_SET					/* the records of a session, whose id is the
								 * number of the ask */
} ItemKind;

static struct
{
	char		prefix[ZKL_ROOT_SIZE];
	MemoryContext context;		/* reset when a search begins */
	ZklWaitGraph *graph;
	bool		running;
	ZklAsker	asker;
	uint64		serial;			/* serial of the own records with which it
								 * began */
	int64		due_at;
	int64		begun_at;
	int64		took;			/* how long the last search took */
	int			nquick;			/* quick searches in a row */
	bool		found;			/* the last search found a deadlock */

	/* while it runs */
	const ZklWaitRecord *record;	/* the search reads the queue of this
									 * record's lock */
	const char *directory;		/* the directory of that lock */
	List	   *sessions;		/* sessions whose records were asked for, as
								 * int64 pointers */
	ZklDeadlockSeen seen;
}			search;

static void give_up(const char *text);
static void begin(const char *text, uint64 serial);
static void stop(void);
static void on_answer(ZklAsker *asker, int what, int64 number,
					  const ZklSessionEvent *event);
static void take_answer(ItemKind kind, int64 session,
						const ZklSessionEvent *event);
static void add_owners(const ZklSessionEvent *event);
static void add_reader(const char *lock, const char *znode);
static void add_session(int64 session);
static void add_set(int64 session, const ZklSessionEvent *event);
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
	search.asker.answered = on_answer;
}

static void
stop(void)
{
	search.running = false;
	zkl_ask_cancel(&search.asker);
}

int64
zkl_deadlock_search_wake_at(void)
{
	return search.running ? PG_INT64_MAX : search.due_at;
}

/*
 * If the records have changed since a search began, the search is finished
 * first.  The new records then confirm what it has found, or do not.
 */
void
zkl_deadlock_search_begin(void)
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
		zkl_deadlock_proof_forget();
		zkl_wait_contents_forget_searches();
		search.due_at = PG_INT64_MAX;
		return;
	}
	if (!search.running &&
		(serial != search.serial || zkl_now() >= search.due_at))
		begin(text, serial);
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

	/*
	 * A new wait must not be delayed because a member of an old deadlock does
	 * not answer.
	 */
	if (serial != search.serial)
		search.nquick = 0;
	search.serial = serial;
	search.sessions = NIL;
	search.begun_at = zkl_now();
	memset(&search.seen, 0, sizeof(search.seen));
	search.seen.good_until = search.begun_at + GOOD_FOR + 2 * search.took;
	zkl_wait_graph_begin(search.graph);

	copy = pstrdup(text);
	search.seen.own = palloc(sizeof(ZklWaitSet));
	if (!zkl_wait_record_parse(copy, strlen(copy), search.seen.own))
	{
		give_up(text);
		MemoryContextSwitchTo(previous);
		return;
	}
	add_source(zkl_session_info_mine->id, true, search.seen.own);
	for (int i = 1; i < zkl_sessions; i++)
		add_source(zkl_session_info[i].id, true, NULL);

	/*
	 * Before the search, ZooKeeper's server must know everything that was
	 * acknowledged before this server's own records were.  Only a search that
	 * may prove something ensures that by a write: many servers may search
	 * for hours.
	 */
	if (zkl_deadlock_proof_any())
		zkl_ask_check(&search.asker, ITEM_QUORUM);
	else
		zkl_ask_sync(&search.asker, ITEM_SYNC);
	MemoryContextSwitchTo(previous);
}

/*
 * This does not raise an error: the next worker would find the same text, so
 * one worker after another would end.  The search goes on when the records
 * change.
 */
static void
give_up(const char *text)
{
	static bool logged = false;

	if (!logged)
		ereport(LOG,
				errmsg("could not read the waits of this server, so it does not search for deadlocks"),
				errdetail("The text is \"%s\".", text));
	logged = true;
	search.due_at = PG_INT64_MAX;
	stop();
}

/* If a reply was lost, give the search up, and begin another one soon. */
static void
on_answer(ZklAsker *asker, int what, int64 number,
		  const ZklSessionEvent *event)
{
	MemoryContext previous;

	if (event->reply.outcome == ZKL_OUTCOME_UNKNOWN)
	{
		finish(search.found);
		return;
	}
	ZKL_FAULT_POINT("search-answered");
	previous = MemoryContextSwitchTo(search.context);
	take_answer(what, number, event);
	if (asker->outstanding == 0)
		advance();
	MemoryContextSwitchTo(previous);
}

static void
take_answer(ItemKind kind, int64 session, const ZklSessionEvent *event)
{
	bool		ok = event->reply.outcome == ZKL_OUTCOME_OK;

	switch (kind)
	{
		case ITEM_SYNC:
		case ITEM_QUORUM:
			break;
		case ITEM_QUEUE:
			if (ok)
				add_owners(event);
			break;
		case ITEM_OWNER:
			if (ok && event->owner != 0)
				add_session(event->owner);
			break;
		case ITEM_SET:
			add_set(session, event);
			break;
	}
}

/*
 * Find the clients that own the lock.  For a semaphore, each client with a
 * znode in "leases" counts; the records of a client that only waits for
 * leases hold none.  Keep the readers in the queue that do not own the lock,
 * for the proof.
 */
static void
add_owners(const ZklSessionEvent *event)
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
	if (search.record->mode != ZKL_MODE_LEASE)
		n = zkl_queue_order(places, n, 0);
	for (int i = 0; i < n; i++)
	{
		if (places[i].holds)
			zkl_ask_stat(&search.asker, ITEM_OWNER, 0,
						 psprintf("%s/%s", search.directory, places[i].name));
		else if (places[i].mode == ZKL_MODE_READ)
			add_reader(search.record->path, places[i].name);
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
	int64	   *asked;
	ListCell   *cell;

	if (zkl_wait_graph_has(search.graph, session))
		return;
	foreach(cell, search.sessions)
	{
		if (*(const int64 *) lfirst(cell) == session)
			return;
	}
	asked = palloc(sizeof(int64));
	*asked = session;
	search.sessions = lappend(search.sessions, asked);
	zkl_wait_record_name(session, name);
	zkl_ask_data(&search.asker, ITEM_SET, session,
				 psprintf("%s/%s", zkl_wait_publisher_directory(), name),
				 ZKL_WAITRECORD_TEXT_SIZE);
}

/*
 * Take the records of a session, or follow the reference to them if it is not
 * the first session of its server.
 */
static void
add_set(int64 session, const ZklSessionEvent *event)
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
	add_source(session, false, set);
}

/* Keep the sources for the proof, which makes a graph of its own. */
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

/* When all asks have their answers, go on with the next lock, or decide. */
static void
advance(void)
{
	search.record = zkl_wait_graph_next(search.graph);
	if (search.record == NULL)
	{
		ZKL_FAULT_POINT("search-complete");
		finish(zkl_deadlock_proof_decide(search.graph, &search.seen));
		return;
	}
	search.directory = psprintf("%s%s%s", search.prefix, search.record->path,
								search.record->mode == ZKL_MODE_LEASE ?
								"/" ZKL_LEASES : "");
	zkl_ask_children(&search.asker, ITEM_QUEUE, 0, search.directory);
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
