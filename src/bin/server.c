/*-------------------------------------------------------------------------
 *
 * server.c
 *	  The connection of zklock-run, and the lock that it holds.
 *
 * The lock is a session-level lock of this connection.
 *
 * src/bin/server.c
 *
 *-------------------------------------------------------------------------
 */
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "bin/messages.h"
#include "bin/server.h"
#include "bin/signals.h"

ZklStanding zkl_server_standing;

/*
 * GRACE and STEADY are parts of the session timeout.  GRACE is the longest
 * time that a command gets to end.  STEADY is how long the lock is always safe
 * while ZooKeeper answers, even if the last reply is one interval old.  A
 * longer grace would end commands although nothing is wrong.
 */
#define GRACE	0.2
#define STEADY	0.35

/*
 * The standing that a reply confirms must last until this many replies have
 * come, one after the other.  At the end of the command, they say that the
 * lock is held, whether transactions were guarded, and that the lock is
 * released.  While the command runs, two suffice: the one that is awaited, and
 * the reply to the next query.
 */
#define REPLIES	3

/*
 * A pooler is found by this query, in this many rounds.  Each round waits this
 * many milliseconds for an answer that may not come.  While other clients are
 * busy, the probability that three rounds show nothing is at most one in four.
 */
#define POOLER_QUERY	"SELECT pg_catalog.pg_backend_pid()"
#define POOLER_ROUNDS	30
#define POOLER_PATIENCE	300

/* How often to look for the backend of a lock that a pooler shares. */
#define POOLER_RELEASES	100

/* How many seconds to wait until the server has withdrawn a request. */
#define CANCEL_PATIENCE	5

/* The SQLSTATEs of errors that this program expects. */
#define UNDEFINED_FUNCTION	"42883"
#define LOCK_NOT_AVAILABLE	"55P03"
#define LOCK_LOST			"ZK001"

double		zkl_server_asked_at;
bool		zkl_server_asking;

static void exit_unless_ok(const PGresult *result);

static PGconn *conn;
static PGresult *answer;		/* the last result of the present query that
								 * has come */
static char *schema;			/* schema of the extension, quoted */
static bool pooled;				/* a pooler is between this program and the
								 * backend */
static char *statement;			/* name of the query about the lock */
static const char *time_left;	/* of --timeout, or NULL */
static char *tick;				/* the tick to run, in place of "now"; NULL:
								 * none */
static bool runs_again;			/* the run of the tick has failed without a
								 * command */
static bool ends_on_loss;		/* the session ends if the lock is lost */

