/*-------------------------------------------------------------------------
 *
 * fieldtext.c
 *	  The fields in the text of a znode: "name=value name=value".
 *
 * src/protocol/fieldtext.c
 *
 *-------------------------------------------------------------------------
 */
#include <stddef.h>
#include <string.h>

#include "protocol/fieldtext.h"

static int	hex_value(char digit);

bool
zkl_field_text_get(const char *text, const char *name, char *value)
{
	size_t		length = strlen(name);
	const char *at = text;

	while (strncmp(at, name, length) != 0 || at[length] != '=')
	{
		at = strchr(at, ' ');
		if (at == NULL)
			return false;
		at++;
	}
	for (at += length + 1; *at != '\0' && *at != ' '; at++)
	{
		int			high = *at == '%' ? hex_value(at[1]) : -1;
		int			low = high >= 0 ? hex_value(at[2]) : -1;

		/* A null would end the value, so it is left as it is written. */
		if (high + low > 0 && low >= 0)
		{
			*value++ = (char) (high * 16 + low);
			at += 2;
		}
		else
			*value++ = *at;
	}
	*value = '\0';
	return true;
}

static int
hex_value(char digit)
{
	static const char digits[] = "0123456789ABCDEF";
	const char *at = digit == '\0' ? NULL : strchr(digits, digit);

	return at != NULL ? at - digits : -1;
}
