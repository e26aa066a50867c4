/*-------------------------------------------------------------------------
 *
 * requests.h
 *	  The requests of tickets: due, and sent as soon as that is possible.
 *
 * Called only by tickets.c.
 *
 * src/requests.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_REQUESTS_H
#define ZKL_REQUESTS_H

#include "nodes/pg_list.h"

#include "locktable.h"

/* A worker starts: nothing is due. */
extern void zkl_requests_start(void);

/* A ticket wants this to be sent, in the place of what it wanted before. */
extern void zkl_requests_make_due(ZklEntry *entry, ZklRequest request);

/* It wants nothing to be sent any more, and waits for no list. */
extern void zkl_requests_forget(ZklEntry *entry);

/* Was the request that would make its znode not sent yet? */
extern bool zkl_requests_is_unsent(const ZklEntry *entry);

/* It has no znode any more, which took up room in the session. */
extern void zkl_requests_uncount(ZklEntry *entry);

/*
 * Send what is due, as far as the session and the window allow: NULL.  An
 * entry, if its create cannot be sent because the session is full; to be called
 * again.
 */
extern ZklEntry *zkl_requests_send(void);

/*
 * A semaphore's list has been answered; "attempt" is what came back with it.  The
 * leases that it is for: those whose creates were sent before it.
 */
extern List *zkl_requests_take_listeners(ZklEntry *semaphore, uint32 attempt);

#endif							/* ZKL_REQUESTS_H */
