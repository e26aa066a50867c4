/*-------------------------------------------------------------------------
 *
 * path.c
 *	  What may be the path of a lock, the lists of paths in settings, and the
 *	  names of znodes that belong to paths.
 *
 * ZooKeeper's own rules, and four more: nothing below its reserved
 * "/zookeeper"; no lock below zklock's own "/.zklock"; no component that a
 * lock recipe would take for a contender, because a lock's directory may lie
 * inside another lock's; and a limit to the number of components, because any
 * role may acquire any path, and acquiring it makes a znode for each
 * component.
 *
 * src/protocol/path.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/path.h"

#include <stdio.h>
#include <string.h>

#include "protocol/fieldtext.h"
#include "protocol/recipe.h"

#define TOO_LONG		"The path is longer than 255 bytes."
#define ROOT_TOO_LONG	"The path is longer than 63 bytes."

_Static_assert(ZKL_PATH_SIZE == 256 && ZKL_ROOT_SIZE / 2 == 64,
			   "these sentences name the limits");

static const char *shape_fault(const char *path, size_t size,
							   const char *too_long);
static const char *component_fault(const char *component, size_t length);
static bool has_forbidden_character(const char *text);
static bool is_component(const char *component, size_t length,
						 const char *name);
static const char *element_fault(const char *element, size_t length);

const char *
zkl_path_fault(const char *path)
{
	if (path[0] == '\0')
		return "The path is empty.";
	if (strcmp(path, "/") == 0)
		return "The path names no lock below the root.";
	if (path[0] == '/' && is_component(path + 1, strcspn(path + 1, "/"),
									   ZKL_PATH_RESERVED))
		return "The path \"/" ZKL_PATH_RESERVED "\" is reserved.";
	return shape_fault(path, ZKL_PATH_SIZE, TOO_LONG);
}

/*
 * The chroot and the root together are the prefix of all directories, so each
 * may fill half of the buffer.
 */
const char *
zkl_path_root_fault(const char *root)
{
	if (root[0] == '\0' || strcmp(root, "/") == 0)
		return NULL;
	return shape_fault(root, ZKL_ROOT_SIZE / 2, ROOT_TOO_LONG);
}

/* The rules that locks' paths, roots and chroots have in common. */
static const char *
shape_fault(const char *path, size_t size, const char *too_long)
{
	const char *component;
	int			ncomponents = 0;

	if (path[0] != '/')
		return "A path must begin with a slash.";
	if (strlen(path) >= size)
		return too_long;
	if (path[strlen(path) - 1] == '/')
		return "A path must not end with a slash.";
	if (has_forbidden_character(path))
		return "The path contains a character that ZooKeeper does not allow.";

	for (component = path + 1;;)
	{
		size_t		length = strcspn(component, "/");
		const char *fault = component_fault(component, length);

		if (fault != NULL)
			return fault;

		/* Only at the top level: ZooKeeper does not reserve it deeper down. */
		if (component == path + 1 &&
			is_component(component, length, "zookeeper"))
			return "The path \"/zookeeper\" is reserved.";
		if (++ncomponents > ZKL_PATH_COMPONENTS)
			return "A path must not have more than 16 components.";
		if (component[length] == '\0')
			return NULL;
		component += length + 1;
	}
}

static const char *
component_fault(const char *component, size_t length)
{
	char		name[ZKL_PATH_SIZE];
	ZklContender contender;

	if (length == 0)
		return "A path must not contain an empty component.";
	if (is_component(component, length, ".") ||
		is_component(component, length, ".."))
		return "A path must not contain \".\" or \"..\" as a component.";

	/* The parser needs a terminated string, and the component has no null. */
	memcpy(name, component, length);
	name[length] = '\0';
	if (zkl_recipe_parse(name, &contender))
		return "A component of the path looks like the znode of a lock.";
	return NULL;
}

/*
 * A component ends at a slash or at the end of the path, and the element of a
 * list at a comma, so the caller passes the length.
 */
static bool
is_component(const char *component, size_t length, const char *name)
{
	return length == strlen(name) && memcmp(component, name, length) == 0;
}

