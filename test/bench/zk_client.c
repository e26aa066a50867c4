/*
 * How fast the usual lock recipe can be: ZooKeeper's own client in C, with nothing around
 * it.
 *
 * All clients of a run are state machines in one event loop.  Each sends create and
 * getChildren back to back, so that an acquire is one round trip; the delete is not
 * waited for.  In a queue it watches its predecessor, and lists again when that is gone.
 *
 *	zk_client HOSTS [SESSIONS]
 *
 * Reads requests, a line each.  FORM is "-" if all clients use the first session,
 * "sessions" if they are spread over all, "multis" if what is due goes out as one
 * transaction while two of its kind are on their way:
 *
 *	mutex CLIENTS SECONDS PATH PATHS COUNTER FORM	acquire and release in a loop
 *	handover SECONDS PATH	between two sessions: from the delete to its notification
 *	queue N PATH			put N znodes into the queue of PATH, which stay until
 *	unqueue PATH			they are deleted
 */
#include <poll.h>
#include <zookeeper/zookeeper.h>

#include "bench_client.h"

#define NAME_SIZE 320
#define MAX_SESSIONS 64

struct session
{
	zhandle_t  *zk;
	bool		connected;
};

struct client
{
	zhandle_t  *zk;
	int			number;
	int			paths;
	const char *base;
	char		directory[NAME_SIZE];
	char		znode[NAME_SIZE];
	uint64_t	random;
	int64_t		round;
};

/* What is due of one kind, and then is a transaction; the client writes to it. */
struct batch
{
	struct kind *kind;
	int			n;
	struct client *clients[MAX_CLIENTS];	/* of creates */
	char		names[MAX_CLIENTS][NAME_SIZE + 8];
	char		created[MAX_CLIENTS][NAME_SIZE];
	zoo_op_result_t results[MAX_CLIENTS];
};

static struct kind
{
	struct batch *due;
	int			on_the_way;
}			creates, deletes;
static bool in_multis;

static struct session sessions[MAX_SESSIONS];
static int	n_sessions;
static zhandle_t *zk;			/* the first session */
static int	pending;			/* requests under way */
static int	working;			/* clients that go on */
static int64_t stop_at;
static int64_t counts[MAX_CLIENTS];
static volatile int64_t *counter;

static void acquire(struct client *c);
static void enqueue_again(struct client *c);
static void list(struct client *c);
static void flush(struct kind *kind, bool is_full);

static void
check(int rc, const char *what)
{
	char		message[128];

	if (rc == ZOK)
		return;
	snprintf(message, sizeof(message), "%s: %s", what, zerror(rc));
	die(message);
}

static void
on_session(zhandle_t *h, int type, int state, const char *path, void *context)
{
	struct session *session = context;

	(void) h, (void) path;
	if (type == ZOO_SESSION_EVENT)
	{
		session->connected = state == ZOO_CONNECTED_STATE;
		if (state == ZOO_EXPIRED_SESSION_STATE)
			die("the session has expired");
	}
}

/* What the session waits for.  Lowers *timeout_ms if it has to be served earlier. */
static struct pollfd
interest_of(zhandle_t *h, int *timeout_ms)
{
	struct pollfd p = {-1, 0, 0};
	struct timeval tv = {0};
	int			interest = 0,
				wait_ms;

	/* It connects again by itself; requests that were under way have failed then. */
	if (zookeeper_interest(h, &p.fd, &interest, &tv) == ZOK)
	{
		p.events = (interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0);
		wait_ms = tv.tv_sec * 1000 + tv.tv_usec / 1000;
	}
	else
	{
		p.fd = -1;
		wait_ms = 10;
	}
	if (wait_ms < *timeout_ms)
		*timeout_ms = wait_ms;
	return p;
}

static void
turn(int timeout_ms)
{
	struct pollfd p[MAX_SESSIONS];

	flush(&deletes, false);
	flush(&creates, false);
	for (int i = 0; i < n_sessions; i++)
		p[i] = interest_of(sessions[i].zk, &timeout_ms);
	poll(p, n_sessions, timeout_ms);
	for (int i = 0; i < n_sessions; i++)
		if (p[i].fd >= 0)
			zookeeper_process(sessions[i].zk, (p[i].revents & POLLOUT ? ZOOKEEPER_WRITE : 0) |
							  (p[i].revents & (POLLIN | POLLHUP | POLLERR) ? ZOOKEEPER_READ : 0));
}

