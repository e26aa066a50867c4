/*-------------------------------------------------------------------------
 *
 * recipe.h
 *	  Znode names and who goes first, in Apache Curator's layout.
 *
 * A lock is a directory in ZooKeeper; everybody who wants the lock keeps
 * an ephemeral sequential znode in it:
 *
 *		_c_<uuid>-lock-<sequence>		a mutex: Curator, zklock
 *		_c_<uuid>-__WRIT__<sequence>	a read-write lock, writing
 *		_c_<uuid>-__READ__<sequence>	the same, reading
 *		<32 hex>__lock__<sequence>		kazoo's Lock and WriteLock
 *		<32 hex>__rlock__<sequence>		kazoo's ReadLock
 *
 * The parent's counter gives all of them their sequence numbers, so their
 * order is total.  The znode with the lowest number owns the lock; a reader
 * owns it with all readers before whom nobody writes.
 *
 * A semaphore is a directory with two others in it:
 *
 *		locks/_c_<uuid>-lock-<sequence>		a mutex, held while acquiring
 *		leases/_c_<uuid>-lease-<sequence>	one a lease
 *
 * A lease is had when the directory "leases" has no more children than the
 * semaphore has leases, which is Curator's rule.  Leases of zklock with higher
 * numbers do not count, so that of two servers that come together not both have
 * to go: whoever has the highest number, of all that have a lease, has seen all
 * the others.
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

/* The directories in that of a semaphore. */
#define ZKL_LEASES		"leases"
#define ZKL_LOCKS		"locks"

/* What Curator writes into a znode to ask for its lock: this, and nothing else. */
#define ZKL_REVOKE		"__REVOKE__"

/*
 * The text of zklock's own znodes: fields that describe a backend, and then these
 * marks: that the ticket serves no superuser, that the lock is in use, and that its
 * release has been requested.
 */
#define ZKL_ABOUT_SIZE	256
#define ZKL_PLAIN		" superuser=f"
#define ZKL_IN_USE		" in_use=t"
#define ZKL_REQUESTED	" revoke=t"
#define ZKL_TEXT_SIZE	(ZKL_ABOUT_SIZE + sizeof(ZKL_PLAIN ZKL_IN_USE ZKL_REQUESTED))

/* From here on a sequence number orders nothing safely (see DESIGN). */
#define ZKL_SEQUENCE_LIMIT	2000000000

/* What a lock is. */
typedef enum ZklKind
{
	ZKL_KIND_MUTEX,
	ZKL_KIND_READ_WRITE,
	ZKL_KIND_SEMAPHORE
} ZklKind;

/* What a claim wants of its lock, and what a znode in its directory says. */
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

/* What the name of a contender says. */
typedef struct ZklContender
{
	ZklMode		mode;
	ZklClient	client;
	const char *key;			/* that orders it; part of the name */
} ZklContender;

/* A child of a semaphore's directory "leases". */
typedef struct ZklLease
{
	const char *name;
	int			rank;			/* where it stands in the order, see recipe.c */
} ZklLease;

/* What a lock's directory says about one of its znodes. */
typedef struct ZklVerdict
{
	bool		found;			/* the znode is in the directory */
	bool		owned;			/* nobody has to go before it */
	bool		next;			/* nobody but the predecessor has to, and when
								 * that is gone nobody takes its place */
	bool		contended;		/* somebody waits for it to go */
	bool		asked;			/* ... or to be told that it is in use */
	bool		other_kind;		/* somebody before it takes this for a lock of
								 * another kind */
	bool		maybe_semaphore;	/* there is a directory "leases" */
	const char *predecessor;	/* the last one that goes before it, or NULL */
	const char *ask;			/* the first one before it, if it is to be
								 * asked; else NULL */
	bool		ask_other_kind; /* ... which takes this for another kind */
} ZklVerdict;

/* What kind of lock has this mode? */
extern ZklKind zkl_recipe_kind(ZklMode mode);

/* Does a ticket of this mode give what a claim of that mode wants? */
extern bool zkl_recipe_serves(ZklMode ticket, ZklMode claim);

/*
 * Write a version 8 UUID (RFC 9562) made of 16 random bytes.  Twelve of its
 * bits say that the znode is zklock's and whether it only tries.
 */
extern void zkl_recipe_make_uuid(const uint8_t random[16], bool only_tries,
								 char uuid[ZKL_UUID_SIZE]);

/* Was this child made by zklock, and if so, does it only try? */
extern bool zkl_recipe_is_zklock(const char *child, bool *only_tries);

/* Write the name to create with: "_c_<uuid>-lock-", without the number. */
extern void zkl_recipe_make_prefix(ZklMode mode, const char *uuid,
								   char prefix[ZKL_ZNODE_SIZE]);

/*
 * Write the name of the reader's znode that takes over the place of this
 * writer's: the same with the other mark.
 */
extern void zkl_recipe_make_downgrade(const char *writer,
									  char reader[ZKL_ZNODE_SIZE]);

/* Find the child that was created with this UUID; NULL where there is none. */
extern const char *zkl_recipe_find(ZklMode mode, const char *uuid,
								   const char *const *children, int nchildren);

/* Read a name; false if it is not that of a contender. */
extern bool zkl_recipe_parse(const char *child, ZklContender *contender);

/*
 * Is this child's sequence number one that orders a queue?  That is: ten
 * digits, positive, below ZKL_SEQUENCE_LIMIT.
 */
extern bool zkl_recipe_sequence_is_sound(const char *child);

/* Is it the number of the first znode that was ever in a directory? */
extern bool zkl_recipe_is_first_ever(const char *child);

/*
 * Decide from the directory's children where the znode "me" stands, which
 * has this mode.
 *
 * Every contender with a lower key goes before it, whatever client made it,
 * but for readers before a reader; one with an equal key does too, so that a
 * name forged by hand can only make us wait.  Other children are ignored.  The
 * result points into "children".
 *
 * That a znode goes before "me" need not mean that its lock is in use: it may be
 * the ticket of a server that lingers, or that only tries.  Who only tries
 * itself, or finds the path in use as another kind of lock, may have to ask.  It
 * is "asked" for an answer then, and "ask" names whom: where all that go before
 * "me" are zklock's and each owns the lock or only tries.  Anybody else waits
 * for it, or is no zklock and does not answer.
 */
extern ZklVerdict zkl_recipe_judge(ZklMode mode, const char *me,
								   const char *const *children, int nchildren);

/*
 * The same for a lease, of which a server may have a thousand: they all are
 * judged by one list, so it is put in order once ("leases" has room for
 * nchildren), and each lease then takes a binary search.
 *
 * Every child goes before the lease "me", but for zklock's own leases with higher
 * numbers.  "limit" is the number of leases that the semaphore has.
 */
extern void zkl_recipe_order_leases(const char *const *children, int nchildren,
									ZklLease *leases);
extern ZklVerdict zkl_recipe_judge_lease(int limit, const char *me,
										 const ZklLease *leases, int nleases);

/* Is this znode among them? */
extern bool zkl_recipe_has_lease(const char *me, const ZklLease *leases,
								 int nleases);

/* Has a znode's text this mark, or does it describe the backend like this? */
extern bool zkl_recipe_has_mark(const char *text, int length, const char *mark);
extern bool zkl_recipe_is_about(const char *text, int length, const char *about);

/* Do a znode's data request the release of its lock? */
extern bool zkl_recipe_is_revoked(const char *text, int length);

/* Is there a lease among these children? */
extern bool zkl_recipe_any_lease(const char *const *children, int nchildren);

#endif							/* ZKL_RECIPE_H */
