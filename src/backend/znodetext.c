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

static int	hex_value(char digit);

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
	size_t		length = strlen(name);
	const char *at = data;
	char	   *value;
	char	   *to;

	while (strncmp(at, name, length) != 0 || at[length] != '=')
	{
		at = strchr(at, ' ');
		if (at == NULL)
			return NULL;
		at++;
	}
	at += length + 1;
	value = to = palloc(strlen(at) + 1);
	for (; *at != '\0' && *at != ' '; at++)
	{
		int			high = *at == '%' ? hex_value(at[1]) : -1;
		int			low = high >= 0 ? hex_value(at[2]) : -1;

		if (high + low > 0 && low >= 0)
		{
			*to++ = (char) (high * 16 + low);
			at += 2;
		}
		else
			*to++ = *at;
	}
	*to = '\0';
	return value;
}

static int
hex_value(char digit)
{
	static const char digits[] = "0123456789ABCDEF";
	const char *at = digit == '\0' ? NULL : strchr(digits, digit);

	return at != NULL ? at - digits : -1;
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
