/*-------------------------------------------------------------------------
 *
 * test_wait_graph.c
 *	  Deadlocks between servers, told one by one.
 *
 * Servers are numbers; so are claims, and each claim's backend has ten times
 * its number as pid, if nothing else is said.
 *
 * test/unit/test_wait_graph.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/waitgraph.h"

#define NSERVERS	300

#define LOCK	ZKL_MODE_LOCK
#define WRITE	ZKL_MODE_WRITE
#define READ	ZKL_MODE_READ
#define LEASE	ZKL_MODE_LEASE

static ZklWaitSet sets[NSERVERS];
static ZklWaitGraph graph;
static ZklWaitEvidence evidence;

static int
begin(void **state)
{
	(void) state;
	for (int i = 0; i < NSERVERS; i++)
	{
		sets[i].instance = i + 1000;
		sets[i].server = "s";
		sets[i].truncated = false;
		sets[i].nrecords = sets[i].nholds = 0;
	}
	return 0;
}

/* A backend waits; its znode has the czxid. */
static ZklWaitRecord *
waits(int server, int claim, ZklMode mode, const char *path, int64_t czxid)
{
	ZklWaitSet *set = &sets[server];
	ZklWaitRecord *record = &set->records[set->nrecords++];

	*record = (ZklWaitRecord) {
		.claim = claim, .czxid = czxid, .znode = "x", .pid = 10 * claim,
		.path = path, .mode = mode, .leases = 1, .limit = 1, .about = "",
		.first_hold = set->nholds
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
		.claim = claim, .pid = 10 * claim, .mode = mode, .leases = 1,
		.path = path
	};
	set->records[set->nrecords - 1].nholds++;
	return hold;
}

/* The same for leases. */
static ZklWaitRecord *
waits_for_leases(int server, int claim, const char *path, int64_t czxid,
				 int leases, int limit)
{
	ZklWaitRecord *record = waits(server, claim, LEASE, path, czxid);

	record->leases = leases;
	record->limit = limit;
	return record;
}

static void
holds_leases(int server, int claim, const char *path, int leases)
{
	holds(server, claim, LEASE, path)->leases = leases;
}

static int
solve(void)
{
	zkl_wait_graph_begin(&graph);
	for (int i = 0; i < NSERVERS; i++)
		zkl_wait_graph_add(&graph, i, false, &sets[i]);
	return zkl_wait_graph_solve(&graph);
}

static bool
is_victim(int server, int claim)
{
	return zkl_wait_graph_is_victim(&graph, sets[server].instance, claim);
}

/* Who is the victim, of all?  0: nobody; -1: more than one. */
static int
victim(void)
{
	int			found = 0;

	for (int i = 0; i < NSERVERS; i++)
	{
		for (int j = 0; j < sets[i].nrecords; j++)
		{
			if (is_victim(i, (int) sets[i].records[j].claim))
				found = found == 0 ? (int) sets[i].records[j].claim : -1;
		}
	}
	return found;
}

/* The member of the circle waits for a claim of the next. */
static void
assert_member(int i, int64_t claim, int64_t waits_for)
{
	assert_true(i < graph.nmembers);
	assert_int_equal(graph.members[i].record->claim, claim);
	assert_int_equal(graph.members[i].waits_for->claim, waits_for);
	assert_string_equal(graph.members[i].waits_for->path,
						graph.members[i].record->path);
}

/*
 * Mutexes
 */

static void
no_records_no_deadlock(void **state)
{
	(void) state;
	assert_int_equal(solve(), 0);
	assert_false(is_victim(1, 1));
}

static void
two_servers_two_mutexes(void **state)
{
	(void) state;
	waits(1, 1, LOCK, "/b", 100);
	holds(1, 2, LOCK, "/a")->pid = 10;
	waits(2, 3, LOCK, "/a", 101);
	holds(2, 4, LOCK, "/b")->pid = 30;
	assert_int_equal(solve(), 2);
	assert_false(is_victim(1, 1));
	assert_true(is_victim(2, 3));
	assert_int_equal(graph.nmembers, 2);
	assert_member(0, 3, 2);
	assert_member(1, 1, 4);
	assert_int_equal(graph.members[1].waits_for->pid, 30);
}

