/*-------------------------------------------------------------------------
 *
 * cancel.c
 *	  From a cancel by zklock to the error that says why.
 *
 * src/backend/lock/cancel.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#include "backend/lock/cancel.h"
#include "compat.h"
#include "faultpoint.h"

/*
 * The start time of the statement that a signal handler has cancelled, and
 * the reason.  The start time identifies the statement, even if the clock has
 * been set since.
 */
static volatile TimestampTz cancelled_statement = 0;
static void (*volatile noted) (void);

void		(*zkl_cancel_guess) (void) = NULL;

static void on_error(void *arg);
static bool is_cancel(const ErrorData *error);

void
zkl_cancel_statement(void (*explain) (void), SIGNAL_ARGS)
{
	if (!zkl_cancel_is_noted())
		noted = explain;
	cancelled_statement = GetCurrentStatementStartTimestamp();
	StatementCancelHandler(ZKL_SIGNAL_ARGUMENTS);
}

bool
zkl_cancel_is_noted(void)
{
	return cancelled_statement != 0 &&
		cancelled_statement == GetCurrentStatementStartTimestamp();
}

/*
 * Make this the outermost error context.  The cancel may be raised where no
 * hook sees it, for instance in the parser or at the end of a transaction.
 * But every error calls all contexts, and this one last.  PostgreSQL clears
 * the list after each error that reaches its main loop, and PG_END_TRY()
 * restores it as it was.  So the context is added again when PostgreSQL
 * reports an error, when a transaction or savepoint ends, and before each
 * statement.
 *
 * It goes to the end of the list.  In the extended protocol, PostgreSQL has
 * added a context of its own before any hook runs.  When code removes its own
 * context, this one stays behind it in the list.
 */
void
zkl_cancel_listen(void)
{
	static ErrorContextCallback context = {.callback = on_error};
	ErrorContextCallback **end = &error_context_stack;

	while (*end != NULL && *end != &context)
		end = &(*end)->previous;
	*end = &context;
}

/*
 * Only PostgreSQL's own error of a cancel gets the reason.  A user may give
 * its SQLSTATE to any message, and a timeout that came at the same moment has
 * another text.
 *
 * The reason is for one error: that of the cancel, or the first other one
 * after PostgreSQL has processed the cancel.  But if another cancel is pending
 * by then, its error is still to come.
 */
static void
on_error(void *arg)
{
	void		(*explain) (void) = zkl_cancel_is_noted() ? noted : zkl_cancel_guess;
	MemoryContext context;
	ErrorData  *error;

	if (explain == NULL)
		return;
	context = MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	MemoryContextSwitchTo(context);
	if (error->elevel == ERROR)
	{
		ZKL_FAULT_POINT("cancel-raised");
		if (!QueryCancelPending)
			cancelled_statement = 0;
		if (is_cancel(error))
			explain();
	}
	FreeErrorData(error);
}

/* PostgreSQL identifies a message by its text before translation. */
static bool
is_cancel(const ErrorData *error)
{
	const char *id = error->message_id;

	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && id != NULL &&
		(strcmp(id, "canceling statement due to user request") == 0 ||
		 strcmp(id, "canceling autovacuum task") == 0);
}
