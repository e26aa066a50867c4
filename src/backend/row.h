/*-------------------------------------------------------------------------
 *
 * row.h
 *	  The rows that a set-returning function returns, column after column.
 *
 * A function calls zkl_row_begin_set() once.  For each row it makes a ZklRow,
 * adds all columns in the order of the SQL function's declaration, and calls
 * zkl_row_put().
 *
 * Called only by backends, which hold no LWLock.  Any function may raise an
 * error for lack of memory, and zkl_row_put also for lack of disk space.
 *
 * src/backend/row.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ROW_H
#define ZKL_ROW_H

#include "fmgr.h"
#include "nodes/execnodes.h"
#include "port/atomics.h"

#define ZKL_ROW_COLUMNS_MAX		64

typedef struct ZklRow
{
	int			ncolumns;		/* so far */
	Datum		values[ZKL_ROW_COLUMNS_MAX];
	bool		nulls[ZKL_ROW_COLUMNS_MAX];
} ZklRow;

/*
 * The caller's result; its rows are kept until the function returns.  Raises
 * 55000 unless zklock was preloaded, and 0A000 where no set is accepted.
 */
extern ReturnSetInfo *zkl_row_begin_set(FunctionCallInfo fcinfo);

/* Add a column.  One that is not "known" is null; then the value is not looked at. */
extern void zkl_row_add(ZklRow *row, Datum value);
extern void zkl_row_add_if(ZklRow *row, bool known, Datum value);
extern void zkl_row_add_nulls(ZklRow *row, int ncolumns);

/*
 * A text, or null if it is NULL, copied into the current memory context; a
 * moment of zkl_now(); and a time in microseconds since 1970, null also if
 * PostgreSQL cannot represent it.
 */
extern void zkl_row_add_text(ZklRow *row, const char *str);
extern void zkl_row_add_moment_if(ZklRow *row, bool known, int64 moment);
extern void zkl_row_add_time_if(ZklRow *row, bool known, int64 time);

/* A counter in shared memory, and a time in microseconds as milliseconds. */
extern void zkl_row_add_counter(ZklRow *row, pg_atomic_uint64 *counter);
extern void zkl_row_add_ms(ZklRow *row, int64 microseconds);

/* The row is complete: it has all columns that the function returns. */
extern void zkl_row_put(ReturnSetInfo *set, ZklRow *row);

#endif							/* ZKL_ROW_H */
