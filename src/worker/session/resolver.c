/*-------------------------------------------------------------------------
 *
 * resolver.c
 *	  Looks up the servers' addresses without making the worker wait.
 *
 * getaddrinfo() waits for DNS as long as it likes, and cannot be interrupted.
 * In the worker, that would let the session expire although ZooKeeper can be
 * reached.  PostgreSQL's processes cannot use threads.  So a child process
 * looks the names up, and writes the addresses to a pipe.  The child keeps
 * nothing of the server: it first detaches from shared memory, closes all
 * files, and calls nothing that might use them.
 *
 * DNS may fail while ZooKeeper works.  So the last known addresses stay in
 * shared memory, and the addresses of a name stay until a lookup finds other
 * ones.
 *
 * The client does not resolve names itself, because it forgets half of the
 * servers when it is given an even number of addresses.
 *
 * src/worker/session/resolver.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "common/ip.h"
#include "lib/stringinfo.h"
#include "libpq/pqsignal.h"
#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/pg_shmem.h"
#include "utils/memutils.h"
#include "utils/ps_status.h"

#include "compat.h"
#include "protocol/hosts.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/session/identity.h"
#include "worker/session/resolver.h"

#define LOOKUP_SECONDS	30
#define PATIENCE		ZKL_MS(500) /* how long to wait for the last name
									 * before the other servers are used */

/*
 * What is known of the servers is a text with one line for each server: its
 * number, a letter, and either its addresses, separated by commas, or the
 * reason why it has none.  A line is short enough to be written to a pipe in
 * one piece.
 */
#define KNOWN			'+'
#define UNKNOWN			'!'
#define LINE_SIZE		PIPE_BUF

static struct
{
	pid_t		child;			/* 0 if none */
	int64		begun;			/* when it was started */
	uint64		hosts;			/* hash of the names that it looks up */
	int			pipe;			/* for the child's output */
	StringInfoData answer;
}			lookup;

static void set_up(void);
static void end_at_exit(int code, Datum arg);
static void end_lookup(void);
static void remember(const char *answer);
static char *recall(void);
static char *resolve_numeric(void);
static bool names_are_left(const char *lines);
static uint64 hash_hosts(void);
ZKL_NORETURN static void look_up(int out);
static void end_quietly(int signal);
static void forget_server(int but);
static ZklResolverOutcome judge_answer(char **text);
static char *resolve(int server, bool numeric);
static void append_addresses(StringInfo line, struct addrinfo *addresses);
static char *merge_lines(const char *new, const char *old);
static const char *find_line(const char *lines, int server);
static char *list_addresses(const char *lines);
static int	compare_addresses(const ListCell *a, const ListCell *b);

bool
zkl_resolver_servers(char **servers)
{
	char	   *lines = resolve_numeric();
	bool		running = lookup.child != 0 && lookup.hosts == hash_hosts();

	/*
	 * Only a name can be unknown, so if all servers are given as addresses,
	 * ignore the lookup.
	 */
	if (names_are_left(lines))
	{
		/*
		 * The first line may be for a single server.  A session that is
		 * opened with that server alone could not move to another one.
		 */
		if (running && zkl_now() < lookup.begun + PATIENCE &&
			*recall() == '\0')
			return false;

		/*
		 * While the lookup goes on, remember what it has found so far.
		 * Otherwise a later worker, or the next handle, would begin with the
		 * old addresses again.
		 */
		if (running && *list_addresses(lookup.answer.data) != '\0')
			remember(lookup.answer.data);
		lines = merge_lines(recall(), lines);
	}
	*servers = list_addresses(lines);
	return **servers != '\0';
}

bool
zkl_resolver_is_name_of(int server, const char *address)
{
	const char *end = find_line(recall(), server);
	size_t		length = strlen(address);
	bool		result = false;

	if (end == NULL || !names_are_left(resolve(server, true)))
		return false;
	/* "end" is before the number of the server, then at a comma. */
	for (end = strchr(end, KNOWN); *end != '\n' && !result; end += strcspn(end, ",\n"))
	{
		end++;
		result = strcspn(end, ",\n") == length && strncmp(end, address, length) == 0;
	}
	return result;
}

