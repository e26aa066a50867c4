/*-------------------------------------------------------------------------
 *
 * zklock-run.c
 *	  Runs a command under a lock, a lease of a semaphore, or a tick of a job.
 *
 * The lock is a session-level lock of a connection that this program keeps.
 * The command must have ended before another client can own the lock, so the
 * program must foresee the loss.  It asks its backend again and again until
 * when the lock is safe.  When an answer fails to come, for whatever reason,
 * the command gets SIGTERM while the lock is still safe, and SIGKILL when it is
 * not any more.  If the lock is lost before that moment, because a client
 * deleted its znode or the backend ended, SIGTERM follows at once.
 *
 * src/bin/zklock-run.c
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <libpq-fe.h>

/*
 * Exit statuses besides the command's own.  They follow sysexits.h and env(1);
 * none of them is one that a shell makes of a signal.
 */
#define STATUS_USAGE		64
#define STATUS_UNAVAILABLE	69
#define STATUS_OS_ERROR		71
#define STATUS_NOT_ACQUIRED 75
#define STATUS_LOST			79
#define STATUS_CANNOT_EXEC	126
#define STATUS_NO_COMMAND	127

/* How often the backend is asked, and how long before the end SIGTERM comes. */
#define ASK_INTERVAL		(fmax(standing.session_timeout, 1) / 10)
#define MAX_GRACE			(standing.session_timeout / 4)

/* How often to look whether processes that are not children have ended. */
#define LOOK_INTERVAL		0.05

typedef struct
{
	const char *conninfo;
	const char *function;		/* that acquires: its name and arguments */
	const char *argument;		/* its $3, or NULL */
	const char *timeout;
	const char *retry;			/* its $4 */
	bool		once;			/* the lock is that of a job's run */
	double		kill_after;
	int			not_acquired;	/* exit status */
	const char *path;
	char	  **command;
} Options;

/* What the backend said last about the lock, and when that was asked. */
typedef struct
{
	bool		held;
	double		safe_until;		/* less the commit margin */
	double		session_timeout;
	double		asked_at;
} Standing;

static const char *progname = "zklock-run";

/* Signals that are passed on to the command; SIGCHLD and SIGPIPE are only noted. */
static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

#define N_PASSED_ON ((int) (sizeof(passed_on) / sizeof(passed_on[0])))

static volatile sig_atomic_t arrived[N_PASSED_ON];
static sigset_t unblocked;

static PGconn *conn;
static char *schema;			/* of the extension, quoted */
static Standing standing;
static double asked_at;			/* when the last question was sent */
static bool asking;				/* it has no answer yet */

static bool watching;			/* the command, or what it left behind, runs */
static char unsaid[4096];		/* what was to be said meanwhile */

static pid_t command;			/* 0: not started, or ended */
static bool own_group;			/* the command has a process group of its own */

static void parse_options(int argc, char **argv, Options *options);
static void usage(void);
static void connect_server(const Options *options);
static void catch_signals(void);
static bool acquire(const Options *options);
static const char *reason_to_end(const Options *options);
static void start_command(const Options *options);
static int	watch_command(const Options *options, bool *lost);
static bool confirm_lock(const Options *options);
static void end_run(bool done);
static void release(void);

/*-------------------------------------------------------------------------
 * Small things
 *-------------------------------------------------------------------------
 */

static void complain(const char *format,...) __attribute__((format(printf, 1, 2)));
static char *format_text(const char *format,...) __attribute__((format(printf, 1, 2)));

