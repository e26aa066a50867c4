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
 *
 * A victim of this server is a CASE until the deadlock is proved or gone.  The
 * nonce of the case is published with the victim's record.  This server's own
 * records confirm the nonce like those of other servers.
 *
 * A case goes on as long as its evidence would be a proof if all servers
 * confirmed.  It ends when some wait or claim of the evidence has been replaced
 * by another one.  It also ends, after a while, when the deadlock has grown: a
 * part of the deadlock may now do without a server that does not answer.  The
 * next search then begins another case, with new evidence.
 *
 * A proof is valid only for a moment.  If this worker or the backend was
 * suspended before the cancel, other waits of the deadlock may have ended
 * meanwhile.  So the sentence (the request to cancel the backend) expires,
 * and another search follows.
 *
 * src/deadlock/deadlocksearch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "deadlock/deadlocksearch.h"
#include "deadlock/waitgraph.h"
#include "deadlock/waitpublisher.h"
#include "deadlock/waits.h"
#include "faultpoint.h"
#include "protocol/fieldtext.h"
#include "protocol/queueorder.h"
#include "protocol/sessiontext.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/request/ask.h"

/*
 * While there is a deadlock: this many searches in a deadlock_timeout, with
 * at least the pause below between two, and this many in a row.
 */
#define QUICK_SEARCHES	8
#define QUICK_AT_LEAST	ZKL_MS(10)
#define MAX_QUICK		40

/*
 * What a search has read is valid for this long from its beginning, and for
 * twice the time that the previous search took.  If a search takes longer,
 * the worker may have been suspended.  If only ZooKeeper is slow, the next
 * search has enough time.
 */
#define GOOD_FOR		ZKL_MS(1000)

#define MAX_CASES		ZKL_WAITRECORD_WAITS

/*
 * After this many times deadlock_timeout, all servers have had time to
 * confirm.
 */
#define PATIENCE		2

typedef enum ItemKind
{
	ITEM_SYNC,
	ITEM_QUORUM,
	ITEM_QUEUE,					/* the children of the directory of a lock */
	ITEM_OWNER,					/* a znode in that directory */
	ITEM_SET					/* the records of a session, whose id is the
								 * number of the ask */
} ItemKind;

/* What a search has read about a session. */
typedef struct Source
{
	int64		session;
	bool		own;			/* it is a session of this server */
	ZklWaitSet *set;			/* NULL if it has no records, or its answer
								 * has not come yet */
} Source;

typedef struct Case
{
	int64		claim;			/* the victim's claim; 0: the case is free */
	int64		nonce;
	ZklWaitEvidence *evidence;
	int64		begun_at;

	/* what the last search has seen */
	bool		is_victim;
	bool		confirmed;		/* confirmed by the record itself */
	bool		has_grown;		/* the deadlock has members that the evidence
								 * lacks */
} Case;

static Case cases[MAX_CASES];

static struct
{
	char		prefix[ZKL_ROOT_SIZE];
	MemoryContext context;		/* memory of one search, reset when the next
								 * begins */
	ZklWaitGraph *graph;
	bool		running;
	ZklAsker	asker;
	uint64		serial;			/* serial of this server's records when the
								 * search began */
	int64		due_at;
	int64		begun_at;
	int64		took;			/* how long the last search took */
	int			nquick;			/* quick searches in a row */
	bool		found;			/* the last search found a deadlock */

	/* while a search runs */
	const ZklWaitRecord *record;	/* the search reads the queue of this
									 * record's lock */
	const char *directory;		/* the directory of that lock */
	int64		good_until;		/* after this, what the search has read is too
								 * old for a cancel */
	List	   *sources;		/* of Source */
	ZklWaitSet *own;			/* the set of this server */
}			search;

static void give_up(const char *text);
static void begin(const char *text, uint64 serial);
static void stop(void);
static void on_answer(ZklAsker *asker, int what, int64 number,
					  const ZklSessionEvent *event);
static void take_answer(ItemKind kind, int64 session,
						const ZklSessionEvent *event);