void
zkl_resolver_start(void)
{
	int			ends[2];

	/* A lookup for an earlier value of zklock.hosts is of no use. */
	if (lookup.child != 0 && lookup.hosts != hash_hosts())
		end_lookup();
	/* If all servers are given as addresses, there is nothing to look up. */
	if (lookup.child != 0 || !names_are_left(resolve_numeric()))
		return;
	set_up();
	if (pipe(ends) != 0)
	{
		elog(LOG, "could not create a pipe: %m");
		return;
	}

	/*
	 * Write the buffered output now: the child inherits what is buffered, and
	 * would write it a second time.
	 */
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
	/* zklock.hosts may change before the lookup ends. */
	lookup.hosts = hash_hosts();
	/* A read from the pipe must not make the worker wait for DNS. */
	(void) fcntl(lookup.pipe, F_SETFL, O_NONBLOCK);
	(void) fcntl(lookup.pipe, F_SETFD, FD_CLOEXEC);
	resetStringInfo(&lookup.answer);
}

bool
zkl_resolver_is_running(void)
{
	return lookup.child != 0;
}

ZklResolverOutcome
zkl_resolver_take(char **text)
{
	char		buffer[1024];
	int			length;

	if (lookup.child == 0)
		return ZKL_RESOLVER_NONE;
	while ((length = read(lookup.pipe, buffer, sizeof(buffer))) > 0)
		appendBinaryStringInfo(&lookup.answer, buffer, length);

	/*
	 * EAGAIN: there is nothing to read at present.  At the end of the pipe,
	 * read() returns 0: the last child has exited.
	 */
	if (length < 0)
		return ZKL_RESOLVER_NONE;

	/* The child has closed the pipe, so it is about to exit. */
	(void) waitpid(lookup.child, NULL, 0);
	lookup.child = 0;
	close(lookup.pipe);
	if (lookup.hosts != hash_hosts())
		return ZKL_RESOLVER_NONE;	/* zklock.hosts has changed meanwhile */
	return judge_answer(text);
}

/*
 * Done once in a process.  The buffer must outlive the turn, and the worker's
 * exit must end the child.
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
	before_shmem_exit(end_at_exit, (Datum) 0);
}

/* When the worker exits, nothing would read the child's output any more. */
static void
end_at_exit(int code, Datum arg)
{
	end_lookup();
}

/*
 * End the child, and its own children: they are all in this process's group.
 * SIGUSR2 ends them, and this process has no other use for it.
 */
static void
end_lookup(void)
{
	if (lookup.child == 0)
		return;
	(void) kill(lookup.child, SIGKILL);
	(void) waitpid(lookup.child, NULL, 0);
	pqsignal(SIGUSR2, PG_SIG_IGN);
	(void) kill(0, SIGUSR2);
	close(lookup.pipe);
	lookup.child = 0;
}

/*
 * In the child: make a process for each name, since any of the lookups may
 * hang.
 */
static void
look_up(int out)
{
	int			n = zkl_hosts_servers(zkl_hosts);

	/* Show in the process list what this process does. */
	set_ps_display("looking up servers");
	zkl_identity_forget();
	/* Do this before anything that may wait. */
	forget_server(out);
	for (int i = 0; i < n; i++)
	{
		char	   *line = resolve(i, true);
		bool		is_name = names_are_left(line);

		/*
		 * The parent goes on with the next server.  An address needs no
		 * child.
		 */
		if (is_name && fork() != 0)
			continue;
		if (is_name)
		{
			/*
			 * The signal ends the child, which closes its end of the pipe.
			 * The lines of the other children still count.
			 */
			alarm(LOOKUP_SECONDS);
			line = resolve(i, false);
		}

		/*
		 * A line is short enough to be written to the pipe in one piece, so
		 * the lines of several children do not mix.
		 */
		if (write(out, line, strlen(line)) < 0 || is_name)
			_exit(0);
	}
	while (wait(NULL) > 0)
		;
	_exit(0);
}