static void
complain(const char *format,...)
{
	va_list		args;

	fprintf(stderr, "%s: error: ", progname);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/*
 * A write to standard error waits if no process reads there.  So this program
 * writes nothing while the command runs: it must end the command in time when
 * the lock is lost.
 */
static void
say(const char *text)
{
	if (!watching)
		fputs(text, stderr);
	else
		strncat(unsaid, text, sizeof(unsaid) - strlen(unsaid) - 1);
}

static void
say_notice(void *arg, const char *message)
{
	(void) arg;
	say(message);
}

/* libpq's message ends with a newline of its own. */
static void
complain_of_server(void)
{
	say(progname);
	say(": error: ");
	say(PQerrorMessage(conn));
}

static void
complain_of_loss(const Options *options, const char *detail)
{
	complain("lock \"%s\" was lost", options->path);
	fprintf(stderr, "%s: detail: %s\n", progname, detail);
}

/* Seconds on the clock that counts while the machine is suspended, as the server's does. */
static double
clock_now(void)
{
	struct timespec now;

#ifdef CLOCK_BOOTTIME
	clock_gettime(CLOCK_BOOTTIME, &now);
#else
	clock_gettime(CLOCK_MONOTONIC, &now);
#endif
	return now.tv_sec + now.tv_nsec / 1e9;
}

static char *
format_text(const char *format,...)
{
	va_list		args;
	char	   *string;
	int			length;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	string = malloc(length + 1);
	if (string == NULL)
	{
		complain("out of memory");
		exit(STATUS_OS_ERROR);
	}
	va_start(args, format);
	vsnprintf(string, length + 1, format, args);
	va_end(args);
	return string;
}

/*-------------------------------------------------------------------------
 * Main
 *-------------------------------------------------------------------------
 */

int
main(int argc, char **argv)
{
	Options		options;
	const char *reason;
	bool		lost = false;
	int			status;

	parse_options(argc, argv, &options);
	connect_server(&options);
	catch_signals();

	if (!acquire(&options))
		return options.not_acquired;

	/*
	 * The wait for the answers may have taken too long.  A command that would
	 * have to end at once is not started.
	 */
	if ((reason = reason_to_end(&options)) != NULL)
	{
		complain_of_loss(&options, reason);
		return STATUS_LOST;		/* before the command was started */
	}
	start_command(&options);
	status = watch_command(&options, &lost);

	/*
	 * The lock may have been lost since the last answer.  Only a confirmation
	 * after the command's end shows that the whole run had the lock.
	 */
	if (!lost && !confirm_lock(&options))
	{
		lost = true;
		complain_of_loss(&options, "The server did not confirm it when the command had ended.");
	}
	if (!lost && options.once)
		end_run(status == 0);
	if (!lost)
		release();
	PQfinish(conn);
	return lost ? STATUS_LOST : status;
}

/*-------------------------------------------------------------------------
 * Options
 *-------------------------------------------------------------------------
 */

static double
parse_number(const char *value, const char *option, double max)
{
	char	   *end;
	double		number = strtod(value, &end);

	if (end == value || *end != '\0' || !(number >= 0 && number <= max))
	{
		complain("invalid value \"%s\" for option %s", value, option);
		exit(STATUS_USAGE);
	}
	return number;
}

static void
choose_kind(Options *options, const char *function, const char *argument)
{
	if (options->function != NULL)
	{
		complain("only one of --shared, --exclusive, --semaphore and --once can be given");
		exit(STATUS_USAGE);
	}
	options->function = function;
	options->argument = argument;
}

static void
parse_options(int argc, char **argv, Options *options)
{
	enum
	{
		OPTION_SEMAPHORE = 256,
		OPTION_ONCE,
		OPTION_RETRY
	};
	static const struct option long_options[] = {
		{"conflict-exit-code", required_argument, NULL, 'E'},
		{"dbname", required_argument, NULL, 'd'},
		{"exclusive", no_argument, NULL, 'x'},
		{"help", no_argument, NULL, 'h'},
		{"kill-after", required_argument, NULL, 'k'},
		{"once", required_argument, NULL, OPTION_ONCE},
		{"retry", no_argument, NULL, OPTION_RETRY},
		{"semaphore", required_argument, NULL, OPTION_SEMAPHORE},
		{"shared", no_argument, NULL, 's'},
		{"timeout", required_argument, NULL, 't'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	memset(options, 0, sizeof(*options));
	options->kill_after = 5;
	options->not_acquired = STATUS_NOT_ACQUIRED;
	options->retry = "false";

	/* The plus sign leaves the options of the command to the command. */
	while ((c = getopt_long(argc, argv, "+d:E:hk:st:Vx", long_options, NULL)) != -1)
	{
		switch (c)
		{
			case 'd':
				options->conninfo = optarg;
				break;
			case 'E':
				options->not_acquired = (int) parse_number(optarg, "--conflict-exit-code", 255);
				break;
			case 'h':
				usage();
				exit(0);
			case 'k':
				options->kill_after = parse_number(optarg, "--kill-after", 1e6);
				break;
			case OPTION_ONCE:
				choose_kind(options, strcmp(optarg, "now") == 0 ?
							"zk_run_once($1, timeout => coalesce($2::interval, '0'), retry => $4)" :
							"zk_run_once($1, $3::timestamptz, coalesce($2::interval, '0'), $4)",
							optarg);
				options->once = true;
				break;
			case OPTION_RETRY:
				options->retry = "true";
				break;
			case 's':
				choose_kind(options, "zk_read_lock_acquire($1, $2::interval)", NULL);
				break;
			case OPTION_SEMAPHORE:
				choose_kind(options, "zk_semaphore_acquire($1, $3::integer, $2::interval)", optarg);
				break;
			case 't':
				options->timeout = optarg;
				break;
			case 'V':
				puts("zklock-run (zklock) " ZKLOCK_VERSION);
				exit(0);
			case 'x':
				choose_kind(options, "zk_write_lock_acquire($1, $2::interval)", NULL);
				break;
			default:
				fprintf(stderr, "Try \"%s --help\" for more information.\n", progname);
				exit(STATUS_USAGE);
		}
	}
	if (argc - optind < 2)
	{
		complain(argc == optind ? "no path was given" : "no command was given");
		fprintf(stderr, "Try \"%s --help\" for more information.\n", progname);
		exit(STATUS_USAGE);
	}
	if (options->function == NULL)
		options->function = "zk_lock_acquire($1, $2::interval)";
	options->path = argv[optind];
	options->command = argv + optind + 1;
}

static void
usage(void)
{
	puts("zklock-run runs a command under a lock of the whole cluster.\n"
		 "\n"
		 "Usage:\n"
		 "  zklock-run [OPTION]... PATH COMMAND [ARGUMENT]...\n"
		 "\n"
		 "The lock is a mutex, unless one of these options is given:\n"
		 "  -s, --shared             a read-write lock, for reading\n"
		 "  -x, --exclusive          a read-write lock, for writing\n"
		 "      --semaphore=N        a lease of a semaphore that has N\n"
		 "      --once=TICK          a tick of a job: a point in time, or \"now\" for the\n"
		 "                           nearest minute\n"
		 "\n"
		 "Options:\n"
		 "  -d, --dbname=CONNINFO    database name, connection string or URI\n"
		 "  -E, --conflict-exit-code=STATUS\n"
		 "                           exit status if the lock was not acquired (default 75)\n"
		 "  -k, --kill-after=SECONDS at most this time lies between SIGTERM and SIGKILL\n"
		 "                           when the lock is lost (default 5)\n"
		 "      --retry              with --once: also a tick whose run has failed\n"
		 "  -t, --timeout=INTERVAL   how long to wait for the lock; 0: do not wait\n"
		 "  -V, --version            show the version, then exit\n"
		 "  -h, --help               show this help, then exit\n"
		 "\n"
		 "The exit status is the command's, 75 if the lock was not acquired, or 79 if it\n"
		 "was lost. See zklock-run(1) for the others.");
}

/*-------------------------------------------------------------------------
 * The connection
 *-------------------------------------------------------------------------
 */

static void
connect_server(const Options *options)
{
	const char *keywords[] = {"dbname", "fallback_application_name", NULL};
	const char *values[] = {options->conninfo, progname, NULL};
	PGresult   *result;

	/*
	 * With 1 as the last argument, the name of the database may also be a
	 * connection string or a URI.
	 */
	conn = PQconnectdbParams(keywords, values, 1);
	PQsetNoticeProcessor(conn, say_notice, NULL);
	if (PQstatus(conn) != CONNECTION_OK)
	{
		complain_of_server();
		exit(STATUS_UNAVAILABLE);
	}

	/* pselect() cannot wait for a descriptor above this limit. */
	if (PQsocket(conn) >= FD_SETSIZE)
	{
		complain("too many files are open");
		exit(STATUS_OS_ERROR);
	}

	/* A backend that is idle reports a loss only by its end. */
	result = PQexec(conn, "SET search_path = pg_catalog; SET zklock.on_lost = terminate; "
					"SELECT quote_ident(n.nspname) FROM pg_extension e "
					"JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'zklock'");
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		complain_of_server();
		exit(STATUS_UNAVAILABLE);
	}
	if (PQntuples(result) == 0)
	{
		complain("extension \"zklock\" does not exist in database \"%s\"", PQdb(conn));
		exit(STATUS_UNAVAILABLE);
	}
	schema = format_text("%s", PQgetvalue(result, 0, 0));
	PQclear(result);
}

static bool
is_alive(void)
{
	return PQstatus(conn) == CONNECTION_OK;
}

/*
 * Wait for the server, for a signal, or until this moment.  Signals arrive only
 * here, so that none is missed between a look and a wait.
 */
static void
wait_until(double until)
{
	double		seconds = fmax(until - clock_now(), 0);
	struct timespec timeout = {0};
	fd_set		readable;
	int			found;

	if (!isinf(seconds))
	{
		timeout.tv_sec = (time_t) seconds;
		timeout.tv_nsec = (long) ((seconds - floor(seconds)) * 1e9);
	}
	FD_ZERO(&readable);
	if (is_alive())
		FD_SET(PQsocket(conn), &readable);
	found = pselect(is_alive() ? PQsocket(conn) + 1 : 0, &readable, NULL, NULL,
					isinf(seconds) ? NULL : &timeout, &unblocked);
	if (found > 0)
	{
		PQconsumeInput(conn);
		PQisBusy(conn);			/* shows what the server says by itself */
	}
}

/* The last result of the query under way, or NULL if the connection broke. */
static PGresult *
take_result(void)
{
	PGresult   *result = NULL;
	PGresult   *next;

	while ((next = PQgetResult(conn)) != NULL)
	{
		PQclear(result);
		result = next;
	}
	return result;
}

/*-------------------------------------------------------------------------
 * Signals
 *-------------------------------------------------------------------------
 */

static void
note_signal(int number, siginfo_t *info, void *context)
{
	(void) context;
#ifdef SI_KERNEL

	/*
	 * What the terminal sent has reached all processes of the group by
	 * itself.
	 */
	if (command != 0 && !own_group && info->si_code == SI_KERNEL)
		return;
#endif
	for (int i = 0; i < N_PASSED_ON; i++)
	{
		if (passed_on[i] == number)
			arrived[i] = true;
	}
}

/*
 * From here on signals are blocked, but for waits.  A signal that is ignored, as
 * by nohup, stays so, here and in the command.
 */
static void
catch_signals(void)
{
	const int	noted[] = {SIGCHLD, SIGPIPE};
	struct sigaction action = {.sa_sigaction = note_signal,.sa_flags = SA_SIGINFO};
	struct sigaction current;
	sigset_t	blocked;

	sigemptyset(&action.sa_mask);
	sigemptyset(&blocked);
	for (int i = 0; i < N_PASSED_ON; i++)
	{
		sigaction(passed_on[i], NULL, &current);
		if (current.sa_handler == SIG_IGN)
			continue;
		sigaction(passed_on[i], &action, NULL);
		sigaddset(&blocked, passed_on[i]);
	}

	/*
	 * SIGPIPE gets a handler instead of being ignored, because the command
	 * would inherit that.  SIGCHLD ends a wait when the command ends.
	 */
	for (int i = 0; i < 2; i++)
		sigaction(noted[i], &action, NULL);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &blocked, &unblocked);

	/* The parent process may have blocked SIGCHLD, but the waits need it. */
	sigdelset(&unblocked, SIGCHLD);
}

/* The next signal to pass on, or 0. */
static int
next_signal(void)
{
	for (int i = 0; i < N_PASSED_ON; i++)
	{
		if (arrived[i])
		{
			arrived[i] = false;
			return passed_on[i];
		}
	}
	return 0;
}

/* A signal during the wait for the lock: withdraw, and die of it. */
static void
give_up(int number)
{
	PGcancel   *cancel = PQgetCancel(conn);
	char		message[256];

	/*
	 * A second signal ends the program at once, even if the server does not
	 * answer the cancel.
	 */
	signal(number, SIG_DFL);
	sigprocmask(SIG_SETMASK, &unblocked, NULL);
	if (cancel != NULL)
		PQcancel(cancel, message, sizeof(message));
	PQfinish(conn);
	raise(number);
	exit(128 + number);
}

/*-------------------------------------------------------------------------
 * The lock
 *-------------------------------------------------------------------------
 */

static bool
send_query(const char *query, int n, const char *const *values)
{
	return PQsendQueryParams(conn, query, n, NULL, values, NULL, NULL, 0) == 1;
}

/*
 * Before the command is started: wait for the result, which must not be an error.
 * Nor may the query have failed to be sent.
 */
static PGresult *
finish_query(void)
{
	PGresult   *result;
	int			number;

	while (is_alive() && PQisBusy(conn))
	{
		wait_until(INFINITY);
		if ((number = next_signal()) != 0)
			give_up(number);
	}
	result = take_result();
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		complain_of_server();
		exit(STATUS_UNAVAILABLE);
	}
	return result;
}

