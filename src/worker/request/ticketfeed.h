/*-------------------------------------------------------------------------
 *
 * ticketfeed.h
 *	  The worker's side of the tickets: feed events, do what the steps say.
 *
 * Called only by worker.c, and by sessionkeeper.c for what happens to a
 * session.  An error ends the worker (worker.c).
 *
 * src/worker/request/ticketfeed.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TICKETFEED_H
#define ZKL_TICKETFEED_H

#include "zookeeper/session.h"

/*
 * A worker starts.  It takes up the tickets that an earlier worker left in
 * shared memory in the state they have.
 */
extern void zkl_ticket_feed_start(const char *prefix);

/*
 * Give this event to all tickets: RECONNECTED, when the session has a new
 * connection; RESTARTED, when its handle is gone, and with it all replies; or
 * EXPIRED.
 */
extern void zkl_ticket_feed_tell_all(ZklTicketEventKind kind);

/* The session has lost its connection. */
extern void zkl_ticket_feed_disconnected(void);

/*
 * take_reply: a ticket's request was answered.  note_change: a watch has
 * fired.
 */
extern void zkl_ticket_feed_take_reply(const ZklSessionEvent *event);
extern void zkl_ticket_feed_note_change(const ZklSessionEvent *event);

/* Do the work that backends have requested, and the work of timers that are due. */
extern void zkl_ticket_feed_take_work(void);
extern void zkl_ticket_feed_run_timers(void);

/* Send what is due, as far as the window allows. */
extern void zkl_ticket_feed_send(void);

#endif							/* ZKL_TICKETFEED_H */
