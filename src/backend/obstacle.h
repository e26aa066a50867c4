/*-------------------------------------------------------------------------
 *
 * obstacle.h
 *	  What messages say about the client that keeps a claim from its lock.
 *
 * Called only by backends, which hold no LWLock.
 *
 * src/backend/obstacle.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_OBSTACLE_H
#define ZKL_OBSTACLE_H

#include "shared/lockentry.h"

/*
 * From now on, all messages of this backend say in their CONTEXT for which
 * lock the claim waits, and which process holds it.  The caller takes the
 * context off again: error_context_stack = context->previous.  After an error,
 * PG_TRY does that.
 */
extern void zkl_obstacle_push_context(ErrorContextCallback *context,
									  ZklClaim *claim);

/*
 * A sentence that names the client; NULL if none is known.  If the ticket does
 * not wait for the holder itself, one request to ZooKeeper may find out who
 * that is, until this moment of zkl_now().  0: send no request.  A request
 * raises an error only if this backend is cancelled.
 */
extern const char *zkl_obstacle_sentence(const ZklClaim *claim, int64 until);

#endif							/* ZKL_OBSTACLE_H */
