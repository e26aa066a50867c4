/*
 * The limit of anything that asks ZooKeeper each time: the lock recipe on ZooKeeper's own
 * client in C, with nothing around it.
 *
 * All clients of a run are state machines in one session.  Each sends create and
 * getChildren back to back, so that an acquire is one round trip; the delete is not
 * waited for.  In a queue it watches its predecessor, and lists again when that is gone.
 *
 *	zk_client HOSTS
 *
 * Reads requests, a line each:
 *
 *	mutex CLIENTS SECONDS PATH PATHS COUNTER	acquire and release in a loop
 *	queue N PATH			put N znodes into the queue of PATH, which stay until
 *	unqueue PATH			they are deleted
 */
#include <poll.h>
#include <zookeeper/zookeeper.h>

#include "bench_client.h"

#define NAME_SIZE 320

struct client
{
	int			number;
	int			paths;
	const char *base;
	char		directory[NAME_SIZE];
	char		znode[NAME_SIZE];
	uint64_t	random;
	int64_t		round;
};

static zhandle_t *zk;
static bool connected;
static int	pending;			/* requests under way */
static int	working;			/* clients that go on */
static int64_t stop_at;
static int64_t counts[MAX_CLIENTS];
static volatile int64_t *counter;

static void acquire(struct client *c);
static void enqueue_again(struct client *c);
static void list(struct client *c);

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
	(void) h, (void) path, (void) context;
	if (type == ZOO_SESSION_EVENT)
	{
		connected = state == ZOO_CONNECTED_STATE;
		if (state == ZOO_EXPIRED_SESSION_STATE)
			die("the session has expired");
	}
}

static void
turn(int timeout_ms)
{
	struct pollfd p;
	struct timeval tv = {0};
	int			interest = 0,
				events = 0,
				wait_ms,
				rc;

	/* It connects again by itself; requests that were under way have failed then. */
	rc = zookeeper_interest(zk, &p.fd, &interest, &tv);
	if (rc != ZOK)
	{
		usleep(10000);
		return;
	}
	p.events = (interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0);
	p.revents = 0;
	wait_ms = tv.tv_sec * 1000 + tv.tv_usec / 1000;
	if (poll(&p, 1, wait_ms < timeout_ms ? wait_ms : timeout_ms) > 0)
		events = (p.revents & POLLOUT ? ZOOKEEPER_WRITE : 0) |
			(p.revents & (POLLIN | POLLHUP | POLLERR) ? ZOOKEEPER_READ : 0);
	zookeeper_process(zk, events);
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
make_directory(const char *path)
{
	pending++;
	check(zoo_acreate(zk, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, on_created, NULL), "create");
}

static void
make_directories(const char *path)
{
	char		part[NAME_SIZE];

	for (const char *end = strchr(path + 1, '/'); end != NULL; end = strchr(end + 1, '/'))
	{
		snprintf(part, sizeof(part), "%.*s", (int) (end - path), path);
		make_directory(part);
	}
	make_directory(path);
}

/* --- the recipe --- */

static void
release(struct client *c)
{
	if (counter != NULL)
		*counter = *counter + 1;
	counts[c->number]++;
	pending++;
	check(zoo_adelete(zk, c->znode, -1, on_done, NULL), "delete");
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
	check(zoo_awget(zk, predecessor, on_event, c, on_watched, c), "get");
}

static void
list(struct client *c)
{
	pending++;
	check(zoo_aget_children(zk, c->directory, 0, on_listed, c), "list");
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
enqueue(struct client *c)
{
	char		name[NAME_SIZE + 8];

	c->znode[0] = '\0';
	snprintf(name, sizeof(name), "%s/lock-", c->directory);
	pending++;
	check(zoo_acreate(zk, name, "", 0, &ZOO_OPEN_ACL_UNSAFE,
					  ZOO_EPHEMERAL | ZOO_SEQUENCE, on_enqueued, c), "create");
	list(c);
}

/* ZooKeeper has removed the directory, which had been empty for long. */
static void
enqueue_again(struct client *c)
{
	make_directory(c->directory);
	enqueue(c);
}

static void
acquire(struct client *c)
{
	choose_path(c->directory, sizeof(c->directory), c->base, c->paths, c->number, c->round++, &c->random);
	if (c->paths == 0)
		make_directory(c->directory);
	enqueue(c);
}

static void
run_mutex(int clients, double seconds, const char *base, int paths, const char *counter_file)
{
	static struct client all[MAX_CLIENTS];
	char		path[NAME_SIZE];
	int64_t		begin;

	make_directories(base);
	for (int i = 0; paths > 1 && i < paths; i++)
	{
		snprintf(path, sizeof(path), "%.255s/%d", base, i);
		make_directory(path);
	}
	run_until_answered();

	memset(all, 0, sizeof(all));
	memset(counts, 0, sizeof(counts));
	counter = map_counter(counter_file);
	begin = now_ns();
	stop_at = begin + seconds * 1e9;
	working = clients;
	for (int i = 0; i < clients; i++)
	{
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

/* --- requests --- */

static void
serve(char *line)
{
	char		path[NAME_SIZE],
				file[NAME_SIZE];
	int			n,
				paths;
	double		seconds;

	if (sscanf(line, "mutex %d %lf %255s %d %255s", &n, &seconds, path, &paths, file) == 5 &&
		n <= MAX_CLIENTS)
		run_mutex(n, seconds, path, paths, file);
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
	struct pollfd in = {STDIN_FILENO, POLLIN, 0};

	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	zk = zookeeper_init(argc > 1 ? argv[1] : "", on_session, 30000, NULL, NULL, 0);
	if (zk == NULL)
		die("zookeeper_init");
	while (!connected)
		turn(1000);
	setvbuf(stdin, NULL, _IONBF, 0);

	/* In between, the session wants its pings. */
	for (;;)
	{
		turn(0);
		if (poll(&in, 1, 200) == 0)
			continue;
		if (fgets(line, sizeof(line), stdin) == NULL)
			break;
		serve(line);
	}
	zookeeper_close(zk);
	return 0;
}
