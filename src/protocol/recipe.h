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
 *		_c_<32 hex>-lock-<sequence>		a mutex: go-zookeeper
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
 * the semaphore has leases.  That is Curator's rule.  For zklock, leases of
 * zklock with higher numbers do not count: otherwise two servers that come at
 * the same time could both give up.  This is safe: among all leases that are
 * owned, the one with the highest number has counted all the others.
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

/* Directories within a semaphore's directory. */
#define ZKL_LEASES		"leases"
#define ZKL_LOCKS		"locks"

/*
 * The znode in a semaphore's directory that may hold the number of its leases,
 * as Curator's SharedCount writes a number: four bytes, big-endian.
 */
#define ZKL_LIMIT		"limit"
#define ZKL_LIMIT_SIZE	4
#define ZKL_LIMIT_NONE	(-1)	/* there is none, or none is known */

/*
 * Curator requests the release of a lock by replacing the text of its znode
 * with this one.
 */
#define ZKL_REVOKE		"__REVOKE__"

/*
 * The text of zklock's own znodes: fields that describe a backend, and then
 * marks.  The marks say that the ticket serves no superuser, that the lock is
 * in use, that its release has been requested, and that another client wants to
 * know whether the lock is in use.  The size of the fields cannot grow: a server
 * with an older zklock refuses records with longer ones.
 */
#define ZKL_OWNER_TEXT_SIZE	256
#define ZKL_PLAIN		" superuser=f"
#define ZKL_IN_USE		" in_use=t"
#define ZKL_REQUESTED	" revoke=t"
#define ZKL_QUERY		" query=t"
#define ZKL_TEXT_SIZE	(ZKL_OWNER_TEXT_SIZE + sizeof(ZKL_PLAIN ZKL_IN_USE ZKL_REQUESTED ZKL_QUERY))

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
 * How a claim wants its lock, and the mode that a znode's name in the lock's
 * directory shows.
 */
typedef enum ZklMode
{
	ZKL_MODE_LOCK,				/* of a mutex */
	ZKL_MODE_WRITE,				/* of a read-write lock */
	ZKL_MODE_READ,
	ZKL_MODE_LEASE,				/* of a semaphore */
	ZKL_MODE_KAZOO_LOCK,		/* kazoo's; either a mutex or a read-write
								 * lock */
	ZKL_MODE_KAZOO_READ
} ZklMode;

#define ZKL_MODES	(ZKL_MODE_KAZOO_READ + 1)

/* What a znode has to do with another znode that is before it in the queue. */
typedef enum ZklRelation
{
	ZKL_RELATION_NONE,			/* it does not wait for the other */
	ZKL_RELATION_RIVAL,			/* it waits for the other */
	ZKL_RELATION_OTHER_KIND		/* the other is of another kind of lock */
} ZklRelation;

typedef enum ZklClient
{
	ZKL_CLIENT_ZKLOCK,
	ZKL_CLIENT_CURATOR,
	ZKL_CLIENT_KAZOO,
	ZKL_CLIENT_GO,				/* go-zookeeper */
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
	int			rank;			/* its place in the order, see lease_rank() */
} ZklLease;

/* What a list of a lock's directory says about one of its znodes. */
typedef struct ZklVerdict
{
	bool		found;			/* the znode is in the directory */
	bool		owned;			/* no other znode goes before it */
	bool		next;			/* only the predecessor goes before it, and no
								 * other znode will take the predecessor's
								 * place */
	bool		contended;		/* another client waits until it is gone */
	bool		asked;			/* another client queries it: waits until its
								 * text says that the lock is in use */
	bool		other_kind;		/* a znode before it is one of another kind of
								 * lock */
	bool		maybe_semaphore;	/* there is a directory "leases" */
	const char *predecessor;	/* the last one that goes before it, or NULL */
	const char *front;			/* if it is not owned: the first contender,
								 * which owns the lock; else NULL */
	const char *ask;			/* the znode that "me" queries: the first one
								 * before it; else NULL */
	bool		ask_other_kind; /* the znode to query is of another kind of
								 * lock */
} ZklVerdict;

/* What kind of lock has this mode? */
extern ZklKind zkl_recipe_kind(ZklMode mode);

/*
 * The names by which users and records know the modes.  kazoo's modes are
 * called by what kazoo's clients do: 'lock' and 'read'.
 */
