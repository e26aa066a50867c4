/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  Znode names and who goes first, in Apache Curator's layout.
 *
 * Keys are compared as strings, as Curator and kazoo compare them: that
 * agrees with the order of the numbers as long as all have ten digits, and
 * where they do not (a counter that ran over), agreeing with the others
 * matters more than being right alone.
 *
 * src/recipe.c
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"

#include <stdio.h>
#include <string.h>

#define SEQUENCE_DIGITS		10

/* Version 8 in the high nibble, then eleven bits of mark and one of "tries". */
#define UUID_MARK			0x8b4c
#define UUID_MARK_MASK		0xfffe
#define UUID_ONLY_TRIES		0x0001

static const char *find_last(const char *text, const char *mark);
static bool is_key(const char *text);
static const char *key_of(const char *child);

void
zkl_recipe_make_uuid(const uint8_t random[16], bool only_tries,
					 char uuid[ZKL_UUID_SIZE])
{
	unsigned	mark = UUID_MARK | (only_tries ? UUID_ONLY_TRIES : 0);
	unsigned	variant = 0x80 | (random[8] & 0x3f);

	snprintf(uuid, ZKL_UUID_SIZE,
			 "%02x%02x%02x%02x-%02x%02x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			 random[0], random[1], random[2], random[3],
			 random[4], random[5], mark, variant, random[9],
			 random[10], random[11], random[12],
			 random[13], random[14], random[15]);
}

bool
zkl_recipe_is_zklock(const char *child, bool *only_tries)
{
	unsigned	mark;

	/* "_c_xxxxxxxx-xxxx-mmmm-": the mark begins at character 17 */
	if (strncmp(child, "_c_", 3) != 0 || strlen(child) < 3 + 36 ||
		child[16] != '-' || child[21] != '-' ||
		strspn(child + 17, "0123456789abcdef") != 4 ||
		sscanf(child + 17, "%4x", &mark) != 1 ||
		(mark & UUID_MARK_MASK) != UUID_MARK)
		return false;
	*only_tries = (mark & UUID_ONLY_TRIES) != 0;
	return true;
}

void
zkl_recipe_make_prefix(const char *uuid, char prefix[ZKL_ZNODE_SIZE])
{
	snprintf(prefix, ZKL_ZNODE_SIZE, "_c_%.36s-lock-", uuid);
}

const char *
zkl_recipe_find(const char *uuid, const char *const *children, int nchildren)
{
	char		prefix[ZKL_ZNODE_SIZE];
	size_t		length;

	if (uuid[0] == '\0')
		return NULL;
	zkl_recipe_make_prefix(uuid, prefix);
	length = strlen(prefix);
	for (int i = 0; i < nchildren; i++)
	{
		if (strncmp(children[i], prefix, length) == 0)
			return children[i];
	}
	return NULL;
}

bool
zkl_recipe_sequence_is_sound(const char *child)
{
	const char *key = key_of(child);
	int64_t		number = 0;

	if (key == NULL || strlen(key) != SEQUENCE_DIGITS || key[0] == '-')
		return false;
	for (int i = 0; i < SEQUENCE_DIGITS; i++)
		number = number * 10 + (key[i] - '0');
	return number < ZKL_SEQUENCE_LIMIT;
}

bool
zkl_recipe_is_contender(const char *child)
{
	return key_of(child) != NULL;
}

ZklVerdict
zkl_recipe_judge(const char *me, const char *const *children, int nchildren)
{
	ZklVerdict	verdict = {false, false, false, NULL};
	const char *my_key = key_of(me);
	const char *nearest = NULL;

	if (my_key == NULL)
		return verdict;

	for (int i = 0; i < nchildren; i++)
	{
		const char *key = key_of(children[i]);

		if (strcmp(children[i], me) == 0)
			verdict.found = true;
		else if (key == NULL)
			continue;
		else if (strcmp(key, my_key) > 0)
			verdict.contended = true;
		else if (nearest == NULL || strcmp(key, nearest) > 0)
		{
			nearest = key;
			verdict.predecessor = children[i];
		}
	}
	verdict.owned = verdict.found && verdict.predecessor == NULL;
	return verdict;
}

/*
 * The part of a child's name that orders it, or NULL for a child that is no
 * contender.  An empty key is Curator's for a lock znode without a number,
 * which goes before all others.
 */
static const char *
key_of(const char *child)
{
	static const char *const marks[] = {"lock-", "__lock__", "__rlock__"};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
	{
		const char *at = find_last(child, marks[i]);

		if (at != NULL)
		{
			const char *key = at + strlen(marks[i]);

			if (is_key(key) || (i == 0 && key[0] == '\0'))
				return key;
		}
	}
	return NULL;
}

/* A number as the server prints it: "%010d" of a signed 32-bit counter. */
static bool
is_key(const char *text)
{
	size_t		digits = strspn(text[0] == '-' ? text +1 : text, "0123456789");

	if (text[0] == '-')
		return text[digits + 1] == '\0' &&
		(digits == SEQUENCE_DIGITS || digits == SEQUENCE_DIGITS - 1);
	return text[digits] == '\0' && digits == SEQUENCE_DIGITS;
}

static const char *
find_last(const char *text, const char *mark)
{
	const char *found = NULL;

	for (const char *at = strstr(text, mark); at; at = strstr(at + 1, mark))
		found = at;
	return found;
}
