/*-------------------------------------------------------------------------
 *
 * credentials.c
 *	  The text of zklock.auth_file: the credentials that identify a ZooKeeper
 *	  session.
 *
 * src/protocol/credentials.c
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "protocol/credentials.h"

static const char *take_line(const char **at, const char *end,
							 size_t *length);
static bool is_left_out(const char *line, size_t length);
static const char *split_line(const char *line, size_t length,
							  ZklCredentials *credentials);
static bool is_blank(char letter);

const char *
zkl_credentials_fault(const char *text, size_t length, int *line)
{
	const char *end = text +length;
	bool		is_empty = true;
	ZklCredentials credentials;

	*line = 0;
	while (text <end)
	{
		const char *fault;
		const char *at = take_line(&text, end, &length);

		++*line;
		if (is_left_out(at, length))
			continue;
		fault = split_line(at, length, &credentials);
		if (fault != NULL)
			return fault;
		is_empty = false;
	}
	if (!is_empty)
		return NULL;
	*line = 0;
	return "there are no credentials in it";
}

bool
zkl_credentials_next(const char **at, const char *end,
					 ZklCredentials *credentials)
{
	while (*at < end)
	{
		size_t		length;
		const char *line = take_line(at, end, &length);

		if (!is_left_out(line, length))
			return split_line(line, length, credentials) == NULL;
	}
	return false;
}

/* Returns the next line without its end, and advances "at" behind that. */
static const char *
take_line(const char **at, const char *end, size_t *length)
{
	const char *line = *at;
	const char *newline = memchr(line, '\n', end - line);

	*length = (newline ? newline : end) - line;
	*at = newline ? newline + 1 : end;

	/*
	 * Editors on Windows end lines with "\r ".
	 */
	if (*length > 0 && line[*length - 1] == '\r')
		--* length;
	return line;
}

static bool
is_left_out(const char *line, size_t length)
{
	while (length > 0 && is_blank(*line))
	{
		line++;
		length--;
	}
	return length == 0 || *line == '#';
}

/* Fill in the credentials, or return what is wrong with the line. */
static const char *
split_line(const char *line, size_t length, ZklCredentials *credentials)
{
	const char *end = line + length;
	const char *scheme;
	const char *colon;

	if (memchr(line, '\0', length) != NULL)
		return "there is a null character in it";
	while (line < end && is_blank(*line))
		line++;
	scheme = line;
	while (line < end && !is_blank(*line))
		line++;
	length = line - scheme;
	if (length >= sizeof(credentials->scheme))
		return "the scheme is too long";
	memcpy(credentials->scheme, scheme, length);
	credentials->scheme[length] = '\0';

	while (line < end && is_blank(*line))
		line++;
	credentials->data = line;
	credentials->length = end - line;
	if (line == end)
		return "a scheme, a blank and credentials were expected";

	/*
	 * ZooKeeper accepts any text for this scheme.  But every client can add
	 * the identity of a user without a password, so that protects nothing.
	 */
	if (strcmp(credentials->scheme, "digest") != 0)
		return NULL;
	colon = memchr(line, ':', end - line);
	if (colon == NULL || colon == line || colon + 1 == end)
		return "the credentials of scheme \"digest\" must be \"user:password\"";
	return NULL;
}

static bool
is_blank(char letter)
{
	return letter == ' ' || letter == '\t';
}
