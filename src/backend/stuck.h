/*-------------------------------------------------------------------------
 *
 * stuck.h
 *	  Which backends of this server cannot go on before this one.
 *
 * The answer is in PostgreSQL's lock graph: heavyweight locks of all kinds,
 * zklock's local locks among them.
 *
 * Called only by backends.
 *
 * src/backend/stuck.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_STUCK_H
#define ZKL_STUCK_H

#include "datatype/timestamp.h"

/* A backend that waits for this one, directly or through others. */
typedef struct ZklStuck
{
	int			pid;			/* of a parallel worker, its leader's */
	int			waiter;			/* the process that waits: itself, or its
								 * parallel worker */
	TimestampTz wait_start;		/* when that wait began; or, without that, the
								 * number of the waiter's transaction */
	TimestampTz since;			/* the same of the last of the waits between
								 * it and this backend, its own included */
} ZklStuck;

/*
 * Those backends, in the current memory context, without this one.  This takes
 * PostgreSQL's locks of the lock table, so the caller holds no LWLock.  It may
 * raise an error if memory runs out.
 */
extern int	zkl_stuck_find(ZklStuck **stuck);

#endif							/* ZKL_STUCK_H */
