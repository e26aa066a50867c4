/*-------------------------------------------------------------------------
 *
 * access.c
 *	  ZooKeeper's access control: the list that zklock gives its znodes, and
 *	  the credentials that identify a session.
 *
 * src/protocol/access.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/access.h"

#include <string.h>

#define BLANKS		" \t\r\n"

static const char *add_entry(ZklAcl *acl, const char *str, size_t length);
static size_t entry_length(const char *str);
static const char *permissions_of(const char *str, size_t length,
								  int *permissions);
static int	permission_of(char letter);
static const char *take_line(const char **at, const char *end,
							 size_t *length);
static bool is_left_out(const char *line, size_t length);
static const char *split_line(const char *line, size_t length,
							  ZklCredentials *credentials);
static bool is_blank(char letter);

const char *
zkl_access_parse_acl(const char *str, ZklAcl *acl)
{
	const char *fault;

	acl->nentries = 0;
	if (strcmp(str, "open") == 0)
		return zkl_access_parse_acl("world:anyone:cdrwa", acl);
	if (strcmp(str, "creator") == 0)
		return zkl_access_parse_acl("auth::cdrwa", acl);

	for (;;)
	{
		size_t		length;

		str += strspn(str, BLANKS);

		length = entry_length(str);
		fault = add_entry(acl, str, length);
		str += length;

		/* After a comma, another entry has to follow. */
		if (fault != NULL || *str == '\0')
			return fault;
		str++;
	}
}

/*
 * An entry ends with its permissions, at a comma or at the end.  A comma
 * elsewhere is part of the id, such as the name in a certificate.  If no
 * permissions follow, the rest of the text is one entry, which the caller
 * finds faulty.
 */
static size_t
entry_length(const char *str)
{
	size_t		length = 0;
	int			permissions;

	for (;;)
	{
		length += strcspn(str + length, ",");
		if (str[length] == '\0' ||
			permissions_of(str, length, &permissions) != NULL)
			return length;
		length++;
	}
}

static const char *
add_entry(ZklAcl *acl, const char *str, size_t length)
{
	ZklAclEntry *entry = &acl->entry[acl->nentries];
	const char *colon = memchr(str, ':', length);
	const char *end;
	size_t		scheme_length;
	size_t		id_length;

	if (acl->nentries == ZKL_ACL_ENTRIES)
		return "The list has more than 16 entries.";
	end = permissions_of(str, length, &entry->permissions);
	/* The first colon ends the scheme, the last one the id. */
	if (end == NULL || colon == end || colon == str ||
		strcspn(str, BLANKS ",") < (size_t) (colon - str))
		return "It must be \"open\", \"creator\", or a list of \"scheme:id:permissions\", with permissions out of \"cdrwa\".";
	scheme_length = colon - str;

	id_length = end - colon - 1;
	if (scheme_length >= sizeof(entry->scheme) ||
		id_length >= sizeof(entry->id))
		return "A scheme is longer than 31 bytes, or an id longer than 255.";
	memcpy(entry->scheme, str, scheme_length);
	entry->scheme[scheme_length] = '\0';
	memcpy(entry->id, colon + 1, id_length);
	entry->id[id_length] = '\0';
	acl->nentries++;
	return NULL;
}

/*
 * The colon before the permissions at the end of this text, or NULL.  Blanks
 * may follow them.
 */
static const char *
permissions_of(const char *str, size_t length, int *permissions)
{
	const char *at = str + length;

	*permissions = 0;
	while (at > str && strchr(BLANKS, at[-1]) != NULL)
		at--;
	while (at > str && permission_of(at[-1]) != 0)
		*permissions |= permission_of(*--at);
	return *permissions != 0 && at > str && at[-1] == ':' ? at - 1 : NULL;
}

/* 0 if the letter is not a permission */
static int
permission_of(char letter)
{
	switch (letter)
	{
		case 'c':
			return ZKL_ACL_CREATE;
		case 'd':
			return ZKL_ACL_DELETE;
		case 'r':
			return ZKL_ACL_READ;
		case 'w':
			return ZKL_ACL_WRITE;
		case 'a':
			return ZKL_ACL_ADMIN;
		default:
			return 0;
	}
}

/*
 * Credentials
 */

const char *
zkl_access_credentials_fault(const char *str, size_t length, int *line)
{
	const char *end = str + length;
	bool		is_empty = true;
	ZklCredentials credentials;

	*line = 0;
	while (str < end)
	{
		const char *fault;
		const char *at = take_line(&str, end, &length);

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
zkl_access_next_credentials(const char **at, const char *end,
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

/* Returns the next line without its end, and moves "at" behind that end. */
static const char *
take_line(const char **at, const char *end, size_t *length)
{
	const char *line = *at;
	const char *newline = memchr(line, '\n', end - line);

	*length = (newline ? newline : end) - line;
	*at = newline ? newline + 1 : end;

	/* Editors on Windows end lines with a carriage return, too. */
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
		return "the scheme is longer than 31 bytes";
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
	 * the identity of a user without a password, so credentials without one
	 * protect nothing.
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
