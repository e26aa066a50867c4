/*-------------------------------------------------------------------------
 *
 * statviews.c
 *	  The functions behind the views zk_stat_locks and zk_stat.
 *
 * src/backend/statviews.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/display.h"
#include "backend/permission.h"
#include "backend/report.h"
#include "settings.h"
#include "shared/lockstat.h"
#include "shared/serverstat.h"

PG_FUNCTION_INFO_V1(zklock_stat_locks);
PG_FUNCTION_INFO_V1(zklock_stat);
PG_FUNCTION_INFO_V1(zklock_stat_reset);

#define COUNTS_COLUMNS	9
#define LOCKS_COLUMNS	(COUNTS_COLUMNS + 2)
#define STAT_COLUMNS	(COUNTS_COLUMNS + ZKL_TRAFFIC_KINDS + 9)

static void put_row(ReturnSetInfo *rsinfo, const ZklLockStat *row);
static int	put_counts(Datum *values, const ZklLockCounts *counts);
static Datum milliseconds(int64 microseconds);
static Datum counter(pg_atomic_uint64 *counter);
static int	put_answers(Datum *values);
static Datum make_array(Datum *elements, int n, Oid type);
static int64 doubt_time(void);

Datum
zklock_stat_locks(PG_FUNCTION_ARGS)
{
	ZklLockStat *rows;
	int			nrows;

	zkl_report_unless_loaded();
	InitMaterializedSRF(fcinfo, 0);
	rows = zkl_lock_stat_copy(&nrows);
	for (int i = 0; i < nrows; i++)
	{
		if (zkl_permission_allows(rows[i].path))
			put_row((ReturnSetInfo *) fcinfo->resultinfo, &rows[i]);
	}
	return (Datum) 0;
}

/*
 * As pg_stat_statements does with the text of a statement, this shows the
 * counts to all roles, but the path only to those that may see it.  A path is
 * that of a role as long as no other role has used it.
 */
static void
put_row(ReturnSetInfo *rsinfo, const ZklLockStat *row)
{
	Datum		values[LOCKS_COLUMNS];
	bool		nulls[LOCKS_COLUMNS] = {0};
	int			n = 0;

	nulls[n] = !zkl_permission_may_see(row->role);
	values[n++] = nulls[0] ? (Datum) 0 :
		CStringGetTextDatum(zkl_display_path(row->path));
	n += put_counts(&values[n], &row->counts);
	values[n] = TimestampTzGetDatum(row->since);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* Returns the number of values. */
static int
put_counts(Datum *values, const ZklLockCounts *counts)
{
	values[0] = Int64GetDatum((int64) counts->acquired);
	values[1] = Int64GetDatum((int64) counts->acquired_locally);
	values[2] = Int64GetDatum((int64) counts->waited);
	values[3] = milliseconds(counts->wait_time);
	values[4] = milliseconds(counts->hold_time);
	values[5] = Int64GetDatum((int64) counts->timeouts);
	values[6] = Int64GetDatum((int64) counts->lost);
	values[7] = Int64GetDatum((int64) counts->deadlocks);
	values[8] = Int64GetDatum((int64) counts->handed_over);
	return COUNTS_COLUMNS;
}

static Datum
milliseconds(int64 microseconds)
{
	return Float8GetDatum(microseconds / 1000.0);
}

static Datum
counter(pg_atomic_uint64 *counter)
{
	return Int64GetDatum((int64) pg_atomic_read_u64(counter));
}

/* One row.  The counts need not be of one moment. */
Datum
zklock_stat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[STAT_COLUMNS];
	bool		nulls[STAT_COLUMNS] = {0};
	ZklLockCounts sum;
	uint64		ndiscarded;
	int			n = 0;

	zkl_report_unless_loaded();
	InitMaterializedSRF(fcinfo, 0);
	ndiscarded = zkl_lock_stat_sum(&sum);
	n += put_counts(&values[n], &sum);
	values[n++] = Int64GetDatum((int64) ndiscarded);
	for (int kind = 0; kind < ZKL_TRAFFIC_KINDS; kind++)
		values[n++] = counter(&zkl_server_stat->sent[kind]);
	n += put_answers(&values[n]);
	values[n++] = counter(&zkl_server_stat->reconnects);
	values[n++] = counter(&zkl_server_stat->expirations);
	values[n++] = milliseconds(doubt_time());
	values[n++] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&zkl_server_stat->reset_time));
	Assert(n == STAT_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/*
 * The histogram, as Prometheus counts: each bucket includes those before it.
 * Returns the number of values.
 */
static int
put_answers(Datum *values)
{
	Datum		bounds[ZKL_TRAFFIC_BOUNDS];
	Datum		buckets[ZKL_TRAFFIC_BOUNDS];
	uint64		answers = 0;

	for (int i = 0; i < ZKL_TRAFFIC_BOUNDS; i++)
	{
		answers += pg_atomic_read_u64(&zkl_server_stat->answers[i]);
		bounds[i] = milliseconds(zkl_traffic_bounds[i]);
		buckets[i] = Int64GetDatum((int64) answers);
	}
	answers += pg_atomic_read_u64(&zkl_server_stat->answers[ZKL_TRAFFIC_BOUNDS]);

	values[0] = Int64GetDatum((int64) answers);
	values[1] = milliseconds(pg_atomic_read_u64(&zkl_server_stat->answer_time));
	values[2] = make_array(bounds, ZKL_TRAFFIC_BOUNDS, FLOAT8OID);
	values[3] = make_array(buckets, ZKL_TRAFFIC_BOUNDS, INT8OID);
	return 4;
}

static Datum
make_array(Datum *elements, int n, Oid type)
{
	int16		length;
	bool		by_value;
	char		align;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	return PointerGetDatum(construct_array(elements, n, type, length, by_value,
										   align));
}

/* Also of the sessions that are in doubt now. */
static int64
doubt_time(void)
{
	int64		total = (int64) pg_atomic_read_u64(&zkl_server_stat->doubt_time);
	int64		now = zkl_now();

	for (int i = 0; i < zkl_sessions; i++)
		total += zkl_server_stat_doubt(&zkl_lock_table->session[i], now);
	return total;
}

Datum
zklock_stat_reset(PG_FUNCTION_ARGS)
{
	zkl_report_unless_loaded();
	zkl_lock_stat_reset();
	zkl_server_stat_reset();
	PG_RETURN_VOID();
}
