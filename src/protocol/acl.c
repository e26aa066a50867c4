/*-------------------------------------------------------------------------
 *
 * acl.c
 *	  The access control list that zklock gives its znodes: zklock.acl.
 *
 * src/protocol/acl.c
 *
 *-------------------------------------------------------------------------
 */
#include <stddef.h>
#include <string.h>

#include "protocol/acl.h"

#define BLANKS		" \t\r\n"

static const char *add_entry(ZklAcl *acl, const char *text, size_t length);
static size_t entry_length(const char *text);
static const char *permissions_of(const char *text, size_t length,
								  int *permissions);
static int	permission_of(char letter);

const char *
zkl_acl_parse(const char *text, ZklAcl *acl)
{
	const char *fault;

	acl->nentries = 0;
	if (strcmp(text, "open") == 0)
		return zkl_acl_parse("world:anyone:cdrwa", acl);
	if (strcmp(text, "creator") == 0)
		return zkl_acl_parse("auth::cdrwa", acl);

	for (;;)
	{
		size_t		length;

		text	  +=strspn(text, BLANKS);

		length = entry_length(text);
		fault = add_entry(acl, text, length);
		text	  +=length;

		/* After a comma, another entry has to follow. */
		if (fault != NULL || *text == '\0')
			return fault;
		text	  ++;
	}
}

/*
 * An entry ends with its permissions, at a comma or at the end.  A comma after
 * anything else is part of the id, as in the name in a certificate.  If there
 * is no such end, the rest of the text is one entry, and the caller finds it
 * faulty.
 */
static size_t
entry_length(const char *text)
{
	size_t		length = 0;
	int			permissions;

	for (;;)
	{
		length += strcspn(text +length, ",");
		if (text[length] == '\0' ||
			permissions_of(text, length, &permissions) != NULL)
			return length;
		length++;
	}
}

static const char *
add_entry(ZklAcl *acl, const char *text, size_t length)
{
	ZklAclEntry *entry = &acl->entry[acl->nentries];
	const char *colon = memchr(text, ':', length);
	const char *end;
	size_t		scheme_length;
	size_t		id_length;

	if (acl->nentries == ZKL_ACL_ENTRIES)
		return "The list has more than 16 entries.";
	end = permissions_of(text, length, &entry->permissions);
	/* The first colon ends the scheme, the last one the id. */
	if (end == NULL || colon == end || colon == text ||
		strcspn(text, BLANKS ",") < (size_t) (colon - text))
		return "It must be \"open\", \"creator\", or a list of \"scheme:id:permissions\", with permissions out of \"cdrwa\".";
	scheme_length = colon - text;

	id_length = end - colon - 1;
	if (scheme_length >= sizeof(entry->scheme) ||
		id_length >= sizeof(entry->id))
		return "A scheme or an id is too long.";
	memcpy(entry->scheme, text, scheme_length);
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
permissions_of(const char *text, size_t length, int *permissions)
{
	const char *at = text +length;

	*permissions = 0;
	while (at > text &&strchr(BLANKS, at[-1]) != NULL)
		at--;
	while (at > text &&permission_of(at[-1]) != 0)
		*permissions |= permission_of(*--at);
	return *permissions != 0 && at > text &&at[-1] == ':' ? at - 1 : NULL;
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
