/*-------------------------------------------------------------------------
 *
 * test_wait_graph_walk.c
 *	  Deadlocks between servers, in many random worlds.
 *
 * A world has servers with backends, which acquire mutexes, read-write locks,
 * leases and rows at random.  It knows every queue: PostgreSQL's on each
 * server, ZooKeeper's of each lock, and each backend's place in them.  From
 * that it makes the records that the servers would publish.
 *
 * The world itself knows which waits can end, by a plain search: it lets every
 * backend go that can go on, until none is left, and looks only at the queues.
 * The graph must say the same of each record, although it knows no queues.
 * Then the victims end, one after the other.  Each must have been in a circle
 * of the world, and in the end all backends can go on.
 *
 * ZKLOCK_WORLDS sets how many worlds there are.
 *
 * test/unit/test_wait_graph_walk.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <stdlib.h>

#include "deadlock/waitgraph.h"

#define SERVERS		4
#define PER_SERVER	3
#define BACKENDS	(SERVERS * PER_SERVER)
#define LOCKS		5
#define ROWS		2			/* on each server */

#define WORLDS		40000

typedef enum Kind
{
	MUTEX,
	READ_WRITE,
	SEMAPHORE					/* the lock after it is its inner mutex */
} Kind;

typedef enum Doing
{
	GOES_ON,
	WAITS_FOR_ROW,
	WAITS_LOCALLY,				/* for PostgreSQL's lock behind a lock */
	WAITS_FOR_TICKET,
	WAITS_FOR_LEASES,
	GONE
} Doing;

/* PostgreSQL's queue: the backends that hold it and that wait for it, in order of coming. */
typedef struct Queue
{
	int			n;
	struct
	{
		int			backend;
		bool		shared;
		bool		granted;
	}			item[BACKENDS];
} Queue;

typedef struct Ticket
{
	int			server;
	bool		reads;
	bool		served;			/* a backend has had the lock by it */
	int64_t		czxid;
} Ticket;

typedef struct Backend
{
	Doing		doing;
	int			what;			/* the lock or row */
	bool		reads;
	int			leases;
	int64_t		claim;			/* that waits */
	int64_t		czxid;			/* of its leases' znode */
} Backend;

typedef struct World
{
	uint64_t	seed;
	int			nservers;
	int			nlocks;
	Kind		kind[LOCKS + 1];
	int			limit[LOCKS + 1];
	bool		strict[LOCKS + 1];	/* the tenure is always over */
	Queue		row[SERVERS][ROWS];
	Queue		local[SERVERS][LOCKS + 1];
	int			ntickets[LOCKS + 1];
	Ticket		ticket[LOCKS + 1][SERVERS + 1];
	int64_t		held[BACKENDS][LOCKS + 1];	/* claim, or 0 */
	bool		held_reads[BACKENDS][LOCKS + 1];
	int			nleases[BACKENDS][LOCKS + 1];
	Backend		backend[BACKENDS];
	int64_t		claims;
	int64_t		zxid;
	bool		settles_again;
	bool		waits_for[BACKENDS][BACKENDS];	/* see look() */
} World;

static World world;
static ZklWaitSet sets[SERVERS];
static ZklWaitGraph graph;
static char paths[LOCKS + 1][16];

#define server_of(backend)	((backend) / PER_SERVER)

/*
 * The queues within a server
 */

/* Does item j keep item i waiting? */
static bool
blocks(const Queue *queue, int i, int j)
{
	return i != j && (queue->item[j].granted || j < i) && !(queue->item[i].shared && queue->item[j].shared);
}

static bool
is_granted(Queue *queue, int i)
{
	for (int j = 0; j < queue->n && !queue->item[i].granted; j++)
	{
		if (blocks(queue, i, j))
			return false;
	}
	return true;
}

static bool
enqueue(Queue *queue, int backend, bool shared)
{
	int			i = queue->n++;

	queue->item[i].backend = backend;
	queue->item[i].shared = shared;
	queue->item[i].granted = false;
	return queue->item[i].granted = is_granted(queue, i);
}

static int
find_item(const Queue *queue, int backend)
{
	for (int i = 0; i < queue->n; i++)
	{
		if (queue->item[i].backend == backend)
			return i;
	}
	return -1;
}