double
zkl_server_clock(void)
{
	struct timespec now;

#ifdef CLOCK_BOOTTIME
	clock_gettime(CLOCK_BOOTTIME, &now);
#else
	clock_gettime(CLOCK_MONOTONIC, &now);
#endif
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void
say_notice(void *arg, const char *message)
{
	(void) arg;
	zkl_messages_add(message);
}

/* libpq's messages end with a newline. */
static void
complain_of_server(PGconn *of)
{
	zkl_messages_add(zkl_messages_progname);
	zkl_messages_add(": error: ");
	zkl_messages_add(PQerrorMessage(of));
}

/* Prompt at the terminal, as psql does.  NULL if there is none. */
static char *
prompt_for_password(const char *user)
{
	static char line[1024];
	int			terminal = open("/dev/tty", O_RDWR);
	ssize_t		length;
	struct termios usual;
	struct termios silent;

	if (terminal < 0)
		return NULL;
	tcgetattr(terminal, &usual);
	silent = usual;
	silent.c_lflag &= ~ECHO;
	tcsetattr(terminal, TCSAFLUSH, &silent);
	dprintf(terminal, "Password for user %s: ", user);
	length = read(terminal, line, sizeof(line) - 1);
	tcsetattr(terminal, TCSAFLUSH, &usual);
	dprintf(terminal, "\n");
	close(terminal);
	line[length > 0 ? length : 0] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	return line;
}

/*
 * The path is UTF-8, whatever the encodings of the database and of a cron
 * job's locale are: the same text must name the same lock.  The connection
 * string may set another encoding.
 */
static PGconn *
open_connection(const ZklOptions *options)
{
	static char *password = NULL;	/* also for a second connection */
	const char *keywords[] = {"client_encoding", "password", "dbname", "fallback_application_name", NULL};
	const char *values[] = {"UTF8", password, options->conninfo, zkl_messages_progname, NULL};
	PGconn	   *opened;

	/*
	 * With 1 as the last argument, the database name may also be a connection
	 * string or a URI.
	 */
	opened = PQconnectdbParams(keywords, values, 1);
	if (PQstatus(opened) != CONNECTION_OK && PQconnectionNeedsPassword(opened) &&
		!options->no_password && password == NULL)
	{
		values[1] = password = prompt_for_password(PQuser(opened));
		if (password != NULL)
		{
			PQfinish(opened);
			opened = PQconnectdbParams(keywords, values, 1);
		}
	}
	if (PQstatus(opened) != CONNECTION_OK)
	{
		complain_of_server(opened);
		exit(STATUS_UNAVAILABLE);
	}
	PQsetNoticeProcessor(opened, say_notice, NULL);
	return opened;
}

/* The last result of a short query, or NULL if the connection broke.  Waits. */
static PGresult *
take_result(PGconn *from)
{
	PGresult   *result = NULL;
	PGresult   *next;

	while ((next = PQgetResult(from)) != NULL)
	{
		PQclear(result);
		result = next;
	}
	return result;
}

/*
 * Has the whole answer of conn arrived?  If the server falls silent in the
 * middle of it, PQgetResult() alone would wait for ever.
 */
static bool
is_answered(void)
{
	while (!zkl_server_is_alive() || !PQisBusy(conn))
	{
		PGresult   *result = PQgetResult(conn);

		if (result == NULL)
			return true;
		PQclear(answer);
		answer = result;
	}
	return false;
}

/* NULL if the connection broke. */
static PGresult *
take_answer(void)
{
	PGresult   *result = answer;

	answer = NULL;
	return result;
}

/*
 * Poolers
 *
 * A session-level lock belongs to a backend.  A pooler in transaction mode
 * gives that backend to another client after each transaction, so two
 * commands could run under the same lock.  A client cannot query the mode of
 * a pooler, but it can observe it: either two connections that are open at
 * the same time have the same backend, or one of them has different backends
 * one after another.
 */

/* The answer to POOLER_QUERY, or 0. */
static int
take_pid(PGconn *from)
{
	PGresult   *result = take_result(from);
	int			pid = PQresultStatus(result) == PGRES_TUPLES_OK ? atoi(PQgetvalue(result, 0, 0)) : 0;

	PQclear(result);
	return pid;
}

static int
ask_pid(PGconn *of)
{
	return PQsendQuery(of, POOLER_QUERY) ? take_pid(of) : 0;
}

static bool
has_answer(PGconn *other)
{
	struct pollfd readable = {.fd = PQsocket(other),.events = POLLIN};

	while (PQisBusy(other))
	{
		if (poll(&readable, 1, POOLER_PATIENCE) != 1 || !PQconsumeInput(other))
			return false;
	}
	return true;
}

/*
 * Does the pooler give the backend of conn to other clients while conn is
 * open?  The other connection is of the same user and database, and is of no
 * use afterwards.
 *
 * Silence of the other connection shows nothing in one round.  In session
 * mode, the pooler may have no backend left for the other connection.  In
 * transaction mode, the query was sent first and so has reached a backend,
 * but the answer may come late on a busy machine.  So the next rounds go on
 * with conn alone until the answer is there.
 *
 * The backends of a busy pool serve its clients in turn.  If the number of the
 * clients is a multiple of that of the backends, both connections meet the
 * same backends in each round.  Without the other connection there is one
 * client less, so two of three rounds are conn's alone: two in a row, because
 * in a pool without other clients, the first one may meet the same backend.
 */
static bool
is_shared(PGconn *other)
{
	int			own = ask_pid(conn);
	bool		asked = false;

	for (int round = 0; round < POOLER_ROUNDS; round++)
	{
		bool		alone = round % 3 != 0;

		if (!alone && !asked && !PQsendQuery(other, POOLER_QUERY))
			return false;
		asked = asked || !alone;
		if (ask_pid(conn) != own)
			return true;
		if (alone || !has_answer(other))
			continue;
		if (take_pid(other) == own)
			return true;
		asked = false;
	}
	return false;
}

static void
refuse_pooler(void)
{
	zkl_messages_error("the pooler gives this connection to other clients between transactions");
	zkl_messages_hint("Connect to the server itself, or through a pooler in session mode.");
	exit(STATUS_UNAVAILABLE);
}

/*
 * If a pooler shares the backend, the lock would also belong to other
 * clients.  A pooler shows its clients numbers of its own instead of the PIDs
 * of backends.
 */
static void
refuse_shared_connection(const ZklOptions *options)
{
	int			pid = ask_pid(conn);
	PGconn	   *other;

	pooled = pid != 0 && pid != PQbackendPID(conn);
	if (!pooled)
		return;
	other = open_connection(options);
	if (is_shared(other))
		refuse_pooler();
	PQfinish(other);
}

/*
 * The session
 */

void
zkl_server_connect(const ZklOptions *options)
{
	PGresult   *result;

	conn = open_connection(options);

	/* pselect() cannot wait for a descriptor beyond this limit. */
	if (PQsocket(conn) >= FD_SETSIZE)
	{
		zkl_messages_error("too many files are open");
		exit(STATUS_OS_ERROR);
	}

	refuse_shared_connection(options);

	/*
	 * Until the command starts, a loss does not end the session, which can
	 * acquire the lock again.  A timeout that is set for the role must end
	 * neither the wait for the lock nor a run between two queries; PostgreSQL
	 * 17 also has transaction_timeout.  JIT would compile each query about
	 * the lock on a server that has SQL objects of 1.0 or 1.1, whose
	 * functions have no ROWS.
	 */
	result = PQexec(conn, "SET jit = off; SET search_path = pg_catalog; SET zklock.on_lost = notice; "
					"SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',"
					" 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout'); "
					"SELECT quote_ident(n.nspname) FROM pg_extension e "
					"JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'zklock'");
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		complain_of_server(conn);
		exit(STATUS_UNAVAILABLE);
	}
	if (PQntuples(result) == 0)
	{
		zkl_messages_error("extension \"zklock\" does not exist in database \"%s\"", PQdb(conn));
		exit(STATUS_UNAVAILABLE);
	}
	schema = zkl_messages_format("%s", PQgetvalue(result, 0, 0));
	PQclear(result);

	/*
	 * If this program is killed while it waits, the backend must give up:
	 * later, it would be granted the lock, and use up the tick of a job, for
	 * nobody.  Some platforms refuse the setting.
	 */
	PQclear(PQexec(conn, "SET client_connection_check_interval = '500ms'"));
	if (!options->guard)
		return;
	result = PQexec(conn, "SELECT current_setting('zklock.commit_under')");
	exit_unless_ok(result);		/* the server has an older zklock */
	PQclear(result);
}