/*
 * Ask the backend how the lock stands.  zk_lock_is_held is computed last, so a
 * ZooKeeper session that has just expired cannot lend the lock the safety of the
 * next one.
 */
static void
ask_standing(const Options *options)
{
	static char *query = NULL;

	if (query == NULL)
		query = format_text("SELECT extract(epoch FROM s.safe_until - clock_timestamp()"
							" - current_setting('zklock.commit_margin')::interval), "
							"extract(epoch FROM s.session_timeout), %s.zk_lock_is_held($1) "
							"FROM %s.zk_status s", schema, schema);
	asked_at = clock_now();
	asking = send_query(query, 1, &options->path);
}

/*
 * The time that is left counts from the moment of the question, which cannot be
 * later than the moment at which the server computed the answer.
 */
static void
note_standing(PGresult *result)
{
	/* If the server knows of no safe moment, the lock is not safe. */
	standing.safe_until = PQgetisnull(result, 0, 0) ? 0 :
		asked_at + strtod(PQgetvalue(result, 0, 0), NULL);
	standing.session_timeout = strtod(PQgetvalue(result, 0, 1), NULL);
	standing.held = PQgetvalue(result, 0, 2)[0] == 't';
	standing.asked_at = asked_at;
	asking = false;
	PQclear(result);
}

