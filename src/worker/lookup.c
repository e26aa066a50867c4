/*-------------------------------------------------------------------------
 *
 * lookup.c
 *	  The servers' addresses, found without making the worker wait.
 *
 * getaddrinfo() waits for DNS as long as it likes, and cannot be interrupted.
 * In the worker, that would let the session expire although ZooKeeper can be
 * reached.  PostgreSQL's processes cannot use threads.  So a child process
 * asks, and writes the answer to a pipe.  The child keeps nothing of the
 * server: it first lets go of shared memory and all files, and calls nothing
 * that might use them.
 *
 * DNS may fail when ZooKeeper does not.  So the addresses that were found last
 * stay in shared memory; those of a name stay until others are found for it.
 *
 * src/worker/lookup.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "libpq/pqsignal.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/pg_shmem.h"
#include "utils/memutils.h"
#include "utils/ps_status.h"

#include "compat.h"
#include "protocol/hosts.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/addresses.h"
#include "worker/identity.h"
#include "worker/lookup.h"

#define LOOKUP_SECONDS	30
#define PATIENCE		ZKL_MS(500) /* for the last name, before others are
									 * used */

static struct
{
	pid_t		child;			/* 0: none */
	int64		begun;			/* when it was started */
	uint64		hosts;			/* hash of the names that it looks up */
	int			pipe;			/* for the child's answer */
	StringInfoData answer;
}			lookup;

static void set_up(void);
static void end_child(int code, Datum arg);
static void remember(const char *answer);
static char *recall(void);
static char *resolve_numeric(void);
static bool names_are_left(const char *lines);
static uint64 hash_hosts(void);
ZKL_NORETURN static void look_up(int out);
static void forget_server(int but);
static ZklLookup judge_answer(char **text);

bool
zkl_lookup_servers(char **servers)
{
	char	   *lines = resolve_numeric();
	bool		running = lookup.child != 0 && lookup.hosts == hash_hosts();

	/* Only a name can be unknown; if all are numbers, nothing else counts. */
	if (names_are_left(lines))
	{
		/*
		 * The first answer may name a single server.  A session that is
		 * opened with that alone would have nowhere else to go.
		 */
		if (running && zkl_now() < lookup.begun + PATIENCE &&
			*recall() == '\0')
			return false;

		/*
		 * A worker that moves to these servers ends, and the lookup with it;
		 * the next one must not begin with the old addresses again.
		 */
		if (running && *zkl_addresses_list(lookup.answer.data) != '\0')
			remember(lookup.answer.data);
		lines = zkl_addresses_update(zkl_hosts, recall(), lines,
									 ZKL_SERVERS_SIZE);
	}
	*servers = zkl_addresses_list(lines);
	return **servers != '\0';
}

void
zkl_lookup_start(void)
{
	int			ends[2];

	/* With numbers alone, there is nothing to look up. */
	if (lookup.child != 0 || !names_are_left(resolve_numeric()))
		return;
	set_up();
	if (pipe(ends) != 0)
	{
		elog(LOG, "could not create a pipe: %m");
		return;
	}
	/* Otherwise the child would have a copy of what is not written yet. */
	fflush(NULL);
	lookup.child = fork();
	if (lookup.child == 0)
		look_up(ends[1]);

	close(ends[1]);
	if (lookup.child < 0)
	{
		elog(LOG, "could not fork a process to look up the ZooKeeper servers: %m");
		lookup.child = 0;
		close(ends[0]);
		return;
	}
	lookup.pipe = ends[0];
	lookup.begun = zkl_now();
	/* zklock.hosts may change before the answer comes. */
	lookup.hosts = hash_hosts();
	/* A read of the pipe must not make the worker wait for DNS. */
	(void) fcntl(lookup.pipe, F_SETFL, O_NONBLOCK);
	(void) fcntl(lookup.pipe, F_SETFD, FD_CLOEXEC);
	resetStringInfo(&lookup.answer);
}

bool
zkl_lookup_is_running(void)
{
	return lookup.child != 0;
}

ZklLookup
zkl_lookup_take(char **text)
{
	char		buffer[1024];
	int			length;

	if (lookup.child == 0)
		return ZKL_LOOKUP_NONE;
	while ((length = read(lookup.pipe, buffer, sizeof(buffer))) > 0)
		appendBinaryStringInfo(&lookup.answer, buffer, length);

	/*
	 * Nothing to read now.  The end of the pipe would be 0: it comes when the
	 * last of the children is gone.
	 */
	if (length < 0)
		return ZKL_LOOKUP_NONE;

	/* The child has closed the pipe, so it is about to exit. */
	(void) waitpid(lookup.child, NULL, 0);
	lookup.child = 0;
	close(lookup.pipe);
	if (lookup.hosts != hash_hosts())
		return ZKL_LOOKUP_NONE; /* zklock.hosts has changed meanwhile */
	return judge_answer(text);
}

