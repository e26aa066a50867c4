/*-------------------------------------------------------------------------
 *
 * deadlocksearch.h
 *	  The worker looks for deadlocks across servers, and breaks them.
 *
 * Called only by the worker's files.
 *
 * src/worker/deadlocksearch.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DEADLOCKSEARCH_H
#define ZKL_DEADLOCKSEARCH_H

#include "zookeeper/session.h"

extern void zkl_deadlock_search_start(const char *prefix);

/* The session's handle is gone, and with it all replies to come. */
extern void zkl_deadlock_search_restarted(void);

/* Handle an answer.  False if it is the answer to another file's request. */
extern bool zkl_deadlock_search_handle(const ZklSessionEvent *event);

/* Begin a search if one is due, and send what a search has to send. */
extern void zkl_deadlock_search_send(void);

/* When to call that again, even if nothing happens; PG_INT64_MAX: never. */
extern int64 zkl_deadlock_search_wake_at(void);

#endif							/* ZKL_DEADLOCKSEARCH_H */
