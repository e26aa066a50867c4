/*-------------------------------------------------------------------------
 *
 * owner.h
 *	  The owner process, to which the detached claims of this server belong.
 *
 * src/backend/lock/owner.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_OWNER_H
#define ZKL_OWNER_H

/*
 * The ID of the owner process.  This starts the process if it does not run, and waits
 * until it does.  Raises 53400 and 55000.  Called only by backends.
 */
extern int	zkl_owner_find(void);

/* What a backend starts, by its name. */
extern PGDLLEXPORT void zkl_owner_main(Datum main_arg);

#endif							/* ZKL_OWNER_H */
