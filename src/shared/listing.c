/*-------------------------------------------------------------------------
 *
 * listing.c
 *	  A survey: the contents of a lock's directory in ZooKeeper, for a
 *	  backend.
 *
 * A packed survey is a Head and the directory's data, then for each znode a
 * Piece, its name and its data.  Texts end with a null.  Nothing is aligned.
 *
 * src/shared/listing.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/listing.h"

typedef struct Head
{
	bool		exists;
	int			data_length;
	int			nnodes;
} Head;

typedef struct Piece
{
	ZklWhere	where;
	bool		is_directory;
	bool		detailed;
	int			name_length;
	int			data_length;	/* -1 if the data are NULL */
	int64		czxid;
	int32		version;
	int64		ctime_ms;
	int64		owner;
} Piece;

static void pack_text(StringInfo packed, const char *text, int length);
static const char *unpack_text(const char **at, int length);

/*
 * The worker and the backend run the same binary on one machine, so copy
 * structs as they are.
 */
void
zkl_listing_pack(const ZklListing *survey, StringInfo packed)
{
	Head		head = {survey->exists, survey->data_length, survey->nnodes};

	appendBinaryStringInfo(packed, (const char *) &head, sizeof(head));
	pack_text(packed, survey->data, survey->data_length);

	for (int i = 0; i < survey->nnodes; i++)
	{
		const ZklListingNode *node = &survey->nodes[i];
		Piece		piece = {0};

		piece.where = node->where;
		piece.is_directory = node->is_directory;
		piece.detailed = node->detailed;
		piece.name_length = strlen(node->name);
		piece.data_length = node->data ? node->data_length : -1;
		piece.czxid = node->czxid;
		piece.version = node->version;
		piece.ctime_ms = node->ctime_ms;
		piece.owner = node->owner;
		appendBinaryStringInfo(packed, (const char *) &piece, sizeof(piece));
		pack_text(packed, node->name, piece.name_length);
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
	ZklListing *survey = palloc0(sizeof(ZklListing));
	const char *at = packed;
	Head		head;

	memcpy(&head, at, sizeof(head));
	at += sizeof(head);
	survey->exists = head.exists;
	survey->data = unpack_text(&at, head.data_length);
	survey->data_length = head.data_length;
	survey->nnodes = head.nnodes;
	survey->nodes = palloc0(Max(1, head.nnodes) * sizeof(ZklListingNode));

	for (int i = 0; i < survey->nnodes; i++)
	{
		ZklListingNode *node = &survey->nodes[i];
		Piece		piece;

		memcpy(&piece, at, sizeof(piece));
		at += sizeof(piece);
		node->where = piece.where;
		node->is_directory = piece.is_directory;
		node->detailed = piece.detailed;
		node->name = unpack_text(&at, piece.name_length);

		/* Data that may not be read take no room. */
		if (piece.data_length >= 0)
		{
			node->data = unpack_text(&at, piece.data_length);
			node->data_length = piece.data_length;
		}
		node->czxid = piece.czxid;
		node->version = piece.version;
		node->ctime_ms = piece.ctime_ms;
		node->owner = piece.owner;
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

int
zkl_listing_count(const ZklListing *survey, ZklWhere where)
{
	int			count = 0;

	for (int i = 0; i < survey->nnodes; i++)
		count += survey->nodes[i].where == where;
	return count;
}

/*
 * Other clients may have written anything into the directory.  A text that is
 * not a number, or too large a number, is not a limit.
 */
int
zkl_listing_limit(const ZklListing *survey)
{
	int64		limit = 0;

	/* Ten digits are the most that an integer has. */
	if (survey->data_length < 1 || survey->data_length > 10)
		return 0;
	for (int i = 0; i < survey->data_length; i++)
	{
		if (survey->data[i] < '0' || survey->data[i] > '9')
			return 0;
		limit = limit * 10 + (survey->data[i] - '0');
	}
	return limit <= PG_INT32_MAX ? (int) limit : 0;
}
