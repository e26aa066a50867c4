/*-------------------------------------------------------------------------
 *
 * dependents.h
 *	  Which backends of this server cannot go on before this one.
 *
 * The answer is in PostgreSQL's lock graph: heavyweight locks of all kinds,
 * zklock's local locks among them.
 *
 * Called only by backends.
 *
 * src/backend/lock/dependents.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DEPENDENTS_H
#define ZKL_DEPENDENTS_H

#include "datatype/timestamp.h"

/* A backend that waits for this one, directly or through others. */
typedef struct ZklDependents
{
	int			pid;			/* the backend's; for a parallel worker, its
								 * leader's */
	int			waiter;			/* the process that waits: the backend, or its
								 * parallel worker */
	TimestampTz wait_start;		/* when that wait began; if that is not known,
								 * the number of the waiter's transaction */
	TimestampTz since;			/* the latest wait_start of the waits between
								 * it and this backend, including its own */
} ZklDependents;

/*
 * Find those backends, without this one, in the current memory context.  This
 * takes the LWLocks of PostgreSQL's lock table, so the caller must hold none.
 * It may raise an error if memory runs out.
 */
extern int	zkl_dependents_find(ZklDependents **stuck);

#endif							/* ZKL_DEPENDENTS_H */