bool
zkl_server_is_alive(void)
{
	return PQstatus(conn) == CONNECTION_OK;
}

void
zkl_server_wait_until(double until)
{
	double		seconds = fmax(until - zkl_server_clock(), 0);
	struct timespec timeout = {0};
	fd_set		readable;
	int			found;

	if (!isinf(seconds))
	{
		timeout.tv_sec = (time_t) seconds;
		timeout.tv_nsec = (long) ((seconds - floor(seconds)) * 1e9);
	}
	FD_ZERO(&readable);
	if (zkl_server_is_alive())
		FD_SET(PQsocket(conn), &readable);
	found = pselect(zkl_server_is_alive() ? PQsocket(conn) + 1 : 0, &readable, NULL, NULL,
					isinf(seconds) ? NULL : &timeout, &zkl_signals_unblocked);
	if (found > 0)
	{
		PQconsumeInput(conn);
		PQisBusy(conn);			/* report what the server has sent unasked */
	}
}

static volatile sig_atomic_t ends_by;

static void
end_by_signal(int number)
{
	(void) number;
	raise(ends_by);
}

/*
 * A signal came during the wait for the lock: withdraw the request, and end
 * by that signal.
 */
static void
give_up(int number)
{
	PGcancel   *cancel = PQgetCancel(conn);
	char		message[256];

	/*
	 * A second signal ends the program at once.  If the server does not react
	 * to the cancel, an alarm ends the program after a while: PQcancel()
	 * would wait for ever.
	 */
	ends_by = number;
	signal(SIGALRM, end_by_signal);
	zkl_signals_restore();
	alarm(CANCEL_PATIENCE);
	if (cancel != NULL)
		PQcancel(cancel, message, sizeof(message));
	PQfinish(conn);
	raise(number);
	exit(128 + number);
}

