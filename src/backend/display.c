/*-------------------------------------------------------------------------
 *
 * display.c
 *	  Paths and moments, as the user sees them.
 *
 * src/backend/display.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "common/string.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "settings.h"

static FmgrInfo from_utf8;		/* converts to the encoding of the database;
								 * without an OID: not known, or there is no
								 * such function */

TimestampTz
zkl_display_time(int64 moment)
{
	return GetCurrentTimestamp() - (zkl_now() - moment);
}

void
zkl_display_prepare(void)
{
	Oid			function;

	if (from_utf8.fn_oid != InvalidOid || GetDatabaseEncoding() == PG_UTF8)
		return;
	function = FindDefaultConversionProc(PG_UTF8, GetDatabaseEncoding());
	if (OidIsValid(function))
		fmgr_info_cxt(function, &from_utf8, TopMemoryContext);
}

/*
 * Paths are stored in UTF-8, because the databases of one server may have
 * different encodings.  In a database without an encoding (SQL_ASCII), paths
 * are used as the user gives them.
 */
const char *
zkl_display_path(const char *path)
{
	StringInfoData shown;

	if (GetDatabaseEncoding() == PG_UTF8 || pg_is_ascii(path) ||
		(GetDatabaseEncoding() == PG_SQL_ASCII && OidIsValid(MyDatabaseId)))
		return path;
	if (from_utf8.fn_oid != InvalidOid)
	{
		int			length = strlen(path);
		char	   *converted = palloc(length * MAX_CONVERSION_GROWTH + 1);

		/*
		 * The function returns how much it could convert, and raises no
		 * error.
		 */
		if (DatumGetInt32(FunctionCall6(&from_utf8, Int32GetDatum(PG_UTF8),
										Int32GetDatum(GetDatabaseEncoding()),
										CStringGetDatum(path),
										CStringGetDatum(converted),
										Int32GetDatum(length),
										BoolGetDatum(true))) == length)
			return converted;
	}
	initStringInfo(&shown);
	for (const char *at = path; *at; at++)
	{
		if (IS_HIGHBIT_SET(*at))
			appendStringInfo(&shown, "\\x%02x", (unsigned char) *at);
		else
			appendStringInfoChar(&shown, *at);
	}
	return shown.data;
}
