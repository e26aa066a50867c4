/*-------------------------------------------------------------------------
 *
 * statviews.c
 *	  The functions behind the views zk_stat_locks and zk_stat.
 *
 * src/backend/sql/statviews.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/report.h"
#include "backend/row.h"
#include "settings.h"
#include "shared/lockstat.h"
#include "shared/serverstat.h"

PG_FUNCTION_INFO_V1(zklock_stat_locks);
PG_FUNCTION_INFO_V1(zklock_stat);
PG_FUNCTION_INFO_V1(zklock_stat_reset);

static void put_row(ReturnSetInfo *set, const ZklLockStat *row);
static void add_counts(ZklRow *row, const ZklLockCounts *counts);
static Datum milliseconds(int64 microseconds);
static Datum counter(pg_atomic_uint64 *counter);
static void add_answers(ZklRow *row);
static Datum make_array(Datum *elements, int n, Oid type);
static int64 doubt_time(void);

Datum
zklock_stat_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set;
	ZklLockStat *rows;
	int			nrows;

	zkl_report_unless_loaded();
	set = zkl_row_begin_set(fcinfo);
	rows = zkl_lock_stat_copy(&nrows);
	for (int i = 0; i < nrows; i++)
	{
		if (zkl_permission_allows(rows[i].path))
			put_row(set, &rows[i]);
	}
	return (Datum) 0;
}

/*
 * All roles see the counts, but only roles that may see it see the path, as
 * pg_stat_statements does with the text of a statement.  A path belongs to a
 * role as long as no other role has used it.
 */
static void
put_row(ReturnSetInfo *set, const ZklLockStat *row)
{
	ZklRow		columns = {0};

	zkl_row_add_text(&columns, zkl_permission_may_see(row->role) ?
					 zkl_display_path(row->path) : NULL);
	add_counts(&columns, &row->counts);
	zkl_row_add(&columns, TimestampTzGetDatum(row->since));
	zkl_row_put(set, &columns);
}

static void
add_counts(ZklRow *row, const ZklLockCounts *counts)
{
	zkl_row_add(row, Int64GetDatum((int64) counts->acquired));
	zkl_row_add(row, Int64GetDatum((int64) counts->acquired_locally));
	zkl_row_add(row, Int64GetDatum((int64) counts->waited));
	zkl_row_add(row, milliseconds(counts->wait_time));
	zkl_row_add(row, milliseconds(counts->hold_time));
	zkl_row_add(row, Int64GetDatum((int64) counts->timeouts));
	zkl_row_add(row, Int64GetDatum((int64) counts->lost));
	zkl_row_add(row, Int64GetDatum((int64) counts->deadlocks));
	zkl_row_add(row, Int64GetDatum((int64) counts->handed_over));
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

/* One row.  The counts need not be from one moment. */
Datum
zklock_stat(PG_FUNCTION_ARGS)
{
	ZklRow		row = {0};
	ZklLockCounts sum;
	uint64		ndiscarded;

	zkl_report_unless_loaded();
	ndiscarded = zkl_lock_stat_sum(&sum);
	add_counts(&row, &sum);
	zkl_row_add(&row, Int64GetDatum((int64) ndiscarded));
	for (int kind = 0; kind < ZKL_TRAFFIC_KINDS; kind++)
		zkl_row_add(&row, counter(&zkl_server_stat->sent[kind]));
	add_answers(&row);
	zkl_row_add(&row, counter(&zkl_server_stat->reconnects));
	zkl_row_add(&row, counter(&zkl_server_stat->expirations));
	zkl_row_add(&row, milliseconds(doubt_time()));
	zkl_row_add(&row, TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&zkl_server_stat->reset_time)));

	/* In version 1.0, the row ends here. */
	zkl_row_add(&row, counter(&zkl_server_stat->late_commits));
	zkl_row_add(&row, counter(&zkl_server_stat->batches));
	zkl_row_add(&row, counter(&zkl_server_stat->batches_undone));
	zkl_row_put(zkl_row_begin_set(fcinfo), &row);
	return (Datum) 0;
}

/* The histogram, as Prometheus counts: each bucket includes those before it. */
static void
add_answers(ZklRow *row)
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

	zkl_row_add(row, Int64GetDatum((int64) answers));
	zkl_row_add(row, milliseconds(pg_atomic_read_u64(&zkl_server_stat->answer_time)));
	zkl_row_add(row, make_array(bounds, ZKL_TRAFFIC_BOUNDS, FLOAT8OID));
	zkl_row_add(row, make_array(buckets, ZKL_TRAFFIC_BOUNDS, INT8OID));
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

/* The total, including the sessions that are in doubt now. */
static int64
doubt_time(void)
{
	int64		total = (int64) pg_atomic_read_u64(&zkl_server_stat->doubt_time);
	int64		now = zkl_now();

	for (int i = 0; i < zkl_sessions; i++)
		total += zkl_server_stat_doubt(&zkl_session_info[i], now);
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