static bool
send_query(const char *query, int n, const char *const *values)
{
	return PQsendQueryParams(conn, query, n, NULL, values, NULL, NULL, 0) == 1;
}

/* Used before the command is started: wait for the result. */
static PGresult *
await_result(void)
{
	int			number;

	while (!is_answered())
	{
		/* The signal may have come in the wait before this query. */
		if ((number = zkl_signals_next()) == 0)
			zkl_server_wait_until(INFINITY);
		else if (zkl_signals_is_stop(number))
			raise(SIGSTOP);
		else
			give_up(number);
	}
	return take_answer();
}

/* An error of class 22 is about a value. */
static bool
is_wrong_value(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return state != NULL && strncmp(state, "22", 2) == 0;
}

/*
 * Exit if the query failed or could not be sent.  All values in the queries
 * are from the command line.
 */
static void
exit_unless_ok(const PGresult *result)
{
	if (PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK)
		return;
	complain_of_server(conn);
	exit(is_wrong_value(result) ? STATUS_USAGE : STATUS_UNAVAILABLE);
}

/* Wait for the result, which must not be an error. */
static PGresult *
finish_query(void)
{
	PGresult   *result = await_result();

	exit_unless_ok(result);
	return result;
}

static PGresult *
run_query(const char *query, int n, const char *const *values)
{
	(void) send_query(query, n, values);
	return finish_query();
}

/* Is the first column of the result true?  Frees the result. */
static bool
take_truth(PGresult *result)
{
	bool		truth = PQresultStatus(result) == PGRES_TUPLES_OK && PQgetvalue(result, 0, 0)[0] == 't';

	PQclear(result);
	return truth;
}

static bool
has_failed_with(const PGresult *result, const char *sqlstate)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return state != NULL && strcmp(state, sqlstate) == 0;
}

/*
 * Only the server knows which texts are of a type.  Its error would name a
 * parameter of the query where it should name the option.
 */
static void
check_value(const char *option, const char *value, const char *type)
{
	PGresult   *result;

	if (value == NULL)
		return;
	(void) send_query(zkl_messages_format("SELECT $1::pg_catalog.%s", type), 1, &value);
	result = await_result();
	if (is_wrong_value(result))
	{
		zkl_messages_error("invalid value \"%s\" for option %s", value, option);
		zkl_messages_hint(zkl_messages_format("It is a value of PostgreSQL's type %s.", type));
		exit(STATUS_USAGE);
	}
	PQclear(result);
}

/*
 * Prepare the query about the lock.  It is cheap, because it comes twenty
 * times in a session timeout for each command: it calls two functions, and no
 * view.  A server of version 1.0 may have several sessions: the earliest
 * moment counts, of those with znodes if any has some.
 *
 * zk_lock_is_held is computed last: otherwise, if the ZooKeeper session has
 * just expired, the result could combine the old session's lock with the new
 * session's safety.
 *
 * The name is this run's: another client that gets the same backend by a
 * pooler must not replace the statement, and a pooler that does not reset its
 * connections may keep the statements of earlier runs.
 */
static void
prepare_query(void)
{
	statement = zkl_messages_format("%s %d %.9f", zkl_messages_progname, (int) getpid(), zkl_server_clock());
	(void) PQsendPrepare(conn, statement,
						 zkl_messages_format("SELECT extract(epoch FROM coalesce(min(s.safe_until) FILTER (WHERE s.ephemeral_bytes > 0),"
											 " min(s.safe_until)) - clock_timestamp() - current_setting('zklock.commit_margin')::interval), "
											 "max(s.session_timeout_ms) / 1000.0, "
											 "extract(epoch FROM current_setting('zklock.commit_margin')::interval), "
											 "%s.zk_lock_is_held($1) "
											 "FROM %s.zk_sessions() s", schema, schema), 0, NULL);
	PQclear(finish_query());
}

