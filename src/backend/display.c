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
								 * OID 0: not looked up yet, or there is no
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

/*
 * If zkl_display_path() could not convert the path, it has escaped all its
 * bytes that are not ASCII.
 */
const char *
zkl_display_unescape(const char *shown)
{
	char	   *path = palloc(strlen(shown) + 1);
	int			length = 0;

	for (const char *at = shown; *at;)
	{
		char		hex[3];

		if (sscanf(at, "\\x%2[0-9a-f]", hex) == 1 && hex[0] >= '8' && hex[1] != '\0')
		{
			path[length++] = (char) strtol(hex, NULL, 16);
			at += strlen("\\x00");
		}
		else
			path[length++] = *at++;
	}
	path[length] = '\0';
	return strcmp(path, shown) != 0 &&
		pg_encoding_verifymbstr(PG_UTF8, path, length) == length &&
		strcmp(zkl_display_path(path), shown) == 0 ? path : NULL;
}
