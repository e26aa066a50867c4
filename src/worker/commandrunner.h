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
#ifndef ZKL_COMMANDRUNNER_H
#define ZKL_COMMANDRUNNER_H

#include "zookeeper/session.h"

/* A worker starts, and begins anew what its predecessor was doing. */
extern void zkl_command_runner_start(const char *prefix);

/* The session's handle is gone, and with it all replies to come. */
extern void zkl_command_runner_restarted(void);

/* Handle an answer. */
extern void zkl_command_runner_handle(const ZklSessionEvent *event);

/* Begin with new commands, and send what the window allows. */
extern void zkl_command_runner_send(void);

/* How many of the session's unanswered requests belong to commands? */
extern int	zkl_command_runner_outstanding(void);

#endif							/* ZKL_COMMANDRUNNER_H */
