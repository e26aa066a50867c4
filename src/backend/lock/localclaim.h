/*-------------------------------------------------------------------------
 *
 * localclaim.h
 *	  One backend's claims: the locks that it holds or wants.
 *
 * The counts of a claim are in the backend's own memory.  Only the first
 * acquire and the last release of a lock touch shared memory.  For a semaphore
 * every acquire and release does, because the leases are counted there.
 *
 * The second claim of a backend, for more leases of a semaphore, has the path
 * of the first.  It is only in the lock table, and is not among these.
 *
 * A claim has two parts, because a backend that writes may read as well: what
 * it holds exclusively, and what it shares.  A mutex has only the first, a
 * semaphore only the second.
 *
 * Called only by backends, which hold no LWLock.  A function raises an error
 * only if its comment says so.
 *
 * src/backend/lock/localclaim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOCALCLAIM_H
#define ZKL_LOCALCLAIM_H

#include "lib/ilist.h"

#include "backend/lock/advisorylock.h"
#include "shared/claim.h"

typedef enum ZklPartName
{
	ZKL_EXCLUSIVE,
	ZKL_SHARED
} ZklPartName;

#define ZKL_PARTS	2

typedef struct ZklPart
{
	bool		locked;			/* the advisory lock is held, at lock_scope */
	ZklScope	lock_scope;		/* the level of the advisory lock */
	int			session_count;
	int			xact_count;
	int			xact_record;	/* index of its latest record; -1 if none */
} ZklPart;

/*
 * A call of a function that acquires.  PostgreSQL may evaluate a row anew
 * that another transaction has updated meanwhile (EvalPlanQual).  Then it
 * calls the functions of the same plan once more in the same execution, but
 * has looked up each function again.
 */
typedef struct ZklCall
{
	uint64		execution;		/* zkl_xact_execution; 0: none */
	const void *expression;		/* flinfo->fn_expr */
	const void *function;		/* flinfo; may be gone by now */
} ZklCall;

typedef struct ZklLocalClaim
{
	char		path[ZKL_PATH_SIZE];
	uint32		hash;			/* of the path, in the lock table */
	LOCKTAG		tag;			/* of the advisory lock */
	uint32		generation;		/* the generation in the tag */
	bool		crowded;		/* the last acquire did not get the lock at
								 * once */
	dlist_node	table_link;		/* in the table, or among the free ones */
	ZklClaim   *shared;
	ZklKind		kind;
	int			limit;			/* of a semaphore; 0: the stored one */
	ZklPart		parts[ZKL_PARTS];
	int			run_level;		/* the session-level run of a job ends when
								 * fewer acquires than this are left; 0 if
								 * there is no run */
	bool		run_failed;		/* a release does not mean that the run is
								 * done: its last transaction was rolled back,
								 * or DISCARD ALL releases the lock */
	bool		told_revoked;	/* the user was told that the release of the
								 * lock has been requested */
	bool		told_lost;		/* the user was told why the statement was
								 * cancelled */
	ZklCall		call;			/* the call that acquired last */
	dlist_node	session_link;	/* linked while a part has session-level
								 * acquires */
} ZklLocalClaim;

/* What one call wants. */
typedef struct ZklLockRequest
{
	const char *path;			/* checked, in UTF-8 */
	const char *semaphore;		/* the semaphore, if the path is its inner
								 * mutex; else NULL */
	ZklMode		mode;
	ZklScope	scope;
	int64		until;			/* of zkl_now(), or ZKL_FOREVER */
	int64		lock_timeout_at;	/* when lock_timeout ends all waits of the
									 * request, or ZKL_FOREVER */
	bool		only_tries;		/* "until" is now: a try, which waits for
								 * ZooKeeper's answer only */
	int64		hold_limit;		/* the hold limit, in microseconds; 0: none */
	bool		by_call;		/* of a procedure: it raises an error where a
								 * function returns false */
	bool		may_drop;		/* of a procedure whose caller cannot need the
								 * statement's snapshot: wait without it */
	ZklCall		call;

	/* LEASE */
	int			limit;			/* 0: the stored one */
	int			quantity;
} ZklLockRequest;

/* This backend's claim on a path, or NULL. */
extern ZklLocalClaim *zkl_local_claim_find(const char *path);

/*
 * Has the call that acquired last been evaluated anew?  Then the request is
 * the same one, and must not acquire again.
 */
extern bool zkl_local_claim_is_repeated(const ZklLocalClaim *claim,
										const ZklLockRequest *request);

/*
 * The first claim of this backend, in no particular order, or the claim after
 * this one; NULL: there is none.  A caller that goes through the claims may
 * not begin or end any.
 */
extern ZklLocalClaim *zkl_local_claim_next(ZklLocalClaim *claim);

/* How many claims are there?  A signal handler may call this. */
extern int	zkl_local_claim_number(void);

/* The part of a claim for this mode. */
extern ZklPartName zkl_local_claim_part(ZklMode mode);

/*
 * The SQL function that releases the claim's session-level acquires; if the
 * backend both writes and reads, the function for writing.  NULL if the claim
 * has no session-level acquires.
 */
