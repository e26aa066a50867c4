/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  How a backend waits for its server's ticket.
 *
 * Called only by backends, which hold no LWLock.  Each function that waits
 * raises 55P03 after lock_timeout, the errors of zkl_report_unreachable if
 * ZooKeeper is silent for too long, and that of an interrupt.  No error ends
 * the claim: the caller does, unless the claim holds its lock.
 *
 * src/backend/lock/wait.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAIT_H
#define ZKL_WAIT_H

#include "backend/lock/localclaim.h"
#include "shared/grant.h"

/* A wait: when it began, and since when ZooKeeper is silent. */
typedef struct ZklWait
{
	const ZklLockRequest *request;
	ZklClaim   *claim;			/* the claim that waits */
	int64		begun_at;
	int64		asks_until;		/* until when a try waits for the owner's
								 * answer; 0 if it has not queried the owner */
	int64		paused;			/* how long it has slept for the answers of
								 * servers that it has queried */
	int64		silent_since;	/* 0 if ZooKeeper has replied */
	bool		impatient;		/* end the wait if another client holds the
								 * lock */
	bool		requests;		/* it requests the ticket; until then there is
								 * nothing to log */
	int64		asked_at;		/* log_lock_waits counts from here */
	int64		log_at;			/* log_lock_waits logs the wait then, or
								 * ZKL_FOREVER */
	bool		logged;			/* it has been logged */
} ZklWait;

/* Begin a wait of this claim.  Raises no error. */
extern void zkl_wait_begin(ZklWait *wait, const ZklLockRequest *request,
						   ZklClaim *claim);

/*
 * Give up the snapshot of the statement, if the request came by CALL and
 * nothing else that the CALL runs has a snapshot.  VACUUM, CREATE INDEX
 * CONCURRENTLY and a standby's replay must not wait for a session that waits
 * for a lock.  Called directly before each sleep, because every look at a
 * catalog since the last one has left a snapshot as well.  The caller of
 * zkl_acquire() and the like restores the statement's snapshot with
 * EnsurePortalSnapshotExists().  Raises no error.
 */
extern void zkl_wait_drop_snapshot(const ZklLockRequest *request);

/*
 * Wait until the server owns its ticket and the claim holds the lock: HELD.
 * The caller has the advisory lock of the claim's generation.  STALE if there
 * is a newer generation or, for leases, if the inner mutex was lost ("mutex",
 * else NULL).  Any other answer means that the time is over, or that an
 * impatient request must wait.  Also raises 40P01, 53400, 57P01, and the
 * errors of zkl_report_failure.
 */
extern ZklAnswer zkl_wait_for_ticket(ZklWait *wait, ZklClaim *mutex);

/*
 * Another server has been queried whether it uses a lock that the claim
 * needs.  Sleep for "pause", which is on the clock of zkl_now().  False if
 * the time is over; a try waits only as long as it waits for an owner's
 * answer.
 */
extern bool zkl_wait_for_answer(ZklWait *wait, int64 pause);

/*
 * Has zkl_wait_for_answer() slept for so long that a server which knows the
 * query has answered, or has lost its session?  Always false for a try, whose
 * time is over before that.
 */
extern bool zkl_wait_is_unanswered(const ZklWait *wait);

/* Wait until released znodes of the lock are gone; false if the time is over. */
extern bool zkl_wait_until_settled(ZklWait *wait);

/*
 * A command, sent after the wait had begun, has ended without a reply from
 * ZooKeeper, because the time is over.  Raises the error of a wait that ends
 * like that, unless the timeout was merely shorter than the request.
 */
extern void zkl_wait_fail_unanswered(ZklWait *wait);

/*
 * Wait while a claim that holds its lock is in doubt.  Also raises ZK001 or
 * ZK002 if the claim is lost.
 */
extern void zkl_wait_for_certainty(const ZklLockRequest *request, ZklLocalClaim *claim);

#endif							/* ZKL_WAIT_H */
