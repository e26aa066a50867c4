/*-------------------------------------------------------------------------
 *
 * pooler.c
 *	  Poolers between zklock-run and the server.
 *
 * A session-level lock belongs to a backend.  A pooler in transaction mode
 * gives that backend to another client after each transaction, so two
 * commands could run under the same lock.  A client cannot query the mode of
 * a pooler, but it can observe it: either two connections that are open at
 * the same time have the same backend, or one of them has different backends
 * one after another.
 *
 * src/bin/pooler.c
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdlib.h>

#include "bin/pooler.h"

#define QUESTION		"SELECT pg_catalog.pg_backend_pid()"

/*
 * While other clients are busy, a round shows nothing, with a probability of
 * at most one in four.
 */
#define ROUNDS			10

/* How long to wait in each round for an answer that may not come, in milliseconds. */
#define PATIENCE		300

/* The answer to the query, or 0. */
static int
take_pid(PGconn *conn)
{
	PGresult   *result;
	int			pid = 0;

	while ((result = PQgetResult(conn)) != NULL)
	{
		if (PQresultStatus(result) == PGRES_TUPLES_OK)
			pid = atoi(PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	return pid;
}

static int
ask_pid(PGconn *conn)
{
	return PQsendQuery(conn, QUESTION) ? take_pid(conn) : 0;
}

static bool
has_answer(PGconn *conn)
{
	struct pollfd readable = {.fd = PQsocket(conn),.events = POLLIN};

	while (PQisBusy(conn))
	{
		if (poll(&readable, 1, PATIENCE) != 1)
			return false;
		if (!PQconsumeInput(conn))
			return false;
	}
	return true;
}

/*
 * A pooler gives its clients numbers of its own instead of the backend's PID.
 */
bool
zkl_pooler_is_between(PGconn *conn)
{
	int			pid = ask_pid(conn);

	return pid != 0 && pid != PQbackendPID(conn);
}

/*
 * Silence of the other connection shows nothing in one round.  In session
 * mode, the pooler may have no backend left for it.  In transaction mode, the
 * query has been given to a backend by now, because it was sent first, but the
 * answer may come late on a busy machine.  So the next rounds go on with conn
 * alone until the answer is there.
 */
bool
zkl_pooler_shares(PGconn *conn, PGconn *other)
{
	int			own = ask_pid(conn);
	bool		asked = false;

	for (int round = 0; round < ROUNDS; round++)
	{
		if (!asked && !PQsendQuery(other, QUESTION))
			return false;
		asked = true;
		if (ask_pid(conn) != own)
			return true;
		if (!has_answer(other))
			continue;
		if (take_pid(other) == own)
			return true;
		asked = false;
	}
	return false;
}