static void
a_holder_without_a_record_can_go_on(void **state)
{
	(void) state;
	waits(1, 1, LOCK, "/b", 100);
	holds(1, 2, LOCK, "/a");
	waits(2, 3, LOCK, "/a", 101);
	holds(2, 4, LOCK, "/c");
	assert_int_equal(solve(), 0);
	assert_int_equal(victim(), 0);
}

static void
three_servers(void **state)
{
	(void) state;
	waits(1, 1, LOCK, "/b", 109);
	holds(1, 2, LOCK, "/a");
	waits(2, 3, LOCK, "/c", 101);
	holds(2, 4, LOCK, "/b");
	waits(3, 5, LOCK, "/a", 103);
	holds(3, 6, LOCK, "/c");
	assert_int_equal(solve(), 3);
	assert_int_equal(victim(), 1);
	assert_true(is_victim(1, 1));
	assert_int_equal(graph.nmembers, 3);
	assert_member(0, 1, 4);
	assert_member(1, 3, 6);
	assert_member(2, 5, 2);
}

static void
waits_for_one_ticket_go_by_claim(void **state)
{
	(void) state;

	/* Two readers of one server wait for its ticket. */
	waits(1, 7, READ, "/b", 100);
	holds(1, 1, LOCK, "/a");
	waits(1, 8, READ, "/b", 100);
	holds(1, 2, LOCK, "/c");
	waits(2, 3, LOCK, "/a", 50);
	holds(2, 4, WRITE, "/b");
	assert_int_equal(solve(), 3);

	/* The second holds nothing that anyone waits for. */
	assert_int_equal(victim(), 7);
	waits(3, 5, LOCK, "/c", 60);
	holds(3, 6, WRITE, "/b");
	assert_int_equal(solve(), 4);
	assert_int_equal(victim(), 8);
}

static void
behind_a_deadlock_is_no_victim(void **state)
{
	(void) state;
	two_servers_two_mutexes(state);
	waits(3, 5, LOCK, "/a", 900);
	holds(3, 6, LOCK, "/z");
	waits(4, 7, LOCK, "/z", 901);
	holds(4, 8, LOCK, "/y");
	assert_int_equal(solve(), 4);
	assert_int_equal(victim(), 3);
}

static void
two_deadlocks_have_two_victims(void **state)
{
	(void) state;
	two_servers_two_mutexes(state);
	waits(3, 5, LOCK, "/y", 1);
	holds(3, 6, LOCK, "/z");
	waits(4, 7, LOCK, "/z", 2);
	holds(4, 8, LOCK, "/y");
	assert_int_equal(solve(), 4);
	assert_true(is_victim(2, 3));
	assert_true(is_victim(4, 7));
	assert_false(is_victim(1, 1));
	assert_false(is_victim(3, 5));
}

/* A circle outside of which there is another one, is not innermost. */
static void
the_innermost_circle_goes_first(void **state)
{
	(void) state;
	two_servers_two_mutexes(state);

	/* Server 3 writes after a reader of server 4 and one of server 1. */
	waits(3, 5, WRITE, "/q", 1000);
	holds(3, 6, LOCK, "/p");
	waits(4, 7, LOCK, "/p", 1001);
	holds(4, 8, READ, "/q");
	holds(1, 9, READ, "/q");
	assert_int_equal(solve(), 4);
	assert_int_equal(victim(), 3);
}

static void
a_server_that_waits_for_itself(void **state)
{
	(void) state;

	/* Claim 2 is of a backend that waits for a row of the one that waits. */
	waits(1, 1, LOCK, "/a", 100);
	holds(1, 2, LOCK, "/a");
	assert_int_equal(solve(), 1);
	assert_true(is_victim(1, 1));
	assert_int_equal(graph.nmembers, 1);
	assert_member(0, 1, 2);
	assert_int_equal(graph.members[0].waits_for->pid, 20);
}

