/*-------------------------------------------------------------------------
 *
 * waitrecord.c
 *	  The records of a server's waits that other servers must know about.
 *
 * src/deadlock/waitrecord.c
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock/waitrecord.h"

#include <stdio.h>
#include <string.h>

#include "protocol/fieldtext.h"

#define HEAD	"zklock-waits=1 instance=%lld truncated=%d server=%s\n"

#define USE		"use=1 "

/* The longest field, with every byte as %XX. */
#define ENCODED_SIZE	(3 * ZKL_PATH_SIZE)

static size_t format_record(const ZklWaitSet *set, const ZklWaitRecord *record,
							char *str, size_t size, bool *cut);
static size_t format_hold(const ZklWaitHold *hold, char *str, size_t size);
static bool fits(int written, size_t size, size_t *length);
static const char *encode(const char *value, char encoded[ENCODED_SIZE]);
static bool is_plain(unsigned char c);
static bool parse_head(const char **at, ZklWaitSet *set);
static bool parse_record(const char **at, ZklWaitSet *set);
static bool parse_wait(const char **at, ZklWaitRecord *record);
static bool parse_confirms(const char **at, ZklWaitRecord *record);
static bool parse_hold(const char **at, ZklWaitHold *hold);
static bool is_new(const ZklWaitSet *set, const ZklWaitRecord *record);
static bool take_int(const char **at, const char *field, int min, int *number);
static bool take_mode(const char **at, ZklMode *mode);
static bool take_path(const char **at, char end, const char **path);
static bool take_text(const char **at, const char *field, char end, size_t size,
					  const char **value);
static bool take_owner_text(const char **at, const char **owner_text);
static bool decode(const char **from, char *to);

/*
 * Writing
 */

/*
 * Whether all records fit is known only at the end, so the first line is then
 * written again.  Both forms of the first line have the same length.
 */
size_t
zkl_wait_record_format(const ZklWaitSet *set, char *str, size_t size)
{
	char		server[ENCODED_SIZE];
	char		head[ENCODED_SIZE + 128];
	bool		truncated = set->truncated;
	bool		cut = false;
	size_t		head_length;
	size_t		length;

	head_length = (size_t) snprintf(head, sizeof(head), HEAD,
									(long long) set->instance, 0,
									encode(set->server, server));
	length = head_length;
	for (int i = 0; i < set->nrecords && !cut; i++)
	{
		length += format_record(set, &set->records[i],
								str + length, size - length, &cut);
		truncated |= cut;
	}
	snprintf(head, sizeof(head), HEAD, (long long) set->instance, truncated,
			 server);
	memcpy(str, head, head_length);
	str[length] = '\0';

	return length;
}

/*
 * Write a record, and return its length.  If there is not enough room, the
 * record is "cut": its last holds are left out; or the whole record, and then
 * the length is 0.
 */
static size_t
format_record(const ZklWaitSet *set, const ZklWaitRecord *record, char *str,
			  size_t size, bool *cut)
{
	char		encoded[ENCODED_SIZE];
	size_t		length = 0;

	*cut = true;
	if (!fits(snprintf(str, size, "wait claim=%lld pid=%d leases=%d limit=%d"
					   " czxid=%lld since=%lld search=%lld ",
					   (long long) record->claim, record->pid,
					   record->leases, record->limit,
					   (long long) record->czxid, (long long) record->since,
					   (long long) record->search), size, &length))
		return 0;
	for (int i = 0; i < record->nconfirms; i++)
	{
		if (!fits(snprintf(str + length, size - length, "confirms=%lld ",
						   (long long) record->confirms[i]), size, &length))
			return 0;
	}
	if (!fits(snprintf(str + length, size - length, "mode=%s znode=%s",
					   zkl_recipe_mode_name(record->mode),
					   encode(record->znode, encoded)), size, &length) ||
		!fits(snprintf(str + length, size - length, " path=%s %s\n",
					   encode(record->path, encoded), record->owner_text),
			  size, &length))
		return 0;
	for (int i = 0; i < record->nholds; i++)
	{
		size_t		added = format_hold(&set->holds[record->first_hold + i],
										str + length, size - length);

		if (added == 0)
			return i == 0 ? 0 : length;
		length += added;
	}
	*cut = false;
	return length;
}