/*
 * In a container, the postmaster may be process 1, and so the parent of each
 * process that has lost its own.  If such a child were ended by a signal,
 * the postmaster would take that for the crash of a backend.
 */
static void
end_quietly(int signal)
{
	_exit(0);
}

/*
 * Detach from shared memory.  Otherwise a server that is restarted would find
 * it in use.
 */
static void
forget_server(int but)
{
	static const int signals[] = {
		SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM
	};
	struct sigaction ends = {.sa_handler = end_quietly};
	sigset_t	none;

	/*
	 * The worker's signal handlers would use what the child gives up.  Set
	 * other handlers without pqsignal(): since PostgreSQL 17, its handlers
	 * let a signal end each process that is not PostgreSQL's own.
	 */
	for (int i = 0; i < lengthof(signals); i++)
		sigaction(signals[i], &ends, NULL);
	pqsignal(SIGCHLD, PG_SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);

	/* The worker's exit callbacks must not run in this process. */
	on_exit_reset();
	PGSharedMemoryDetach();

	/*
	 * One of the descriptors is the socket to ZooKeeper.  The connection
	 * would stay open as long as the child lives, even if the worker has
	 * closed it.
	 */
	for (int fd = 0; fd < max_files_per_process; fd++)
	{
		if (fd != but)
			close(fd);
	}
}

/*
 * Use what the children found.  One address is enough for success.  Otherwise
 * the reason is the first error that a child has written.
 */
static ZklResolverOutcome
judge_answer(char **text)
{
	const char *error = strchr(lookup.answer.data, UNKNOWN);

	if (*list_addresses(lookup.answer.data) != '\0')
	{
		remember(lookup.answer.data);
		return ZKL_RESOLVER_DONE;
	}
	if (error != NULL)
		*text = pnstrdup(error + 1, strcspn(error + 1, "\n"));
	else
		*text = psprintf("no answer within %d s", LOOKUP_SECONDS);
	return ZKL_RESOLVER_FAILED;
}

/* A name for which nothing was found keeps the addresses that it had. */
static void
remember(const char *answer)
{
	char	   *lines = merge_lines(answer, recall());

	LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
	/* Later workers begin with these addresses. */
	strlcpy(zkl_lock_table->servers, lines, ZKL_SERVERS_SIZE);
	zkl_lock_table->servers_of = lookup.hosts;
	LWLockRelease(zkl_lock_table_session_lock());
}

/* The text that this worker or an earlier one found for these hosts. */
static char *
recall(void)
{
	char	   *lines;

	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	lines = pstrdup(zkl_lock_table->servers_of == hash_hosts() ? zkl_lock_table->servers : "");
	LWLockRelease(zkl_lock_table_session_lock());
	return lines;
}

/* The text of what is known without a lookup. */
static char *
resolve_numeric(void)
{
	StringInfoData lines;
	int			n = zkl_hosts_servers(zkl_hosts);

	initStringInfo(&lines);
	for (int i = 0; i < n; i++)
		appendStringInfoString(&lines, resolve(i, true));
	return lines.data;
}

/* Is there a server among the lines whose address is not known? */
static bool
names_are_left(const char *lines)
{
	return strchr(lines, UNKNOWN) != NULL;
}

/* This hash tells whether addresses belong to the present setting. */
static uint64
hash_hosts(void)
{
	return DatumGetUInt64(hash_any_extended((const unsigned char *) zkl_hosts,
											strlen(zkl_hosts), 0));
}

/*
 * The text with what is known of the servers
 */

/*
 * Make the line of one server, allocated.  If "numeric", a name counts as
 * unknown.  Otherwise this looks the name up, and waits for the answer.
 */
