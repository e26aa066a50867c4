/*-------------------------------------------------------------------------
 *
 * pathlist.c
 *	  A list of paths in a setting, separated by commas.
 *
 * src/protocol/pathlist.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/pathlist.h"

#include <string.h>

#include "protocol/path.h"

static const char *element_fault(const char *element, size_t length);
static bool is_all(const char *element, size_t length);

const char *
zkl_pathlist_next(const char **at, size_t *length)
{
	const char *blanks = " \t\r\n";
	const char *element = *at;
	size_t		end = strcspn(element, ",");

	if (element[0] == '\0')
		return NULL;
	*at = element + end + (element[end] == ',');

	for (; end > 0 && strchr(blanks, element[0]) != NULL; end--)
		element++;
	for (; end > 0 && strchr(blanks, element[end - 1]) != NULL; end--)
		;
	*length = end;
	return element;
}

const char *
zkl_pathlist_fault(const char *list)
{
	const char *at = list;
	const char *element;
	size_t		length;

	while ((element = zkl_pathlist_next(&at, &length)) != NULL)
	{
		const char *fault = element_fault(element, length);

		if (fault != NULL)
			return fault;
	}
	return NULL;
}

/*
 * Check an element.  A prefix is checked like a path, without the slash at
 * its end.
 */
static const char *
element_fault(const char *element, size_t length)
{
	char		path[ZKL_PATH_SIZE];

	if (is_all(element, length) || (length == 1 && element[0] == '/'))
		return NULL;
	if (length >= sizeof(path))
		return "A path is too long.";
	/* A lock may have this name, but the user certainly means a pattern. */
	if (length >= 2 && memcmp(element + length - 2, "/*", 2) == 0)
		return "A prefix must end with a slash, not with \"/*\".";
	if (length > 0 && element[length - 1] == '/')
		length--;
	memcpy(path, element, length);
	path[length] = '\0';
	return zkl_path_fault(path);
}

static bool
is_all(const char *element, size_t length)
{
	return length == strlen(ZKL_PATHLIST_ALL) &&
		memcmp(element, ZKL_PATHLIST_ALL, length) == 0;
}

/*
 * Comparing bytes is enough, because a valid path has no component that is
 * empty, "." or "..".
 */
bool
zkl_pathlist_allows(const char *list, const char *path)
{
	const char *at = list;
	const char *element;
	size_t		length;

	while ((element = zkl_pathlist_next(&at, &length)) != NULL)
	{
		if (is_all(element, length))
			return true;
		if (length > 0 && strncmp(element, path, length) == 0 &&
			(path[length] == '\0' || element[length - 1] == '/'))
			return true;
	}
	return false;
}