extern const char *zkl_recipe_kind_name(ZklKind kind);
extern const char *zkl_recipe_mode_name(ZklMode mode);

/*
 * How a znode of mode "mine" relates to a znode of mode "other" before it,
 * including kazoo's modes.
 */
extern ZklRelation zkl_recipe_relation(ZklMode mine, ZklMode other);

/* Does a ticket of this mode serve a claim of that mode? */
extern bool zkl_recipe_serves(ZklMode ticket, ZklMode claim);

/*
 * Write a version 8 UUID (RFC 9562) made of 16 random bytes.  Twelve of its
 * bits say that zklock made the znode, and whether its ticket only tries.
 */
extern void zkl_recipe_make_uuid(const uint8_t random[16], bool only_tries,
								 char uuid[ZKL_UUID_SIZE]);

/* Did zklock make this child, and if so, does its ticket only try? */
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

/* Find the child that was created with this UUID; NULL if there is none. */
extern const char *zkl_recipe_find(ZklMode mode, const char *uuid,
								   const char *const *children, int nchildren);

/* Parse a name.  Returns false if it is not a contender's. */
extern bool zkl_recipe_parse(const char *child, ZklContender *contender);

/*
 * The sequence number of a znode of Curator's LeaderLatch; NULL if it is not
 * such a znode.  Such a znode is no contender: the latch looks only at znodes
 * of its own kind.
 */
extern const char *zkl_recipe_latch_key(const char *child);

/*
 * The sequence number of a contender; -1 if the number gives the znode no safe
 * place in a queue.  A safe number has ten digits, and is below
 * ZKL_SEQUENCE_LIMIT.  ZooKeeper's counter counts all children, whatever their
 * names, so the first znode that was ever made in the directory has 0.
 */
extern int	zkl_recipe_number(const char *child);

/*
 * Decide from the directory's children which place the znode "me" of this mode
 * has.
 *
 * Every contender with a lower key goes before it, whatever client made it.
 * The exception: readers do not go before a reader.  A contender with an equal
 * key goes before it too, so that a name forged by hand can only make this
 * server wait.  Other children are ignored.  The result points into
 * "children".
 *
 * A znode that goes before "me" does not always mean that the lock is in use:
 * it may be a lingering ticket, or one that only tries.  So a ticket that
 * only tries, or that finds the path in use as another kind of lock, may have
 * to query the owner.  "ask" names the znode to query: the first one, if all
 * znodes before "me" are zklock's and each owns the lock or only tries.  That
 * znode's own verdict has "asked" set.  If any other znode goes before "me",
 * either it waits for the lock, or its client is not zklock and does not
 * answer; then "ask" is NULL.
 */
extern ZklVerdict zkl_recipe_judge(ZklMode mode, const char *me,
								   const char *const *children, int nchildren);

/*
 * Judge the place of a lease.  A server may have a thousand leases, and one
 * list judges all of them.  So the caller sorts the list once ("leases" has
 * room for nchildren), and each lease then takes a binary search.
 *
 * Every child goes before the lease "me", except zklock's own leases with
 * higher numbers.  "limit" is the number of leases that the semaphore has.
 */
extern void zkl_recipe_order_leases(const char *const *children, int nchildren,
									ZklLease *leases);
extern ZklVerdict zkl_recipe_judge_lease(int limit, const char *me,
										 const ZklLease *leases, int nleases);

/* Is this znode among the leases? */
extern bool zkl_recipe_has_lease(const char *me, const ZklLease *leases,
								 int nleases);

/*
 * Does a znode's text have this mark?  Does it have this description of a
 * backend?
 */
extern bool zkl_recipe_has_mark(const char *str, int length, const char *mark);
extern bool zkl_recipe_names_owner(const char *str, int length, const char *owner_text);

/* Does the text of a znode request the release of its lock? */
extern bool zkl_recipe_is_revoked(const char *str, int length);

/*
 * A semaphore's limit in a znode's data.  read: ZKL_LIMIT_NONE if the data
 * are no limit, for instance because the znode is a directory.
 */
extern int	zkl_recipe_read_limit(const char *data, int length);
extern void zkl_recipe_write_limit(int limit, char data[ZKL_LIMIT_SIZE]);

/* Is there a lease among these children? */
extern bool zkl_recipe_any_lease(const char *const *children, int nchildren);

#endif							/* ZKL_RECIPE_H */
