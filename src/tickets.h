/*-------------------------------------------------------------------------
 *
 * tickets.h
 *	  The worker's side of the tickets: feed events, do what the steps say.
 *
 * Called only by worker.c.
 *
 * src/tickets.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TICKETS_H
#define ZKL_TICKETS_H

#include "session.h"

/*
 * A worker starts.  Tickets that an earlier worker left in shared memory are
 * taken up where they stand.
 */
extern void zkl_tickets_start(const char *prefix);

/*
 * The session has a new connection, or lost the one it had, or its handle and
 * all replies with it, or has expired.
 */
extern void zkl_tickets_reconnected(void);
extern void zkl_tickets_disconnected(void);
extern void zkl_tickets_restarted(void);
extern void zkl_tickets_expired(void);

/* A reply, or a watch that fired. */
extern void zkl_tickets_handle(const ZklSessionEvent *event);

/* Do what backends asked for, and what timers remind of. */
extern void zkl_tickets_take_work(void);
extern void zkl_tickets_run_timers(void);

/* zklock.linger was changed. */
extern void zkl_tickets_reset_timers(void);

/* Send what is due, as far as the window allows. */
extern void zkl_tickets_send(void);

#endif							/* ZKL_TICKETS_H */
