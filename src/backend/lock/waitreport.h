/*-------------------------------------------------------------------------
 *
 * waitreport.h
 *	  Messages about a wait: those of log_lock_waits, and the client that
 *	  blocks a claim.
 *
 * Called only by backends, which hold no LWLock.
 *
 * src/backend/lock/waitreport.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITREPORT_H
#define ZKL_WAITREPORT_H

#include "shared/lockentry.h"

/* What to report about one wait. */
typedef struct ZklWaitReport
{
	const char *path;			/* what the user waits for */
	ZklMode		mode;
	int			quantity;		/* LEASE */
	int64		begun_at;
	int64		due_at;			/* when to log that the wait goes on, or
								 * ZKL_FOREVER */
	bool		logged;			/* it has been logged */
} ZklWaitReport;

/*
 * A wait begins.  A patient one is logged after deadlock_timeout.  The path
 * must live as long as the wait.
 */
extern void zkl_wait_report_begin(ZklWaitReport *report, const char *path,
								  ZklMode mode, int quantity, bool patient);

/*
 * Log that the wait goes on, if that is due.  "answered": ZooKeeper has
 * replied that other clients go first.  This may send a request to ZooKeeper.
 * It raises an error only if the backend is cancelled.
 */
extern void zkl_wait_report_still(ZklWaitReport *report, const ZklClaim *claim,
								  bool answered);

/*
 * Log that the lock was acquired, if zkl_wait_report_still has logged the
 * wait.
 */
extern void zkl_wait_report_acquired(const ZklWaitReport *report);

/*
 * From now on, the CONTEXT of all messages of this backend says for which
 * lock the claim waits, and which process holds the lock.  The caller removes
 * the context again: error_context_stack = context->previous.  After an
 * error, PG_TRY does that.
 */
extern void zkl_wait_report_push_context(ErrorContextCallback *context,
										 ZklClaim *claim);

/*
 * A sentence that names the client that blocks the claim; NULL if none is
 * known.  If the ticket does not wait for the holder itself, this may send
 * one request to ZooKeeper to find the holder, until this moment of
 * zkl_now(); 0: send no request.  A request raises an error only if this
 * backend is cancelled.
 */
extern const char *zkl_wait_report_obstacle(const ZklClaim *claim, int64 until);

#endif							/* ZKL_WAITREPORT_H */
