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
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "bin/messages.h"
#include "bin/server.h"
#include "bin/signals.h"

ZklStanding zkl_server_standing;
double		zkl_server_asked_at;
bool		zkl_server_asking;

static PGconn *conn;
static char *schema;			/* of the extension, quoted */

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

/* libpq's message ends with a newline of its own. */
static void
complain_of_server(void)
{
	zkl_messages_add(zkl_messages_progname);
	zkl_messages_add(": error: ");
	zkl_messages_add(PQerrorMessage(conn));
}

void
zkl_server_connect(const ZklOptions *options)
{
	const char *keywords[] = {"dbname", "fallback_application_name", NULL};
	const char *values[] = {options->conninfo, zkl_messages_progname, NULL};
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
		zkl_messages_error("too many files are open");
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
		zkl_messages_error("extension \"zklock\" does not exist in database \"%s\"", PQdb(conn));
		exit(STATUS_UNAVAILABLE);
	}
	schema = zkl_messages_format("%s", PQgetvalue(result, 0, 0));
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
	sigprocmask(SIG_SETMASK, &zkl_signals_unblocked, NULL);
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

/*
 * Before the command is started: wait for the result, which must not be an error.
 * Nor may the query have failed to be sent.
 */
static PGresult *
finish_query(void)
{
	PGresult   *result;
	int			number;

	while (zkl_server_is_alive() && PQisBusy(conn))
	{
		zkl_server_wait_until(INFINITY);
		if ((number = zkl_signals_next()) != 0)
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
void
zkl_server_ask(const ZklOptions *options)
{
	static char *query = NULL;

	if (query == NULL)
		query = zkl_messages_format("SELECT extract(epoch FROM s.safe_until - clock_timestamp()"
									" - current_setting('zklock.commit_margin')::interval), "
									"extract(epoch FROM s.session_timeout), %s.zk_lock_is_held($1) "
									"FROM %s.zk_status s", schema, schema);
	zkl_server_asked_at = zkl_server_clock();
	zkl_server_asking = send_query(query, 1, &options->path);
}

/*
 * The time that is left counts from the moment of the question, which cannot be
 * later than the moment at which the server computed the answer.
 */
static void
note_standing(PGresult *result)
{
	/* If the server knows of no safe moment, the lock is not safe. */
	zkl_server_standing.safe_until = PQgetisnull(result, 0, 0) ? 0 :
		zkl_server_asked_at + strtod(PQgetvalue(result, 0, 0), NULL);
	zkl_server_standing.session_timeout = strtod(PQgetvalue(result, 0, 1), NULL);
	zkl_server_standing.held = PQgetvalue(result, 0, 2)[0] == 't';
	zkl_server_standing.asked_at = zkl_server_asked_at;
	zkl_server_asking = false;
	PQclear(result);
}

/* An error tells nothing about the lock. */
void
zkl_server_read_answer(void)
{
	PGresult   *result;

	if (!zkl_server_asking || (zkl_server_is_alive() && PQisBusy(conn)))
		return;
	result = take_result();
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		note_standing(result);
		return;
	}
	complain_of_server();
	zkl_server_asking = false;
	PQclear(result);
}

/* Wait for the answer while the lock is safe. */
static void
await_standing(void)
{
	while (zkl_server_asking && zkl_server_clock() < zkl_server_standing.safe_until)
	{
		zkl_server_wait_until(zkl_server_standing.safe_until);
		zkl_server_read_answer();
	}
}

bool
zkl_server_confirm(const ZklOptions *options)
{
	await_standing();			/* what was asked before says nothing */
	if (zkl_server_asking || !zkl_server_is_alive())
		return false;
	zkl_server_ask(options);
	await_standing();

	/* After an error, the standing is still that of an earlier question. */
	return zkl_server_standing.asked_at == zkl_server_asked_at && zkl_server_standing.held;
}

/*
 * A run of a job has failed if the last transaction before its end has.  So this
 * transaction lasts until the command has succeeded, and aborts with the connection
 * if this program is killed, gives up or loses the lock.  No timeout of the server's
 * may end it; transaction_timeout is there since PostgreSQL 17.
 */
static void
begin_run(void)
{
	PGresult   *result;

	(void) PQsendQuery(conn, "SELECT set_config(name, '0', false) FROM pg_settings "
					   "WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout'); "
					   "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SELECT 1");
	result = finish_query();
	PQclear(result);
}

/* Acquire the lock, and tell the command which it is. */
bool
zkl_server_acquire(const ZklOptions *options)
{
	const char *values[] = {options->path, options->timeout, options->argument, options->retry, options->spacing};
	PGresult   *result;
	bool		acquired;

	if (options->once)
		begin_run();

	/*
	 * Each function uses some of the five parameters.  The server needs a
	 * type for the others as well, so the query mentions them.
	 */
	(void) send_query(zkl_messages_format("SELECT %s.%s, $3::text, $4::boolean, $5::interval", schema, options->function), 5, values);
	result = finish_query();
	acquired = PQgetvalue(result, 0, 0)[0] == 't';
	PQclear(result);
	if (!acquired)
		return false;

	(void) send_query(zkl_messages_format("SELECT %s.zk_lock_token($1)", schema), 1, values);
	result = finish_query();
	setenv("ZKLOCK_PATH", options->path, 1);
	setenv("ZKLOCK_TOKEN", PQgetvalue(result, 0, 0), 1);
	PQclear(result);

	zkl_server_ask(options);
	note_standing(finish_query());
	return true;
}

/* Send a query, and wait for its result as long as the lock is safe. */
static void
run_query(const char *query)
{
	(void) send_query(query, 0, NULL);
	while (zkl_server_is_alive() && PQisBusy(conn) && zkl_server_clock() < zkl_server_standing.safe_until)
		zkl_server_wait_until(zkl_server_standing.safe_until);
	if (zkl_server_is_alive() && !PQisBusy(conn))
		PQclear(take_result());
}

/* End the transaction that begin_run began. */
void
zkl_server_end_run(bool done)
{
	run_query(done ? "COMMIT" : "ROLLBACK");
}

/* Release the lock before this program ends, for a program that waits for its end. */
void
zkl_server_release(void)
{
	run_query(zkl_messages_format("SELECT %s.zk_lock_release_all()", schema));
}

void
zkl_server_close(void)
{
	PQfinish(conn);
}
