/*-------------------------------------------------------------------------
 *
 * recipe.h
 *	  Znode names and their order in the queue, in Apache Curator's layout.
 *
 * A lock is a directory in ZooKeeper.  Each client that wants the lock keeps
 * an ephemeral sequential znode in it:
 *
 *		_c_<uuid>-lock-<sequence>		a mutex: Curator, zklock
 *		_c_<uuid>-__WRIT__<sequence>	a read-write lock, writing
 *		_c_<uuid>-__READ__<sequence>	the same, reading
 *		<32 hex>__lock__<sequence>		kazoo's Lock and WriteLock
 *		<32 hex>__rlock__<sequence>		kazoo's ReadLock
 *
 * The directory's counter gives all of them their sequence numbers, so their
 * order is total.  The znode with the lowest number owns the lock.  A reader's
 * znode also owns it if only readers' znodes go before it.
 *
 * A semaphore is a directory with two others in it:
 *
 *		locks/_c_<uuid>-lock-<sequence>		a mutex, held while acquiring
 *		leases/_c_<uuid>-lease-<sequence>	one a lease
 *
 * A client owns a lease when the directory "leases" has no more children than
 * the semaphore has leases.  That is Curator's rule.  zklock does not count
 * leases of zklock with higher numbers: otherwise two servers that come
 * together could both give up.  This is safe, because of all leases that are
 * owned, the one with the highest number has seen all the others.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/recipe.h
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

/* The directories in that of a semaphore. */
#define ZKL_LEASES		"leases"
#define ZKL_LOCKS		"locks"

/* Curator requests the release of a lock by replacing its znode's text by this. */
#define ZKL_REVOKE		"__REVOKE__"

/*
 * The text of zklock's own znodes: fields that describe a backend, and then
 * marks.  The marks say that the ticket serves no superuser, that the lock is
 * in use, and that its release has been requested.
 */
#define ZKL_ABOUT_SIZE	256
#define ZKL_PLAIN		" superuser=f"
#define ZKL_IN_USE		" in_use=t"
#define ZKL_REQUESTED	" revoke=t"
#define ZKL_TEXT_SIZE	(ZKL_ABOUT_SIZE + sizeof(ZKL_PLAIN ZKL_IN_USE ZKL_REQUESTED))

/* From here on, sequence numbers are refused: ZooKeeper's counter is a signed 32-bit
 * number, and numbers after its overflow are in no safe order. */
#define ZKL_SEQUENCE_LIMIT	2000000000

/* What a lock is. */
typedef enum ZklKind
{
	ZKL_KIND_MUTEX,
	ZKL_KIND_READ_WRITE,
	ZKL_KIND_SEMAPHORE
} ZklKind;

/*
 * How a claim wants its lock, and what the name of a znode in the lock's
 * directory says.
 */
typedef enum ZklMode
{
	ZKL_MODE_LOCK,				/* of a mutex */
	ZKL_MODE_WRITE,				/* of a read-write lock */
	ZKL_MODE_READ,
	ZKL_MODE_LEASE,				/* of a semaphore */
	ZKL_MODE_KAZOO_LOCK,		/* kazoo's; of a mutex or a read-write lock */
	ZKL_MODE_KAZOO_READ
} ZklMode;

typedef enum ZklClient
{
	ZKL_CLIENT_ZKLOCK,
	ZKL_CLIENT_CURATOR,
	ZKL_CLIENT_KAZOO,
	ZKL_CLIENT_UNKNOWN
} ZklClient;

/* What a contender's name says. */
typedef struct ZklContender
{
	ZklMode		mode;
	ZklClient	client;
	const char *key;			/* its place in the order; part of the name */
} ZklContender;

/* A child of a semaphore's directory "leases". */
typedef struct ZklLease
{
	const char *name;
	int			rank;			/* its place in the order, see recipelease.c */
} ZklLease;

/* What a list of a lock's directory says about one of its znodes. */
typedef struct ZklVerdict
{
	bool		found;			/* the znode is in the directory */
	bool		owned;			/* no other znode has to go before it */
	bool		next;			/* only the predecessor has to, and when that
								 * is gone no other znode takes its place */
	bool		contended;		/* another client waits for it to go */
	bool		asked;			/* ... or waits for its text to say that the
								 * lock is in use */
	bool		other_kind;		/* a znode before it is one of another kind of
								 * lock */
	bool		maybe_semaphore;	/* there is a directory "leases" */
	const char *predecessor;	/* the last one that goes before it, or NULL */
	const char *front;			/* if it is not owned: the first contender,
								 * which owns the lock; else NULL */
	const char *ask;			/* the first znode before it, if "me" asks
								 * that one; else NULL */
	bool		ask_other_kind; /* ... and that one is of another kind of lock */
} ZklVerdict;

