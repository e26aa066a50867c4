/*-------------------------------------------------------------------------
 *
 * detached.h
 *	  Detached claims: those that belong to a number, and to no backend.
 *
 * A detached claim is a claim on a mutex (lockentry.h) that belongs to the
 * claims process.  Any backend that knows its number may look at it, renew
 * it, release it, and use it in a transaction.  It has no advisory lock:
 * grant.c decides in which order detached claims and backends of this server
 * get the lock.
 *
 * A transaction that uses a detached claim has a claim of its own, which
 * holds the same ticket.  So a release refuses further uses at once, and the
 * znode stays until the last transaction that uses the claim has ended: no
 * release overtakes a commit.  At the end of the lease time, such
 * transactions lose their claims as they lose any lock; but a transaction
 * that is committing, and so has a pass (passes.h), keeps its claim until it
 * has committed.
 *
 * Each number has a SLOT.  While the claim exists, the slot leads to it.
 * After that, the slot remembers how it ended, until the slot has another
 * number.
 *
 *		from -> to				by				when
 *		(none) -> WAITING		backend			request
 *		WAITING -> HELD			the same, or	it is the first in line (zkl_grant_request);
 *								the process		the lease time begins
 *		HELD -> LOST			worker			the lock was lost, or the lease time is over
 *		WAITING -> (ended)		the process		no backend has looked at it within its lease
 *												time, or the lock cannot be acquired
 *		LOST -> (ended)			the process		as soon as it looks
 *		any -> (ended)			backend			release
 *		any -> (ended)			the process		it exits
 *
 * The arrow to HELD and those to "ended" need detached_lock, exclusively; so a
 * process that has it, in whatever mode, may follow a slot to its claim.  HELD
 * -> LOST needs only the partition: a process that has found a claim HELD must
 * expect it to be LOST.  The worker and other processes wake the claims
 * process by way of the list of claims that are due (locktable.h), which has a
 * spinlock.  Order: detached_lock, one partition, one spinlock.
 *
 * No function raises an error.  Each takes detached_lock itself.
 *
 * src/shared/detached.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DETACHED_H
#define ZKL_DETACHED_H

#include "storage/proc.h"

#include "shared/claim.h"

/* A slot, protected by detached_lock. */
typedef struct ZklDetached
{
	uint64		number;			/* number of the present claim, or of the last
								 * one */
	ZklClaim   *claim;			/* NULL: it has ended */
	char		path[ZKL_PATH_SIZE];
	Oid			role;			/* the role that requested it */
	int64		hold_limit;
	int64		asked_until;	/* WAITING: when it ends, unless a backend
								 * looks at it or waits for it */
	PGPROC	   *waiter;			/* the backend that waits for it, or NULL */
	ZklLoss		loss;			/* how it ended; NONE: released, or the claims
								 * process ended */
	int64		lost_at;
	ZklFailure	failure;		/* the lock could not be acquired */
} ZklDetached;

/* A copy of the facts about a detached claim. */
typedef struct ZklDetachedInfo
{
	ZklDetached slot;
	ZklClaim	claim;			/* LOST: it has ended, or is about to; then
								 * the other fields may be zero */
	bool		in_doubt;		/* HELD */
} ZklDetachedInfo;

/* A part of shared memory; see zklock.c.  Attached after the lock table. */
extern Size zkl_detached_size(void);
extern void zkl_detached_attach(void *memory, LWLockPadded *locks, bool is_new);

/* The claims process; 0: it does not run. */
extern int	zkl_detached_owner(void);

/*
 * Wake the claims process, if it runs.  The worker calls this when it ends,
 * without a lock.
 */
extern void zkl_detached_wake_owner(void);

/*
 * Begin a claim, and request the lock, without a wait.  "claimant" is this
 * process, but with the pid of the claims process and the text about it;
 * OWNERLESS if another claims process runs by now.
 */
extern ZklBeginning zkl_detached_request(const char *path, int64 hold_limit,
										 ZklClaimant *claimant, uint64 *number);

/* Look at a claim.  False: there was none with this number. */
extern bool zkl_detached_look(uint64 number, ZklDetachedInfo *info);

/* Look at all claims that exist: *place is 0 at first, and false is the end. */
extern bool zkl_detached_next(int *place, ZklDetachedInfo *info);

/*
 * begin_wait: from now on, this backend's latch is set when the claim is
 * granted or ends; false if another backend waits for it.  The backend calls
 * end_wait whatever happens; its arguments are those of an exit callback.
 */
extern bool zkl_detached_begin_wait(uint64 number);
extern void zkl_detached_end_wait(int code, Datum number);

/*
 * For the search for deadlocks.  ticket: as zkl_claim_status_ticket(); SOON if
 * the claim does not wait.  note_deadlock: a wait for the claim was the
 * victim.
 */
extern ZklTicketStatus zkl_detached_ticket(uint64 number, int64 *czxid,
										   char znode[ZKL_ZNODE_SIZE]);
extern void zkl_detached_note_deadlock(uint64 number);

/* False if the claim had ended. */
extern bool zkl_detached_renew(uint64 number, int64 hold_limit);
extern bool zkl_detached_release(uint64 number);

/* As zkl_claim_use(). */
extern ZklClaim *zkl_detached_use(uint64 number, const ZklClaimant *claimant);

/*
 * For the claims process.  begin: claims may belong to this process from now
 * on.  tend: do what is due, up to the first leadership whose claim is due,
 * and return that claim; or do everything, write when to look again, and
 * return NULL.  end: end all claims.
 */
extern void zkl_detached_begin_owner(void);
extern ZklClaim *zkl_detached_tend(int64 *look_at);
extern void zkl_detached_end_owner(void);

#endif							/* ZKL_DETACHED_H */