/* Read the answer if it is there.  An error tells nothing about the lock. */
static void
read_standing(void)
{
	PGresult   *result;

	if (!asking || (is_alive() && PQisBusy(conn)))
		return;
	result = take_result();
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		note_standing(result);
		return;
	}
	complain_of_server();
	asking = false;
	PQclear(result);
}

/* Wait for the answer while the lock is safe. */
static void
await_standing(void)
{
	while (asking && clock_now() < standing.safe_until)
	{
		wait_until(standing.safe_until);
		read_standing();
	}
}

/* Was the lock held until now, when the command has ended? */
static bool
confirm_lock(const Options *options)
{
	await_standing();			/* what was asked before says nothing */
	if (asking || !is_alive())
		return false;
	ask_standing(options);
	await_standing();

	/* After an error, the standing is still that of an earlier question. */
	return standing.asked_at == asked_at && standing.held;
}

/*
 * A run of a job has failed if the last transaction before its end has.  So this
 * transaction lasts until the command has succeeded, and aborts with the connection
 * if this program is killed, gives up or loses the lock.
 */
static void
begin_run(void)
{
	PGresult   *result;

	(void) PQsendQuery(conn, "SET idle_in_transaction_session_timeout = 0; "
					   "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SELECT 1");
	result = finish_query();
	PQclear(result);
}