static void
one_server_with_two_sessions(void **state)
{
	(void) state;
	waits(1, 1, LOCK, "/b", 100);
	holds(1, 2, LOCK, "/a");
	waits(2, 3, LOCK, "/a", 101);
	holds(2, 4, LOCK, "/b");
	sets[2].instance = sets[1].instance;
	assert_int_equal(solve(), 2);
	assert_int_equal(victim(), 3);
}

/*
 * Which backend ends
 */

static void
the_holder_ends_not_the_one_that_waits(void **state)
{
	(void) state;

	/* A local waiter that holds nothing, before one that does. */
	waits(1, 1, LOCK, "/q", 200);
	holds(1, 2, LOCK, "/p")->pid = 4711;
	waits(2, 3, LOCK, "/p", 100);
	holds(2, 4, LOCK, "/q");
	assert_int_equal(solve(), 2);
	assert_true(is_victim(1, 1));
	assert_member(1, 3, 2);
	assert_int_equal(graph.members[1].waits_for->pid, 4711);
}

static void
the_one_that_waits_ends_if_it_holds_such_a_lock(void **state)
{
	(void) state;
	waits(1, 1, LOCK, "/q", 200);
	holds(1, 9, READ, "/p");
	holds(1, 2, READ, "/r")->pid = 10;
	holds(1, 8, READ, "/r");
	holds(1, 99, LOCK, "/unwanted");
	waits(2, 3, WRITE, "/p", 100);
	holds(2, 4, READ, "/q");
	waits(3, 5, WRITE, "/r", 101);
	holds(3, 6, READ, "/q");
	assert_int_equal(solve(), 3);
	assert_true(is_victim(1, 1));
	assert_member(1, 5, 2);
	sets[1].holds[1].pid = 7;
	assert_int_equal(solve(), 3);
	assert_true(is_victim(1, 1));
	assert_member(1, 3, 9);
}

/*
 * Read-write locks
 */

/* The writer in the queue between the two readers of /q has no record. */
static void
a_writer_between_two_readers(void **state)
{
	(void) state;
	waits(1, 1, LOCK, "/p", 100);
	holds(1, 2, READ, "/q");
	waits(2, 3, READ, "/q", 101);
	holds(2, 4, LOCK, "/p");
	assert_int_equal(solve(), 2);
	assert_int_equal(victim(), 3);
}

static void
a_writer_waits_for_all_readers(void **state)
{
	(void) state;
	waits(1, 1, WRITE, "/q", 100);
	holds(1, 2, LOCK, "/p");
	waits(2, 3, LOCK, "/p", 101);
	holds(2, 4, READ, "/q");
	waits(3, 5, LOCK, "/p", 102);
	holds(3, 6, READ, "/q");
	assert_int_equal(solve(), 3);
	assert_int_equal(victim(), 5);

	/* One reader less does not help. */
	sets[3].nrecords = 0;
	assert_int_equal(solve(), 2);
	assert_int_equal(victim(), 3);
	sets[2].nrecords = 0;
	assert_int_equal(solve(), 0);
}

static void
through_one_lock_to_write_another(void **state)
{
	(void) state;

	/* Two servers read both locks, and each wants to write one. */
	waits(1, 1, WRITE, "/a", 100);
	holds(1, 2, READ, "/b");
	waits(2, 3, WRITE, "/b", 101);
	holds(2, 4, READ, "/a");
	assert_int_equal(solve(), 2);
	assert_int_equal(victim(), 3);
}

/*
 * Semaphores
 */

static void
enough_leases_are_left(void **state)
{
	(void) state;
	waits_for_leases(1, 1, "/s", 100, 1, 3);
	holds(1, 2, LOCK, "/p");
	waits(2, 3, LOCK, "/p", 101);
	holds_leases(2, 4, "/s", 2);
	assert_int_equal(solve(), 0);
	sets[2].holds[0].leases = 3;
	assert_int_equal(solve(), 2);
	assert_int_equal(victim(), 3);
	sets[1].records[0].leases = 2;
	sets[2].holds[0].leases = 2;
	assert_int_equal(solve(), 2);
}

