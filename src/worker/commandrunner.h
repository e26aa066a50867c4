/*-------------------------------------------------------------------------
 *
 * commandrunner.h
 *	  The worker's side of the commands of backends.
 *
 * Called only by the worker's files.
 *
 * src/worker/commandrunner.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SERVICE_H
#define ZKL_SERVICE_H

#include "zookeeper/session.h"

/* A worker starts, and begins anew what its predecessor was doing. */
extern void zkl_service_start(const char *prefix);

/* The session's handle is gone, and with it all replies to come. */
extern void zkl_service_restarted(void);

/* Handle an answer. */
extern void zkl_service_handle(const ZklSessionEvent *event);

/* Begin with new commands, and send what the window allows. */
extern void zkl_service_send(void);

/* How many of the session's unanswered requests belong to commands? */
extern int	zkl_service_outstanding(void);

#endif							/* ZKL_SERVICE_H */
