/*-------------------------------------------------------------------------
 *
 * waitreport.h
 *	  What messages say about the client that blocks a claim.
 *
 * Called only by backends, which hold no LWLock.
 *
 * src/backend/lock/waitreport.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITREPORT_H
#define ZKL_WAITREPORT_H

#include "shared/lockentry.h"

/*
 * From now on, the CONTEXT of all messages of this backend says for which
 * lock the claim waits, and which process holds the lock.  The caller removes
 * the context again: error_context_stack = context->previous.  After an
 * error, PG_TRY removes it.
 */
extern void zkl_wait_report_push_context(ErrorContextCallback *context,
										 ZklClaim *claim);

/*
 * A sentence that names the client that blocks the claim; NULL if none is
 * known.  If the ticket does not wait for the holder itself, this may send
 * one request to ZooKeeper to find the holder, until this moment of
 * zkl_now(); 0: send no request.  A request raises an error only if this
 * backend is cancelled.
 */
extern const char *zkl_wait_report_obstacle(const ZklClaim *claim, int64 until);

#endif							/* ZKL_WAITREPORT_H */