/* Query the backend about the lock. */
void
zkl_server_ask(const ZklOptions *options)
{
	zkl_server_asked_at = zkl_server_clock();
	zkl_server_asking = PQsendQueryPrepared(conn, statement, 1, &options->path, NULL, NULL, 0) == 1;
}

/*
 * Read the reply.  The remaining time counts from the moment of the query,
 * which is not later than the moment at which the server computed the reply.
 *
 * If replies take long, the grace is shorter, because each reply is older when
 * the next one comes.  A command is not started if a reply that takes as long
 * could come too late, even if this one came in time.
 */
static void
note_standing(PGresult *result)
{
	double		timeout = strtod(PQgetvalue(result, 0, 1), NULL);
	double		steady = STEADY * timeout - strtod(PQgetvalue(result, 0, 2), NULL);
	double		took = zkl_server_clock() - zkl_server_asked_at;

	/*
	 * If the server knows of no moment up to which the lock is safe, it is
	 * not safe.  A lock is never safe for longer than a session timeout; a
	 * longer time means that the server's wall clock was set back while it
	 * computed the reply.
	 */
	zkl_server_standing.safe_until = PQgetisnull(result, 0, 0) ? 0 :
		zkl_server_asked_at + fmin(strtod(PQgetvalue(result, 0, 0), NULL), timeout);
	zkl_server_standing.session_timeout = timeout;
	zkl_server_standing.next_reply = fmax(took, ZKL_SERVER_ASK_INTERVAL);
	zkl_server_standing.prompt = took <= fmax(steady / REPLIES, ZKL_SERVER_ASK_INTERVAL);
	zkl_server_standing.grace = fmax(fmin(GRACE * timeout, steady - REPLIES * took), 0);
	zkl_server_standing.held = PQgetvalue(result, 0, 3)[0] == 't';
	zkl_server_standing.asked_at = zkl_server_asked_at;
	zkl_server_asking = false;
	PQclear(result);
}

/* An error says nothing about the lock. */
void
zkl_server_read_answer(void)
{
	PGresult   *result;

	if (!zkl_server_asking || !is_answered())
		return;
	result = take_answer();
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		note_standing(result);
		return;
	}
	complain_of_server(conn);
	zkl_server_asking = false;
	PQclear(result);
}

/* Wait for the answer, but not longer than the lock is safe. */
static bool
is_answered_while_safe(void)
{
	while (!is_answered() && zkl_server_clock() < zkl_server_standing.safe_until)
		zkl_server_wait_until(zkl_server_standing.safe_until);
	return is_answered();
}

static void
await_standing(double until)
{
	until = fmax(until, zkl_server_standing.safe_until);
	while (zkl_server_asking && zkl_server_clock() < until)
	{
		zkl_server_wait_until(until);
		zkl_server_read_answer();
	}
}

/* Wait until this moment, whatever arrives meanwhile. */
static void
pause_until(double until)
{
	while (zkl_server_is_alive() && zkl_server_clock() < until)
		zkl_server_wait_until(until);
}

bool
zkl_server_confirm(const ZklOptions *options, double until)
{
	await_standing(until);		/* a reply to an earlier query says nothing */
	until = fmax(until, zkl_server_standing.safe_until);
	while (!zkl_server_asking && zkl_server_is_alive() && zkl_server_clock() < until)
	{
		zkl_server_ask(options);
		await_standing(until);
		if (zkl_server_standing.asked_at == zkl_server_asked_at)
			return zkl_server_standing.held;

		/* The reply was an error, which says nothing about the lock. */
		pause_until(fmin(until, zkl_server_asked_at + ZKL_SERVER_ASK_INTERVAL));
	}
	return false;
}

/*
 * Is the lock safe for longer than the grace of a command, and until the next
 * reply, if that takes as long as this one?
 */