static void
run_until_answered(void)
{
	while (pending > 0)
		turn(1000);
}

static void
on_done(int rc, const void *data)
{
	(void) data;
	pending--;
	if (rc != ZNODEEXISTS && rc != ZNONODE)
		check(rc, "create or delete");
}

static void
on_created(int rc, const char *value, const void *data)
{
	(void) value;
	on_done(rc, data);
}

/* As of Curator: a container, which ZooKeeper removes when it has been empty for long. */
static void
make_directory(zhandle_t *h, const char *path)
{
	pending++;
	check(zoo_acreate(h, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, on_created, NULL), "create");
}

static void
make_directories(const char *path)
{
	char		part[NAME_SIZE];

	for (const char *end = strchr(path + 1, '/'); end != NULL; end = strchr(end + 1, '/'))
	{
		snprintf(part, sizeof(part), "%.*s", (int) (end - path), path);
		make_directory(zk, part);
	}
	make_directory(zk, path);
}

/* --- in transactions --- */

static void
add(struct kind *kind, struct client *c, const char *name)
{
	struct batch *batch = kind->due;

	if (batch == NULL)
		batch = kind->due = calloc(1, sizeof(struct batch));
	batch->kind = kind;
	batch->clients[batch->n] = c;
	snprintf(batch->names[batch->n++], sizeof(batch->names[0]), "%s", name);
	pending++;
	if (batch->n == MAX_CLIENTS)
		flush(kind, true);
}

/* If ZooKeeper has removed a directory, the lists of all these clients find no znode. */
static void
on_flushed(int rc, const void *data)
{
	struct batch *batch = (struct batch *) data;

	pending -= batch->n;
	batch->kind->on_the_way--;
	if (rc != ZNONODE)
		check(rc, "multi");
	for (int i = 0; rc == ZOK && batch->kind == &creates && i < batch->n; i++)
		snprintf(batch->clients[i]->znode, NAME_SIZE, "%s", batch->created[i]);
	free(batch);
}

static void
flush(struct kind *kind, bool is_full)
{
	struct batch *batch = kind->due;
	zoo_op_t	ops[MAX_CLIENTS];

	if (batch == NULL || (kind->on_the_way >= 2 && !is_full))
		return;
	kind->due = NULL;
	kind->on_the_way++;
	for (int i = 0; i < batch->n; i++)
	{
		if (kind == &deletes)
			zoo_delete_op_init(&ops[i], batch->names[i], -1);
		else
			zoo_create_op_init(&ops[i], batch->names[i], "", 0, &ZOO_OPEN_ACL_UNSAFE,
							   ZOO_EPHEMERAL | ZOO_SEQUENCE, batch->created[i], NAME_SIZE);
	}
	check(zoo_amulti(zk, batch->n, ops, batch->results, on_flushed, batch), "multi");
	for (int i = 0; kind == &creates && i < batch->n; i++)
		list(batch->clients[i]);
}

/* --- the recipe --- */

static void
release(struct client *c)
{
	if (counter != NULL)
		*counter = *counter + 1;
	counts[c->number]++;
	if (in_multis)
		add(&deletes, NULL, c->znode);
	else
	{
		pending++;
		check(zoo_adelete(c->zk, c->znode, -1, on_done, NULL), "delete");
	}
	if (now_ns() < stop_at)
		acquire(c);
	else
		working--;
}

static void
on_event(zhandle_t *h, int type, int state, const char *path, void *context)
{
	(void) h, (void) state, (void) path;
	if (type == ZOO_DELETED_EVENT)
		list(context);
}

static void
on_watched(int rc, const char *value, int len, const struct Stat *stat, const void *data)
{
	(void) value, (void) len, (void) stat;
	pending--;
	if (rc == ZNONODE)
		list((struct client *) data);
	else
		check(rc, "get");
}

static void
on_listed(int rc, const struct String_vector *names, const void *data)
{
	struct client *c = (struct client *) data;
	const char *mine = strrchr(c->znode, '-'),
			   *before = NULL;
	char		predecessor[2 * NAME_SIZE];

	pending--;
	if (c->znode[0] == '\0')
	{
		enqueue_again(c);
		return;
	}
	check(rc, "list");
	for (int i = 0; i < names->count; i++)
	{
		const char *number = strrchr(names->data[i], '-');

		if (strcmp(number, mine) < 0 &&
			(before == NULL || strcmp(number, strrchr(before, '-')) > 0))
			before = names->data[i];
	}
	if (before == NULL)
	{
		release(c);
		return;
	}
	snprintf(predecessor, sizeof(predecessor), "%s/%s", c->directory, before);
	pending++;
	check(zoo_awget(c->zk, predecessor, on_event, c, on_watched, c), "get");
}