extern const char *zkl_local_claim_release_function(const ZklLocalClaim *claim);

/* How many acquires are there, at session level and in all? */
extern int	zkl_local_claim_session_count(const ZklLocalClaim *claim);
extern int	zkl_local_claim_count(const ZklLocalClaim *claim, ZklPartName part);

/*
 * Report the loss of a claim.  The first function raises ZK001 or ZK002 at
 * this level; the second gives their text to an error that is being raised.
 */
extern void zkl_local_claim_report_lost(int level, const ZklLocalClaim *claim);
extern void zkl_local_claim_report_lost_instead(ErrorData *error,
												const ZklLocalClaim *claim);

/*
 * Called before each claim begins.  xact.c sets it, so that the commit guard
 * looks at every claim.
 */
extern void (*zkl_local_claim_begin_hook) (void);

/* The signal by which the worker tells this backend of a loss; onlost.c sets it. */
extern int	zkl_local_claim_loss_signal;

/*
 * Each function that begins a claim may read catalogs, and so may raise their
 * errors, or that of an interrupt.  After an error no claim has begun.
 *
 * Begin a claim that counts nothing yet.  The caller counts or ends it,
 * whatever happens.  Also raises 53400, ZK003 or 22023.
 */
extern ZklLocalClaim *zkl_local_claim_begin(const ZklLockRequest *request);

/*
 * Begin a claim that holds its lock, and the advisory lock, if that needs no
 * wait: the server owns the ticket, and no other backend has or wants the
 * lock.  NULL if not.  The claim counts nothing yet, and the caller must count
 * it without an error.  For a mutex or a read-write lock.  May also raise the
 * errors of the lock manager.
 */
extern ZklLocalClaim *zkl_local_claim_begin_held(const ZklLockRequest *request);

/*
 * Begin a claim that holds the lock together with the detached claim of this
 * number.  It has no advisory lock, because the detached claim has none.
 * NULL if the detached claim is not held, or all claims are in use.  The
 * caller must count the claim without an error, at transaction level.
 */
extern ZklLocalClaim *zkl_local_claim_use(const ZklLockRequest *request, uint64 number);

/*
 * Begin a claim for "use", which returns true if it has counted the claim.  On
 * every other way out the claim ends: a claim without a count would stay until
 * the backend ends.  "use" raises no error after it has counted.  This raises
 * the errors of zkl_local_claim_begin and of "use".
 */
typedef bool (*ZklClaimUse) (ZklLocalClaim *claim, const ZklLockRequest *request,
							 void *arg);
extern bool zkl_local_claim_begin_for(const ZklLockRequest *request, ZklClaimUse use,
									  void *arg);

/*
 * Begin a second claim, for more leases of a semaphore on which this backend
 * has a claim.  The caller ends it, also when the backend exits, or merges it
 * with the first.  Raises the errors of zkl_local_claim_begin.
 */
extern ZklClaim *zkl_local_claim_begin_second(const ZklLockRequest *request);

/* End a claim in whatever state, and release its advisory lock. */
extern void zkl_local_claim_end(ZklLocalClaim *claim);

/*
 * Release a claim that was held, and its advisory lock.  With
 * zklock.synchronous_release, this waits until the znode is gone, but serves
 * no interrupt, because a transaction may be committing.  All releases since
 * the last call of renew_deadline share one deadline.
 */
extern void zkl_local_claim_release(ZklLocalClaim *claim);
extern void zkl_local_claim_renew_deadline(void);

/*
 * The generation of the advisory lock that the caller is about to acquire.
 * The claim must have no advisory lock.
 */
extern void zkl_local_claim_set_generation(ZklLocalClaim *claim, uint32 generation);

/*
 * The advisory lock of one part.  lock: hold the lock at this level; if the
 * part has the lock already, only its level changes.  This waits only where
 * the wait cannot be long; false: another backend has the lock, or waits for
 * it.  wait_for_lock: wait for the lock until this moment of zkl_now().  Both
 * raise the errors of zkl_advisory_lock_wait.  has_lock: does this backend
 * have the lock, as far as PostgreSQL knows?  unlock: release the lock, but
 * keep the claim.
 */
extern bool zkl_local_claim_lock(ZklLocalClaim *claim, ZklPartName part,
								 ZklScope scope);
extern ZklAdvisoryWait zkl_local_claim_wait_for_lock(ZklLocalClaim *claim,
													 ZklPartName part, ZklScope scope,
													 int64 until);
extern bool zkl_local_claim_has_lock(const ZklLocalClaim *claim, ZklPartName part);
extern void zkl_local_claim_unlock(ZklLocalClaim *claim, ZklPartName part);

/* A lost claim of which the user has not been told yet; NULL: none. */
extern ZklLocalClaim *zkl_local_claim_find_lost(void);

/* Release the advisory locks of claims that were lost. */
extern void zkl_local_claim_unlock_lost(void);

/*
 * Raise a NOTICE for each claim whose release has been requested since the
 * last call.  Raises no error.
 */
extern void zkl_local_claim_tell_revoked(void);

#endif							/* ZKL_LOCALCLAIM_H */
