/*
 * How long it takes from a release on one server until a backend of another server has
 * the lock.
 *
 *	sql_handover MODE SECONDS PATH WAITERS CONNINFO CONNINFO
 *
 * MODE queue: a backend of the one server holds the lock and commits when one of the other
 * server has queued for it: from the commit to the grant there.  Then they change roles.
 * With WAITERS, so many backends of the first server queue before, and it is always the
 * first server that gives the lock to the other.
 *
 * MODE linger: no backend holds the lock, but it lingers on the one server: from the call on
 * the other to the grant.
 *
 * Prints "ok 0" and the times in microseconds.
 */
#include <libpq-fe.h>
#include <poll.h>
#include <sys/resource.h>

#include "bench_client.h"

static PGconn *
connect_to(const char *conninfo)
{
	PGconn	   *c = PQconnectdb(conninfo);

	if (PQstatus(c) != CONNECTION_OK)
		die(PQerrorMessage(c));
	return c;
}

/* Waits for the answer; returns whether it begins with "t". */
static bool
answer(PGconn *c)
{
	PGresult   *r;
	bool		is_true = false;

	while ((r = PQgetResult(c)) != NULL)
	{
		ExecStatusType status = PQresultStatus(r);

		if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
			die(PQerrorMessage(c));
		if (status == PGRES_TUPLES_OK)
			is_true = PQntuples(r) > 0 && PQgetvalue(r, 0, 0)[0] == 't';
		PQclear(r);
	}
	return is_true;
}

static void
begin_to(PGconn *c, const char *sql)
{
	if (!PQsendQuery(c, sql))
		die(PQerrorMessage(c));
}

static bool
ask(PGconn *c, const char *sql)
{
	begin_to(c, sql);
	return answer(c);
}

static void
wait_until(PGconn *c, const char *sql)
{
	for (int i = 0; !ask(c, sql); i++)
	{
		if (i > 60000)
			die("gave up waiting for a state");
		usleep(1000);
	}
}

static char acquire[512],
			release[512],
			contended[512],
			settled[512],
			lingers[512];

static void
make_statements(const char *path)
{
	snprintf(acquire, sizeof(acquire), "BEGIN; SELECT zk_xact_lock_acquire('%s')", path);
	snprintf(release, sizeof(release), "COMMIT");
	snprintf(contended, sizeof(contended), "SELECT coalesce(bool_and(contended), false)"
			 " FROM zk_locks WHERE path = '%s'", path);
	snprintf(settled, sizeof(settled), "SELECT coalesce(bool_and(ticket = 'queued'), false)"
			 " FROM zk_locks WHERE path = '%s'", path);
	snprintf(lingers, sizeof(lingers), "SELECT coalesce(bool_and(ticket = 'lingering'), false)"
			 " FROM zk_locks WHERE path = '%s'", path);
}

/* From the commit of the one to the grant of the other, which queues. */
static int64_t
hand_over(PGconn *from, PGconn *to, PGconn *watch_from, PGconn *watch_to)
{
	int64_t		began,
				granted;

	begin_to(to, acquire);
	wait_until(watch_to, settled);
	wait_until(watch_from, contended);
	usleep(3000);				/* until it has set its watch */

	began = now_ns();
	begin_to(from, release);
	answer(to);
	granted = now_ns();
	answer(from);
	return (granted - began) / 1000;
}

static void
queue_mode(double seconds, PGconn **work, PGconn **watch)
{
	int64_t		end;

	ask(work[0], acquire);
	end = now_ns() + seconds * 1e9;
	for (int holder = 0; now_ns() < end; holder = 1 - holder)
		printf(" %" PRId64, hand_over(work[holder], work[1 - holder], watch[holder], watch[1 - holder]));
}

/*
 * The backend that had the lock last queues again at the end.
 *
 * The backends that queue must not look for a deadlock.  This check takes a long time behind hundreds of
 * backends, and PostgreSQL's lock table is locked meanwhile.  With a thousand checks, one after the
 * other, this would measure PostgreSQL's checks and not the handover.
 */
static void
crowd_mode(double seconds, PGconn **work, PGconn **watch, const char *path, int waiters, const char *conninfo)
{
	PGconn	  **crowd = calloc(waiters, sizeof(PGconn *));
	struct pollfd *in = calloc(waiters, sizeof(struct pollfd));
	char		sql[512];
	int64_t		end;
	int			holder = 0;

	for (int i = 0; i < waiters; i++)
	{
		crowd[i] = connect_to(conninfo);
		ask(crowd[i], "SET deadlock_timeout = '1h'");
		in[i].fd = PQsocket(crowd[i]);
		in[i].events = POLLIN;
		if (i == 0)
			ask(crowd[i], acquire);
		else
			begin_to(crowd[i], acquire);
	}
	snprintf(sql, sizeof(sql), "SELECT count(*) = %d FROM zk_locks WHERE path = '%s' AND NOT granted",
			 waiters - 1, path);
	wait_until(watch[0], sql);
	end = now_ns() + seconds * 1e9;

	while (now_ns() < end)
	{
		wait_until(watch[0], sql);

		/* its tenure has to be over, or it hands the lock on among its own backends */
		snprintf(settled, sizeof(settled), "SELECT bool_or(owned_since < now() - interval '150 ms')"
				 " FROM zk_locks WHERE path = '%s'", path);
		wait_until(watch[0], settled);
		make_statements(path);
		printf(" %" PRId64, hand_over(crowd[holder], work[1], watch[0], watch[1]));
		if (waiters == 1)
		{
			ask(work[1], release);
			ask(crowd[0], acquire);
			continue;
		}
		begin_to(crowd[holder], acquire);
		ask(work[1], release);
		for (bool found = false; !found;)
		{
			poll(in, waiters, 1000);
			for (int i = 0; i < waiters && !found; i++)
				if (in[i].revents & POLLIN)
				{
					answer(crowd[i]);
					holder = i;
					found = true;
				}
		}
	}
}

static void
linger_mode(double seconds, PGconn **work, PGconn **watch)
{
	int64_t		end = now_ns() + seconds * 1e9;

	for (int owner = 0; now_ns() < end; owner = 1 - owner)
	{
		int64_t		began;

		for (int i = 0; i < 3; i++)
		{
			ask(work[owner], acquire);
			ask(work[owner], release);
		}
		wait_until(watch[owner], lingers);
		began = now_ns();
		ask(work[1 - owner], acquire);
		printf(" %" PRId64, (now_ns() - began) / 1000);
		ask(work[1 - owner], release);
	}
}

int
main(int argc, char **argv)
{
	PGconn	   *work[2],
			   *watch[2];
	int			waiters;
	struct rlimit files = {8192, 8192};

	if (argc != 7)
		die("usage: sql_handover MODE SECONDS PATH WAITERS CONNINFO CONNINFO");
	waiters = atoi(argv[4]);
	setrlimit(RLIMIT_NOFILE, &files);
	for (int i = 0; i < 2; i++)
	{
		work[i] = connect_to(argv[5 + i]);
		watch[i] = connect_to(argv[5 + i]);
	}
	make_statements(argv[3]);
	printf("ok 0");
	if (strcmp(argv[1], "linger") == 0)
		linger_mode(atof(argv[2]), work, watch);
	else if (waiters > 0)
		crowd_mode(atof(argv[2]), work, watch, argv[3], waiters, argv[5]);
	else
		queue_mode(atof(argv[2]), work, watch);
	printf("\n");
	return 0;
}
