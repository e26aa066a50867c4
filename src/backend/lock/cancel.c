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

/*
 * The start time of the statement that a signal handler has cancelled, and
 * the reason.  The start time identifies the statement, even if the clock has
 * been set since.
 */
static volatile TimestampTz cancelled_statement = 0;
static void (*volatile noted) (void);

void		(*zkl_cancel_guess) (void) = NULL;

static void on_error(void *arg);
static bool is_error(void);

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
 * the list after each error that reaches its main loop.  So the context is
 * added again when a transaction or savepoint ends, and before each
 * statement.
 */
void
zkl_cancel_listen(void)
{
	static ErrorContextCallback context = {.callback = on_error};

	if (error_context_stack == NULL)
		error_context_stack = &context;
}

/*
 * The first error after PostgreSQL has processed the cancel uses the reason
 * up, whatever that error is: lock_timeout may have come at the same moment.
 * Errors before and after it, and mere messages, have other reasons, even
 * with the SQLSTATE of a cancel, which a user may give to any of them.
 */
static void
on_error(void *arg)
{
	void		(*explain) (void) = zkl_cancel_is_noted() ? noted : zkl_cancel_guess;

	if (explain == NULL || QueryCancelPending || !is_error())
		return;
	cancelled_statement = 0;
	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		explain();
}

/* Only a copy of the error that is being raised tells its level. */
static bool
is_error(void)
{
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	ErrorData  *copy = CopyErrorData();
	bool		result = copy->elevel == ERROR;

	FreeErrorData(copy);
	MemoryContextSwitchTo(context);
	return result;
}
