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

/* Why the command must end now, or must not start; NULL if it may go on. */
extern const char *zkl_command_reason_to_end(const ZklOptions *options);

/* Ends the program if there is no process to be had. */
extern void zkl_command_start(const ZklOptions *options);

/*
 * Wait for the end of the command, and end it when the lock is lost; then
 * "lost" is set.  Returns the command's exit status as a shell has it.
 */
extern int	zkl_command_watch(const ZklOptions *options, bool *lost);

#endif							/* ZKL_COMMAND_H */
