/*-------------------------------------------------------------------------
 *
 * sqlrequest.c
 *	  How the SQL functions that acquire locks begin and end.
 *
 * src/backend/sql/sqlrequest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/execdesc.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"

#include "backend/lock/permission.h"
#include "backend/lock/xact.h"
#include "backend/report.h"
#include "backend/sql/sqlrequest.h"

static bool is_whole_statement(const FmgrInfo *function);

/* Nothing works without shared memory, so check for that before the arguments. */
ZklLockRequest
zkl_sql_request_begin(FunctionCallInfo fcinfo, ZklMode mode, ZklScope scope)
{
	ZklLockRequest request = {.mode = mode,.scope = scope};

	request.by_call = fcinfo->context != NULL && IsA(fcinfo->context, CallContext);

	/*
	 * The client's own CALL is atomic in a block, but nothing else needs its
	 * snapshot.
	 */
	request.may_drop = request.by_call &&
		(!castNode(CallContext, fcinfo->context)->atomic || zkl_xact_utilities == 1);
	if (fcinfo->flinfo->fn_expr != NULL)
		request.call = (ZklCall)
	{
		zkl_xact_execution, fcinfo->flinfo->fn_expr, fcinfo->flinfo
	};

	zkl_report_unless_loaded();
	zkl_permission_check_level(scope);
	return request;
}

bool
zkl_sql_request_end(FunctionCallInfo fcinfo, const ZklLockRequest *request, bool acquired)
{
	if (request->by_call && !acquired)
		zkl_report_not_acquired(request->path);
	if (request->by_call)
		EnsurePortalSnapshotExists();
	if (acquired && request->scope == ZKL_SCOPE_XACT && !IsTransactionBlock() &&
		is_whole_statement(fcinfo->flinfo))
		zkl_xact_note_alone(get_func_name(fcinfo->flinfo->fn_oid));
	return acquired;
}

/*
 * Is this the client's own statement, and does it do nothing but call this
 * function?  If that is not certain, return false.  A statement of a
 * function, a procedure or a trigger runs in the portal of the client's
 * statement, or in a portal with a name.
 */
static bool
is_whole_statement(const FmgrInfo *function)
{
	Portal		portal = ActivePortal;
	const Node *utility;
	const PlannedStmt *statement;
	bool		found = false;
	ListCell   *cell;

	if (MyBackendType != B_BACKEND || portal == NULL ||
		portal->name[0] != '\0')
		return false;

	/* A CALL of this procedure. */
	utility = portal->strategy == PORTAL_MULTI_QUERY ?
		linitial_node(PlannedStmt, portal->stmts)->utilityStmt : NULL;
	if (utility != NULL && IsA(utility, CallStmt))
	{
		const FuncExpr *call = ((const CallStmt *) utility)->funcexpr;

		return call->funcid == function->fn_oid &&
			!contain_volatile_functions((Node *) call->args);
	}
	if (portal->strategy != PORTAL_ONE_SELECT || portal->queryDesc == NULL)
		return false;

	/*
	 * A SELECT without FROM, WHERE or subqueries, whose columns all call this
	 * function.
	 */
	statement = portal->queryDesc->plannedstmt;
	if (statement->subplans != NIL || !IsA(statement->planTree, Result) ||
		outerPlan(statement->planTree) != NULL ||
		statement->planTree->qual != NIL ||
		((Result *) statement->planTree)->resconstantqual != NULL)
		return false;

	foreach(cell, statement->planTree->targetlist)
	{
		Expr	   *column = lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(column, FuncExpr) ||
			((FuncExpr *) column)->funcid != function->fn_oid ||
			contain_volatile_functions((Node *) ((FuncExpr *) column)->args))
			return false;

		/* Is it this very call, and not another call of the same function? */
		found |= (Node *) column == function->fn_expr;
	}
	return found;
}