/* Acquire the lock, and tell the command which it is. */
static bool
acquire(const Options *options)
{
	const char *values[] = {options->path, options->timeout, options->argument, options->retry};
	PGresult   *result;
	bool		acquired;

	if (options->once)
		begin_run();

	/*
	 * Each function uses some of the four parameters.  The server needs a
	 * type for the others as well, so the query mentions them.
	 */
	(void) send_query(format_text("SELECT %s.%s, $3::text, $4::boolean", schema, options->function), 4, values);
	result = finish_query();
	acquired = PQgetvalue(result, 0, 0)[0] == 't';
	PQclear(result);
	if (!acquired)
		return false;

	(void) send_query(format_text("SELECT %s.zk_lock_token($1)", schema), 1, values);
	result = finish_query();
	setenv("ZKLOCK_PATH", options->path, 1);
	setenv("ZKLOCK_TOKEN", PQgetvalue(result, 0, 0), 1);
	PQclear(result);

	ask_standing(options);
	note_standing(finish_query());
	return true;
}

/* Send a query, and wait for its result as long as the lock is safe. */
static void
run_query(const char *query)
{
	(void) send_query(query, 0, NULL);
	while (is_alive() && PQisBusy(conn) && clock_now() < standing.safe_until)
		wait_until(standing.safe_until);
	if (is_alive() && !PQisBusy(conn))
		PQclear(take_result());
}

