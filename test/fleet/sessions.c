/*
 * Many ZooKeeper sessions in one process, each of which plays the worker of a server: it sends
 * what a worker sends, when a worker sends it.  The pure code of zklock decides that, so the
 * ensemble gets the load of a fleet.
 *
 *	sessions HOSTS N TIMEOUT_MS
 *
 * Reads commands, a line each, and answers each with a line:
 *
 *	open					open the N sessions, all at once
 *	hold					each session acquires a lock of its own
 *	release					each session releases it
 *	load RATE SECONDS		write RATE times a second (0: as often as ZooKeeper can), through
 *							other sessions; answers with the number of writes when that is over
 *	status					how the sessions stand, and what has happened
 *	report					the same; counts, and times to reconnect, begin again with 0
 *	close					close all sessions, and end
 *
 * "open", "hold" and "release" do not wait for ZooKeeper: status tells how far they are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "session.h"

const char *hosts;
int			nservers;
int			timeout_ms;

/* First those that play workers, then those of the load. */
static Session *sessions;
static int	nsessions;			/* of the former */
static struct pollfd *polled;	/* one for each session, and the last for stdin */

static int
compare(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a,
				y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

/* Milliseconds; 0 if there was none. */
static double
reconnect_quantile(double q)
{
	if (count.nreconnects == 0)
		return 0;
	return count.reconnect[(int) (q * (count.nreconnects - 1))] / 1e3;
}

static void
print_status(void)
{
	int			usable = 0,
				holding = 0,
				doubtful = 0,
				lost = 0;

	for (int i = 0; i < nsessions; i++)
	{
		usable += sessions[i].connected && sessions[i].down_since == 0;
		holding += sessions[i].holding;
		doubtful += sessions[i].in_doubt;
		lost += sessions[i].lost;
	}
	qsort(count.reconnect, count.nreconnects, sizeof(int64_t), compare);
	printf("usable=%d holding=%d doubtful=%d lost=%d doubted=%" PRId64
		   " signs_read=%" PRId64 " signs_echo=%" PRId64 " signs_proof=%" PRId64
		   " disconnects=%" PRId64 " reconnects=%d reconnect_p50=%.0f reconnect_p99=%.0f reconnect_max=%.0f"
		   " spread=%.0f least_ahead=%.0f\n",
		   usable, holding, doubtful, lost, count.doubted,
		   count.sent[ZKL_SIGN_READ], count.sent[ZKL_SIGN_ECHO], count.sent[ZKL_SIGN_PROOF],
		   count.disconnects, count.nreconnects, reconnect_quantile(0.5), reconnect_quantile(0.99),
		   reconnect_quantile(1), (count.last_reconnect - count.first_reconnect) / 1e3,
		   count.least_ahead == INT64_MAX ? 0 : count.least_ahead / 1e3);
}

static void
begin_count(void)
{
	free(count.reconnect);
	memset(&count, 0, sizeof(count));
	count.least_ahead = INT64_MAX;
	for (int i = 0; i < nsessions; i++)
		if (sessions[i].down_since != 0)
			sessions[i].down_since = now_us();
}

static void
each_session(void (*act) (Session *s))
{
	for (int i = 0; i < nsessions; i++)
	{
		act(&sessions[i]);
		sessions[i].wake_at = 0;
	}
	printf("ok\n");
}

static void
begin_load(double rate, double seconds)
{
	load_begin(rate, seconds);
	for (int i = nsessions; i < nsessions + LOAD_SESSIONS; i++)
		session_open(&sessions[i], i, true);
}

/* False if this was the last command. */
static bool
obey(const char *line)
{
	double		rate,
				seconds;

	if (strcmp(line, "open\n") == 0)
	{
		for (int i = 0; i < nsessions; i++)
			session_open(&sessions[i], i, false);
		printf("ok\n");
	}
	else if (strcmp(line, "hold\n") == 0)
		each_session(session_hold);
	else if (strcmp(line, "release\n") == 0)
		each_session(session_release);
	else if (sscanf(line, "load %lf %lf", &rate, &seconds) == 2)
		begin_load(rate, seconds);
	else if (strcmp(line, "status\n") == 0)
		print_status();
	else if (strcmp(line, "report\n") == 0)
	{
		print_status();
		begin_count();
	}
	else
	{
		each_session(session_close);
		return false;
	}
	return true;
}

static void
tend_load(int64_t now)
{
	int64_t		writes;
	double		seconds;

	if (!load_is_busy() || !load_tend(&sessions[nsessions], now, &writes, &seconds))
		return;
	for (int i = nsessions; i < nsessions + LOAD_SESSIONS; i++)
		session_close(&sessions[i]);
	printf("writes=%" PRId64 " seconds=%.3f\n", writes, seconds);
}

/* Serves the sessions that want it, and waits until the next one may. */
static void
turn(void)
{
	int			n = nsessions + LOAD_SESSIONS;
	int64_t		now = now_us(),
				wake_at = now + MS(1000);

	for (int i = 0; i < n; i++)
	{
		Session    *s = &sessions[i];

		if (polled[i].revents != 0 || s->wake_at <= now)
			session_serve(s, &polled[i]);
		if (s->wake_at < wake_at)
			wake_at = s->wake_at;
	}
	tend_load(now);
	fflush(stdout);
	now = now_us();
	poll(polled, n + 1, wake_at <= now ? 0 : (wake_at - now + 999) / 1000);
}

static void
allow_files(int n)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < (rlim_t) n)
		check(ZSYSTEMERROR, "too few open files are allowed");
}

int
main(int argc, char **argv)
{
	char		line[128];
	int			all;

	if (argc != 4 || (nsessions = atoi(argv[2])) < 1)
		check(ZBADARGUMENTS, "usage: sessions HOSTS N TIMEOUT_MS");
	hosts = argv[1];
	timeout_ms = atoi(argv[3]);
	nservers = 1;
	for (const char *p = hosts; *p != '\0'; p++)
		nservers += *p == ',';
	all = nsessions + LOAD_SESSIONS;
	allow_files(all + 64);
	sessions = calloc(all, sizeof(Session));
	polled = calloc(all + 1, sizeof(struct pollfd));
	polled[all].fd = STDIN_FILENO;
	polled[all].events = POLLIN;

	srandom(now_us());
	zoo_set_debug_level(0);
	setvbuf(stdin, NULL, _IONBF, 0);
	begin_count();
	for (;;)
	{
		turn();
		if (polled[all].revents != 0 && (fgets(line, sizeof(line), stdin) == NULL || !obey(line)))
			break;
	}
	return 0;
}
