/*-------------------------------------------------------------------------
 *
 * deadlocksearch.h
 *	  The worker looks for deadlocks across servers, and breaks them.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/deadlock/deadlocksearch.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DEADLOCKSEARCH_H
#define ZKL_DEADLOCKSEARCH_H

#include "zookeeper/session.h"

/* A worker starts.  "prefix" precedes the path of each lock. */
extern void zkl_deadlock_search_start(const char *prefix);

/* Begin a search if one is due. */
extern void zkl_deadlock_search_begin(void);

/*
 * When to call begin again, even if nothing happens; PG_INT64_MAX: not at all.
 */
extern int64 zkl_deadlock_search_wake_at(void);

#endif							/* ZKL_DEADLOCKSEARCH_H */
