/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Reading the fields of a text that any client may have written.
 *
 * src/protocol/scan.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/scan.h"

#include <stdio.h>
#include <string.h>

bool
zkl_scan_word(const char **at, const char *word)
{
	size_t		length = strlen(word);

	if (strncmp(*at, word, length) != 0)
		return false;
	*at += length;
	return true;
}

bool
zkl_scan_number(const char **at, const char *field, int64_t min, int64_t max,
				int64_t *number)
{
	char		written[32];
	const char *digit;
	uint64_t	limit = INT64_MAX;
	uint64_t	value = 0;
	bool		negative;

	if (!zkl_scan_word(at, field))
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
	return *number >= min && *number <= max && zkl_scan_word(at, written);
}
