/*-------------------------------------------------------------------------
 *
 * serverrecord.h
 *	  The record of a server: an ephemeral znode that says that it takes part.
 *
 * It is <root>/.zklock/servers/<name>/<session>.  <name> is the server's name,
 * and <session> is the server's first ZooKeeper session, as 16 hexadecimal
 * digits.  Servers that have the same name are in one directory.  So a watch
 * on the directory tells a server of another one with its name, and of nothing
 * else.  The text has the fields "server", "host", "zklock" and "postgresql"
 * (fieldtext.h); since version 1.2 also "system", the database system
 * identifier, and "standby", which is yes or no.
 *
 * The directory "servers" is a persistent znode.  The first server creates
 * it, once.  So the moment of its creation, its birth, identifies the data of
 * the ensemble.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/serverrecord.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SERVERRECORD_H
#define ZKL_SERVERRECORD_H

#include <stdint.h>

#include "protocol/path.h"

/* The directory of the records, below the root. */
#define ZKL_SERVERRECORD_DIRECTORY	"/" ZKL_PATH_RESERVED "/servers"

/*
 * The directory of the primaries, below the root:
 * <root>/.zklock/primaries/<identifier>/<session>, without data.  <identifier>
 * is the database system identifier, in decimal.
 */
#define ZKL_SERVERRECORD_PRIMARIES	"/" ZKL_PATH_RESERVED "/primaries"

#define ZKL_SERVERRECORD_NAME_SIZE	256 /* three bytes for each byte of a name */
#define ZKL_SERVERRECORD_TEXT_SIZE	512
#define ZKL_SERVERRECORD_BIRTH_SIZE 34	/* two numbers of 16 digits, and the
										 * null */

/*
 * Write the name of the directory for a server's name.  "name" has fewer
 * than 85 bytes.
 */
extern void zkl_server_record_name(const char *name,
								   char znode[ZKL_SERVERRECORD_NAME_SIZE]);

/*
 * Write what identifies the data of the ensemble: the birth of the
 * directory.
 */
extern void zkl_server_record_birth(int64_t czxid, int64_t ctime_ms,
									char birth[ZKL_SERVERRECORD_BIRTH_SIZE]);

#endif							/* ZKL_SERVERRECORD_H */