static void
dequeue(Queue *queue, int backend)
{
	int			i = find_item(queue, backend);

	if (i < 0)
		return;
	memmove(&queue->item[i], &queue->item[i + 1], sizeof(queue->item[0]) * (queue->n - i - 1));
	queue->n--;
}

/* The queue in which a backend waits, or NULL. */
static Queue *
waits_in(int b)
{
	const Backend *backend = &world.backend[b];

	if (backend->doing == WAITS_FOR_ROW)
		return &world.row[server_of(b)][backend->what];
	if (backend->doing == WAITS_LOCALLY)
		return &world.local[server_of(b)][backend->what];
	return NULL;
}

/*
 * The queues in ZooKeeper
 */

static int
find_ticket(int lock, int server)
{
	for (int i = 0; i < world.ntickets[lock]; i++)
	{
		if (world.ticket[lock][i].server == server)
			return i;
	}
	return -1;
}

static bool
is_owned(int lock, int t)
{
	const Ticket *ticket = world.ticket[lock];

	for (int i = 0; i < t; i++)
	{
		if (!ticket[t].reads || !ticket[i].reads)
			return false;
	}
	return true;
}

static void
remove_ticket(int lock, int t)
{
	memmove(&world.ticket[lock][t], &world.ticket[lock][t + 1],
			sizeof(Ticket) * (world.ntickets[lock] - t - 1));
	world.ntickets[lock]--;
}

static void
make_ticket(int lock, int server, bool reads)
{
	world.ticket[lock][world.ntickets[lock]++] = (Ticket) {server, reads, false, ++world.zxid};
}

static int
count_holders(int lock, int server)
{
	int			n = 0;

	for (int b = server * PER_SERVER; b < (server + 1) * PER_SERVER; b++)
		n += world.held[b][lock] != 0;
	return n;
}

/* While others queue, a strict lock is not handed on within the server. */
static bool
may_join(int lock, int t)
{
	return !world.strict[lock] || !world.ticket[lock][t].served || is_owned(lock, world.ntickets[lock] - 1);
}

static void
hold(int b, int lock, bool reads)
{
	world.ticket[lock][find_ticket(lock, server_of(b))].served = true;
	world.held[b][lock] = world.backend[b].claim;
	world.held_reads[b][lock] = reads;
	world.backend[b].doing = GOES_ON;
	if (lock > 0 && world.kind[lock - 1] == SEMAPHORE && world.backend[b].leases > 0)
	{
		world.backend[b].doing = WAITS_FOR_LEASES;
		world.backend[b].what = lock - 1;
		world.backend[b].claim = ++world.claims;
		world.backend[b].czxid = ++world.zxid;
	}
	world.settles_again = true;
}

/* The backend has the advisory lock, and needs the ticket. */
static void
want_ticket(int b, int lock)
{
	int			server = server_of(b);
	int			t = find_ticket(lock, server);
	bool		reads = world.backend[b].reads;

	world.backend[b].doing = WAITS_FOR_TICKET;
	world.backend[b].what = lock;
	if (t >= 0 && count_holders(lock, server) == 0 &&
		(is_owned(lock, t) ?
		 (world.ticket[lock][t].reads && !reads) || !may_join(lock, t) :
		 world.ticket[lock][t].reads != reads))
	{
		/* The ticket is of the wrong mode, or other servers have their turn. */
		remove_ticket(lock, t);
		world.settles_again = true;
		t = -1;
	}
	if (t < 0)
	{
		make_ticket(lock, server, reads);
		t = world.ntickets[lock] - 1;
	}
	if (is_owned(lock, t) && may_join(lock, t))
		hold(b, lock, reads);
}

/*
 * What backends do
 */

static void
acquire_row(int b, int row)
{
	Queue	   *queue = &world.row[server_of(b)][row];

	if (find_item(queue, b) >= 0)
		return;
	world.backend[b].what = row;
	world.backend[b].doing = enqueue(queue, b, random_below(&world.seed, 3) == 0) ? GOES_ON : WAITS_FOR_ROW;
}

