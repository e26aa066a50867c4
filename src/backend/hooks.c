/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  What zklock does around statements.
 *
 * If a loss cancelled a statement, the hooks replace its error (loss.c).
 * The hook for messages does that for errors that come just before a statement
 * begins.
 *
 * They release all session-level locks after DISCARD ALL.  The local locks,
 * which are released then, show it, too; but a lost claim has none.
 *
 * They keep the commit guard in front of extensions that commit on other
 * servers, and note which transactions write there.  The rules are in xact.c.
 *
 * src/backend/hooks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "tcop/utility.h"

#include "backend/deadlock.h"
#include "backend/holds.h"
#include "backend/hooks.h"
#include "backend/loss.h"
#include "backend/xact.h"
#include "compat.h"

static ExecutorRun_hook_type next_executor_run = NULL;
static ExecutorFinish_hook_type next_executor_finish = NULL;
static ProcessUtility_hook_type next_process_utility = NULL;
static emit_log_hook_type next_emit_log = NULL;

static void leave_statement(void);
static void leave_statement_by_error(MemoryContext context);
static void executor_run(ZKL_EXECUTOR_RUN_PARAMETERS);
static void executor_finish(QueryDesc *query_desc);
static void finish(QueryDesc *query_desc);
static void process_utility(ZKL_PROCESS_UTILITY_PARAMETERS);
static void run_utility(ZKL_PROCESS_UTILITY_PARAMETERS);
static void emit_log(ErrorData *error);

void
zkl_hooks_init(void)
{
	zkl_xact_init();
	zkl_deadlock_listen();

	next_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = executor_run;
	next_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = executor_finish;
	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	next_emit_log = emit_log_hook;
	emit_log_hook = emit_log;
}

/*
 * A write to a foreign table assigns no transaction ID here, so the commit
 * guard learns of it from the plan.  It is noted before the statement runs,
 * because a statement that fails inside a savepoint may have written, too.
 */
static void
executor_run(ZKL_EXECUTOR_RUN_PARAMETERS)
{
	MemoryContext context = CurrentMemoryContext;

	zkl_deadlock_listen();
	if (!CommandIsReadOnly(query_desc->plannedstmt))
		zkl_xact_note_write();
	zkl_xact_begin_run();
	PG_TRY();
	{
		if (next_executor_run)
			next_executor_run(ZKL_EXECUTOR_RUN_ARGUMENTS);
		else
			standard_ExecutorRun(ZKL_EXECUTOR_RUN_ARGUMENTS);
	}
	PG_CATCH();
	{
		zkl_xact_end_run();
		leave_statement_by_error(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zkl_xact_end_run();
	leave_statement();
}

/*
 * AFTER triggers run here, and may use connections to other servers.  A
 * statement that only reads has none, and does nothing here.
 */
static void
executor_finish(QueryDesc *query_desc)
{
	MemoryContext context = CurrentMemoryContext;

	if (CommandIsReadOnly(query_desc->plannedstmt))
	{
		finish(query_desc);
		return;
	}
	PG_TRY();
	{
		finish(query_desc);
	}
	PG_CATCH();
	{
		leave_statement_by_error(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	leave_statement();
}

static void
finish(QueryDesc *query_desc)
{
	if (next_executor_finish)
		next_executor_finish(query_desc);
	else
		standard_ExecutorFinish(query_desc);
}

static void
process_utility(ZKL_PROCESS_UTILITY_PARAMETERS)
{
	MemoryContext caller_context = CurrentMemoryContext;
	Node	   *command = statement->utilityStmt;
	bool		is_discard_all = IsA(command, DiscardStmt) &&
	((DiscardStmt *) command)->target == DISCARD_ALL;

	zkl_deadlock_listen();

	/*
	 * BEGIN, COMMIT and the like only note what is to be done, which happens
	 * outside of the statement.
	 */
	if (IsA(command, TransactionStmt))
	{
		run_utility(ZKL_PROCESS_UTILITY_ARGUMENTS);
		zkl_loss_tell();
		return;
	}

	/*
	 * These statements may write to foreign tables, which assigns no
	 * transaction ID.
	 */
	if (IsA(command, TruncateStmt) ||
		(IsA(command, CopyStmt) && ((CopyStmt *) command)->is_from))
		zkl_xact_note_write();
	PG_TRY();
	{
		run_utility(ZKL_PROCESS_UTILITY_ARGUMENTS);
	}
	PG_CATCH();
	{
		leave_statement_by_error(caller_context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	leave_statement();

	/*
	 * Only after it has succeeded.  Nothing else of the transaction counts as
	 * a write then.
	 */
	if (is_discard_all)
	{
		zkl_xact_note_discard();
		zkl_holds_discard_session();
	}
}

static void
run_utility(ZKL_PROCESS_UTILITY_PARAMETERS)
{
	if (next_process_utility)
		next_process_utility(ZKL_PROCESS_UTILITY_ARGUMENTS);
	else
		standard_ProcessUtility(ZKL_PROCESS_UTILITY_ARGUMENTS);
}

/* The statement may have opened connections to other servers. */
static void
leave_statement(void)
{
	zkl_xact_keep_guard_first();
	zkl_loss_tell();
}

/* The guard comes first, because the explanation raises an error. */
static void
leave_statement_by_error(MemoryContext context)
{
	zkl_xact_keep_guard_first();
	zkl_loss_explain(context);
}

/* The text is replaced before other extensions see the message. */
static void
emit_log(ErrorData *error)
{
	zkl_loss_explain_instead(error);
	if (next_emit_log)
		next_emit_log(error);
}