static size_t
format_hold(const ZklWaitHold *hold, char *str, size_t size)
{
	char		encoded[ENCODED_SIZE];
	size_t		length = 0;

	return fits(snprintf(str, size, "hold claim=%lld pid=%d leases=%d"
						 " stuck=%lld %smode=%s path=%s\n",
						 (long long) hold->claim, hold->pid, hold->leases,
						 (long long) hold->stuck, hold->is_use ? USE : "",
						 zkl_recipe_mode_name(hold->mode),
						 encode(hold->path, encoded)),
				size, &length) ? length : 0;
}

/*
 * Returns the length of what was written, or 0 if it did not fit with its
 * null.
 */
static bool
fits(int written, size_t size, size_t *length)
{
	*length += (size_t) written;
	return *length < size;
}

/* Cut a value that is too long, which zklock itself does not produce. */
static const char *
encode(const char *value, char encoded[ENCODED_SIZE])
{
	char	   *to = encoded;

	for (int i = 0; i < ZKL_PATH_SIZE - 1 && value[i] != '\0'; i++)
	{
		unsigned char c = (unsigned char) value[i];

		if (is_plain(c))
			*to++ = (char) c;
		else
			to += zkl_field_text_escape(to, c);
	}
	*to = '\0';
	return encoded;
}

static bool
is_plain(unsigned char c)
{
	return c > ' ' && c < 0x7f && c != '%';
}

/*
 * Reading
 */

bool
zkl_wait_record_parse(char *str, size_t length, ZklWaitSet *set)
{
	const char *at = str;

	/* A null byte would hide the rest of the text from the parser. */
	if (length >= ZKL_PATH_WAITS_SIZE ||
		memchr(str, '\0', length) != NULL)
		return false;
	str[length] = '\0';

	set->nrecords = 0;
	set->nholds = 0;
	if (!parse_head(&at, set))
		return false;
	while (at < str + length)
	{
		if (!parse_record(&at, set))
			return false;
	}
	return true;
}

static bool
parse_head(const char **at, ZklWaitSet *set)
{
	int64_t		truncated;

	if (!zkl_field_text_take_word(at, "zklock-waits=1 ") ||
		!zkl_field_text_take_number(at, "instance=", 1, INT64_MAX, &set->instance) ||
		!zkl_field_text_take_number(at, "truncated=", 0, 1, &truncated) ||
		!take_text(at, "server=", '\n', ZKL_OWNER_TEXT_SIZE, &set->server))
		return false;
	set->truncated = truncated != 0;
	return true;
}

/* Read a line that begins with "wait", and the lines of its holds. */
static bool
parse_record(const char **at, ZklWaitSet *set)
{
	ZklWaitRecord *record = &set->records[set->nrecords];

	if (set->nrecords == ZKL_WAITRECORD_WAITS || !parse_wait(at, record) ||
		!is_new(set, record))
		return false;
	record->first_hold = set->nholds;
	record->nholds = 0;
	while (zkl_field_text_take_word(at, "hold "))
	{
		if (set->nholds == ZKL_WAITRECORD_HOLDS ||
			!parse_hold(at, &set->holds[set->nholds]))
			return false;
		set->nholds++;
		record->nholds++;
	}
	set->nrecords++;
	return true;
}

static bool
parse_wait(const char **at, ZklWaitRecord *record)
{
	return zkl_field_text_take_word(at, "wait ") &&
		zkl_field_text_take_number(at, "claim=", 1, INT64_MAX, &record->claim) &&
		take_int(at, "pid=", 1, &record->pid) &&
		take_int(at, "leases=", 1, &record->leases) &&
		take_int(at, "limit=", 1, &record->limit) &&
		zkl_field_text_take_number(at, "czxid=", 1, INT64_MAX, &record->czxid) &&
		zkl_field_text_take_number(at, "since=", 0, INT64_MAX, &record->since) &&
		zkl_field_text_take_number(at, "search=", 0, INT64_MAX, &record->search) &&
		parse_confirms(at, record) &&
		take_mode(at, &record->mode) &&
		take_text(at, "znode=", ' ', ZKL_ZNODE_SIZE, &record->znode) &&
		take_path(at, ' ', &record->path) &&
		take_owner_text(at, &record->owner_text) &&
		strchr(record->znode, '/') == NULL &&
		record->leases <= record->limit &&
		(record->mode == ZKL_MODE_LEASE || record->limit == 1);
}

