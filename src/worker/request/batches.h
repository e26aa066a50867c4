/*-------------------------------------------------------------------------
 *
 * batches.h
 *	  Creates, and deletes, of tickets that go out as one transaction.
 *
 * A single create or delete costs ZooKeeper as much as a transaction of many.
 * So what comes due while two batches of its kind are on their way waits for
 * the end of one, and joins the next batch.  Nothing waits while fewer are on
 * their way, and an operation that is alone then goes out as a single
 * request.
 *
 * Called only by sendqueue.c, but for start.  An error ends the worker
 * (worker.c).
 *
 * src/worker/request/batches.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_BATCHES_H
#define ZKL_BATCHES_H

#include "shared/locktable.h"
#include "zookeeper/session.h"

/* A worker starts.  All directories have this prefix. */
extern void zkl_batches_start(const char *prefix);

/* Are there batches at all in this session? */
extern bool zkl_batches_are_allowed(void);

/* May one more be added to the batch of this request's kind? */
extern bool zkl_batches_are_open(ZklRequest request);

/*
 * Add an operation of this entry's ticket.  It is sent by zkl_batches_send, or
 * in here if the batch is full.  The texts stay until then.
 */
extern void zkl_batches_add(ZklEntry *entry, ZklSessionOperation operation);

/* How many requests will zkl_batches_send make?  The window counts them. */
extern int	zkl_batches_added(void);
extern void zkl_batches_send(void);

/* The last operation of a batch was answered, or its answer is lost. */
extern void zkl_batches_answered(const ZklSessionEvent *event);

#endif							/* ZKL_BATCHES_H */