/* Each has some, and wants some more: the waiter's own leases count, too. */
static void
own_leases_count(void **state)
{
	(void) state;
	waits_for_leases(1, 1, "/s", 100, 1, 3);
	holds_leases(1, 2, "/s", 2);
	holds(1, 3, LOCK, "/s/locks");
	waits(2, 4, LOCK, "/s/locks", 101);
	holds_leases(2, 5, "/s", 1);
	assert_int_equal(solve(), 2);
	assert_int_equal(victim(), 4);
	sets[1].records[0].limit = 4;
	assert_int_equal(solve(), 0);
}

/* A backend does not wait for the leases that it has, if others are in the way. */
static void
one_that_waits_for_more_leases(void **state)
{
	(void) state;
	waits_for_leases(1, 1, "/s", 102, 1, 3);
	holds(1, 2, LOCK, "/p")->pid = 10;
	holds_leases(1, 3, "/s", 1);
	sets[1].holds[1].pid = 10;
	waits(2, 4, LOCK, "/p", 101);
	holds_leases(2, 5, "/s", 2);
	assert_int_equal(solve(), 2);
	assert_true(is_victim(1, 1));
	assert_int_equal(graph.nmembers, 2);
	assert_member(0, 1, 5);
	assert_member(1, 4, 2);

	/* Another backend of its server may have them: that is the shorter way. */
	sets[1].holds[1].pid = 30;
	sets[1].holds[0].pid = 20;
	assert_true(is_victim(1, 1));
	assert_int_equal(graph.nmembers, 1);
	assert_member(0, 1, 3);
}

static void
three_leases_before_one(void **state)
{
	(void) state;

	/* Two of three leases are free, but the waiter for three goes first. */
	waits_for_leases(1, 1, "/s", 100, 3, 3);
	holds(1, 2, LOCK, "/s/locks");
	waits(2, 3, LOCK, "/s/locks", 99);
	holds(2, 4, LOCK, "/p");
	waits(3, 5, LOCK, "/p", 98);
	holds_leases(3, 6, "/s", 1);
	assert_int_equal(solve(), 3);
	assert_int_equal(victim(), 1);
	sets[1].records[0].leases = 2;
	assert_int_equal(solve(), 0);
}

static void
a_claim_counts_once(void **state)
{
	(void) state;

	/* Claim 3 waits for rows of both backends. */
	waits_for_leases(1, 1, "/s", 100, 1, 2);
	holds_leases(1, 3, "/s", 1);
	waits_for_leases(1, 2, "/s", 101, 1, 2);
	holds_leases(1, 3, "/s", 1);
	assert_int_equal(solve(), 0);

	/* On another server, claim 3 is another claim. */
	sets[2] = sets[1];
	sets[2].instance = 1002;
	sets[2].nrecords = 1;
	sets[2].nholds = 1;
	assert_int_equal(solve(), 3);
}

static void
leases_and_mutexes_are_different_locks(void **state)
{
	(void) state;
	waits_for_leases(1, 1, "/s", 100, 1, 1);
	holds(1, 2, LOCK, "/p");
	waits(2, 3, LOCK, "/p", 101);
	holds(2, 4, LOCK, "/s");
	assert_int_equal(solve(), 0);
}

/* Of two circles around a semaphore, one is enough to go on. */
static void
a_semaphore_needs_only_one(void **state)
{
	(void) state;
	waits_for_leases(1, 1, "/s", 100, 1, 2);
	holds(1, 2, LOCK, "/p");
	waits(2, 3, LOCK, "/p", 99);
	holds_leases(2, 4, "/s", 1);
	assert_int_equal(solve(), 0);
	waits(3, 5, LOCK, "/p", 98);
	holds_leases(3, 6, "/s", 1);
	assert_int_equal(solve(), 3);
	assert_int_equal(victim(), 1);
}

