/*-------------------------------------------------------------------------
 *
 * snapshot.h
 *	  A survey: what is in a lock's directory in ZooKeeper, as a backend sees it.
 *
 * The worker collects a survey and packs it into one piece of memory without
 * pointers.  The backend unpacks it.  Nothing in here waits or is shared.
 *
 * src/shared/snapshot.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SNAPSHOT_H
#define ZKL_SNAPSHOT_H

#include "lib/stringinfo.h"

#include "protocol/queueorder.h"

/* How many bytes of a znode's data are kept. */
#define ZKL_SNAPSHOT_DATA_SIZE	512

typedef struct ZklSnapshotNode
{
	ZklWhere	where;
	const char *name;			/* within that directory */
	bool		detailed;		/* what follows is known */
	const char *data;			/* NULL where it may not be read */
	int			data_length;	/* a null follows it */
	int64		czxid;
	int32		version;		/* of the data */
	int64		ctime_ms;		/* since 1970, on ZooKeeper's clock */
	int64		owner;			/* session; 0: not ephemeral */
} ZklSnapshotNode;

typedef struct ZklSnapshot
{
	bool		exists;			/* the lock's directory does */
	const char *data;			/* of the directory itself */
	int			data_length;	/* a null follows it */
	ZklSnapshotNode *nodes;		/* all children, directory by directory */
	int			nnodes;
} ZklSnapshot;

/* Append the packed survey. */
extern void zkl_snapshot_pack(const ZklSnapshot *survey, StringInfo packed);

/* The opposite, in the current memory context; its strings are in "packed". */
extern ZklSnapshot *zkl_snapshot_unpack(const char *packed);

/* How many children are there in this directory? */
extern int	zkl_snapshot_count(const ZklSnapshot *survey, ZklWhere where);

/*
 * How many leases the semaphore has, according to the data of its directory; 0
 * if they do not say.
 */
extern int	zkl_snapshot_limit(const ZklSnapshot *survey);

#endif							/* ZKL_SNAPSHOT_H */
