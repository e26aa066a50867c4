/*-------------------------------------------------------------------------
 *
 * test_wait_graph.c
 *	  Deadlocks between servers, case by case: plays the traces in
 *	  wait_graph.trace, which describes its words.
 *
 * test/unit/test_wait_graph.c
 *
 *-------------------------------------------------------------------------
 */
#include "names.h"
#include "trace.h"

#include "deadlock/waitgraph.h"

#define NSERVERS	300

static ZklWaitSet sets[NSERVERS];
static ZklWaitGraph graph;
static ZklWaitEvidence evidence;
static char paths[100][16];		/* of the trace */
static int	npaths;

static void
trace_begin(void)
{
	for (int i = 0; i < NSERVERS; i++)
	{
		sets[i].instance = i + 1000;
		sets[i].server = "s";
		sets[i].truncated = false;
		sets[i].nrecords = sets[i].nholds = 0;
	}
	npaths = 0;
}

/* A backend waits. */
static ZklWaitRecord *
waits(int server, int claim, ZklMode mode, const char *path)
{
	ZklWaitSet *set = &sets[server];
	ZklWaitRecord *record = &set->records[set->nrecords++];

	*record = (ZklWaitRecord) {
		.claim = claim,.znode = "x",.pid = 10 * claim,.path = path,.mode = mode,.leases = 1,
		.limit = 1,.owner_text = "",.first_hold = set->nholds
	};
	return record;
}

/* ... and meanwhile this claim, of its server's last record, is stuck. */
static ZklWaitHold *
holds(int server, int claim, ZklMode mode, const char *path)
{
	ZklWaitSet *set = &sets[server];
	ZklWaitHold *hold = &set->holds[set->nholds++];

	*hold = (ZklWaitHold) {
		.claim = claim,.pid = 10 * claim,.mode = mode,.leases = 1,.path = path
	};
	set->records[set->nrecords - 1].nholds++;
	return hold;
}

static int
solve(void)
{
	zkl_wait_graph_begin(&graph);
	for (int i = 0; i < NSERVERS; i++)
		zkl_wait_graph_add(&graph, i, false, &sets[i]);
	return zkl_wait_graph_solve(&graph);
}

/*
 * The interpreter
 */

/* "field=value": how a wait or a hold differs from the usual ones. */
static void
set_field(ZklWaitRecord *record, ZklWaitHold *hold, const char *word)
{
	int			value = atoi(strchr(word, '=') + 1);

	if (strncmp(word, "czxid=", 6) == 0)
		record->czxid = value;
	else if (strncmp(word, "limit=", 6) == 0)
		record->limit = value;
	else if (strncmp(word, "search=", 7) == 0)
		record->search = value;
	else if (strncmp(word, "confirms=", 9) == 0)
		record->confirms[record->nconfirms++] = value;
	else if (strncmp(word, "nconfirms=", 10) == 0)
		record->nconfirms = value;
	else if (strncmp(word, "stuck=", 6) == 0)
		hold->stuck = value;
	else if (strncmp(word, "use=", 4) == 0)
		hold->is_use = value;
	else if (strncmp(word, "claim=", 6) == 0)
		*(record ? &record->claim : &hold->claim) = value;
	else if (strncmp(word, "pid=", 4) == 0)
		*(record ? &record->pid : &hold->pid) = value;
	else if (strncmp(word, "leases=", 7) == 0)
		*(record ? &record->leases : &hold->leases) = value;
	else
		fail_msg("unknown field \"%s\"", word);
}

/* "waits" or "holds SERVER CLAIM MODE PATH field=value ..." */
static void
wait_or_hold(const TraceLine *line)
{
	int			server = atoi(line->event[1]);
	int			claim = atoi(line->event[2]);
	int			mode = trace_find(mode_names, NMODES, line->event[3]);
	const char *path = strcpy(paths[npaths++], line->event[4]);
	bool		is_wait = strcmp(line->event[0], "waits") == 0;
	ZklWaitRecord *record = is_wait ? waits(server, claim, (ZklMode) mode, path) : NULL;
	ZklWaitHold *hold = is_wait ? NULL : holds(server, claim, (ZklMode) mode, path);

	for (int i = 5; i < line->nevent; i++)
		set_field(record, hold, line->event[i]);
}

