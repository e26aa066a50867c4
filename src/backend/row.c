/*-------------------------------------------------------------------------
 *
 * row.c
 *	  The rows that a set-returning function returns, column after column.
 *
 * src/backend/row.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/display.h"
#include "backend/report.h"
#include "backend/row.h"
#include "settings.h"

ReturnSetInfo *
zkl_row_begin_set(FunctionCallInfo fcinfo)
{
	zkl_report_unless_loaded();
	InitMaterializedSRF(fcinfo, 0);
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

void
zkl_row_add(ZklRow *row, Datum value)
{
	zkl_row_add_if(row, true, value);
}

void
zkl_row_add_if(ZklRow *row, bool known, Datum value)
{
	Assert(row->ncolumns < ZKL_ROW_COLUMNS_MAX);
	row->values[row->ncolumns] = value;
	row->nulls[row->ncolumns++] = !known;
}

void
zkl_row_add_nulls(ZklRow *row, int ncolumns)
{
	for (int i = 0; i < ncolumns; i++)
		zkl_row_add_if(row, false, (Datum) 0);
}

void
zkl_row_add_text(ZklRow *row, const char *str)
{
	zkl_row_add_if(row, str != NULL,
				   str != NULL ? CStringGetTextDatum(str) : (Datum) 0);
}

void
zkl_row_add_moment_if(ZklRow *row, bool known, int64 moment)
{
	zkl_row_add_if(row, known,
				   TimestampTzGetDatum(known ? zkl_display_time(moment) : 0));
}

void
zkl_row_add_time_if(ZklRow *row, bool known, int64 time)
{
	known = known && time >= PG_INT64_MIN + ZKL_POSTGRES_EPOCH &&
		IS_VALID_TIMESTAMP(time - ZKL_POSTGRES_EPOCH);
	zkl_row_add_if(row, known, TimestampTzGetDatum(known ? time - ZKL_POSTGRES_EPOCH : 0));
}

void
zkl_row_add_counter(ZklRow *row, pg_atomic_uint64 *counter)
{
	zkl_row_add(row, Int64GetDatum((int64) pg_atomic_read_u64(counter)));
}

void
zkl_row_add_ms(ZklRow *row, int64 microseconds)
{
	zkl_row_add(row, Float8GetDatum(microseconds / 1000.0));
}

void
zkl_row_put(ReturnSetInfo *set, ZklRow *row)
{
	Assert(row->ncolumns == set->setDesc->natts);
	tuplestore_putvalues(set->setResult, set->setDesc, row->values, row->nulls);
}
