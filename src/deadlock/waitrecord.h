/*-------------------------------------------------------------------------
 *
 * waitrecord.h
 *	  The records of a server's waits that other servers must know about.
 *
 * A record says: a backend of this server waits for the server's ticket of
 * one lock; and before the wait ends, certain claims of the server on other
 * locks, the record's HOLDS, cannot be released.  The holds are the claims of
 * the backend itself, and of all local backends that wait for it, directly or
 * through others.  A wait without holds needs no record.
 *
 * Each ZooKeeper session has at most one ephemeral znode with records,
 * <root>/.zklock/waits/<session>, and <session> is 16 hexadecimal digits.
 * Its text is a SET of records, in ASCII as long as the names are:
 *
 *		zklock-waits=1 instance=N truncated=N server=NAME
 *		wait claim=N pid=N leases=N limit=N czxid=N since=N search=N
 *			[confirms=N ...] mode=MODE znode=NAME path=PATH ABOUT
 *		hold claim=N pid=N leases=N stuck=N [use=1] mode=MODE path=PATH
 *
 * One line each, with one blank between two fields; a record's holds follow
 * its line.  MODE is "lock", "write", "read" or "lease".  Numbers are decimal.
 * In NAME and PATH, each byte that is no printable ASCII character, blanks and
 * the percent sign are %XX.  ABOUT is the text about the backend that waits,
 * as in the znodes of locks.  The whole text has at most
 * ZKL_PATH_WAITS_SIZE - 1 bytes.
 *
 * Any client may have written the znode, so the text is parsed strictly: a
 * text that zklock cannot have written is no set.  A server without valid
 * records counts as one that can go on.  So a deadlock may be missed, but
 * none is reported wrongly.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/deadlock/waitrecord.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITRECORD_H
#define ZKL_WAITRECORD_H

#include "protocol/path.h"
#include "protocol/recipe.h"

#define ZKL_WAITRECORD_WAITS		64	/* in a set */
#define ZKL_WAITRECORD_HOLDS		512 /* in a set, of all its records */
#define ZKL_WAITRECORD_CONFIRMS		4	/* in a record */

/* A claim that cannot be released before the record's wait has ended. */
typedef struct ZklWaitHold
{
	/*
	 * The claim's number on its server; from 1.  Holds of one detached claim
	 * by several backends have one number, and the pid tells them apart.
	 */
	int64_t		claim;
	int			pid;			/* of the backend that has it */
	bool		is_use;			/* the backend uses a detached claim: if the
								 * backend is cancelled, the lock stays */
	ZklMode		mode;			/* LOCK, WRITE, READ or LEASE */
	int			leases;			/* 1 if the mode is not LEASE */
	const char *path;

	/*
	 * Shows whether the claim has been stuck behind the record's wait ever
	 * since an earlier look.  Any number will do that changes with the end of
	 * each local wait that makes the claim stuck.
	 */
	int64_t		stuck;
} ZklWaitHold;

typedef struct ZklWaitRecord
{
	/*
	 * The claim waits for one thing in its life, so its number and the czxid
	 * identify the very wait.
	 */
	int64_t		claim;			/* its number on its server; from 1 */
	int64_t		czxid;			/* of the queued znode */
	const char *znode;			/* the name of the queued znode */
	int			pid;			/* of the backend that waits */
	const char *path;			/* the lock for which it waits */
	ZklMode		mode;			/* LOCK, WRITE, READ or LEASE */
	int			leases;			/* how many it wants; 1 if the mode is not
								 * LEASE */
	int			limit;			/* of the semaphore; 1 if it is not one */
	int64_t		since;			/* microseconds since 1970 */
	const char *owner_text;		/* the backend, as in the znodes of locks */

	/*
	 * "search" is the nonce of the search that this record's server has begun
	 * because the wait would be the victim; 0 if none.  "confirms" has the
	 * nonces of other servers' searches.  The server read these before it
	 * last looked at the wait and its holds.
	 */
	int64_t		search;
	int			nconfirms;
	int64_t		confirms[ZKL_WAITRECORD_CONFIRMS];

	int			nholds;			/* consecutive in the set's holds */
	int			first_hold;
} ZklWaitRecord;

/*
 * A set does not own its strings.  After parsing, they point into the text
 * that was parsed.
 */
typedef struct ZklWaitSet
{
	int64_t		instance;		/* identifies the server, whose name need not
								 * be unique: a random number from 1 on, new
								 * at each start */
	const char *server;			/* its name */
	bool		truncated;		/* some records did not fit */
	int			nrecords;
	ZklWaitRecord records[ZKL_WAITRECORD_WAITS];
	int			nholds;
	ZklWaitHold holds[ZKL_WAITRECORD_HOLDS];
} ZklWaitSet;

/*
 * Write a set's text, and return its length.  If not everything fits, the
 * text says "truncated".  The first record that does not fit loses its last
 * holds, or is left out if not even one hold fits.  All records after it are
 * left out.  The size must be 1024 at least: the first line always fits.
 */
extern size_t zkl_wait_record_format(const ZklWaitSet *set, char *str,
									 size_t size);

/*
 * Parse a set.  This changes the text, which must have room for a null
 * behind its end and must live as long as the set is used.  Returns false if
 * it is not a set; the text may have been changed nevertheless.
 */
extern bool zkl_wait_record_parse(char *str, size_t length, ZklWaitSet *set);

#endif							/* ZKL_WAITRECORD_H */
