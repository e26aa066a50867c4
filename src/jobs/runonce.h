/*-------------------------------------------------------------------------
 *
 * runonce.h
 *	  Run a job once a tick.
 *
 * Called only by backends.
 *
 * src/jobs/runonce.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_RUNONCE_H
#define ZKL_RUNONCE_H

#include "backend/lock/localclaim.h"
#include "jobs/jobruns.h"
#include "shared/mailbox.h"

/*
 * Begin a run of this tick, and acquire the job's lock for it.  True: the
 * record in ZooKeeper says that the tick is used up, by this run; the lock is
 * held, and the run ends with this acquire of it.  False: the tick is already
 * used up, or another backend or client held the lock until the time was
 * over.  Raises the errors of zkl_acquire; 22023 for a tick in the future;
 * 53400 if there are too many jobs; XX001 if the record cannot be read.
 * After false or an error, the lock is as it was before.
 */
extern bool zkl_run_once_begin(const ZklLockRequest *request, const ZklJobTick *tick);

/*
 * Read the record of a job.  False if ZooKeeper has not replied by this moment
 * of zkl_now().  znodes.h explains "patience" and the errors.
 */
extern bool zkl_run_once_read(const char *path, int64 until, ZklPatience patience,
							  ZklJobZnode *znode);

#endif							/* ZKL_RUNONCE_H */
