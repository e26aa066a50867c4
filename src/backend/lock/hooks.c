/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  What zklock does around statements.
 *
 * Before each statement, the hooks make sure that if zklock cancels it, the
 * error says why (cancel.c).  If zklock ends the connection because of a
 * loss, the hook for messages puts the reason into the error.
 *
 * The hooks release all session-level locks after DISCARD ALL.  The sweep of
 * holdcounts.c does not suffice: it looks at the advisory locks, and a lost
 * claim has none.
 *
 * The hooks keep the commit guard in front of extensions that commit on other
 * servers, and note which transactions write there.  COMMIT PREPARED needs a
 * guard of its own.  The rules are in xact.c.
 *
 * src/backend/lock/hooks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "tcop/utility.h"

#include "backend/lock/advisorylock.h"
#include "backend/lock/cancel.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/hooks.h"
#include "backend/lock/onlost.h"
#include "backend/lock/xact.h"
#include "compat.h"
#include "settings.h"

static ExecutorRun_hook_type next_executor_run = NULL;
static ExecutorFinish_hook_type next_executor_finish = NULL;
static ProcessUtility_hook_type next_process_utility = NULL;
static emit_log_hook_type next_emit_log = NULL;

/* How many executions have begun, and the number of the one that ended last. */
static uint64 executions = 0;
static struct
{
	const QueryDesc *query;
	uint64		execution;
}			last_run = {NULL, 0};

static bool may_be_remote(const PlannedStmt *plan);
static void require_leadership(Node *command, ProcessUtilityContext context);
static bool takes_effect_at_once(const Node *command);
static void executor_run(ZKL_EXECUTOR_RUN_PARAMETERS);
static void executor_finish(QueryDesc *query_desc);
static void finish(QueryDesc *query_desc);
static void process_utility(ZKL_PROCESS_UTILITY_PARAMETERS);
static void run_transaction_command(ZKL_PROCESS_UTILITY_PARAMETERS);
static void run_utility(ZKL_PROCESS_UTILITY_PARAMETERS);
static void emit_log(ErrorData *error);