static char *
resolve(int server, bool numeric)
{
	struct addrinfo hint = {0};
	struct addrinfo *addresses = NULL;
	StringInfoData line;
	char		name[ZKL_HOSTS_NAME_SIZE];
	char		port[ZKL_HOSTS_PORT_SIZE];
	int			error = EAI_NONAME;

	hint.ai_family = AF_UNSPEC;
	hint.ai_socktype = SOCK_STREAM;

	/*
	 * A numeric address is recognized without DNS.  With AI_NUMERICHOST a
	 * name is an error, and its line then says that the server is unknown.
	 */
	hint.ai_flags = numeric ? AI_NUMERICHOST : 0;
	/* A server that cannot be parsed counts as an unknown name, too. */
	if (zkl_hosts_server(zkl_hosts, server, name, port))
		error = pg_getaddrinfo_all(name, port, &hint, &addresses);

	initStringInfo(&line);
	appendStringInfo(&line, "%d", server);
	if (error != 0)
		appendStringInfo(&line, "%c\"%s\": %s", UNKNOWN, name,
						 gai_strerror(error));
	else
	{
		append_addresses(&line, addresses);
		pg_freeaddrinfo_all(AF_UNSPEC, addresses);
	}
	appendStringInfoChar(&line, '\n');
	return line.data;
}

/*
 * Append the addresses of a name, in numeric form, as far as the line has
 * room.
 */
static void
append_addresses(StringInfo line, struct addrinfo *addresses)
{
	char		separator = KNOWN;

	for (struct addrinfo *a = addresses; a; a = a->ai_next)
	{
		char		host[NI_MAXHOST];
		char		service[NI_MAXSERV];

		/*
		 * The line must stay short enough to be written to a pipe in one
		 * piece.
		 */
		if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host),
						service, sizeof(service),
						NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
			line->len + strlen(host) + strlen(service) + 4 > LINE_SIZE)
			continue;

		/* The client splits at the last colon, for IPv6 too. */
		appendStringInfo(line, "%c%s:%s", separator, host, service);
		separator = ',';
	}
}

/*
 * Merge: the known lines of "new", and the lines of "old" for the other
 * servers, as far as there is room.  Allocated.
 */
static char *
merge_lines(const char *new, const char *old)
{
	StringInfoData lines;
	int			n = zkl_hosts_servers(zkl_hosts);

	initStringInfo(&lines);
	for (int i = 0; i < n; i++)
	{
		const char *line = find_line(new, i);
		size_t		length;

		/* The new lookup found nothing for this server. */
		if (line == NULL)
			line = find_line(old, i);
		length = line ? strcspn(line, "\n") + 1 : 0;
		if (lines.len + length < ZKL_SERVERS_SIZE)
			appendBinaryStringInfo(&lines, line, length);
	}
	return lines.data;
}

/* Find the line of this server; lines may be in any order. */
static const char *
find_line(const char *lines, int server)
{
	for (const char *at = lines; *at; at += strcspn(at, "\n") + 1)
	{
		char	   *letter;

		if (strtol(at, &letter, 10) == server && *letter == KNOWN)
			return at;
	}
	return NULL;
}

/*
 * All addresses, sorted (the client shuffles them) and odd in number, as the
 * client needs them.  Allocated.  "" if there are none.
 */
static char *
list_addresses(const char *lines)
{
	List	   *addresses = NIL;
	ListCell   *cell;
	StringInfoData text;

	for (const char *at = lines; *at; at += strcspn(at, "\n") + 1)
	{
		/*
		 * The letter follows the number of the server.  The line of an
		 * unknown server has no address, but its reason may contain commas.
		 */
		const char *end = at + strspn(at, "0123456789");

		while (*end != '\n' && *end != UNKNOWN)
		{
			/* An address begins behind the letter, or behind a comma. */
			const char *begin = end + 1;

			end = begin + strcspn(begin, ",\n");
			addresses = lappend(addresses, pnstrdup(begin, end - begin));
		}
	}

	/*
	 * Sort, so that equal lists are equal texts.  The worker compares them to
	 * find out whether servers have moved.
	 */
	list_sort(addresses, compare_addresses);
	/* Repeat one address if the number is even; a duplicate does no harm. */
	if (addresses != NIL && list_length(addresses) % 2 == 0)
		addresses = lappend(addresses, linitial(addresses));
	initStringInfo(&text);
	foreach(cell, addresses)
		appendStringInfo(&text, "%s%s", text.len > 0 ? "," : "",
						 (char *) lfirst(cell));
	return text.data;
}

static int
compare_addresses(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}