static void add_owners(const ZklSessionEvent *event);
static void add_session(int64 session);
static void add_set(int64 session, const ZklSessionEvent *event);
static void add_source(int64 session, bool own, ZklWaitSet *set);
static Source *find_source(int64 session);
static void advance(void);
static void finish(bool found);
static bool decide(void);
static void decide_record(const ZklWaitRecord *record);
static void decide_case(Case *victim);
static Case *find_case(int64 claim);
static bool any_case(void);
static Case *begin_case(int64 claim);
static void drop_case(Case *victim);
static bool is_proved(const Case *victim, int64 nonce);
static bool confirms(const ZklWaitRecord *record, int64 nonce);
static void sentence(int64 claim);
static void add_process(ZklWaitSentence *to, const ZklWaitSet *set, int pid);
static void describe(StringInfo detail, const ZklGraphMember *member,
					 const ZklGraphMember *next);
static const char *shown(const char *name);

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
 * If the records have changed since a search began, finish the search first.
 * The new records then confirm what the search has found, or do not.
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
		/* Without published records, there is nothing to search for. */
		if (search.running || search.due_at != PG_INT64_MAX)
			stop();
		for (int i = 0; i < MAX_CASES; i++)
			cases[i].claim = 0;
		zkl_wait_publisher_forget_searches();
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
	search.sources = NIL;
	search.begun_at = zkl_now();
	search.good_until = search.begun_at + GOOD_FOR + 2 * search.took;
	zkl_wait_graph_begin(search.graph);

	copy = pstrdup(text);
	search.own = palloc(sizeof(ZklWaitSet));
	if (!zkl_wait_record_parse(copy, strlen(copy), search.own))
	{
		give_up(text);
		MemoryContextSwitchTo(previous);
		return;
	}
	add_source(zkl_session_info->id, true, search.own);

	/*
	 * Before the search reads, the connected ZooKeeper server must know
	 * everything that was acknowledged before this server's own records.
	 * Searches ensure that by a write only if they may prove something,
	 * because many servers may search for hours.
	 */
	if (any_case())
		zkl_ask_check(&search.asker, ITEM_QUORUM);
	else
		zkl_ask_sync(&search.asker, ITEM_SYNC);
	MemoryContextSwitchTo(previous);
}

/*
 * Raise no error: the next worker would find the same text, so one worker
 * after another would end.  The search goes on when the records change.
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
 * leases hold none.
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
	}
	pfree(places);
}

/* Read the records of a session, once in a search. */
static void
add_session(int64 session)
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];

	if (find_source(session) != NULL)
		return;
	add_source(session, false, NULL);
	zkl_session_text_name(session, name);
	zkl_ask_data(&search.asker, ITEM_SET, session,
				 psprintf("%s/%s", zkl_wait_publisher_directory(), name),
				 ZKL_PATH_WAITS_SIZE);
}

static void
add_set(int64 session, const ZklSessionEvent *event)
{
	ZklWaitSet *set;
	char	   *text;

	if (event->reply.outcome != ZKL_OUTCOME_OK)
		return;
	set = palloc(sizeof(ZklWaitSet));
	text = memcpy(palloc(event->data_length + 1), event->data,
				  event->data_length);

	if (!zkl_wait_record_parse(text, event->data_length, set))
		return;
	find_source(session)->set = set;
	zkl_wait_graph_add(search.graph, session, false, set);
}

/* Keep the sources for the proof, which makes a graph of its own. */
static void
add_source(int64 session, bool own, ZklWaitSet *set)
{
	Source	   *source = palloc(sizeof(Source));

	source->session = session;
	source->own = own;
	source->set = set;
	search.sources = lappend(search.sources, source);
	zkl_wait_graph_add(search.graph, session, own, set);
}

static Source *
find_source(int64 session)
{
	ListCell   *cell;

	foreach(cell, search.sources)
	{
		Source	   *source = lfirst(cell);

		if (source->session == session)
			return source;
	}
	return NULL;
}

/* When all asks have their answers, go on with the next lock, or decide. */
static void
advance(void)
{
	search.record = zkl_wait_graph_next(search.graph);
	if (search.record == NULL)
	{
		ZKL_FAULT_POINT("search-complete");
		finish(decide());
		return;
	}
	search.directory = psprintf("%s%s%s", search.prefix, search.record->path,
								search.record->mode == ZKL_MODE_LEASE ?
								"/" ZKL_LEASES : "");
	zkl_ask_children(&search.asker, ITEM_QUEUE, 0, search.directory, false);
}

static void
finish(bool found)
{
	int64		period = ZKL_MS(zkl_wait_publisher_timeout_ms());

	search.took = zkl_now() - search.begun_at;
	search.nquick = found ? search.nquick + 1 : 0;
	search.found = found;
	if (found && search.nquick <= MAX_QUICK)
		period = Max(QUICK_AT_LEAST, period / QUICK_SEARCHES);
	search.due_at = zkl_now() + period;
	stop();
}