/* "change SERVER wait", "hold" or "set", its index, and "field=value ...". */
static void
change(const TraceLine *line)
{
	ZklWaitSet *set = &sets[atoi(line->event[1])];
	int			index = atoi(line->event[3]);

	for (int i = 4; i < line->nevent; i++)
	{
		int			value = atoi(strchr(line->event[i], '=') + 1);

		if (strncmp(line->event[i], "instance=", 9) == 0)
			set->instance = value;
		else if (strncmp(line->event[i], "nrecords=", 9) == 0)
			set->nrecords = value;
		else if (strcmp(line->event[2], "wait") == 0)
			set_field(&set->records[index], NULL, line->event[i]);
		else
			set_field(NULL, &set->holds[index], line->event[i]);
	}
}

/* The circle: each claim that waits, and the claim for which it waits. */
static void
tell_members(char *effect)
{
	for (int i = 0; i < graph.nmembers; i++)
	{
		const ZklWaitRecord *record = graph.members[i].record;
		const ZklWaitHold *hold = graph.members[i].waits_for;

		assert_string_equal(hold->path, record->path);
		trace_add(effect, "%d>%d", (int) record->claim, (int) hold->claim);
		if (hold->pid != 10 * hold->claim)
			trace_add(effect, "pid=%d", (int) hold->pid);
	}
}

static void
tell_solution(int nstuck, char *effect)
{
	trace_add(effect, "%d", nstuck);
	for (int i = 0; i < NSERVERS; i++)
	{
		for (int j = 0; j < sets[i].nrecords; j++)
		{
			if (!zkl_wait_graph_is_victim(&graph, sets[i].instance, sets[i].records[j].claim))
				continue;
			trace_add(effect, "victim=%d", (int) sets[i].records[j].claim);
			tell_members(effect);
		}
	}
	trace_add(effect, graph.complete ? "complete" : "");
}

/* "add SERVER", "mine" if the search begins there, "none" if it has no records; "3..9" are many. */
static void
add(const TraceLine *line)
{
	const char *last = strstr(line->event[1], "..");
	const char *how = line->nevent > 2 ? line->event[2] : "";

	for (int i = atoi(line->event[1]); i <= atoi(last ? last + 2 : line->event[1]); i++)
		zkl_wait_graph_add(&graph, i, strcmp(how, "mine") == 0, strcmp(how, "none") == 0 ? NULL : &sets[i]);
}

/* "prove SERVER CLAIM NONCE": solve again with the records that confirm. */
static void
prove(const TraceLine *line, char *effect)
{
	int			server = atoi(line->event[1]);

	zkl_wait_graph_begin_proof(&graph, atoi(line->event[3]), &evidence);
	for (int i = 0; i < NSERVERS; i++)
		zkl_wait_graph_add(&graph, i, i == server, &sets[i]);
	zkl_wait_graph_solve(&graph);
	if (zkl_wait_graph_is_victim(&graph, sets[server].instance, atoi(line->event[2])))
	{
		trace_add(effect, "proved");
		tell_members(effect);
	}
}