/*
 * The search
 */

/* Begin with server 1; others are looked up by the lock that they hold. */
static void
only_what_matters_is_looked_up(void **state)
{
	const ZklWaitRecord *next;

	(void) state;
	waits(1, 1, LOCK, "/b", 100);
	holds(1, 2, LOCK, "/a");
	waits(2, 3, LOCK, "/c", 101);
	holds(2, 4, LOCK, "/b");
	waits(2, 30, LOCK, "/elsewhere", 105);
	holds(2, 40, LOCK, "/d");
	waits(3, 5, LOCK, "/a", 103);
	holds(3, 6, LOCK, "/c");

	zkl_wait_graph_begin(&graph);
	zkl_wait_graph_add(&graph, 1, true, &sets[1]);
	assert_true(zkl_wait_graph_has(&graph, 1));
	assert_false(zkl_wait_graph_has(&graph, 2));
	next = zkl_wait_graph_next(&graph);
	assert_string_equal(next->path, "/b");
	assert_null(zkl_wait_graph_next(&graph));
	zkl_wait_graph_add(&graph, 2, false, &sets[2]);
	next = zkl_wait_graph_next(&graph);
	assert_string_equal(next->path, "/c");
	assert_null(zkl_wait_graph_next(&graph));

	/* Owners without a record can go on, and take no place. */
	zkl_wait_graph_add(&graph, 7, false, NULL);
	assert_false(zkl_wait_graph_has(&graph, 7));
	zkl_wait_graph_add(&graph, 3, false, &sets[3]);
	next = zkl_wait_graph_next(&graph);
	assert_string_equal(next->path, "/a");
	assert_null(zkl_wait_graph_next(&graph));
	assert_int_equal(zkl_wait_graph_solve(&graph), 3);
	assert_true(is_victim(3, 5));
	assert_true(graph.complete);
}

static void
a_session_that_was_known_may_matter_later(void **state)
{
	const ZklWaitRecord *next;

	(void) state;
	waits(1, 1, LOCK, "/b", 100);
	holds(1, 2, LOCK, "/a");
	waits(2, 3, LOCK, "/c", 101);
	holds(2, 4, LOCK, "/b");
	waits(2, 5, LOCK, "/a", 102);
	holds(2, 6, LOCK, "/d");
	waits(3, 7, LOCK, "/d", 103);
	holds(3, 8, LOCK, "/c");

	zkl_wait_graph_begin(&graph);
	zkl_wait_graph_add(&graph, 1, true, &sets[1]);
	(void) zkl_wait_graph_next(&graph);
	zkl_wait_graph_add(&graph, 2, false, &sets[2]);
	zkl_wait_graph_add(&graph, 2, false, &sets[2]);
	assert_int_equal(graph.nnodes, 3);
	next = zkl_wait_graph_next(&graph);
	assert_string_equal(next->path, "/c");
	zkl_wait_graph_add(&graph, 3, false, &sets[3]);
	next = zkl_wait_graph_next(&graph);
	assert_string_equal(next->path, "/a");
	next = zkl_wait_graph_next(&graph);
	assert_string_equal(next->path, "/d");
	assert_null(zkl_wait_graph_next(&graph));
	assert_int_equal(zkl_wait_graph_solve(&graph), 4);
	assert_true(is_victim(3, 7));
}

/* The one of a thousand readers that waits may be the last to be read. */
static void
owners_without_records_take_no_place(void **state)
{
	(void) state;
	waits(1, 1, WRITE, "/rw", 101);
	holds(1, 2, LOCK, "/a");
	waits(2, 3, LOCK, "/a", 100);
	holds(2, 4, READ, "/rw");

	zkl_wait_graph_begin(&graph);
	zkl_wait_graph_add(&graph, 1, true, &sets[1]);
	assert_string_equal(zkl_wait_graph_next(&graph)->path, "/rw");
	for (int i = 0; i < 1000; i++)
		zkl_wait_graph_add(&graph, 3 + i, false, NULL);
	zkl_wait_graph_add(&graph, 2, false, &sets[2]);
	assert_string_equal(zkl_wait_graph_next(&graph)->path, "/a");
	assert_null(zkl_wait_graph_next(&graph));
	assert_int_equal(zkl_wait_graph_solve(&graph), 2);
	assert_true(is_victim(1, 1));
	assert_true(graph.complete);
}

