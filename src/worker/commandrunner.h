/*-------------------------------------------------------------------------
 *
 * commandrunner.h
 *	  The worker's side of the commands of backends.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/worker/commandrunner.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_COMMANDRUNNER_H
#define ZKL_COMMANDRUNNER_H

/* Begin again, when a worker starts, what its predecessor was doing. */
extern void zkl_command_runner_start(const char *prefix);

/*
 * Start runs for new commands, and stop those for which no backend waits any
 * more.
 */
extern void zkl_command_runner_take(void);

#endif							/* ZKL_COMMANDRUNNER_H */