/* A question to the graph. */
static void
ask(const TraceLine *line, char *effect)
{
	const char *what = line->event[0];
	int64_t		nonces[ZKL_WAITRECORD_CONFIRMS];
	const ZklWaitRecord *next;

	if (strcmp(what, "next") == 0)
	{
		next = zkl_wait_graph_next(&graph);
		trace_add(effect, "%s", next ? next->path : "");
	}
	else if (strcmp(what, "has") == 0)
		trace_add(effect, zkl_wait_graph_has(&graph, atoi(line->event[1])) ? "yes" : "");
	else if (strcmp(what, "nodes") == 0)
		trace_add(effect, "%d", graph.nnodes);
	else if (strcmp(what, "note-evidence") == 0)
	{
		zkl_wait_graph_note_evidence(&graph, &evidence);
		trace_add(effect, "%d", evidence.nitems);
	}
	else if (strcmp(what, "exceeds") == 0)
		trace_add(effect, zkl_wait_graph_exceeds(&graph, &evidence) ? "yes" : "");
	else if (strcmp(what, "searches") == 0)
	{
		int			n = zkl_wait_graph_searches(&graph, atoi(line->event[1]) + 1000,
												atoi(line->event[2]), nonces);

		for (int i = 0; i < n; i++)
			trace_add(effect, "%d", (int) nonces[i]);
	}
	else
		trace_add(effect, "unknown event");
}

/* Play a line, and tell the effect as a line does. */
static void
trace_play(const TraceLine *line, char *effect)
{
	const char *what = line->event[0];

	if (strcmp(what, "waits") == 0 || strcmp(what, "holds") == 0)
		wait_or_hold(line);
	else if (strcmp(what, "change") == 0)
		change(line);
	else if (strcmp(what, "solve") == 0)
		tell_solution(solve(), effect);
	else if (strcmp(what, "solve-these") == 0)
		tell_solution(zkl_wait_graph_solve(&graph), effect);
	else if (strcmp(what, "begin") == 0)
		zkl_wait_graph_begin(&graph);
	else if (strcmp(what, "add") == 0)
		add(line);
	else if (strcmp(what, "prove") == 0)
		prove(line, effect);
	else
		ask(line, effect);
}

static bool
trace_fact(const char *fact, char *now)
{
	(void) fact;
	strcpy(now, "there are no facts here");
	return false;
}

/* Records without room are left out, and nothing is written beyond. */
TEST(what_does_not_fit_is_left_out)
{
	static char paths[NSERVERS][64][16];
	int			nstuck;

	trace_begin();
	for (int i = 0; i < NSERVERS; i++)
	{
		for (int j = 0; j < ZKL_WAITRECORD_WAITS; j++)
		{
			sprintf(paths[i][j], "/%d/%d", i, j);
			waits(i, j + 1, ZKL_MODE_LOCK, i == 0 ? "/x" : paths[i - 1][j])->czxid = i * 100 + j;
			for (int k = 0; k < 8; k++)
				holds(i, 100 + j * 10 + k, ZKL_MODE_LOCK, k == 0 ? paths[i][j] : "/x");
		}
	}
	nstuck = solve();
	assert_false(graph.complete);
	assert_true(nstuck > 400 && nstuck <= ZKL_WAITGRAPH_NODES);
	for (int i = 0; i < NSERVERS; i++)
	{
		for (int j = 0; j < sets[i].nrecords; j++)
		{
			sets[i].records[j].nholds = 0;
			sets[i].records[j].path = "/y";
		}
	}
	assert_int_equal(solve(), 0);
	assert_false(graph.complete);
	for (int i = 0; i < NSERVERS; i++)
		sets[i].nrecords = 0;
	assert_int_equal(solve(), 0);
	assert_false(graph.complete);	/* too many sessions */
	assert_false(zkl_wait_graph_has(&graph, NSERVERS - 1));
}

/* What is missing in a text that was cut may be what ends a wait. */
TEST(a_cut_text_is_incomplete)
{
	trace_begin();
	waits(0, 1, ZKL_MODE_LOCK, "/a");
	for (int truncated = 0; truncated < 2; truncated++)
	{
		sets[0].truncated = truncated;
		zkl_wait_graph_begin(&graph);
		zkl_wait_graph_add(&graph, 0, false, &sets[0]);
		assert_int_equal(graph.complete, !truncated);
	}
}

int
main(void)
{
	return trace_main("wait graph", "test/unit/wait_graph.trace");
}