static void
acquire_lock(int b, int lock)
{
	bool		reads = world.kind[lock] == READ_WRITE && random_below(&world.seed, 2);
	Backend    *backend = &world.backend[b];

	backend->leases = 0;
	if (world.kind[lock] == SEMAPHORE)
	{
		int			most = world.limit[lock] - world.nleases[b][lock];

		if (most == 0)
			return;
		backend->leases = 1 + (int) random_below(&world.seed, (uint32_t) most);
		lock++;
	}
	if (find_item(&world.local[server_of(b)][lock], b) >= 0)
		return;
	backend->claim = ++world.claims;
	backend->reads = reads;
	backend->what = lock;
	if (enqueue(&world.local[server_of(b)][lock], b, reads))
		want_ticket(b, lock);
	else
		backend->doing = WAITS_LOCALLY;
}

static void
release_mutex(int b, int lock)
{
	world.held[b][lock] = 0;
	dequeue(&world.local[server_of(b)][lock], b);
}

static void
end(int b)
{
	world.backend[b].doing = GONE;
	for (int lock = 0; lock <= LOCKS; lock++)
	{
		release_mutex(b, lock);
		world.nleases[b][lock] = 0;
	}
	for (int row = 0; row < ROWS; row++)
		dequeue(&world.row[server_of(b)][row], b);
}

static int
free_leases(int lock)
{
	int			n = world.limit[lock];

	for (int b = 0; b < BACKENDS; b++)
		n -= world.nleases[b][lock];
	return n;
}

/* A ticket that no backend needs goes; one that only serves readers becomes a reader's. */
static void
settle_lock(int lock)
{
	for (int t = world.ntickets[lock] - 1; t >= 0; t--)
	{
		Ticket	   *ticket = &world.ticket[lock][t];
		bool		needed = false;
		bool		writes = false;

		for (int b = ticket->server * PER_SERVER;
			 b < (ticket->server + 1) * PER_SERVER; b++)
		{
			bool		waits = world.backend[b].doing == WAITS_FOR_TICKET && world.backend[b].what == lock;

			needed |= waits || world.held[b][lock] != 0;
			writes |= (waits && !world.backend[b].reads) ||
				(world.held[b][lock] != 0 && !world.held_reads[b][lock]);
		}
		if (needed && is_owned(lock, t) && !writes)
			ticket->reads = true;
		if (!needed)
		{
			remove_ticket(lock, t);
			world.settles_again = true;
		}
	}
}

static void
settle(void)
{
	do
	{
		world.settles_again = false;
		for (int b = 0; b < BACKENDS; b++)
		{
			Backend    *backend = &world.backend[b];
			Queue	   *queue = waits_in(b);
			int			i = queue ? find_item(queue, b) : -1;

			if (queue != NULL && is_granted(queue, i))
			{
				queue->item[i].granted = true;
				world.settles_again = true;
				if (backend->doing == WAITS_LOCALLY)
					want_ticket(b, backend->what);
				else
					backend->doing = GOES_ON;
			}
			else if (backend->doing == WAITS_FOR_TICKET)
				want_ticket(b, backend->what);
			else if (backend->doing == WAITS_FOR_LEASES && free_leases(backend->what) >= backend->leases)
			{
				world.nleases[b][backend->what] += backend->leases;
				release_mutex(b, backend->what + 1);
				backend->doing = GOES_ON;
				world.settles_again = true;
			}
		}
		for (int lock = 0; lock <= LOCKS; lock++)
			settle_lock(lock);
	} while (world.settles_again);
}

/*
 * What the world knows
 */

/* Does backend b wait for backend c, in the queues as they are? */
static bool
waits_for(int b, int c)
{
	const Backend *backend = &world.backend[b];
	Queue	   *queue = waits_in(b);
	int			mine;
	int			other;

	if (world.backend[c].doing == GONE)
		return false;
	if (queue != NULL)
		return find_item(queue, c) >= 0 && blocks(queue, find_item(queue, b), find_item(queue, c));
	if (backend->doing == WAITS_FOR_LEASES)
		return world.nleases[c][backend->what] > 0;
	if (backend->doing != WAITS_FOR_TICKET || b == c)
		return false;

	/*
	 * A reader that may not join waits for the others of its server, and then
	 * behind the whole queue.  So it keeps no backend waiting.
	 */
	mine = find_ticket(backend->what, server_of(b));
	other = find_ticket(backend->what, server_of(c));
	if (world.held[c][backend->what] == 0 &&
		(world.backend[c].doing != WAITS_FOR_TICKET || world.backend[c].what != backend->what))
		return false;
	if (is_owned(backend->what, mine))
		return world.held[c][backend->what] != 0 ? server_of(c) == server_of(b) : !world.backend[c].reads;
	if (world.held[c][backend->what] == 0 && is_owned(backend->what, other))
		return false;
	return other < mine && (!world.ticket[backend->what][mine].reads ||
							!world.ticket[backend->what][other].reads);
}

