/*-------------------------------------------------------------------------
 *
 * deadlockproof.c
 *	  What the worker does about the deadlocks that a search has found.
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
 * src/worker/deadlockproof.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/memutils.h"

#include "faultpoint.h"
#include "protocol/fieldtext.h"
#include "settings.h"
#include "shared/waits.h"
#include "worker/deadlockproof.h"
#include "worker/waitcontents.h"

#define MAX_CASES		ZKL_WAITRECORD_WAITS

/*
 * After this many times deadlock_timeout, all servers have had time to
 * confirm.
 */
#define PATIENCE		2

typedef struct Case
{
	int64		claim;			/* the victim's claim; 0: the case is free */
	int64		nonce;
	ZklWaitEvidence *evidence;
	int64		begun_at;

	/* what the last search has seen */
	bool		is_victim;
	bool		confirmed;		/* confirmed by the record itself */
	bool		has_grown;		/* the deadlock is more than the evidence */
} Case;

static Case cases[MAX_CASES];

/* What the present search has read. */
static ZklWaitGraph *graph;
static const ZklWaitSet *own;
static const ZklDeadlockSeen *seen;

static void decide_record(const ZklWaitRecord *record);
static void decide_case(Case *victim);
static Case *find_case(int64 claim);
static Case *begin_case(int64 claim);
static void drop_case(Case *victim);
static bool is_proved(const Case *victim, int64 nonce);
static void leave_out_readers(ZklWaitSet *set);
static bool is_queued(const ZklWaitRecord *record);
static bool confirms(const ZklWaitRecord *record, int64 nonce);
static void sentence(int64 claim);
static void add_process(ZklWaitSentence *to, const ZklWaitSet *set, int pid);
static void describe(StringInfo detail, const ZklGraphMember *member,
					 const ZklGraphMember *next);
static const char *shown(const char *name);

/*
 * Take everything from the graph before the proof, because a proof makes
 * another graph.
 */
bool
zkl_deadlock_proof_decide(ZklWaitGraph *the_graph,
						  const ZklDeadlockSeen *the_seen)
{
	bool		found;
	ListCell   *cell;

	graph = the_graph;
	seen = the_seen;
	own = seen->own;
	found = zkl_wait_graph_solve(graph) > 0;

	for (int i = 0; i < MAX_CASES; i++)
		cases[i].is_victim = false;
	for (int i = 0; i < own->nrecords; i++)
		decide_record(&own->records[i]);
	foreach(cell, seen->sources)
		leave_out_readers(((ZklDeadlockSource *) lfirst(cell))->set);
	for (int i = 0; i < MAX_CASES; i++)
	{
		if (cases[i].claim != 0)
			decide_case(&cases[i]);
	}
	return found;
}

/*
 * Let the record confirm the searches of other servers.  If its wait is a
 * victim, there is a case, and the record confirms that as well.  So its
 * holders, like those of all other records, are computed after the nonce was
 * published.
 */
static void
decide_record(const ZklWaitRecord *record)
{
	int64		nonces[ZKL_WAITRECORD_CONFIRMS];
	int			nnonces = zkl_wait_graph_searches(graph,
												  own->instance,
												  record->claim, nonces);
	Case	   *victim = find_case(record->claim);

	if (zkl_wait_graph_is_victim(graph, own->instance,
								 record->claim))
	{
		if (victim == NULL)
			victim = begin_case(record->claim);
		if (victim != NULL)
		{
			/* Set the mark again if it was dropped meanwhile. */
			zkl_wait_contents_set_search(record->claim, victim->nonce);
			victim->is_victim = true;
			victim->confirmed = confirms(record, victim->nonce);
			victim->has_grown = zkl_wait_graph_exceeds(graph,
													   victim->evidence);
			if (record->search == victim->nonce)
			{
				nnonces = Min(nnonces, ZKL_WAITRECORD_CONFIRMS - 1);
				nonces[nnonces++] = victim->nonce;
			}
		}
	}
	zkl_wait_contents_set_confirms(record->claim, nonces, nnonces);
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
			  PATIENCE * ZKL_MS(zkl_wait_contents_timeout_ms())))
		drop_case(victim);
}

bool
zkl_deadlock_proof_any(void)
{
	for (int i = 0; i < MAX_CASES; i++)
	{
		if (cases[i].claim != 0)
			return true;
	}
	return false;
}

void
zkl_deadlock_proof_forget(void)
{
	for (int i = 0; i < MAX_CASES; i++)
		cases[i].claim = 0;
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
	zkl_wait_graph_note_evidence(graph, victim->evidence);
	zkl_wait_contents_set_search(claim, victim->nonce);
	ZKL_FAULT_POINT("case-begun");
	return victim;
}

static void
drop_case(Case *victim)
{
	zkl_wait_contents_set_search(victim->claim, 0);
	victim->claim = 0;
}

/*
 * Is the wait the victim of a deadlock that existed when the nonce was
 * published?  If so, the graph's members are those of that deadlock.  With
 * nonce 0: would it be, if all records confirmed?
 */
static bool
is_proved(const Case *victim, int64 nonce)
{
	ListCell   *cell;

	zkl_wait_graph_begin_proof(graph, nonce, victim->evidence);
	foreach(cell, seen->sources)
	{
		const ZklDeadlockSource *source = lfirst(cell);

		zkl_wait_graph_add(graph, source->session, source->own,
						   source->set);
	}

	/* The search has already looked up all locks that this names. */
	while (zkl_wait_graph_next(graph) != NULL)
		;
	(void) zkl_wait_graph_solve(graph);
	return zkl_wait_graph_is_victim(graph, own->instance,
									victim->claim);
}

/*
 * A reader waits only while a writer is before it.  That writer may have left
 * the queue without the knowledge of the reader's worker: the worker of a
 * further session does not read the nonce that the first worker confirms for
 * it.  So a proof needs to see the reader in the queue.  If the reader
 * instead waits for readers of its own server, whose ticket it may not join,
 * its server knows that itself.
 */
static void
leave_out_readers(ZklWaitSet *set)
{
	for (int i = 0; set != NULL && i < set->nrecords; i++)
	{
		ZklWaitRecord *record = &set->records[i];
		bool		behind_own = false;

		for (int j = 0; j < set->nholds; j++)
			behind_own |= strcmp(set->holds[j].path, record->path) == 0;
		if (record->mode == ZKL_MODE_READ && !behind_own && !is_queued(record))
			record->nholds = 0;
	}
}

static bool
is_queued(const ZklWaitRecord *record)
{
	ListCell   *cell;

	foreach(cell, seen->readers)
	{
		const ZklDeadlockReader *reader = lfirst(cell);

		if (strcmp(reader->path, record->path) == 0 &&
			strcmp(reader->znode, record->znode) == 0)
			return true;
	}
	return false;
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
	const ZklGraphMember *members = graph->members;
	int			nmembers = graph->nmembers;
	const ZklWaitHold *entered = members[nmembers - 1].waits_for;
	ZklWaitSentence *verdict = palloc0(sizeof(ZklWaitSentence));
	StringInfoData detail;

	ZKL_FAULT_POINT("deadlock-proved");
	verdict->until = seen->good_until;
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
	bool		known = set->instance != own->instance ||
	to->nprocesses == ZKL_WAITS_PROCESSES;

	for (int i = 0; i < to->nprocesses; i++)
		known |= to->processes[i] == pid;
	if (!known)
		to->processes[to->nprocesses++] = pid;
}

/*
 * Describe a member of a deadlock as PostgreSQL does, with the servers.  If
 * the holder itself does not wait for a ticket, it waits for the backend that
 * does.
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
