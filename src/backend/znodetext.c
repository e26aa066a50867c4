/*-------------------------------------------------------------------------
 *
 * znodetext.c
 *	  What the text of one of zklock's znodes says about a backend.
 *
 * src/backend/znodetext.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "backend/display.h"
#include "backend/znodetext.h"
#include "protocol/fieldtext.h"

bool
zkl_znode_text_put(Datum *values, bool *nulls, const char *data)
{
	static const char *const names[] = {
		"server", "pid", "database", "role", "application"
	};
	char	   *fields[lengthof(names)];
	bool		any = false;

	for (int i = 0; i < lengthof(names); i++)
	{
		fields[i] = zkl_znode_text_field(data, names[i]);
		any |= fields[i] != NULL;
		if (fields[i] == NULL || (i == 1 && atoi(fields[i]) <= 0))
			continue;
		if (i == 1)
			values[i] = Int32GetDatum(atoi(fields[i]));
		else
			values[i] = CStringGetTextDatum(zkl_znode_text_show(fields[i]));
		nulls[i] = false;
	}
	return any;
}

char *
zkl_znode_text_field(const char *data, const char *name)
{
	char	   *value = palloc(strlen(data) + 1);

	return zkl_field_text_get(data, name, value) ? value : NULL;
}

const char *
zkl_znode_text_show(const char *text)
{
	StringInfoData shown;
	int			length = strlen(text);

	if (pg_encoding_verifymbstr(PG_UTF8, text, length) == length)
		return zkl_display_path(text);
	initStringInfo(&shown);
	for (const char *at = text; *at; at++)
	{
		if (IS_HIGHBIT_SET(*at))
			appendStringInfo(&shown, "\\x%02x", (unsigned char) *at);
		else
			appendStringInfoChar(&shown, *at);
	}
	return shown.data;
}