/* What has no room is left out, and nothing is written beyond. */
static void
what_does_not_fit_is_left_out(void **state)
{
	static char paths[NSERVERS][64][16];
	int			nstuck;

	(void) state;
	for (int i = 0; i < NSERVERS; i++)
	{
		for (int j = 0; j < ZKL_WAITRECORD_WAITS; j++)
		{
			sprintf(paths[i][j], "/%d/%d", i, j);
			waits(i, j + 1, LOCK, i == 0 ? "/x" : paths[i - 1][j], i * 100 + j);
			for (int k = 0; k < 8; k++)
				holds(i, 100 + j * 10 + k, LOCK, k == 0 ? paths[i][j] : "/x");
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

/*
 * The proof
 */

/* Solve again with what confirms. */
static bool
is_proved(int server, int claim, int64_t nonce)
{
	zkl_wait_graph_begin_proof(&graph, nonce, &evidence);
	for (int i = 0; i < NSERVERS; i++)
		zkl_wait_graph_add(&graph, i, i == server, &sets[i]);
	zkl_wait_graph_solve(&graph);
	return is_victim(server, claim);
}

/* Server 2 has begun a search for two_servers_two_mutexes(). */
static void
begin_search(void **state)
{
	int64_t		nonces[ZKL_WAITRECORD_CONFIRMS];

	two_servers_two_mutexes(state);
	zkl_wait_graph_note_evidence(&graph, &evidence);
	assert_int_equal(evidence.nitems, 2);
	assert_false(is_proved(2, 3, 17));

	sets[2].records[0].search = 17;
	assert_false(is_proved(2, 3, 17));
	assert_int_equal(solve(), 2);
	assert_int_equal(zkl_wait_graph_searches(&graph, 1001, 1, nonces), 1);
	assert_int_equal(nonces[0], 17);
	assert_int_equal(zkl_wait_graph_searches(&graph, 1002, 3, nonces), 0);
	sets[1].records[0].confirms[0] = 3;
	sets[1].records[0].confirms[1] = 17;
	sets[1].records[0].nconfirms = 2;
}

static void
a_deadlock_is_proved(void **state)
{
	begin_search(state);
	assert_true(is_proved(2, 3, 17));
	assert_int_equal(graph.nmembers, 2);
	assert_false(is_proved(2, 3, 18));
	assert_true(is_proved(2, 3, 17));
	sets[1].records[0].nconfirms = 1;
	assert_false(is_proved(2, 3, 17));
}

static void
another_wait_proves_nothing(void **state)
{
	begin_search(state);
	sets[1].records[0].claim = 5;
	assert_false(is_proved(2, 3, 17));
	sets[1].records[0].claim = 1;
	assert_true(is_proved(2, 3, 17));
	sets[1].records[0].czxid++;
	assert_false(is_proved(2, 3, 17));
	sets[1].records[0].czxid--;
	sets[1].instance++;
	assert_false(is_proved(2, 3, 17));
}

static void
another_hold_proves_nothing(void **state)
{
	begin_search(state);
	sets[1].holds[0].claim = 5;
	assert_false(is_proved(2, 3, 17));
	sets[1].holds[0].claim = 2;
	sets[1].holds[0].stuck++;
	assert_false(is_proved(2, 3, 17));
	sets[1].holds[0].stuck--;
	assert_true(is_proved(2, 3, 17));
	sets[2].holds[0].stuck++;
	assert_false(is_proved(2, 3, 17));
}

/* What has joined the deadlock since is more than the evidence. */
static void
the_evidence_may_be_exceeded(void **state)
{
	begin_search(state);
	assert_int_equal(solve(), 2);
	assert_true(is_victim(2, 3));
	assert_false(zkl_wait_graph_exceeds(&graph, &evidence));
	assert_true(is_proved(2, 3, 0));

	/* ... but not what is only stuck behind it. */
	waits(3, 5, LOCK, "/a", 103);
	holds(3, 6, LOCK, "/z");
	assert_int_equal(solve(), 3);
	assert_true(is_victim(2, 3));
	assert_false(zkl_wait_graph_exceeds(&graph, &evidence));
	waits(4, 7, LOCK, "/b", 99);
	holds(4, 8, LOCK, "/a");
	assert_int_equal(solve(), 4);
	assert_true(is_victim(2, 3));
	assert_true(zkl_wait_graph_exceeds(&graph, &evidence));
	assert_true(is_proved(2, 3, 0));

	/* Without any nonce, evidence that was replaced is no proof. */
	sets[1].holds[0].stuck++;
	assert_false(is_proved(2, 3, 0));
}

/* Of a semaphore's holders, so many must confirm that leases are missing. */
static void
all_that_is_needed_must_confirm(void **state)
{
	(void) state;
	a_semaphore_needs_only_one(state);
	zkl_wait_graph_note_evidence(&graph, &evidence);
	assert_int_equal(evidence.nitems, 3);
	sets[1].records[0].search = 17;
	sets[2].records[0].confirms[0] = 17;
	sets[2].records[0].nconfirms = 1;
	assert_false(is_proved(1, 1, 17));
	sets[3].records[0].confirms[0] = 17;
	sets[3].records[0].nconfirms = 1;
	assert_true(is_proved(1, 1, 17));
}

/* A writer is stuck behind one reader, whatever the others say. */
static void
not_all_readers_need_to_confirm(void **state)
{
	(void) state;
	a_writer_waits_for_all_readers(state);
	sets[2].nrecords = sets[3].nrecords = 1;
	sets[1].records[0].czxid = 500;
	assert_int_equal(solve(), 3);
	assert_int_equal(victim(), 1);
	assert_true(is_victim(1, 1));
	zkl_wait_graph_note_evidence(&graph, &evidence);
	sets[1].records[0].search = 17;
	sets[3].records[0].confirms[0] = 17;
	sets[3].records[0].nconfirms = 1;
	assert_true(is_proved(1, 1, 17));
	assert_int_equal(graph.nmembers, 2);
	assert_member(0, 1, 6);
}

#define test(name)	cmocka_unit_test_setup(name, begin)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		test(no_records_no_deadlock),
		test(two_servers_two_mutexes),
		test(a_holder_without_a_record_can_go_on),
		test(three_servers),
		test(waits_for_one_ticket_go_by_claim),
		test(behind_a_deadlock_is_no_victim),
		test(two_deadlocks_have_two_victims),
		test(the_innermost_circle_goes_first),
		test(a_server_that_waits_for_itself),
		test(one_server_with_two_sessions),
		test(the_holder_ends_not_the_one_that_waits),
		test(the_one_that_waits_ends_if_it_holds_such_a_lock),
		test(a_writer_between_two_readers),
		test(a_writer_waits_for_all_readers),
		test(through_one_lock_to_write_another),
		test(enough_leases_are_left),
		test(own_leases_count),
		test(one_that_waits_for_more_leases),
		test(three_leases_before_one),
		test(a_claim_counts_once),
		test(leases_and_mutexes_are_different_locks),
		test(a_semaphore_needs_only_one),
		test(only_what_matters_is_looked_up),
		test(a_session_that_was_known_may_matter_later),
		test(owners_without_records_take_no_place),
		test(what_does_not_fit_is_left_out),
		test(a_deadlock_is_proved),
		test(another_wait_proves_nothing),
		test(another_hold_proves_nothing),
		test(the_evidence_may_be_exceeded),
		test(all_that_is_needed_must_confirm),
		test(not_all_readers_need_to_confirm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
