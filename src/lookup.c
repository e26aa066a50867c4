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
 * stay in shared memory, and names that cannot be resolved remove none of
 * them.
 *
 * src/lookup.c
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
#include "hosts.h"
#include "locktable.h"
#include "lookup.h"
#include "zklock.h"

#define LOOKUP_SECONDS	30

static struct
{
	pid_t		child;			/* 0: none */
	uint64		hosts;			/* hash of the names that it looks up */
	int			pipe;			/* for the child's answer */
	StringInfoData answer;
}			lookup;

static void set_up(void);
static void end_child(int code, Datum arg);
static void remember(const char *servers, bool complete);
static uint64 hash_hosts(void);
ZKL_NORETURN static void look_up(int out);
static void forget_server(int but);
static ZklLookup judge_answer(int status, char **text);

bool
zkl_lookup_servers(char **servers)
{
	bool		known = false;

	*servers = zkl_hosts_resolve(zkl_hosts, true);
	if (**servers == ZKL_HOSTS_ALL)
	{
		(*servers)++;
		return true;
	}
	LWLockAcquire(zkl_table_session_lock(), LW_SHARED);
	if (zkl_shared->servers[0] != '\0' && zkl_shared->servers_of == hash_hosts())
	{
		*servers = pstrdup(zkl_shared->servers);
		known = true;
	}
	LWLockRelease(zkl_table_session_lock());
	return known;
}

void
zkl_lookup_start(void)
{
	int			ends[2];

	if (lookup.child != 0 ||
		*zkl_hosts_resolve(zkl_hosts, true) == ZKL_HOSTS_ALL)
		return;
	set_up();
	if (pipe(ends) != 0)
	{
		elog(LOG, "could not create a pipe: %m");
		return;
	}
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
	lookup.hosts = hash_hosts();
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
	int			status;

	if (lookup.child == 0)
		return ZKL_LOOKUP_NONE;
	while ((length = read(lookup.pipe, buffer, sizeof(buffer))) > 0)
		appendBinaryStringInfo(&lookup.answer, buffer, length);
	if (length < 0)
		return ZKL_LOOKUP_NONE;

	/* The child has closed the pipe, so it is about to exit. */
	if (waitpid(lookup.child, &status, 0) != lookup.child)
		status = -1;
	lookup.child = 0;
	close(lookup.pipe);
	if (lookup.hosts != hash_hosts())
		return ZKL_LOOKUP_NONE; /* zklock.hosts has changed meanwhile */
	return judge_answer(status, text);
}

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

static void
end_child(int code, Datum arg)
{
	if (lookup.child == 0)
		return;
	(void) kill(lookup.child, SIGKILL);
	(void) waitpid(lookup.child, NULL, 0);
	lookup.child = 0;
}

/* In the child. */
static void
look_up(int out)
{
	char	   *answer;
	size_t		size;

	set_ps_display("looking up servers");
	forget_server(out);
	answer = zkl_hosts_resolve(zkl_hosts, false);
	size = strlen(answer);
	_exit(write(out, answer, size) == (ssize_t) size ? 0 : 1);
}

/* A server that is restarted must not find its shared memory in use. */
static void
forget_server(int but)
{
	static const int signals[] = {
		SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD
	};
	sigset_t	none;

	for (int i = 0; i < lengthof(signals); i++)
		pqsignal(signals[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	alarm(LOOKUP_SECONDS);

	on_exit_reset();
	PGSharedMemoryDetach();
	for (int fd = 0; fd < max_files_per_process; fd++)
	{
		if (fd != but)
			close(fd);
	}
}

static ZklLookup
judge_answer(int status, char **text)
{
	if (status != 0 || lookup.answer.len == 0)
	{
		*text = psprintf(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ?
						 "no answer within %d s" : "the lookup failed",
						 LOOKUP_SECONDS);
		return ZKL_LOOKUP_FAILED;
	}
	*text = pstrdup(lookup.answer.data + 1);
	if (lookup.answer.data[0] == ZKL_HOSTS_NONE)
		return ZKL_LOOKUP_FAILED;
	remember(*text, lookup.answer.data[0] == ZKL_HOSTS_ALL);
	return ZKL_LOOKUP_DONE;
}

static void
remember(const char *servers, bool complete)
{
	LWLockAcquire(zkl_table_session_lock(), LW_EXCLUSIVE);
	if (strlen(servers) < ZKL_SERVERS_SIZE &&
		(complete || !zkl_shared->servers_complete ||
		 zkl_shared->servers_of != lookup.hosts))
	{
		strlcpy(zkl_shared->servers, servers, ZKL_SERVERS_SIZE);
		zkl_shared->servers_of = lookup.hosts;
		zkl_shared->servers_complete = complete;
	}
	LWLockRelease(zkl_table_session_lock());
}

static uint64
hash_hosts(void)
{
	return DatumGetUInt64(hash_any_extended((const unsigned char *) zkl_hosts,
											strlen(zkl_hosts), 0));
}