/* What kind of lock has this mode? */
extern ZklKind zkl_recipe_kind(ZklMode mode);

/* Does a ticket of this mode serve a claim of that mode? */
extern bool zkl_recipe_serves(ZklMode ticket, ZklMode claim);

/*
 * Write a version 8 UUID (RFC 9562) made of 16 random bytes.  Twelve of its
 * bits say that the znode is zklock's, and whether it only tries.
 */
extern void zkl_recipe_make_uuid(const uint8_t random[16], bool only_tries,
								 char uuid[ZKL_UUID_SIZE]);

/* Was this child made by zklock, and if so, does it only try? */
extern bool zkl_recipe_is_zklock(const char *child, bool *only_tries);

/* Write the name to create with: "_c_<uuid>-lock-", without the number. */
extern void zkl_recipe_make_prefix(ZklMode mode, const char *uuid,
								   char prefix[ZKL_ZNODE_SIZE]);

/*
 * Write the name of the reader's znode that takes the place of this writer's
 * in a downgrade: the same name with the other mark.
 */
extern void zkl_recipe_make_downgrade(const char *writer,
									  char reader[ZKL_ZNODE_SIZE]);

/* Find the child that was created with this UUID; NULL where there is none. */
extern const char *zkl_recipe_find(ZklMode mode, const char *uuid,
								   const char *const *children, int nchildren);

/* Read a name.  False if it is not a contender's. */
extern bool zkl_recipe_parse(const char *child, ZklContender *contender);

/*
 * The sequence number of a znode of Curator's LeaderLatch, which is no
 * contender: it looks only at znodes of its own kind.  NULL: it is no such
 * znode.
 */
extern const char *zkl_recipe_latch_key(const char *child);

/*
 * Does this child's sequence number give it a safe place in a queue?  That is:
 * ten digits, positive, below ZKL_SEQUENCE_LIMIT.
 */
extern bool zkl_recipe_sequence_is_sound(const char *child);

/* The number of a key; -1: it has no safe place in the order. */
extern int	zkl_recipe_number(const char *key);

/* Is its number that of the first znode that was ever made in a directory? */
extern bool zkl_recipe_is_first_ever(const char *child);

/*
 * Decide from the directory's children the place of the znode "me", which has
 * this mode.
 *
 * Every contender with a lower key goes before it, whatever client made it.
 * The exception: readers do not go before a reader.  A contender with an equal
 * key goes before it too, so that a name forged by hand can only make this
 * server wait.  Other children are ignored.  The result points into
 * "children".
 *
 * A znode that goes before "me" does not always mean that the lock is in use:
 * it may be a lingering ticket, or one that only tries.  A ticket that only
 * tries, or that finds the path in use as another kind of lock, may therefore
 * have to ask.  "ask" names the znode to ask: the first one, if all that go
 * before "me" are zklock's and each owns the lock or only tries.  In that
 * znode's verdict, "asked" is set.  If any other znode goes before "me", that
 * one waits for the lock, or its client is not zklock and does not answer;
 * then "ask" is NULL.
 */
extern ZklVerdict zkl_recipe_judge(ZklMode mode, const char *me,
								   const char *const *children, int nchildren);

/*
 * The same for a lease.  A server may have a thousand leases, and one list
 * judges all of them.  So the list is put in order once ("leases" has room for
 * nchildren), and each lease then takes a binary search.
 *
 * Every child goes before the lease "me", except zklock's own leases with
 * higher numbers.  "limit" is the number of leases that the semaphore has.
 */
extern void zkl_recipe_order_leases(const char *const *children, int nchildren,
									ZklLease *leases);
extern ZklVerdict zkl_recipe_judge_lease(int limit, const char *me,
										 const ZklLease *leases, int nleases);

/* Is this znode among them? */
extern bool zkl_recipe_has_lease(const char *me, const ZklLease *leases,
								 int nleases);

/*
 * Does a znode's text have this mark?  Does it describe the backend like this?
 */
extern bool zkl_recipe_has_mark(const char *text, int length, const char *mark);
extern bool zkl_recipe_is_about(const char *text, int length, const char *about);

/* Do a znode's data request the release of its lock? */
extern bool zkl_recipe_is_revoked(const char *text, int length);

/* Is there a lease among these children? */
extern bool zkl_recipe_any_lease(const char *const *children, int nchildren);

#endif							/* ZKL_RECIPE_H */
