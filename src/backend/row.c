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
#include "backend/row.h"

ReturnSetInfo *
zkl_row_begin_set(FunctionCallInfo fcinfo)
{
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
zkl_row_add_text(ZklRow *row, const char *text)
{
	zkl_row_add_if(row, text !=NULL,
				   text !=NULL ? CStringGetTextDatum(text) : (Datum) 0);
}

void
zkl_row_add_moment_if(ZklRow *row, bool known, int64 moment)
{
	zkl_row_add_if(row, known,
				   TimestampTzGetDatum(known ? zkl_display_time(moment) : 0));
}

void
zkl_row_put(ReturnSetInfo *set, ZklRow *row)
{
	Assert(row->ncolumns >= set->setDesc->natts);
	tuplestore_putvalues(set->setResult, set->setDesc, row->values, row->nulls);
}