static void
list(struct client *c)
{
	pending++;
	check(zoo_aget_children(c->zk, c->directory, 0, on_listed, c), "list");
}

static void
on_enqueued(int rc, const char *value, const void *data)
{
	struct client *c = (struct client *) data;

	pending--;
	if (rc == ZNONODE)
		return;
	check(rc, "enqueue");
	snprintf(c->znode, sizeof(c->znode), "%s", value);
}

static void
create(struct client *c)
{
	char		name[NAME_SIZE + 8];

	c->znode[0] = '\0';
	snprintf(name, sizeof(name), "%s/lock-", c->directory);
	if (in_multis)
	{
		add(&creates, c, name);
		return;
	}
	pending++;
	check(zoo_acreate(c->zk, name, "", 0, &ZOO_OPEN_ACL_UNSAFE,
					  ZOO_EPHEMERAL | ZOO_SEQUENCE, on_enqueued, c), "create");
}

static void
enqueue(struct client *c)
{
	create(c);
	if (!in_multis)
		list(c);				/* else with the transaction */
}

/* ZooKeeper has removed the directory, which had been empty for long. */
static void
enqueue_again(struct client *c)
{
	make_directory(c->zk, c->directory);
	enqueue(c);
}

static void
acquire(struct client *c)
{
	choose_path(c->directory, sizeof(c->directory), c->base, c->paths, c->number, c->round++, &c->random);
	if (c->paths == 0)
		make_directory(c->zk, c->directory);
	enqueue(c);
}

/* Until all clients have done their work. */
static void
run_clients(int clients, const char *base, int paths, bool in_all_sessions)
{
	static struct client all[MAX_CLIENTS];
	int64_t		begin = now_ns();

	memset(all, 0, sizeof(all));
	memset(counts, 0, sizeof(counts));
	working = clients;
	for (int i = 0; i < clients; i++)
	{
		all[i].zk = sessions[in_all_sessions ? i % n_sessions : 0].zk;
		all[i].number = i;
		all[i].paths = paths;
		all[i].base = base;
		all[i].random = begin + i;
		acquire(&all[i]);
	}
	while (working > 0)
		turn(100);
	run_until_answered();
	answer_counts(now_ns() - begin, counts, clients);
}

static void
run_mutex(int clients, double seconds, const char *base, int paths, const char *counter_file,
		  bool in_all_sessions)
{
	char		path[NAME_SIZE];

	make_directories(base);
	for (int i = 0; paths > 1 && i < paths; i++)
	{
		snprintf(path, sizeof(path), "%.255s/%d", base, i);
		make_directory(zk, path);
	}
	run_until_answered();
	counter = map_counter(counter_file);
	stop_at = now_ns() + seconds * 1e9;
	run_clients(clients, base, paths, in_all_sessions);
}

/* --- a handover --- */

static int64_t granted_at;

static void
on_handed_over(zhandle_t *h, int type, int state, const char *path, void *context)
{
	(void) h, (void) state, (void) path, (void) context;
	if (type == ZOO_DELETED_EVENT)
		granted_at = now_ns();
}

static void
on_read(int rc, const char *value, int len, const struct Stat *stat, const void *data)
{
	(void) value, (void) len, (void) stat, (void) data;
	pending--;
	check(rc, "get");
}

/* No recipe can do without this: the one deletes its znode, which the other watches. */
static void
run_handover(double seconds, const char *path)
{
	static struct client two[2];
	int64_t		end;

	make_directories(path);
	run_until_answered();
	for (int i = 0; i < 2; i++)
	{
		two[i].zk = sessions[i % n_sessions].zk;
		snprintf(two[i].directory, sizeof(two[i].directory), "%s", path);
	}
	create(&two[0]);
	run_until_answered();
	end = now_ns() + seconds * 1e9;
	printf("ok 0");
	for (int holder = 0; now_ns() < end; holder = 1 - holder)
	{
		struct client *from = &two[holder],
				   *to = &two[1 - holder];
		int64_t		began;

		create(to);
		pending++;
		check(zoo_awget(to->zk, from->znode, on_handed_over, NULL, on_read, NULL), "get");
		run_until_answered();
		usleep(3000);			/* as the other systems */

		granted_at = 0;
		began = now_ns();
		pending++;
		check(zoo_adelete(from->zk, from->znode, -1, on_done, NULL), "delete");
		while (granted_at == 0 || pending > 0)
			turn(1000);
		printf(" %" PRId64, (granted_at - began) / 1000);
	}
	for (int i = 0; i < 2; i++)
	{
		pending++;
		check(zoo_adelete(two[i].zk, two[i].znode, -1, on_done, NULL), "delete");
	}
	run_until_answered();
	printf("\n");
	fflush(stdout);
}