static bool
is_firm(void)
{
	return zkl_server_standing.held && zkl_server_standing.prompt &&
		zkl_server_clock() < zkl_server_standing.safe_until - zkl_server_standing.grace - zkl_server_standing.next_reply;
}

/* Is the lock lost, and not only in doubt? */
static bool
is_lost(void)
{
	return take_truth(run_query(zkl_messages_format("SELECT NOT EXISTS (SELECT FROM %s.zk_locks"
													" WHERE pid = pg_catalog.pg_backend_pid() AND claim = 'held')", schema), 0, NULL));
}

/*
 * Once the command is about to start, a loss ends the session, because an idle
 * backend cannot report it in another way.
 */
static void
end_session_on_loss(bool ends)
{
	PQclear(run_query(ends ? "SET zklock.on_lost = terminate" : "SET zklock.on_lost = notice", 0, NULL));
	ends_on_loss = ends;
}

/*
 * libpq, like other drivers that read PGOPTIONS, sends the text to the
 * server, which splits it at blanks and takes a backslash as an escape.
 * Which other bytes are blanks depends on the server's locale, so all bytes
 * but a few get a backslash.  The last value of a setting counts.  The path
 * is in UTF-8, and a bytea.
 */
static void
guard_command(const char *token, const char *path)
{
	const char *given = getenv("PGOPTIONS");
	size_t		length;
	unsigned char *utf8 = PQunescapeBytea((const unsigned char *) path, &length);
	char	   *escaped = zkl_messages_format("%s", "");

	for (size_t i = 0; i < length; i++)
	{
		char	   *so_far = escaped;
		bool		is_plain = isalnum(utf8[i]) || strchr("/-_.", utf8[i]) != NULL;

		escaped = zkl_messages_format("%s%s%c", so_far, is_plain ? "" : "\\", utf8[i]);
		free(so_far);
	}
	setenv("PGOPTIONS", zkl_messages_format("%s -c client_connection_check_interval=500ms -c zklock.commit_under=%s\\ %s",
											given != NULL ? given : "", token, escaped), 1);
	PQfreemem(utf8);
	free(escaped);
}

/*
 * Describe the lock to the command.  False if the lock was lost after the last
 * reply, or is in doubt.
 */
static bool
describe_lock(const ZklOptions *options)
{
	PGresult   *result;

	(void) send_query(zkl_messages_format("SELECT %s.zk_lock_token($1), convert_to($1, 'UTF8')", schema), 1, &options->path);
	result = await_result();
	if (has_failed_with(result, LOCK_LOST))
	{
		PQclear(result);
		return false;
	}
	exit_unless_ok(result);
	setenv("ZKLOCK_PATH", options->path, 1);
	setenv("ZKLOCK_TOKEN", PQgetvalue(result, 0, 0), 1);
	if (options->guard)
		guard_command(PQgetvalue(result, 0, 0), PQgetvalue(result, 0, 1));
	PQclear(result);
	return true;
}

/*
 * Wait until the lock is safe for long enough to start the command.  False if
 * it is lost.
 *
 * If the server's ZooKeeper session was idle, its first lock is safe for a
 * short time only.  That may be less than the grace of a command, which would
 * then be ended at its start.  The next signs of life move the moment, so
 * query again.  Also query again if a reply came too late, or if the lock is
 * in doubt: no command has to be ended yet.
 *
 * The limit counts from the first reply, so a server whose every reply is late
 * gets three tries.
 */
static bool
await_firm_standing(const ZklOptions *options)
{
	double		give_up_at = INFINITY;

	for (;;)
	{
		zkl_server_ask(options);
		note_standing(finish_query());
		if (is_firm() && ends_on_loss)
			return true;
		if (is_firm() && describe_lock(options))
		{
			/* The next reply shows whether the lock was lost before. */
			end_session_on_loss(true);
			continue;
		}
		if (!zkl_server_standing.held && is_lost())
			return false;
		if (zkl_server_asked_at >= give_up_at)
		{
			zkl_messages_error("the server did not confirm lock \"%s\" in time to start the command", options->path);
			exit(STATUS_UNAVAILABLE);
		}
		give_up_at = fmin(give_up_at, zkl_server_clock() + zkl_server_standing.session_timeout);
		zkl_server_wait_until(zkl_server_clock() + ZKL_SERVER_ASK_INTERVAL);
	}
}