/* From here on, nothing moves. */
static void
look(void)
{
	settle();
	for (int b = 0; b < BACKENDS; b++)
	{
		for (int c = 0; c < BACKENDS; c++)
			world.waits_for[b][c] = world.backend[b].doing != GOES_ON &&
				world.backend[b].doing != GONE && waits_for(b, c);
	}
}

/* Let all backends go on that can; what is left is stuck. */
static void
find_stuck(bool stuck[BACKENDS])
{
	bool		changed = true;

	for (int b = 0; b < BACKENDS; b++)
		stuck[b] = world.backend[b].doing != GONE;
	while (changed)
	{
		changed = false;
		for (int b = 0; b < BACKENDS; b++)
		{
			const Backend *backend = &world.backend[b];
			int			leases = 0;
			bool		waits = false;

			if (!stuck[b])
				continue;
			for (int c = 0; c < BACKENDS; c++)
			{
				waits |= stuck[c] && world.waits_for[b][c];
				leases += stuck[c] ? world.nleases[c][backend->what] : 0;
			}
			if (backend->doing == WAITS_FOR_LEASES)
				waits = leases + backend->leases > world.limit[backend->what];
			if (!waits)
			{
				stuck[b] = false;
				changed = true;
			}
		}
	}
}

/* Is there a circle of stuck backends through b?  Or only in its server? */
static bool
is_in_circle(int b, const bool stuck[BACKENDS], bool locally)
{
	bool		seen[BACKENDS] = {false};
	int			todo[BACKENDS + 1] = {b};

	for (int n = 1; n > 0;)
	{
		int			from = todo[--n];

		if (locally && waits_in(from) == NULL)
			continue;
		for (int to = 0; to < BACKENDS; to++)
		{
			if (!stuck[to] || seen[to] || !world.waits_for[from][to])
				continue;
			if (to == b)
				return true;
			seen[to] = true;
			todo[n++] = to;
		}
	}
	return false;
}

/* PostgreSQL finds those by itself. */
static void
break_local_deadlocks(void)
{
	bool		all[BACKENDS];

	memset(all, true, sizeof(all));
	look();
	for (int b = 0; b < BACKENDS; b++)
	{
		if (waits_in(b) != NULL && is_in_circle(b, all, true))
		{
			end(b);
			look();
			b = -1;
		}
	}
}

/*
 * What is published
 */

/* The backends that cannot go on before backend b: those that wait for it locally. */
static void
find_followers(int b, bool follows[BACKENDS])
{
	bool		changed = true;

	memset(follows, false, sizeof(bool) * BACKENDS);
	follows[b] = true;
	while (changed)
	{
		changed = false;
		for (int c = 0; c < BACKENDS; c++)
		{
			for (int d = 0; d < BACKENDS && !follows[c] && waits_in(c); d++)
			{
				if (follows[d] && server_of(c) == server_of(d) && world.waits_for[c][d])
					follows[c] = changed = true;
			}
		}
	}
}

static void
publish_hold(ZklWaitSet *set, int64_t claim, int b, ZklMode mode, int leases, int lock)
{
	set->holds[set->nholds++] = (ZklWaitHold) {
		.claim = claim, .pid = b + 1, .mode = mode, .leases = leases,
		.path = paths[lock]
	};
}

static ZklMode
mode_of(int lock, bool reads)
{
	return world.kind[lock] == MUTEX ? ZKL_MODE_LOCK : reads ? ZKL_MODE_READ : ZKL_MODE_WRITE;
}

static void
publish_holds(ZklWaitSet *set, int b)
{
	bool		follows[BACKENDS];

	find_followers(b, follows);
	for (int c = 0; c < BACKENDS; c++)
	{
		for (int lock = 0; lock <= LOCKS && follows[c]; lock++)
		{
			if (world.held[c][lock] != 0)
				publish_hold(set, world.held[c][lock], c, mode_of(lock, world.held_reads[c][lock]), 1, lock);
			if (world.nleases[c][lock] > 0)
				publish_hold(set, 1000000 + c * 100 + lock, c, ZKL_MODE_LEASE, world.nleases[c][lock], lock);
		}
	}
}

