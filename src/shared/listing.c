/*-------------------------------------------------------------------------
 *
 * listing.c
 *	  A survey: the contents of a lock's directory in ZooKeeper, for a
 *	  backend.
 *
 * A packed survey is a ZklListing and the directory's data, then for each
 * znode a ZklListingNode, its name and its data.  Texts end with a null.
 * Nothing is aligned.  The pointers in these structs are the worker's, and
 * mean nothing to the backend, except that data are NULL.
 *
 * src/shared/listing.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/listing.h"

static void pack_text(StringInfo packed, const char *text, int length);
static const char *unpack_text(const char **at, int length);

/*
 * The worker and the backend run the same binary on one machine, so copy
 * structs as they are.
 */
void
zkl_listing_pack(const ZklListing *survey, StringInfo packed)
{
	appendBinaryStringInfo(packed, (const char *) survey, sizeof(*survey));
	pack_text(packed, survey->data, survey->data_length);

	for (int i = 0; i < survey->nnodes; i++)
	{
		const ZklListingNode *node = &survey->nodes[i];

		appendBinaryStringInfo(packed, (const char *) node, sizeof(*node));
		pack_text(packed, node->name, strlen(node->name));
		if (node->data)
			pack_text(packed, node->data, node->data_length);
	}
}

/*
 * A struct may begin at any address in "packed", so copy each one out.  Names
 * and data stay where they are.
 */
ZklListing *
zkl_listing_unpack(const char *packed)
{
	ZklListing *survey = palloc(sizeof(ZklListing));
	const char *at = packed;

	memcpy(survey, at, sizeof(*survey));
	at += sizeof(*survey);
	survey->data = unpack_text(&at, survey->data_length);
	survey->nodes = palloc(Max(1, survey->nnodes) * sizeof(ZklListingNode));

	for (int i = 0; i < survey->nnodes; i++)
	{
		ZklListingNode *node = &survey->nodes[i];

		memcpy(node, at, sizeof(*node));
		at += sizeof(*node);
		node->name = unpack_text(&at, strlen(at));

		/* Data that may not be read take no room. */
		if (node->data)
			node->data = unpack_text(&at, node->data_length);
	}
	return survey;
}

/* The null lets a backend use the text as a string without copying it. */
static void
pack_text(StringInfo packed, const char *text, int length)
{
	if (length > 0)
		appendBinaryStringInfo(packed, text, length);
	appendStringInfoChar(packed, '\0');
}

static const char *
unpack_text(const char **at, int length)
{
	const char *text = *at;

	*at += length + 1;
	return text;
}

/*
 * Other clients may have written anything into the directory.  A text that is
 * not a number, or too large a number, is not a limit.
 */
int
zkl_listing_limit(const ZklListing *survey)
{
	int64		limit;

	/* Ten digits are the most that an integer has. */
	if (survey->data_length < 1 || survey->data_length > 10 ||
		strspn(survey->data, "0123456789") != survey->data_length)
		return 0;
	limit = strtoll(survey->data, NULL, 10);
	return limit <= PG_INT32_MAX ? (int) limit : 0;
}
