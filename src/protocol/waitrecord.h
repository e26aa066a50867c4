/*-------------------------------------------------------------------------
 *
 * waitrecord.h
 *	  The records of a server's waits that other servers must know about.
 *
 * A record says: a backend of this server waits for the server's ticket of one
 * lock; and meanwhile these claims of the server on other locks, the record's
 * HOLDS, cannot be released.  They are the claims of the backend itself, and
 * those of all local backends that wait for it, directly or through others.
 * A wait that holds up nothing needs no record.
 *
 * Each ZooKeeper session has at most one ephemeral znode with records,
 * <root>/.zklock/waits/<session>, and <session> is 16 hexadecimal digits.
 * Its text is a SET of records, in ASCII as long as the names are:
 *
 *		zklock-waits=1 instance=N truncated=N server=NAME
 *		wait claim=N pid=N leases=N limit=N czxid=N since=N search=N
 *			[confirms=N ...] mode=MODE znode=NAME path=PATH ABOUT
 *		hold claim=N pid=N leases=N stuck=N mode=MODE path=PATH
 *
 * One line each, with one blank between two fields; a record's holds follow
 * its line.  MODE is "lock", "write", "read" or "lease".  Numbers are decimal.
 * In NAME and PATH, each byte that is no printable ASCII character, blanks and
 * the percent sign are %XX.  ABOUT is the text about the backend that waits,
 * as in the znodes of locks.  The whole text has at most
 * ZKL_WAITRECORD_TEXT_SIZE - 1 bytes.
 *
 * Any client may have written the znode, so the text is parsed strictly: a
 * text that zklock cannot have written is no set.  Without its records, a
 * server counts as one that can go on; so deadlocks may stay, but none is
 * invented.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/waitrecord.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITRECORD_H
#define ZKL_WAITRECORD_H

#include "protocol/path.h"
#include "protocol/recipe.h"

/* The directory of the sets, below the root. */
#define ZKL_WAITRECORD_DIRECTORY	"/" ZKL_PATH_RESERVED "/waits"

#define ZKL_WAITRECORD_NAME_SIZE	17
#define ZKL_WAITRECORD_TEXT_SIZE	65536
#define ZKL_WAITRECORD_WAITS		64	/* in a set */
#define ZKL_WAITRECORD_HOLDS		512 /* in a set, of all its records */
#define ZKL_WAITRECORD_CONFIRMS		4	/* in a record */

/* A claim that cannot be released before the record's wait is over. */
typedef struct ZklWaitHold
{
	int64_t		claim;			/* its number on its server; from 1 */
	int			pid;			/* of the backend that has it */
	ZklMode		mode;			/* LOCK, WRITE, READ or LEASE */
	int			leases;			/* 1 if the mode is not LEASE */
	const char *path;

	/*
	 * Tells whether the claim has been stuck behind the record's wait without
	 * a break since an earlier look: any number that changes whenever a local
	 * wait that makes it so has ended.
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
	const char *znode;			/* ... and its name */
	int			pid;			/* of the backend that waits */
	const char *path;			/* what it waits for: this lock, ... */
	ZklMode		mode;			/* ... LOCK, WRITE, READ or LEASE */
	int			leases;			/* wanted; 1 if the mode is not LEASE */
	int			limit;			/* of the semaphore; 1 if it is none */
	int64_t		since;			/* microseconds since 1970 */
	const char *about;			/* the backend, as in znodes of locks */

	/*
	 * The nonce of a search that this record's server has begun, because the
	 * wait is to be the victim; 0: none.  And the nonces of other servers'
	 * searches: the wait and its holds were looked at after those were read.
	 */
	int64_t		search;
	int			nconfirms;
	int64_t		confirms[ZKL_WAITRECORD_CONFIRMS];

	int			nholds;			/* consecutive in the set's holds */
	int			first_hold;
} ZklWaitRecord;

/*
 * A set does not own its strings.  After a parse, they are in the text that
 * was parsed.
 */
typedef struct ZklWaitSet
{
	int64_t		instance;		/* of the server: random, new at each start,
								 * from 1; names need not be unique */
	const char *server;			/* its name */
	bool		truncated;		/* there were more records */
	int			nrecords;
	ZklWaitRecord records[ZKL_WAITRECORD_WAITS];
	int			nholds;
	ZklWaitHold holds[ZKL_WAITRECORD_HOLDS];
} ZklWaitSet;

/* The znode's name, below the directory. */
extern void zkl_wait_record_name(int64_t session,
								 char name[ZKL_WAITRECORD_NAME_SIZE]);

/*
 * Write a set's text, and return its length.  What does not fit is left out,
 * and the text then says "truncated": of the first record that does not fit
 * whole, the last holds; or all of it, if not one hold fits; and all records
 * after it.  The size must be 1024 at least: the first line always fits.
 */
extern size_t zkl_wait_record_format(const ZklWaitSet *set, char *text,
									 size_t size);

/*
 * Read a set.  This changes the text, which must have room for a null behind
 * its end, and must live as long as the set is used.  False: this is no set;
 * the text may have been changed nevertheless.
 */
extern bool zkl_wait_record_parse(char *text, size_t length, ZklWaitSet *set);

/* "lock", "write", "read" or "lease" */
extern const char *zkl_wait_record_mode_name(ZklMode mode);

#endif							/* ZKL_WAITRECORD_H */
