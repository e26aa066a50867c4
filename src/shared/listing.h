/*-------------------------------------------------------------------------
 *
 * listing.h
 *	  A survey: the contents of a lock's directory in ZooKeeper, for a
 *	  backend.
 *
 * The worker collects a survey and packs it into one piece of memory without
 * pointers.  The backend unpacks it.  No function waits, and nothing is
 * shared.
 *
 * An error is raised only for lack of memory.
 *
 * src/shared/listing.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LISTING_H
#define ZKL_LISTING_H

#include "lib/stringinfo.h"

#include "protocol/queueorder.h"

/* How many bytes of a znode's data are kept. */
#define ZKL_LISTING_DATA_SIZE	512

typedef struct ZklListingNode
{
	ZklWhere	where;
	const char *name;			/* within that directory; in a walk: the path
								 * below the root */
	bool		is_directory;	/* in a walk: a directory, which was listed or
								 * would have been */
	bool		detailed;		/* the fields below are known */
	const char *data;			/* NULL if it may not be read */
	int			data_length;	/* a null follows it */
	int64		czxid;
	int32		version;		/* of the data */
	int64		ctime_ms;		/* since 1970, on ZooKeeper's clock */
	int64		owner;			/* session that owns it; 0: not ephemeral */
} ZklListingNode;

typedef struct ZklListing
{
	bool		exists;			/* the lock's directory exists */
	const char *data;			/* of the directory itself */
	int			data_length;	/* a null follows it */
	ZklListingNode *nodes;		/* all children, directory by directory */
	int			nnodes;
} ZklListing;

/* Append the packed survey. */
extern void zkl_listing_pack(const ZklListing *survey, StringInfo packed);

/*
 * Unpack a survey, in the current memory context; its strings point into
 * "packed".
 */
extern ZklListing *zkl_listing_unpack(const char *packed);

/*
 * The number of leases of the semaphore, according to the data of its
 * directory; 0 if they do not have it.
 */
extern int	zkl_listing_limit(const ZklListing *survey);

#endif							/* ZKL_LISTING_H */
