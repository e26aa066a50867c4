/*-------------------------------------------------------------------------
 *
 * sessiontext.c
 *	  What the session file says of a session: its id and its password; and the
 *	  name of a session.
 *
 * src/protocol/sessiontext.c
 *
 *-------------------------------------------------------------------------
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "protocol/sessiontext.h"

#define ID_DIGITS		16

static bool take_digits(const char **at, size_t most, uint64_t *number);

void
zkl_session_text_format(int64_t id,
						const char password[ZKL_SESSION_TEXT_PASSWORD],
						char str[ZKL_SESSION_TEXT_SIZE])
{
	int			length = sprintf(str, "%llx ", (unsigned long long) id);

	for (int i = 0; i < ZKL_SESSION_TEXT_PASSWORD; i++)
		length += sprintf(str + length, "%02x", (unsigned char) password[i]);
	strcpy(str + length, "\n");
}

bool
zkl_session_text_parse(const char *str, int64_t *id,
					   char password[ZKL_SESSION_TEXT_PASSWORD])
{
	uint64_t	number;

	if (!take_digits(&str, ID_DIGITS, &number) || number == 0 ||
		*str++ != ' ')
		return false;
	*id = (int64_t) number;
	for (int i = 0; i < ZKL_SESSION_TEXT_PASSWORD; i++)
	{
		const char *begin = str;

		if (!take_digits(&str, 2, &number) || str != begin + 2)
			return false;
		password[i] = (char) number;
	}
	return strcmp(str, "\n") == 0;
}

void
zkl_session_text_name(int64_t session, char name[ZKL_SESSION_TEXT_NAME_SIZE])
{
	snprintf(name, ZKL_SESSION_TEXT_NAME_SIZE, "%016llx", (unsigned long long) session);
}

/* Read a hexadecimal number of at most this many digits. */
static bool
take_digits(const char **at, size_t most, uint64_t *number)
{
	static const char digits[] = "0123456789abcdef";
	size_t		length = strspn(*at, digits);

	if (length == 0)
		return false;
	if (length > most)
		length = most;
	*number = 0;
	while (length-- > 0)
		*number = *number << 4 | (uint64_t) (strchr(digits, *(*at)++) - digits);
	return true;
}