/* "format" is for the schema, the kind of lock, and the parameters. */
static PGresult *
request_lock(const ZklOptions *options, const char *format)
{
	const char *values[] = {options->path, time_left, tick != NULL ? tick : options->argument,
	runs_again ? "true" : options->retry, options->spacing};

	(void) send_query(zkl_messages_format(format, schema, options->kind, options->parameters),
					  options->once ? 5 : options->argument != NULL ? 3 : 2, values);
	return await_result();
}

/*
 * Wait by a procedure, because its wait holds nothing back.  A server may lack
 * the procedure: its extension is older, or its library is older than the
 * catalogs of its primary.
 */
static PGresult *
wait_for_lock(const ZklOptions *options)
{
	PGresult   *result = request_lock(options, "CALL %s.zk_%s_wait%s");

	if (!has_failed_with(result, UNDEFINED_FUNCTION))
		return result;
	PQclear(result);
	zkl_messages_add(zkl_messages_progname);
	zkl_messages_add(": warning: the wait for the lock holds back VACUUM and CREATE INDEX CONCURRENTLY,"
					 " because the server has a version of zklock before 1.1\n");
	return request_lock(options, "SELECT %s.zk_%s_acquire%s");
}

/*
 * The pooler decides which backend runs a query.  While other clients are
 * busy, the backend that has the lock soon runs this one.  If the lock were
 * left behind, that backend would hold it for as long as the pooler keeps it.
 *
 * A release would record the run of a job as done.  pg_advisory_unlock_all()
 * records the run as failed, but also ends another run in the same backend.
 * If there is another run, leave the lock to the end of that run, which also
 * records this one as failed.
 */
static void
release_shared_lock(const ZklOptions *options)
{
	const char *query = options->once ?
	zkl_messages_format("SELECT pg_catalog.pg_advisory_unlock_all() FROM %s.zk_locks"
						" WHERE pid = pg_catalog.pg_backend_pid()"
						" HAVING count(*) = 1 AND sum(session_count) = 1 AND min(path) = $1", schema) :
	zkl_messages_format("SELECT %s.zk_%s_release($1) WHERE %s.zk_lock_is_held($1)",
						schema, options->kind, schema);
	bool		released = false;

	for (int i = 0; i < POOLER_RELEASES && !released; i++)
	{
		PGresult   *result;

		(void) send_query(query, 1, &options->path);
		result = await_result();
		released = PQntuples(result) > 0;
		PQclear(result);
	}
}

/*
 * The second connection may have reached another process of the pooler, with
 * other backends, and so have shown nothing.  Then the lock tells: this
 * session must have acquired it just once.  If the backend counts more
 * acquires, another client's run has the same backend, and this run was
 * granted the other run's lock.
 */
static void
refuse_shared_lock(const ZklOptions *options)
{
	if (take_truth(run_query(zkl_messages_format("SELECT count(*) = 1 AND sum(session_count) = 1 FROM %s.zk_locks"
												 " WHERE pid = pg_catalog.pg_backend_pid()", schema), 0, NULL)))
		return;

	release_shared_lock(options);
	refuse_pooler();
}

/* The server takes the word in any spelling, such as "NOW". */
static bool
is_now(const char *tick_given)
{
	return take_truth(run_query("SELECT $1::timestamptz = now()", 1, &tick_given));
}

/* "now" stays the same tick if the lock has to be acquired again. */
static void
choose_tick(void)
{
	PGresult   *result = run_query(zkl_messages_format("SELECT to_char(%s.zk_tick() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')", schema), 0, NULL);

	tick = zkl_messages_format("%s", PQgetvalue(result, 0, 0));
	PQclear(result);
}

static void
check_options(const ZklOptions *options)
{
	check_value("--timeout", options->timeout, "interval");
	check_value("--spacing", options->spacing, "interval");
	check_value(options->once ? "--once" : "--semaphore", options->argument,
				options->once ? "timestamptz" : "int4");
	if (options->once && is_now(options->argument))
		choose_tick();
}

