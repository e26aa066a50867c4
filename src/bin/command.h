/*-------------------------------------------------------------------------
 *
 * command.h
 *	  The command that zklock-run runs.
 *
 * src/bin/command.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_COMMAND_H
#define ZKL_COMMAND_H

#include "bin/options.h"

/*
 * Look for the command as zkl_command_start will, and exit if there is none.
 * A mistake that is found before the lock is acquired does not use up the
 * tick of a job.
 */
extern void zkl_command_find(const ZklOptions *options);

/* Why the command must end now, or must not start; NULL if it may go on. */
extern const char *zkl_command_reason_to_end(const ZklOptions *options);

/* Start the command.  Exits if no process can be created. */
extern void zkl_command_start(const ZklOptions *options);

/*
 * Wait for the end of the command, and end it if the lock is lost; then
 * "lost" is set.  Returns the command's exit status, as a shell reports it.
 */
extern int	zkl_command_watch(const ZklOptions *options, bool *lost);

#endif							/* ZKL_COMMAND_H */
