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

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "settings.h"

TimestampTz
zkl_display_time(int64 moment)
{
	return GetCurrentTimestamp() - (zkl_now() - moment);
}

/*
 * Paths are kept in UTF-8, because databases of one server may differ.  In a
 * database of another encoding, bytes that might not exist there are escaped.
 */
const char *
zkl_display_path(const char *path)
{
	StringInfoData shown;

	if (GetDatabaseEncoding() == PG_UTF8)
		return path;
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
