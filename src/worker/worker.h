/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The background worker that holds the ZooKeeper session.
 *
 * src/worker/worker.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WORKER_H
#define ZKL_WORKER_H

/* Register the worker.  Called by _PG_init in the postmaster. */
extern void zkl_worker_register(void);

extern PGDLLEXPORT void zkl_worker_main(Datum main_arg);

#endif							/* ZKL_WORKER_H */
