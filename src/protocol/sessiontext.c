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
						char text[ZKL_SESSION_TEXT_SIZE])
{
	int			length = sprintf(text, "%llx ", (unsigned long long) id);

	for (int i = 0; i < ZKL_SESSION_TEXT_PASSWORD; i++)
		length += sprintf(text +length, "%02x", (unsigned char) password[i]);
	strcpy(text +length, "\n");
}

bool
zkl_session_text_parse(const char *text, int64_t *id,
					   char password[ZKL_SESSION_TEXT_PASSWORD])
{
	uint64_t	number;

	if (!take_digits(&text, ID_DIGITS, &number) || number == 0 ||
		*text ++!= ' ')
		return false;
	*id = (int64_t) number;
	for (int i = 0; i < ZKL_SESSION_TEXT_PASSWORD; i++)
	{
		const char *begin = text;

		if (!take_digits(&text, 2, &number) || text !=begin + 2)
			return false;
		password[i] = (char) number;
	}
	return strcmp(text, "\n") == 0;
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