static void
publish(void)
{
	for (int i = 0; i < SERVERS; i++)
	{
		sets[i].instance = i + 1;
		sets[i].server = "s";
		sets[i].nrecords = sets[i].nholds = 0;
	}
	for (int b = 0; b < BACKENDS; b++)
	{
		const Backend *backend = &world.backend[b];
		ZklWaitSet *set = &sets[server_of(b)];
		ZklWaitRecord *record = &set->records[set->nrecords];
		int			lock = backend->what;
		bool		leases = backend->doing == WAITS_FOR_LEASES;

		if (!leases && backend->doing != WAITS_FOR_TICKET)
			continue;
		*record = (ZklWaitRecord) {
			.claim = backend->claim,
			.czxid = leases ? backend->czxid : world.ticket[lock][find_ticket(lock, server_of(b))].czxid,
			.znode = "x", .pid = b + 1, .path = paths[lock],
			.mode = leases ? ZKL_MODE_LEASE : mode_of(lock, backend->reads),
			.leases = leases ? backend->leases : 1,
			.limit = leases ? world.limit[lock] : 1,
			.owner_text = "", .first_hold = set->nholds
		};
		publish_holds(set, b);
		record->nholds = set->nholds - record->first_hold;
		set->nrecords += record->nholds > 0;
	}
}

/*
 * The test
 */

static void
make_world(uint64_t seed)
{
	int			nsteps;

	memset(&world, 0, sizeof(world));
	world.seed = seed;
	for (int i = 0; i < 5; i++)
		(void) random_below(&world.seed, 2);
	world.nservers = 1 + (int) random_below(&world.seed, SERVERS);
	world.nlocks = 1 + (int) random_below(&world.seed, LOCKS);
	for (int lock = 0; lock < world.nlocks; lock++)
	{
		world.kind[lock] = (Kind) random_below(&world.seed, 3);
		world.limit[lock] = 1 + (int) random_below(&world.seed, 4);
		world.strict[lock] = random_below(&world.seed, 3) == 0;
		if (world.kind[lock] == SEMAPHORE)
			lock++;				/* its inner mutex: kind MUTEX, 0 */
	}
	for (int lock = 0; lock <= LOCKS; lock++)
	{
		if (lock > 0 && world.kind[lock - 1] == SEMAPHORE)
			snprintf(paths[lock], sizeof(paths[0]), "/%d/locks", lock - 1);
		else
			snprintf(paths[lock], sizeof(paths[0]), "/%d", lock);
	}
	for (int b = 0; b < BACKENDS; b++)
		world.backend[b].doing = server_of(b) < world.nservers ? GOES_ON : GONE;

	nsteps = (int) random_below(&world.seed, 80);
	for (int i = 0; i < nsteps; i++)
	{
		int			b = (int) random_below(&world.seed, world.nservers * PER_SERVER);
		int			lock = (int) random_below(&world.seed, world.nlocks);

		if (world.backend[b].doing != GOES_ON)
			continue;
		if (lock > 0 && world.kind[lock - 1] == SEMAPHORE)
			lock--;
		switch (random_below(&world.seed, 8))
		{
			case 0:
				end(b);
				world.backend[b].doing = GOES_ON;
				break;
			case 1:
			case 2:
				acquire_row(b, (int) random_below(&world.seed, ROWS));
				break;
			default:
				acquire_lock(b, lock);
		}
		settle();
	}
	break_local_deadlocks();
}

static void
solve_all(void)
{
	zkl_wait_graph_begin(&graph);
	for (int i = 0; i < SERVERS; i++)
		zkl_wait_graph_add(&graph, i + 1, false, &sets[i]);
	(void) zkl_wait_graph_solve(&graph);
}

