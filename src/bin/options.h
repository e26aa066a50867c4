/*-------------------------------------------------------------------------
 *
 * options.h
 *	  What the command line of zklock-run says.
 *
 * src/bin/options.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_OPTIONS_H
#define ZKL_OPTIONS_H

#include <stdbool.h>

typedef struct ZklOptions
{
	const char *conninfo;
	bool		no_password;	/* never prompt for one */
	const char *kind;			/* part of the name of what acquires */
	const char *parameters;		/* the parameters of what acquires */
	const char *argument;		/* its $3, or NULL */
	const char *timeout;
	const char *retry;			/* its $4 */
	const char *spacing;		/* its $5, or NULL */
	bool		once;			/* the lock belongs to a job's run */
	bool		guard;			/* the command's transactions commit only
								 * under the lock */
	double		kill_after;
	int			not_acquired;	/* exit status */
	const char *path;
	char	  **command;
} ZklOptions;

#endif							/* ZKL_OPTIONS_H */
