/*-------------------------------------------------------------------------
 *
 * jobwriter.h
 *	  The worker writes the records of jobs: how runs begin and end.
 *
 * Called only by the worker's files.
 *
 * src/worker/jobwriter.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_JOBWRITER_H
#define ZKL_JOBWRITER_H

#include "zookeeper/session.h"

/* A worker starts, and takes over what its predecessor was doing. */
extern void zkl_job_writer_start(const char *prefix);

/* The session's handle is gone, and with it all replies to come. */
extern void zkl_job_writer_restarted(void);

/* The reply to a ticket's create tells ZooKeeper's time. */
extern void zkl_job_writer_note_reply(const ZklSessionEvent *event);

/* Handle an answer.  False if it is the answer to another file's request. */
extern bool zkl_job_writer_handle(const ZklSessionEvent *event);

/*
 * Send what is to be sent.  Call this before the requests of tickets are sent,
 * so that the end of a run goes before the delete of the ticket.
 */
extern void zkl_job_writer_send(void);

#endif							/* ZKL_JOBWRITER_H */