static bool
parse_confirms(const char **at, ZklWaitRecord *record)
{
	record->nconfirms = 0;
	while (strncmp(*at, "confirms=", strlen("confirms=")) == 0)
	{
		if (record->nconfirms == ZKL_WAITRECORD_CONFIRMS ||
			!zkl_field_text_take_number(at, "confirms=", 1, INT64_MAX,
										&record->confirms[record->nconfirms]))
			return false;
		record->nconfirms++;
	}
	return true;
}

static bool
parse_hold(const char **at, ZklWaitHold *hold)
{
	if (!zkl_field_text_take_number(at, "claim=", 1, INT64_MAX, &hold->claim) ||
		!take_int(at, "pid=", 1, &hold->pid) ||
		!take_int(at, "leases=", 1, &hold->leases) ||
		!zkl_field_text_take_number(at, "stuck=", INT64_MIN, INT64_MAX, &hold->stuck))
		return false;
	hold->is_use = zkl_field_text_take_word(at, USE);
	return take_mode(at, &hold->mode) &&
		take_path(at, '\n', &hold->path) &&
		(hold->mode == ZKL_MODE_LEASE || hold->leases == 1);
}

/*
 * A claim waits only once.  Two records of one wait would leave the order of
 * waits undecided.
 */
static bool
is_new(const ZklWaitSet *set, const ZklWaitRecord *record)
{
	for (int i = 0; i < set->nrecords; i++)
	{
		if (set->records[i].claim == record->claim)
			return false;
	}
	return true;
}

static bool
take_int(const char **at, const char *field, int min, int *number)
{
	int64_t		wide;

	if (!zkl_field_text_take_number(at, field, min, INT32_MAX, &wide))
		return false;
	*number = (int) wide;
	return true;
}

static bool
take_mode(const char **at, ZklMode *mode)
{
	if (!zkl_field_text_take_word(at, "mode="))
		return false;
	for (*mode = ZKL_MODE_LOCK; *mode <= ZKL_MODE_LEASE; (*mode)++)
	{
		if (zkl_field_text_take_word(at, zkl_recipe_mode_name(*mode)))
			return zkl_field_text_take_word(at, " ");
	}
	return false;
}

/*
 * The worker looks the path up in ZooKeeper, so it must be a valid one.  The
 * path of a semaphore's inner mutex may have one component more than a user
 * may give.
 */
static bool
take_path(const char **at, char end, const char **path)
{
	static const char inner[] = "/" ZKL_LOCKS;
	char		lock[ZKL_PATH_SIZE];
	size_t		length;

	if (!take_text(at, "path=", end, ZKL_PATH_SIZE, path))
		return false;
	length = strlen(*path);
	memcpy(lock, *path, length + 1);
	if (length >= sizeof(inner) &&
		strcmp(lock + length - strlen(inner), inner) == 0)
		lock[length - strlen(inner)] = '\0';
	return zkl_path_fault(lock) == NULL;
}

/*
 * Read a field and the character behind it.  The value is decoded in place:
 * it is never longer than its encoded form.  Its null overwrites at most the
 * character behind the field.
 */
static bool
take_text(const char **at, const char *field, char end, size_t size,
		  const char **value)
{
	char	   *start;
	char	   *to;

	if (!zkl_field_text_take_word(at, field))
		return false;
	start = to = (char *) *at;	/* the text is the caller's to change */
	while (**at != end)
	{
		if (!decode(at, to++))
			return false;
	}
	(*at)++;
	*to = '\0';
	*value = start;
	return to > start && (size_t) (to - start) < size;
}

/* Accept only what encode() writes, so that no value has two forms. */
static bool
decode(const char **from, char *to)
{
	const char *at = *from;
	int			c = zkl_field_text_escaped(at);

	if (is_plain((unsigned char) *at))
	{
		*to = *at;
		(*from)++;
		return true;
	}
	if (c < 0 || is_plain((unsigned char) c))
		return false;
	*to = (char) c;
	*from += 3;
	return true;
}

/* The rest of the line.  Its fields are encoded already, as in other znodes. */
static bool
take_owner_text(const char **at, const char **owner_text)
{
	size_t		length = strcspn(*at, "\n");

	if ((*at)[length] != '\n' || length >= ZKL_OWNER_TEXT_SIZE)
		return false;
	for (size_t i = 0; i < length; i++)
	{
		unsigned char c = (unsigned char) (*at)[i];

		if (c < ' ' || c == 0x7f)
			return false;
	}
	((char *) *at)[length] = '\0';
	*owner_text = *at;
	*at += length + 1;
	return true;
}
