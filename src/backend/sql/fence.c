/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  zk_fence: refuse writes under a lock that has had another holder since.
 *
 * This is safe regardless of clocks and sessions.  A table has a row with the
 * greatest token of each resource.  A transaction that presents a token locks
 * the row, or inserts it, until the transaction ends.  So of two transactions
 * that write to the resource, one comes first.  If the first one has the
 * greater token, the second one finds that token and is refused.  If the
 * second one has the greater token, the first one's writes precede its own, as
 * they should.
 *
 * Other writes to the table, by logical replication, COPY or a restore, come
 * from elsewhere, where the tokens may be smaller.  A trigger keeps the
 * greatest.
 *
 * src/backend/sql/fence.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "backend/lock/permission.h"
#include "backend/report.h"

PG_FUNCTION_INFO_V1(zklock_fence);
PG_FUNCTION_INFO_V1(zklock_fences_keep);

/* True during a statement of this file, which compares the tokens itself. */
static bool presenting = false;

static const char *table_of(FunctionCallInfo fcinfo);
static bool present(const char *table, Datum resource, Datum token,
					const char *accepts);
static bool is_of_table(FunctionCallInfo fcinfo);
static int64 greatest(const char *table, Datum resource);
static uint64 execute(const char *query, int nargs, Datum resource,
					  Datum token);
static void report_stale(const char *table, const char *resource, int64 token,
						 int64 greatest);

Datum
zklock_fence(PG_FUNCTION_ARGS)
{
	const char *table = table_of(fcinfo);
	char	   *resource;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("resource and token must not be null"));
	if (PG_GETARG_INT64(1) <= 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("token must be greater than zero"));
	resource = TextDatumGetCString(PG_GETARG_DATUM(0));
	zkl_permission_check_resource(pg_server_to_any(resource, strlen(resource),
												   PG_UTF8));

	SPI_connect();
	if (!present(table, PG_GETARG_DATUM(0), PG_GETARG_DATUM(1), "<="))
		report_stale(table, resource, PG_GETARG_INT64(1),
					 greatest(table, PG_GETARG_DATUM(0)));
	SPI_finish();
	PG_RETURN_VOID();
}

/*
 * The trigger of zk_fences.  A row that is written becomes the insert or
 * update of zk_fence, or nothing if its token is not greater.  So no token
 * goes down, and no row that exists stops replication: ON CONFLICT even waits
 * for a row that another transaction is about to insert.  An equal token must
 * write nothing: between two servers that replicate to each other, it would go
 * round for ever.
 */
Datum
zklock_fences_keep(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HeapTuple	row;
	Datum		resource;
	Datum		token;
	bool		is_null[2];

	if (!is_of_table(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("function zk_fences_keep() is only for the trigger of table zk_fences"));
	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
		trigger->tg_newtuple : trigger->tg_trigtuple;
	resource = heap_getattr(row, 1, RelationGetDescr(trigger->tg_relation), &is_null[0]);
	token = heap_getattr(row, 2, RelationGetDescr(trigger->tg_relation), &is_null[1]);
	if (presenting || is_null[0] || is_null[1])
		return PointerGetDatum(row);	/* the table allows no nulls */

	SPI_connect();
	(void) present(table_of(fcinfo), resource, token, "<");
	SPI_finish();
	return PointerGetDatum(NULL);
}

/*
 * The function is executed with the privileges of its owner, so no other table
 * may get at it.  Refuse a direct call, without a trigger, as well.
 */
static bool
is_of_table(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	return CALLED_AS_TRIGGER(fcinfo) &&
		TRIGGER_FIRED_BEFORE(trigger->tg_event) &&
		TRIGGER_FIRED_FOR_ROW(trigger->tg_event) &&
		!TRIGGER_FIRED_BY_DELETE(trigger->tg_event) &&
		RelationGetNamespace(trigger->tg_relation) == get_func_namespace(fcinfo->flinfo->fn_oid) &&
		strcmp(RelationGetRelationName(trigger->tg_relation), "zk_fences") == 0;
}

/* The table is in the schema of the function. */
static const char *
table_of(FunctionCallInfo fcinfo)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);

	return quote_qualified_identifier(get_namespace_name(schema), "zk_fences");
}

/*
 * Insert or update the row.  False if a token that was presented before
 * refuses this one: "accepts" says how the earlier token must compare to this
 * one.
 */
static bool
present(const char *table, Datum resource, Datum token, const char *accepts)
{
	const char *query =
	psprintf("INSERT INTO %s AS f (resource, token) VALUES ($1, $2) "
			 "ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token "
			 "WHERE f.token %s EXCLUDED.token", table, accepts);
	uint64		nrows;

	presenting = true;
	PG_TRY();
	{
		nrows = execute(query, 2, resource, token);
	}
	PG_FINALLY();
	{
		presenting = false;
	}
	PG_END_TRY();
	return nrows > 0;
}

/*
 * Only for the message.  This transaction has locked the row, so the row
 * exists.
 */
static int64
greatest(const char *table, Datum resource)
{
	const char *query =
	psprintf("SELECT token FROM %s WHERE resource = $1", table);
	bool		isnull = true;
	int64		token = 0;

	if (execute(query, 1, resource, (Datum) 0) > 0)
		token = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
											SPI_tuptable->tupdesc, 1,
											&isnull));
	return isnull ? 0 : token;
}

/*
 * Return the number of rows.  For the INSERT, it is 0 if its WHERE refuses
 * the token; the row is locked even then.
 */
static uint64
execute(const char *query, int nargs, Datum resource, Datum token)
{
	Oid			types[] = {TEXTOID, INT8OID};
	Datum		values[] = {resource, token};
	int			rc = SPI_execute_with_args(query, nargs, types, values, NULL,
										   false, 0);

	if (rc < 0)
		elog(ERROR, "could not execute \"%s\": %s", query,
			 SPI_result_code_string(rc));
	return SPI_processed;
}

/*
 * A greater token means that the lock has had another holder since, so raise
 * the error of a lost lock.
 */
static void
report_stale(const char *table, const char *resource, int64 token,
			 int64 greatest)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_ZKL_LOCK_LOST)),
			errmsg("token " INT64_FORMAT " is too old for resource \"%s\"",
				   token, resource),
			errdetail("Token " INT64_FORMAT " has been presented for it.",
					  greatest),
			errhint("Acquire the lock again.  If its tokens have begun again in another ZooKeeper ensemble, delete the resource's row from table %s.",
					table));
}