/*
 * Handling a deadlock
 */

/*
 * Solve the graph.  Let the records of this server confirm the searches of
 * other servers, begin or continue a case for each victim of this server, and
 * cancel a backend for each case that is proved.  Returns whether any waits
 * are deadlocked.
 *
 * Take everything from the graph before the proof, because a proof makes
 * another graph.
 */
static bool
decide(void)
{
	bool		found = zkl_wait_graph_solve(search.graph) > 0;

	for (int i = 0; i < MAX_CASES; i++)
		cases[i].is_victim = false;
	for (int i = 0; i < search.own->nrecords; i++)
		decide_record(&search.own->records[i]);
	for (int i = 0; i < MAX_CASES; i++)
	{
		if (cases[i].claim != 0)
			decide_case(&cases[i]);
	}
	return found;
}

/*
 * Let the record confirm the searches of other servers.  If its wait is a
 * victim, there is a case, and the record confirms the nonce of the case as
 * well.  So its holders, like the holders of all other records, are computed
 * after the nonce was published.
 */
static void
decide_record(const ZklWaitRecord *record)
{
	int64		nonces[ZKL_WAITRECORD_CONFIRMS];
	int			nnonces = zkl_wait_graph_searches(search.graph,
												  search.own->instance,
												  record->claim, nonces);
	Case	   *victim = find_case(record->claim);

	if (zkl_wait_graph_is_victim(search.graph, search.own->instance,
								 record->claim))
	{
		if (victim == NULL)
			victim = begin_case(record->claim);
		if (victim != NULL)
		{
			/* Set the mark again if it was dropped meanwhile. */
			zkl_wait_publisher_set_search(record->claim, victim->nonce);
			victim->is_victim = true;
			victim->confirmed = confirms(record, victim->nonce);
			victim->has_grown = zkl_wait_graph_exceeds(search.graph,
													   victim->evidence);
			if (record->search == victim->nonce)
			{
				nnonces = Min(nnonces, ZKL_WAITRECORD_CONFIRMS - 1);
				nonces[nnonces++] = victim->nonce;
			}
		}
	}
	zkl_wait_publisher_set_confirms(record->claim, nonces, nnonces);
}

static void
decide_case(Case *victim)
{
	if (victim->is_victim && victim->confirmed &&
		is_proved(victim, victim->nonce))
	{
		sentence(victim->claim);
		drop_case(victim);
	}
	else if (!victim->is_victim || !is_proved(victim, 0) ||
			 (victim->has_grown && zkl_now() >= victim->begun_at +
			  PATIENCE * ZKL_MS(zkl_wait_publisher_timeout_ms())))
		drop_case(victim);
}

static Case *
find_case(int64 claim)
{
	for (int i = 0; i < MAX_CASES; i++)
	{
		if (cases[i].claim == claim)
			return &cases[i];
	}
	return NULL;
}

static bool
any_case(void)
{
	for (int i = 0; i < MAX_CASES; i++)
	{
		if (cases[i].claim != 0)
			return true;
	}
	return false;
}

/*
 * Begin a case.  The evidence is what this search has seen, before the nonce
 * exists.  If no case is free, the next search tries again.
 */
static Case *
begin_case(int64 claim)
{
	Case	   *victim = find_case(0);
	uint64		random;

	if (victim == NULL || !pg_strong_random(&random, sizeof(random)))
		return NULL;
	if (victim->evidence == NULL)
		victim->evidence = MemoryContextAlloc(TopMemoryContext,
											  sizeof(ZklWaitEvidence));
	victim->claim = claim;
	victim->nonce = Max(1, (int64) (random & PG_INT64_MAX));
	victim->begun_at = zkl_now();
	zkl_wait_graph_note_evidence(search.graph, victim->evidence);
	zkl_wait_publisher_set_search(claim, victim->nonce);
	ZKL_FAULT_POINT("case-begun");
	return victim;
}

static void
drop_case(Case *victim)
{
	zkl_wait_publisher_set_search(victim->claim, 0);
	victim->claim = 0;
}

/*
 * Is the wait the victim of a deadlock that existed when the nonce was
 * published?  If so, the graph's members are the members of that deadlock.
 * With nonce 0, the result is as if all records confirmed.
 */
