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
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "protocol/fieldtext.h"

static int	hex_value(char digit);
static int	character_length(const uint8_t *at);

int
zkl_field_text_escape(char *to, unsigned char c)
{
	return sprintf(to, "%%%02X", c);
}

int
zkl_field_text_escaped(const char *at)
{
	int			high = *at == '%' ? hex_value(at[1]) : -1;
	int			low = high >= 0 ? hex_value(at[2]) : -1;

	return low >= 0 && high + low > 0 ? high * 16 + low : -1;
}

static int
hex_value(char digit)
{
	static const char digits[] = "0123456789ABCDEF";
	const char *at = digit == '\0' ? NULL : strchr(digits, digit);

	return at != NULL ? at - digits : -1;
}

void
zkl_field_text_put(char *str, size_t size, const char *name,
				   const char *value)
{
	size_t		begin = strlen(str);
	size_t		end = begin + (begin > 0) + strlen(name) + 1;
	size_t		length;

	/*
	 * Cut the text only between characters.  Leave room for one byte of the
	 * value and the terminating null.
	 */
	if (end + 1 >= size)
		return;
	snprintf(str + begin, size - begin, "%s%s=", begin > 0 ? " " : "", name);
	for (; *value != '\0'; value += length)
	{
		unsigned char c = (unsigned char) *value;
		bool		is_escaped = c <= ' ' || c == '%' || c == 0x7f;

		/* A byte that begins no valid character is copied by itself. */
		length = (size_t) character_length((const uint8_t *) value);
		if (length == 0)
			length = 1;
		if (end + (is_escaped ? 3 : length) >= size)
			return;
		if (is_escaped)
			end += (size_t) zkl_field_text_escape(str + end, c);
		else
		{
			memcpy(str + end, value, length);
			end += length;
			str[end] = '\0';
		}
	}
}

bool
zkl_field_text_get(const char *str, const char *name, char *value)
{
	size_t		length = strlen(name);
	const char *at = str;

	while (strncmp(at, name, length) != 0 || at[length] != '=')
	{
		at = strchr(at, ' ');
		if (at == NULL)
			return false;
		at++;
	}
	for (at += length + 1; *at != '\0' && *at != ' '; at++)
	{
		int			c = zkl_field_text_escaped(at);

		*value++ = c > 0 ? (char) c : *at;
		at += c > 0 ? 2 : 0;
	}
	*value = '\0';
	return true;
}

bool
zkl_field_text_take_word(const char **at, const char *word)
{
	size_t		length = strlen(word);

	if (strncmp(*at, word, length) != 0)
		return false;
	*at += length;
	return true;
}

bool
zkl_field_text_take_number(const char **at, const char *field, int64_t min, int64_t max,
						   int64_t *number)
{
	char		written[32];
	const char *digit;
	uint64_t	limit = INT64_MAX;
	uint64_t	value = 0;
	bool		negative;

	if (!zkl_field_text_take_word(at, field))
		return false;
	negative = **at == '-';

	/* The least number is one further from 0 than the greatest. */
	if (negative)
		limit++;
	for (digit = *at + negative; *digit >= '0' && *digit <= '9'; digit++)
	{
		if (value > (limit - (*digit - '0')) / 10)
			return false;
		value = value * 10 + (*digit - '0');
	}
	*number = negative ? (int64_t) (0 - value) : (int64_t) value;

	/* This refuses leading zeros, and a sign without a number. */
	snprintf(written, sizeof(written), "%lld ", (long long) *number);
	return *number >= min && *number <= max && zkl_field_text_take_word(at, written);
}

void
zkl_field_text_show(const char *str, char *shown)
{
	const uint8_t *at = (const uint8_t *) str;

	while (*at != '\0')
	{
		int			length = character_length(at);

		if (length == 0)
			shown += sprintf(shown, "\\x%02x", *at++);
		else
		{
			memcpy(shown, at, (size_t) length);
			shown += length;
			at += length;
		}
	}
	*shown = '\0';
}

/*
 * The number of bytes of the character at this position; 0 if it is not a
 * character that can be shown.
 */
static int
character_length(const uint8_t *at)
{
	/* The range of the second byte, which depends on the first one. */
	uint8_t		least = 0x80;
	uint8_t		greatest = 0xbf;
	int			length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;

	if (at[0] < 0x80)
		return at[0] >= ' ' && at[0] != 0x7f ? 1 : 0;
	if (at[0] < 0xc2 || at[0] > 0xf4)
		return 0;
	if (at[0] == 0xc2 || at[0] == 0xe0)
		least = 0xa0;			/* C1 controls, and overlong forms */
	else if (at[0] == 0xf0)
		least = 0x90;
	else if (at[0] == 0xed)
		greatest = 0x9f;		/* surrogates */
	else if (at[0] == 0xf4)
		greatest = 0x8f;		/* the end of Unicode */
	if (at[1] < least || at[1] > greatest)
		return 0;
	for (int i = 2; i < length; i++)
	{
		if (at[i] < 0x80 || at[i] > 0xbf)
			return 0;
	}
	return length;
}
