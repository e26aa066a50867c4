/*-------------------------------------------------------------------------
 *
 * claimsprocess.h
 *	  The claims process, to which the detached claims and the leaderships of this
 *	  server belong.
 *
 * src/backend/lock/claimsprocess.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CLAIMSPROCESS_H
#define ZKL_CLAIMSPROCESS_H

/* Called in the postmaster, by _PG_init. */
extern void zkl_claims_process_register(void);

/*
 * For backends: the ID of the claims process.  This waits until the process
 * runs, serves interrupts, and raises 55000 if the wait takes too long.
 */
extern int	zkl_claims_process_find(void);

/* The main function of the claims process; the postmaster finds it by its name. */
extern PGDLLEXPORT void zkl_claims_process_main(Datum main_arg);

#endif							/* ZKL_CLAIMSPROCESS_H */