/* The same as one server sees it: it adds only the owners that it is told of. */
static void
search_from(int server)
{
	const ZklWaitRecord *next;

	zkl_wait_graph_begin(&graph);
	zkl_wait_graph_add(&graph, server + 1, true, &sets[server]);
	while ((next = zkl_wait_graph_next(&graph)) != NULL)
	{
		int			lock = atoi(next->path + 1);

		if (strstr(next->path, "locks"))
			lock++;
		for (int t = 0; t < world.ntickets[lock]; t++)
		{
			int			owner = world.ticket[lock][t].server;

			if (is_owned(lock, t))
				zkl_wait_graph_add(&graph, owner + 1, false, &sets[owner]);
		}
		for (int b = 0; b < BACKENDS && next->mode == ZKL_MODE_LEASE; b++)
		{
			if (world.nleases[b][lock] > 0)
				zkl_wait_graph_add(&graph, server_of(b) + 1, false, &sets[server_of(b)]);
		}
	}
	(void) zkl_wait_graph_solve(&graph);
}

/* Every record is stuck if the world says so. */
static int
compare(uint64_t seed, const bool stuck[BACKENDS])
{
	int			nstuck = 0;

	for (int i = 0; i < graph.nnodes; i++)
	{
		const ZklGraphNode *node = &graph.nodes[i];

		if (node->stuck != stuck[node->record->pid - 1])
			fail_msg("seed %d: backend %d is %s", (int) seed, node->record->pid,
					 node->stuck ? "not stuck" : "stuck");
		nstuck += node->stuck;
	}
	return nstuck;
}

/* The backend to cancel, or -1.  Each server finds its victims, and only these. */
static int
find_victim(uint64_t seed)
{
	int			victim = -1;
	bool		is_victim[SERVERS][ZKL_WAITRECORD_WAITS];

	for (int i = 0; i < SERVERS; i++)
	{
		for (int j = 0; j < sets[i].nrecords; j++)
		{
			is_victim[i][j] = zkl_wait_graph_is_victim(&graph, i + 1, sets[i].records[j].claim);
			if (!is_victim[i][j])
				continue;
			victim = graph.members[graph.nmembers - 1].waits_for->pid - 1;
			for (int k = 1; k < graph.nmembers; k++)
				assert_true(graph.members[k].record->czxid <= graph.members[0].record->czxid);
		}
	}
	for (int i = 0; i < SERVERS; i++)
	{
		if (sets[i].nrecords > 0)
			search_from(i);
		for (int j = 0; j < sets[i].nrecords; j++)
		{
			if (zkl_wait_graph_is_victim(&graph, i + 1, sets[i].records[j].claim) != is_victim[i][j])
				fail_msg("seed %d: server %d sees other victims", (int) seed, i);
		}
	}
	return victim;
}

/* Returns how many ended. */
static int
try_world(uint64_t seed)
{
	make_world(seed);
	for (int nvictims = 0;; nvictims++)
	{
		bool		stuck[BACKENDS];
		int			nstuck;
		int			victim;

		publish();
		solve_all();
		find_stuck(stuck);
		nstuck = compare(seed, stuck);
		victim = find_victim(seed);
		if ((victim >= 0) != (nstuck > 0))
			fail_msg("seed %d: %d are stuck, and the victim is %d", (int) seed, nstuck, victim);
		if (victim < 0)
		{
			for (int b = 0; b < BACKENDS; b++)
			{
				if (stuck[b])
					fail_msg("seed %d: no victim helps backend %d", (int) seed, b + 1);
			}
			return nvictims;
		}
		if (!is_in_circle(victim, stuck, false))
			fail_msg("seed %d: victim %d is in no circle", (int) seed, victim + 1);
		end(victim);
		break_local_deadlocks();
	}
}

TEST(worlds)
{
	const char *number = getenv("ZKLOCK_WORLDS");
	long		nworlds = number ? atol(number) : WORLDS;
	long		nvictims[BACKENDS + 1] = {0};

	for (long seed = 1; seed <= nworlds; seed++)
		nvictims[try_world((uint64_t) seed)]++;

	print_message("# %ld worlds;", nworlds);
	for (int i = 0; i <= BACKENDS; i++)
	{
		if (nvictims[i] > 0)
			print_message(" %d victims: %ld", i, nvictims[i]);
	}
	print_message("\n");
	assert_true(nvictims[0] > nworlds / 100);
	assert_true(nvictims[1] > nworlds / 100);
	assert_true(nvictims[2] > nworlds / 1000);
}

int
main(void)
{
	return run_all_tests("wait graph walk");
}