/* --- a queue that does not move --- */

static char **queued;
static int	n_queued;

static void
on_queued(int rc, const char *value, const void *data)
{
	(void) data;
	pending--;
	check(rc, "queue");
	queued[n_queued++] = strdup(value);
}

static void
run_queue(int n, const char *path)
{
	char		name[2 * NAME_SIZE];

	make_directories(path);
	queued = calloc(n, sizeof(char *));
	for (int i = 0; i < n; i++)
	{
		/* names as long as those of others */
		snprintf(name, sizeof(name), "%s/_c_00000000-0000-4000-8000-%012d-lock-", path, i);
		pending++;
		check(zoo_acreate(zk, name, "", 0, &ZOO_OPEN_ACL_UNSAFE,
						  ZOO_EPHEMERAL | ZOO_SEQUENCE, on_queued, NULL), "create");
		while (pending > 100)
			turn(1000);
	}
	run_until_answered();
	answer_counts(0, NULL, 0);
}

static void
run_unqueue(void)
{
	for (int i = 0; i < n_queued; i++)
	{
		pending++;
		check(zoo_adelete(zk, queued[i], -1, on_done, NULL), "delete");
		free(queued[i]);
		while (pending > 100)
			turn(1000);
	}
	free(queued);
	n_queued = 0;
	run_until_answered();
	answer_counts(0, NULL, 0);
}

/* --- sessions --- */

/* Session I is at the I-th server; after the last, the first follows. */
static void
open_sessions(const char *hosts, int n)
{
	const char *host = hosts;
	char		one[128];

	if (n < 1 || n > MAX_SESSIONS)
		die("no such number of sessions");
	for (n_sessions = 0; n_sessions < n; n_sessions++)
	{
		struct session *session = &sessions[n_sessions];
		int			length = strcspn(host, ",");

		snprintf(one, sizeof(one), "%.*s", length, host);
		session->connected = false;
		session->zk = zookeeper_init(one, on_session, 30000, NULL, session, 0);
		if (session->zk == NULL)
			die("zookeeper_init");
		host = host[length] == ',' ? host + length + 1 : hosts;
	}
	zk = sessions[0].zk;
	for (int i = 0; i < n_sessions; i++)
		while (!sessions[i].connected)
			turn(1000);
}

static void
close_sessions(void)
{
	for (int i = 0; i < n_sessions; i++)
		zookeeper_close(sessions[i].zk);
}

/* --- requests --- */

static void
serve(char *line)
{
	char		path[NAME_SIZE],
				file[NAME_SIZE],
				form[16];
	int			n,
				paths;
	double		seconds;

	if (sscanf(line, "mutex %d %lf %255s %d %255s %15s", &n, &seconds, path, &paths, file, form) == 6 &&
		n <= MAX_CLIENTS)
	{
		in_multis = strcmp(form, "multis") == 0;
		run_mutex(n, seconds, path, paths, file, strcmp(form, "sessions") == 0);
		in_multis = false;
	}
	else if (sscanf(line, "handover %lf %255s", &seconds, path) == 2)
		run_handover(seconds, path);
	else if (sscanf(line, "queue %d %255s", &n, path) == 2)
		run_queue(n, path);
	else if (sscanf(line, "unqueue %255s", path) == 1)
		run_unqueue();
	else
		die("no such request");
}

int
main(int argc, char **argv)
{
	char		line[4 * NAME_SIZE];
	const char *hosts = argc > 1 ? argv[1] : "";
	struct pollfd in = {STDIN_FILENO, POLLIN, 0};

	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	open_sessions(hosts, argc > 2 ? atoi(argv[2]) : 1);
	setvbuf(stdin, NULL, _IONBF, 0);

	/* In between, the sessions want their pings. */
	for (;;)
	{
		turn(0);
		if (poll(&in, 1, 200) == 0)
			continue;
		if (fgets(line, sizeof(line), stdin) == NULL)
			break;
		serve(line);
	}
	close_sessions();
	return 0;
}