void
zkl_hooks_init(void)
{
	zkl_xact_init();
	zkl_cancel_listen();

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
 * A write to a foreign table assigns no transaction ID on this server, so the
 * commit guard learns of it from the plan.  Note it before the statement
 * runs, because a statement that fails inside a savepoint may also have
 * written.
 */
static void
executor_run(ZKL_EXECUTOR_RUN_PARAMETERS)
{
	uint64		outer = zkl_xact_execution;

	/* Within another execution, the error context is still there. */
	if (outer == 0)
		zkl_cancel_listen();
	zkl_on_lost_statement_begins(true);
	zkl_xact_note_statement(false);
	if (!CommandIsReadOnly(query_desc->plannedstmt))
	{
		zkl_xact_require();
		zkl_xact_note(ZKL_XACT_WRITES);
	}
	if (may_be_remote(query_desc->plannedstmt))
		zkl_xact_note(ZKL_XACT_REMOTE);
	zkl_xact_execution = ++executions;
	PG_TRY();
	{
		if (next_executor_run)
			next_executor_run(ZKL_EXECUTOR_RUN_ARGUMENTS);
		else
			standard_ExecutorRun(ZKL_EXECUTOR_RUN_ARGUMENTS);
		last_run.query = query_desc;
		last_run.execution = zkl_xact_execution;
	}
	PG_FINALLY();
	{
		zkl_xact_execution = outer;
		zkl_xact_keep_guard_first();
	}
	PG_END_TRY();
	zkl_on_lost_tell();
}

/*
 * Does the statement use a foreign table?  A row that is written to a
 * partitioned table may go to a partition that the plan does not name, so a
 * partitioned table counts as well.
 */
static bool
may_be_remote(const PlannedStmt *plan)
{
	ListCell   *cell;

	foreach(cell, plan->rtable)
	{
		const RangeTblEntry *table = lfirst(cell);

		if (table->rtekind == RTE_RELATION &&
			(table->relkind == RELKIND_FOREIGN_TABLE ||
			 (table->relkind == RELKIND_PARTITIONED_TABLE &&
			  !CommandIsReadOnly(unconstify(PlannedStmt *, plan)))))
			return true;
	}
	return false;
}

/*
 * AFTER triggers run here, and may use connections to other servers.  So may
 * a part of WITH that writes: if ExecutorRun did not read it to its end,
 * ExecutorFinish executes the rest.  A statement that only reads does nothing
 * here.
 */
static void
executor_finish(QueryDesc *query_desc)
{
	uint64		outer = zkl_xact_execution;

	if (CommandIsReadOnly(query_desc->plannedstmt))
	{
		finish(query_desc);
		return;
	}
	zkl_xact_execution = last_run.query == query_desc ? last_run.execution :
		++executions;
	PG_TRY();
	{
		finish(query_desc);
	}
	PG_FINALLY();
	{
		zkl_xact_execution = outer;
		zkl_xact_keep_guard_first();
	}
	PG_END_TRY();
	zkl_on_lost_tell();
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
	Node	   *command = statement->utilityStmt;
	bool		is_discard_all = IsA(command, DiscardStmt) &&
	((DiscardStmt *) command)->target == DISCARD_ALL;

	zkl_cancel_listen();
	zkl_on_lost_statement_begins(!IsA(command, TransactionStmt));

	if (IsA(command, TransactionStmt))
	{
		run_transaction_command(ZKL_PROCESS_UTILITY_ARGUMENTS);
		return;
	}
	zkl_xact_note_statement(IsA(command, ListenStmt) || IsA(command, UnlistenStmt));
	require_leadership(command, context);

	/*
	 * These statements may write to foreign tables, which assigns no
	 * transaction ID.
	 */
	if (IsA(command, TruncateStmt) ||
		(IsA(command, CopyStmt) && ((CopyStmt *) command)->is_from))
		zkl_xact_note(ZKL_XACT_WRITES | ZKL_XACT_REMOTE);
	zkl_xact_utilities++;
	PG_TRY();
	{
		run_utility(ZKL_PROCESS_UTILITY_ARGUMENTS);
	}
	PG_FINALLY();
	{
		zkl_xact_utilities--;
		zkl_xact_keep_guard_first();
	}
	PG_END_TRY();
	zkl_on_lost_tell();

	/*
	 * Do this only after the statement has succeeded.  Then nothing else in
	 * the transaction counts as a write.
	 */
	if (is_discard_all)
	{
		zkl_xact_note(ZKL_XACT_DISCARDS);
		zkl_hold_counts_discard_session();
	}
}

/*
 * BEGIN, COMMIT and the like only set a state here; the transaction begins or
 * ends outside of the statement.  But a prepared transaction ends within it.
 */
static void
run_transaction_command(ZKL_PROCESS_UTILITY_PARAMETERS)
{
	TransactionStmtKind kind = ((TransactionStmt *) statement->utilityStmt)->kind;
	bool		is_prepared = kind == TRANS_STMT_COMMIT_PREPARED ||
	kind == TRANS_STMT_ROLLBACK_PREPARED;

	if (is_prepared)
		zkl_xact_begin_prepared();
	run_utility(ZKL_PROCESS_UTILITY_ARGUMENTS);
	if (is_prepared)
		zkl_xact_report_if_late();
	if (kind == TRANS_STMT_ROLLBACK)
		zkl_xact_note_rollback();
	zkl_on_lost_tell();
}

/*
 * A command that writes fails early if this server does not lead, or does not
 * hold the lock of zklock.commit_under.  A command that runs other statements
 * is not checked itself, because those come here, or to the executor.  ALTER
 * SYSTEM is not checked either: it writes no transaction, and it may be
 * needed to change the setting.
 */
static void
require_leadership(Node *command, ProcessUtilityContext context)
{
	if (takes_effect_at_once(command))
		zkl_xact_require_at_once(IsInTransactionBlock(context == PROCESS_UTILITY_TOPLEVEL));
	else if ((zkl_commit_requires[0] != '\0' || zkl_commit_under[0] != '\0') &&
			 !IsA(command, AlterSystemStmt) && !IsA(command, PrepareStmt) &&
			 !IsA(command, ExecuteStmt) && !IsA(command, ExplainStmt) &&
			 GetCommandLogLevel(command) != LOGSTMT_ALL)
		zkl_xact_require();
}

/* These commands change files, or another server, before the transaction commits. */
static bool
takes_effect_at_once(const Node *command)
{
	switch (nodeTag(command))
	{
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_AlterDatabaseStmt:
		case T_CreateTableSpaceStmt:
		case T_DropTableSpaceStmt:
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
		case T_DropSubscriptionStmt:
			return true;
		default:
			return false;
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

/*
 * Replace the text before other extensions see the message.  An error outside
 * of a transaction is seen by no other hook, so listen again here.
 */
static void
emit_log(ErrorData *error)
{
	zkl_cancel_listen();
	zkl_on_lost_explain_end(error);
	zkl_advisory_lock_tell(error);
	if (next_emit_log)
		next_emit_log(error);
}
