/*-------------------------------------------------------------------------
 *
 * jobwriter.h
 *	  The worker writes the records of jobs: how runs begin and end.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/jobs/jobwriter.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_JOBWRITER_H
#define ZKL_JOBWRITER_H

#include "zookeeper/session.h"

/* Take over, when a worker starts, what its predecessor was doing. */
extern void zkl_job_writer_start(const char *prefix);

/*
 * The session's handle is gone.  Forget ZooKeeper's time, because the
 * handle's last replies may have been read late.
 */
extern void zkl_job_writer_forget_time(void);

/* The reply to the create of a ticket shows ZooKeeper's time. */
extern void zkl_job_writer_note_reply(const ZklSessionEvent *event);

/*
 * Send the requests that are due.  Call this before the requests of tickets
 * are sent, so that the end of a run is written before the ticket is deleted.
 */
extern void zkl_job_writer_send(void);

#endif							/* ZKL_JOBWRITER_H */
