/*-------------------------------------------------------------------------
 *
 * service.h
 *	  The worker's side of the commands: what backends ask to be done once.
 *
 * Called only by the worker's files.
 *
 * src/service.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SERVICE_H
#define ZKL_SERVICE_H

#include "session.h"

/* A worker starts: what an earlier one was doing begins anew. */
extern void zkl_service_start(const char *prefix);

/* The session's handle is gone, and all replies with it. */
extern void zkl_service_restarted(void);

/* An answer. */
extern void zkl_service_handle(const ZklSessionEvent *event);

/* Begin with what is asked, and send what the window allows. */
extern void zkl_service_send(void);

/* How many of the session's requests without an answer are of commands? */
extern int	zkl_service_outstanding(void);

#endif							/* ZKL_SERVICE_H */
