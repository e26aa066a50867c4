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
	bool		no_password;	/* never prompt for a password */
	const char *kind;			/* part of the name of the function that
								 * acquires */
	const char *parameters;		/* the parameters of that function */
	const char *argument;		/* parameter $3, or NULL */
	const char *timeout;
	const char *retry;			/* parameter $4 */
	const char *spacing;		/* parameter $5, or NULL */
	bool		once;			/* the lock belongs to a job's run */
	bool		guard;			/* the command's transactions commit only
								 * under the lock */
	double		kill_after;
	int			not_acquired;	/* exit status if the lock was not acquired */
	const char *path;
	char	  **command;
} ZklOptions;

#endif							/* ZKL_OPTIONS_H */
