/*-------------------------------------------------------------------------
 *
 * waitlog.h
 *	  log_lock_waits for the part of a wait that is about ZooKeeper.
 *
 * Called only by backends, which hold no LWLock.
 *
 * src/backend/waitlog.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITLOG_H
#define ZKL_WAITLOG_H

#include "backend/claims.h"

/* What there is to log about one wait. */
typedef struct ZklWaitLog
{
	int64		begun_at;
	int64		due_at;			/* when to log that it still waits, or
								 * ZKL_FOREVER */
	bool		logged;			/* it has been logged */
} ZklWaitLog;

/* A wait begins.  A patient one is logged after deadlock_timeout. */
extern void zkl_wait_log_begin(ZklWaitLog *log, bool patient);

/*
 * Log that the wait goes on, if that is due.  "answered" says that ZooKeeper
 * has said that other clients go first.  This may take a request to ZooKeeper.
 * Raises an error only if the backend is cancelled.
 */
extern void zkl_wait_log_still(ZklWaitLog *log, const ZklWish *wish,
							   const ZklClaim *claim, bool answered);

/* Log that the lock was acquired, if it was logged that the wait went on. */
extern void zkl_wait_log_acquired(const ZklWaitLog *log, const ZklWish *wish);

#endif							/* ZKL_WAITLOG_H */