static bool
acquire(const ZklOptions *options)
{
	PGresult   *result = options->once ?
	request_lock(options, "SELECT %s.zk_%s%s") : wait_for_lock(options);
	bool		called;			/* a procedure, which returns no row */

	if (!options->once && options->timeout != NULL && has_failed_with(result, LOCK_NOT_AVAILABLE))
		return false;
	exit_unless_ok(result);
	called = PQresultStatus(result) == PGRES_COMMAND_OK;
	if (!take_truth(result) && !called)
		return false;
	if (pooled)
		refuse_shared_lock(options);
	return true;
}

/*
 * Release the lost lock, to acquire it again.  With --once, the loss has made
 * the run fail.  But no command has started, so the tick may be run again.
 */
static void
release_lost_lock(const ZklOptions *options)
{
	PQclear(run_query(zkl_messages_format("SELECT %s.zk_lock_release_all()", schema), 0, NULL));
	end_session_on_loss(false);
	runs_again = true;
	zkl_messages_warning("lock \"%s\" was lost before the command started, and is acquired again", options->path);
}

/* --timeout is for all tries together. */
static void
count_time_left(const ZklOptions *options, double waited)
{
	const char *values[] = {options->timeout, zkl_messages_format("%.3f s", waited)};
	PGresult   *result;

	if (options->timeout == NULL)
		return;
	result = run_query("SELECT greatest($1::pg_catalog.interval - $2::pg_catalog.interval, '0')", 2, values);
	time_left = zkl_messages_format("%s", PQgetvalue(result, 0, 0));
	PQclear(result);
}

bool
zkl_server_acquire(const ZklOptions *options)
{
	static bool acquired = false;
	double		began_at = zkl_server_clock();

	if (statement == NULL)
	{
		check_options(options);
		prepare_query();
		time_left = options->timeout;
	}
	for (;;)
	{
		if (!acquired && !acquire(options))
			return false;
		acquired = true;
		if (await_firm_standing(options))
			return true;
		release_lost_lock(options);
		count_time_left(options, zkl_server_clock() - began_at);
		acquired = false;
	}
}

/*
 * The setting reaches no session if a pooler ignores it, if the driver does
 * not read PGOPTIONS, or on another server.  The answer is of use only while
 * the lock is safe.  An older extension does not have the function.
 */
void
zkl_server_warn_unless_used(const ZklOptions *options)
{
	PGresult   *result;

	(void) send_query(zkl_messages_format("SELECT %s.zk_lock_uses($1) > 0", schema), 1, &options->path);
	if (!is_answered_while_safe())
		return;
	result = take_answer();
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		if (!has_failed_with(result, UNDEFINED_FUNCTION))
			complain_of_server(conn);

		/*
		 * The error has made the run of a job fail, and the next transaction
		 * makes that good.
		 */
		(void) zkl_server_confirm(options, 0);
	}
	else if (PQgetvalue(result, 0, 0)[0] == 'f')
	{
		zkl_messages_warning("no transaction of the command was guarded by lock \"%s\"", options->path);
		zkl_messages_hint("The setting \"zklock.commit_under\" in PGOPTIONS has reached no session of this server.");
	}
	PQclear(result);
}

/*
 * Release the lock.  The run of a job is done only if a function releases it;
 * DISCARD ALL ends it as failed.  The reply counts only while the lock is
 * safe.
 */
bool
zkl_server_release(const ZklOptions *options, bool done)
{
	const char *query = options->once ? "SELECT %s.zk_lock_release($1)" : "SELECT %s.zk_lock_release_all() > 0";
	PGresult   *result;

	if (done)
		(void) send_query(zkl_messages_format(query, schema), options->once ? 1 : 0, &options->path);
	else
		(void) PQsendQuery(conn, "DISCARD ALL");
	if (!is_answered_while_safe())
		return false;
	result = take_answer();
	if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
		complain_of_server(conn);
	return take_truth(result);
}

void
zkl_server_close(void)
{
	PQfinish(conn);
}