/*
 * Once a process: the answer outlives the turn, and the worker's exit ends the
 * child.
 */
static void
set_up(void)
{
	MemoryContext old;

	if (lookup.answer.data != NULL)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	initStringInfo(&lookup.answer);
	MemoryContextSwitchTo(old);
	before_shmem_exit(end_child, (Datum) 0);
}

/* Called when the worker exits: the answer would have no reader any more. */
static void
end_child(int code, Datum arg)
{
	if (lookup.child == 0)
		return;
	(void) kill(lookup.child, SIGKILL);
	(void) waitpid(lookup.child, NULL, 0);

	/* Its children, too: they are alone with it in this process's group. */
	pqsignal(SIGTERM, PG_SIG_IGN);
	(void) kill(0, SIGTERM);
	lookup.child = 0;
}

/* In the child: it has a process for each name, since any may be silent. */
static void
look_up(int out)
{
	int			n = zkl_hosts_servers(zkl_hosts);

	/* The process list shows what this process of the server does. */
	set_ps_display("looking up servers");
	zkl_identity_forget();
	/* Before anything that may wait. */
	forget_server(out);
	for (int i = 0; i < n; i++)
	{
		char	   *line = zkl_addresses_resolve(zkl_hosts, i, true);
		bool		is_name = names_are_left(line);

		/*
		 * The parent goes on with the next server.  A number needs no child.
		 */
		if (is_name && fork() != 0)
			continue;
		if (is_name)
		{
			/*
			 * No handler is set, so the signal ends the child, and with it
			 * its end of the pipe.  The others' answers still count.
			 */
			alarm(LOOKUP_SECONDS);
			line = zkl_addresses_resolve(zkl_hosts, i, false);
		}

		/*
		 * A line is short enough for the pipe to take it in one piece, so the
		 * lines of several children do not mix.
		 */
		if (write(out, line, strlen(line)) < 0 || is_name)
			_exit(0);
	}
	while (wait(NULL) > 0)
		;
	_exit(0);
}

/* A server that is restarted must not find its shared memory in use. */
static void
forget_server(int but)
{
	static const int signals[] = {
		SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD
	};
	sigset_t	none;

	/* The worker's handlers would use what the child gives away. */
	for (int i = 0; i < lengthof(signals); i++)
		pqsignal(signals[i], PG_SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);

	/* The worker's exit callbacks are not this process's. */
	on_exit_reset();
	PGSharedMemoryDetach();

	/*
	 * Among them is the socket to ZooKeeper.  The connection would stay open
	 * as long as the child lives, even if the worker has closed it.
	 */
	for (int fd = 0; fd < max_files_per_process; fd++)
	{
		if (fd != but)
			close(fd);
	}
}

/*
 * A single address is enough.  Otherwise the reason is the first error that a
 * child has written.
 */
static ZklLookup
judge_answer(char **text)
{
	const char *error = strchr(lookup.answer.data, ZKL_ADDRESSES_UNKNOWN);

	if (*zkl_addresses_list(lookup.answer.data) != '\0')
	{
		remember(lookup.answer.data);
		return ZKL_LOOKUP_DONE;
	}
	if (error != NULL)
		*text = pnstrdup(error + 1, strcspn(error + 1, "\n"));
	else
		*text = psprintf("no answer within %d s", LOOKUP_SECONDS);
	return ZKL_LOOKUP_FAILED;
}

/* A name without an answer keeps the addresses that it had. */
static void
remember(const char *answer)
{
	char	   *lines = zkl_addresses_update(zkl_hosts, answer, recall(),
											 ZKL_SERVERS_SIZE);

	LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
	/* Other workers, and the next one after this, begin with them. */
	strlcpy(zkl_lock_table->servers, lines, ZKL_SERVERS_SIZE);
	zkl_lock_table->servers_of = lookup.hosts;
	LWLockRelease(zkl_lock_table_session_lock());
}

/* What was found for these hosts, by whatever worker. */
static char *
recall(void)
{
	char	   *lines;

	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	lines = pstrdup(zkl_lock_table->servers_of == hash_hosts() ? zkl_lock_table->servers : "");
	LWLockRelease(zkl_lock_table_session_lock());
	return lines;
}

/* What is known without a lookup. */
static char *
resolve_numeric(void)
{
	StringInfoData lines;
	int			n = zkl_hosts_servers(zkl_hosts);

	initStringInfo(&lines);
	for (int i = 0; i < n; i++)
		appendStringInfoString(&lines, zkl_addresses_resolve(zkl_hosts, i, true));
	return lines.data;
}

/* Is a server among the lines whose address is not known? */
static bool
names_are_left(const char *lines)
{
	return strchr(lines, ZKL_ADDRESSES_UNKNOWN) != NULL;
}

/* This tells whether addresses are for the present setting. */
static uint64
hash_hosts(void)
{
	return DatumGetUInt64(hash_any_extended((const unsigned char *) zkl_hosts,
											strlen(zkl_hosts), 0));
}
