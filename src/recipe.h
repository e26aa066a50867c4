/*-------------------------------------------------------------------------
 *
 * recipe.h
 *	  Znode names and who goes first, in Apache Curator's layout.
 *
 * A lock is a directory in ZooKeeper; everybody who wants the lock keeps
 * one ephemeral sequential znode in it:
 *
 *		_c_<uuid>-lock-<sequence>		Curator's InterProcessMutex, zklock
 *		<32 hex>__lock__<sequence>		kazoo's Lock and WriteLock
 *		<32 hex>__rlock__<sequence>		kazoo's ReadLock
 *
 * The parent's counter gives all of them their sequence numbers, so their
 * order is total.  The znode with the lowest number owns the lock.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/recipe.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_RECIPE_H
#define ZKL_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZKL_UUID_SIZE	37		/* 36 characters and a null */
#define ZKL_ZNODE_SIZE	64		/* "_c_" uuid "-lock-" ten digits and a null */

/* From here on a sequence number orders nothing safely (see DESIGN). */
#define ZKL_SEQUENCE_LIMIT	2000000000

/* What a lock's directory says about one of its znodes. */
typedef struct ZklVerdict
{
	bool		found;			/* the znode is in the directory */
	bool		owned;			/* nobody goes before it */
	bool		contended;		/* somebody queues behind it */
	const char *predecessor;	/* the child right before it, or NULL */
} ZklVerdict;

/*
 * Write a version 8 UUID (RFC 9562) made of 16 random bytes.  Twelve of its
 * bits say that the znode is zklock's and whether it only tries.
 */
extern void zkl_recipe_make_uuid(const uint8_t random[16], bool only_tries,
								 char uuid[ZKL_UUID_SIZE]);

/* Was this child made by zklock, and if so, does it only try? */
extern bool zkl_recipe_is_zklock(const char *child, bool *only_tries);

/* Write the name to create with: "_c_<uuid>-lock-", without the number. */
extern void zkl_recipe_make_prefix(const char *uuid,
								   char prefix[ZKL_ZNODE_SIZE]);

/* Find the child that was created with this UUID; NULL where there is none. */
extern const char *zkl_recipe_find(const char *uuid,
								   const char *const *children, int nchildren);

/*
 * Is this child's sequence number one that orders a queue?  That is: ten
 * digits, positive, below ZKL_SEQUENCE_LIMIT.
 */
extern bool zkl_recipe_sequence_is_sound(const char *child);

/* Would this name be taken for a contender in a lock's directory? */
extern bool zkl_recipe_is_contender(const char *child);

/*
 * Decide from the directory's children where the znode "me" stands.
 *
 * Every contender with a lower key goes before it, whatever client made it;
 * one with an equal key does too, so that a name forged by hand can only
 * make us wait.  Other children are ignored.  The result points into
 * "children".
 */
extern ZklVerdict zkl_recipe_judge(const char *me,
								   const char *const *children, int nchildren);

#endif							/* ZKL_RECIPE_H */