/* End the transaction that begin_run began. */
static void
end_run(bool done)
{
	run_query(done ? "COMMIT" : "ROLLBACK");
}

/* Release the lock before this program ends, for a program that waits for its end. */
static void
release(void)
{
	run_query(format_text("SELECT %s.zk_lock_release_all()", schema));
}

/*-------------------------------------------------------------------------
 * The command
 *-------------------------------------------------------------------------
 */

/* Is this program in the foreground of a terminal? */
static bool
is_foreground(void)
{
	int			terminal = open("/dev/tty", O_RDWR | O_NOCTTY);
	bool		foreground;

	if (terminal < 0)
		return false;
	foreground = tcgetpgrp(terminal) == getpgrp();
	close(terminal);
	return foreground;
}

/* A signal that came before the command had begun must not get lost in the handler. */
static void
restore_signals(void)
{
	struct sigaction current;

	for (int i = 0; i < N_PASSED_ON; i++)
	{
		sigaction(passed_on[i], NULL, &current);
		if (current.sa_handler != SIG_IGN)
			signal(passed_on[i], SIG_DFL);
	}
	sigprocmask(SIG_SETMASK, &unblocked, NULL);
}

/* In the child. */
static void
run_command(const Options *options, pid_t parent)
{
	if (own_group)
		setpgid(0, 0);
#ifdef __linux__

	/* Nothing watches the lock once this program was killed. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif

	/* The program may have been killed before the request took effect. */
	if (getppid() != parent)
		_exit(STATUS_OS_ERROR);
	restore_signals();
	execvp(options->command[0], options->command);
	complain("could not execute \"%s\": %s", options->command[0], strerror(errno));
	_exit(errno == ENOENT ? STATUS_NO_COMMAND : STATUS_CANNOT_EXEC);
}