static bool
is_proved(const Case *victim, int64 nonce)
{
	ListCell   *cell;

	zkl_wait_graph_begin_proof(search.graph, nonce, victim->evidence);
	foreach(cell, search.sources)
	{
		const Source *source = lfirst(cell);

		zkl_wait_graph_add(search.graph, source->session, source->own,
						   source->set);
	}

	/* The search has already looked up all locks that the graph names. */
	while (zkl_wait_graph_next(search.graph) != NULL)
		;
	(void) zkl_wait_graph_solve(search.graph);
	return zkl_wait_graph_is_victim(search.graph, search.own->instance,
									victim->claim);
}

static bool
confirms(const ZklWaitRecord *record, int64 nonce)
{
	for (int i = 0; i < record->nconfirms; i++)
	{
		if (record->confirms[i] == nonce)
			return true;
	}
	return false;
}

/*
 * Ending a deadlock
 */

/*
 * The graph has the circle, with the victim first.  The last member waits for
 * a claim of the victim's server; cancel the backend of that claim.
 */
static void
sentence(int64 claim)
{
	const ZklGraphMember *members = search.graph->members;
	int			nmembers = search.graph->nmembers;
	const ZklWaitHold *entered = members[nmembers - 1].waits_for;
	ZklWaitSentence *verdict = palloc0(sizeof(ZklWaitSentence));
	StringInfoData detail;

	ZKL_FAULT_POINT("deadlock-proved");
	verdict->until = search.good_until;
	verdict->pid = entered->pid;
	verdict->token = entered->claim;
	strlcpy(verdict->path, entered->path, sizeof(verdict->path));
	initStringInfo(&detail);
	for (int i = 0; i < nmembers; i++)
	{
		const ZklGraphMember *next = &members[(i + 1) % nmembers];

		if (i > 0)
			appendStringInfoChar(&detail, '\n');
		describe(&detail, &members[i], next);
		add_process(verdict, members[i].set, members[i].record->pid);
		add_process(verdict, next->set, members[i].waits_for->pid);
	}
	strlcpy(verdict->detail, detail.data, sizeof(verdict->detail));
	zkl_waits_sentence(claim, verdict);
}

/* Log the statements of this server's processes. */
static void
add_process(ZklWaitSentence *to, const ZklWaitSet *set, int pid)
{
	bool		known = set->instance != search.own->instance ||
	to->nprocesses == ZKL_WAITS_PROCESSES;

	for (int i = 0; i < to->nprocesses; i++)
		known |= to->processes[i] == pid;
	if (!known)
		to->processes[to->nprocesses++] = pid;
}

/*
 * Describe a member of a deadlock as PostgreSQL does, with the servers.  If
 * the holder does not wait for a ticket itself, it waits for the backend that
 * waits for one.
 */
static void
describe(StringInfo detail, const ZklGraphMember *member,
		 const ZklGraphMember *next)
{
	const ZklWaitRecord *record = member->record;
	const char *server = shown(member->set->server);
	const char *next_server = shown(next->set->server);

	appendStringInfo(detail, _("Process %d on server \"%s\" waits for "),
					 record->pid, server);
	switch (record->mode)
	{
		case ZKL_MODE_WRITE:
			appendStringInfo(detail, _("write lock \"%s\""), record->path);
			break;
		case ZKL_MODE_READ:
			appendStringInfo(detail, _("read lock \"%s\""), record->path);
			break;
		case ZKL_MODE_LEASE:
			appendStringInfo(detail, ngettext("%d lease of semaphore \"%s\"",
											  "%d leases of semaphore \"%s\"",
											  record->leases),
							 record->leases, record->path);
			break;
		case ZKL_MODE_LOCK:
		case ZKL_MODE_KAZOO_LOCK:
		case ZKL_MODE_KAZOO_READ:
			appendStringInfo(detail, _("lock \"%s\""), record->path);
			break;
	}
	appendStringInfo(detail, _("; blocked by process %d on server \"%s\"."),
					 member->waits_for->pid, next_server);
	if (member->waits_for->pid != next->record->pid)
		appendStringInfo(detail, _("\nProcess %d on server \"%s\" waits for process %d of that server."),
						 member->waits_for->pid, next_server,
						 next->record->pid);
}

/* Another client may have written this text, so make it safe to show. */
static const char *
shown(const char *name)
{
	char	   *result = palloc(4 * strlen(name) + 1);

	zkl_field_text_show(name, result);
	return result;
}