/*
 * ZooKeeper refuses control characters, the surrogates and the private use
 * area up to U+F8FF, and U+FFF0 to U+FFFF.  Java makes two surrogates of a
 * character above U+FFFF, so ZooKeeper refuses that as well.  The text is
 * valid UTF-8.
 */
static bool
has_forbidden_character(const char *text)
{
	for (const uint8_t *s = (const uint8_t *) text; *s; s++)
	{
		uint32_t	two = ((uint32_t) s[0] << 8) | s[1];

		if (s[0] < 0x20 || s[0] == 0x7f)
			return true;
		if (two >= 0xc280 && two <= 0xc29f) /* U+0080 to U+009F */
			return true;
		if (two >= 0xeda0 && two <= 0xefa3) /* U+D800 to U+F8FF */
			return true;
		if (two == 0xefbf && s[2] >= 0xb0)	/* U+FFF0 to U+FFFF */
			return true;
		if (s[0] >= 0xf0)		/* from U+10000 on */
			return true;
	}
	return false;
}

/*
 * Lists of paths
 */

const char *
zkl_path_list_next(const char **at, size_t *length)
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
zkl_path_list_fault(const char *list)
{
	const char *at = list;
	const char *element;
	size_t		length;

	while ((element = zkl_path_list_next(&at, &length)) != NULL)
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

	if (is_component(element, length, ZKL_PATH_LIST_ALL) || (length == 1 && element[0] == '/'))
		return NULL;
	if (length >= sizeof(path))
		return "A path is longer than 255 bytes.";
	/* A lock may have this name, but the user certainly means a pattern. */
	if (length >= 2 && memcmp(element + length - 2, "/*", 2) == 0)
		return "A prefix must end with a slash, not with \"/*\".";
	if (length > 0 && element[length - 1] == '/')
		length--;
	memcpy(path, element, length);
	path[length] = '\0';
	return zkl_path_fault(path);
}

/*
 * Comparing bytes is enough, because a valid path has no component that is
 * empty, "." or "..".
 */
bool
zkl_path_list_allows(const char *list, const char *path)
{
	const char *at = list;
	const char *element;
	size_t		length;

	while ((element = zkl_path_list_next(&at, &length)) != NULL)
	{
		if (is_component(element, length, ZKL_PATH_LIST_ALL))
			return true;
		if (length > 0 && strncmp(element, path, length) == 0 &&
			(path[length] == '\0' || element[length - 1] == '/'))
			return true;
	}
	return false;
}

/*
 * Names of znodes
 */

/* An encoded byte takes at most three characters, so each path fits. */
void
zkl_path_name(const char *path, char name[ZKL_PATH_NAME_SIZE])
{
	char	   *to = name;

	for (const char *at = path + 1; *at != '\0'; at++)
	{
		if (*at == '/' || *at == '%')
			to += zkl_field_text_escape(to, (unsigned char) *at);
		else
			*to++ = *at;
	}
	*to = '\0';
}

/*
 * Accept only what zkl_path_name() writes, so that no path has two
 * names.
 */
bool
zkl_path_of_name(const char *name, char path[ZKL_PATH_SIZE])
{
	size_t		length = 0;

	path[length++] = '/';
	while (*name != '\0')
	{
		int			c = zkl_field_text_escaped(name);
		bool		is_escaped = c == '/' || c == '%';

		/* No znode's name has a slash, but a forged reply may have one. */
		if (!is_escaped && (*name == '/' || *name == '%'))
			return false;
		if (!is_escaped)
			c = *name;
		name += is_escaped ? 3 : 1;
		if (length == ZKL_PATH_SIZE - 1)
			return false;
		path[length++] = (char) c;
	}
	path[length] = '\0';
	return zkl_path_fault(path) == NULL;
}

void
zkl_path_make_id(const uint8_t random[16], char id[ZKL_PATH_ID_SIZE])
{
	for (int i = 0; i < 16; i++)
		sprintf(id + 2 * i, "%02x", (unsigned) random[i]);
}