/*
 * A process group of its own lets a signal reach all that the command has started.
 * But a background group could not use the terminal, so in the foreground the
 * command stays in the group of the terminal.
 */
static void
start_command(const Options *options)
{
	pid_t		self = getpid();

	own_group = !is_foreground();
	command = fork();
	if (command < 0)
	{
		complain("could not start a process: %s", strerror(errno));
		exit(STATUS_OS_ERROR);
	}
	if (command == 0)
		run_command(options, self);
	if (own_group)
		setpgid(command, command);	/* whichever of the two is first */
}

/*
 * With a group of its own, the signal also reaches the processes that the
 * command has started.
 */
static void
signal_command(pid_t pid, int number)
{
	kill(own_group ? -pid : pid, number);
}

/*
 * Has the command ended?  When the lock is lost, all processes of the command's group
 * must have ended, but those that even SIGKILL leaves behind are zombies.
 */
static bool
has_ended(pid_t pid, int *wait_status, bool whole_group)
{
	if (command != 0 && waitpid(command, wait_status, WNOHANG) == command)
		command = 0;
	return command == 0 && !(whole_group && own_group && kill(-pid, 0) == 0);
}

/* When the command must be told to end, unless better news comes. */
static double
end_at(const Options *options)
{
	return standing.safe_until - fmin(options->kill_after, MAX_GRACE);
}

/* Why the command must end now, or NULL. */
static const char *
reason_to_end(const Options *options)
{
	if (!is_alive())
		return "The connection to the server was lost.";
	if (!standing.held)
		return "The server does not hold it any more, or cannot confirm it.";
	if (clock_now() >= end_at(options))
		return "The server did not confirm it in time.";
	return NULL;
}

/*
 * The lock is lost, or about to be.  Nothing can stop another client from owning a
 * lock whose loss comes as a surprise, but none owns it yet while it is safe.
 */
static void
end_command(const Options *options, pid_t pid)
{
	/* SIGKILL comes at the latest when another client may own the lock. */
	double		kill_at = fmin(clock_now() + options->kill_after, standing.safe_until);
	int			wait_status;

	signal_command(pid, SIGTERM);

	/* A process that is stopped takes SIGTERM only when it continues. */
	signal_command(pid, SIGCONT);
	while (!has_ended(pid, &wait_status, true) && clock_now() < kill_at)
		wait_until(fmin(kill_at, clock_now() + LOOK_INTERVAL));
	if (!has_ended(pid, &wait_status, true))
		signal_command(pid, SIGKILL);
	while (!has_ended(pid, &wait_status, false))
		wait_until(INFINITY);
}

/* The command's exit status as a shell has it. */
static int
shell_status(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* Wait for the end of the command, and end it when the lock is lost. */
static int
watch_command(const Options *options, bool *lost)
{
	pid_t		pid = command;
	const char *reason = NULL;
	int			wait_status = 0;
	int			number;

	watching = true;
	while (!has_ended(pid, &wait_status, false))
	{
		while ((number = next_signal()) != 0)
			signal_command(pid, number);
		read_standing();
		if ((reason = reason_to_end(options)) != NULL)
		{
			*lost = true;
			end_command(options, pid);
			break;
		}
		if (!asking && clock_now() >= asked_at + ASK_INTERVAL)
			ask_standing(options);

		/*
		 * A suspended machine does not count such a wait, so it is never
		 * long.
		 */
		wait_until(fmin(end_at(options), (asking ? clock_now() : asked_at) + ASK_INTERVAL));
	}
	watching = false;
	fputs(unsaid, stderr);
	if (*lost)
		complain_of_loss(options, reason);
	return shell_status(wait_status);
}
