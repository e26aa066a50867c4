/*-------------------------------------------------------------------------
 *
 * sendqueue.h
 *	  The requests of tickets: which are due, and when they are sent.
 *
 * Called by ticketfeed.c, but for what heartbeat.c and sessionkeeper.c need.
 * An error ends the worker (worker.c).
 *
 * src/worker/request/sendqueue.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SENDQUEUE_H
#define ZKL_SENDQUEUE_H

#include "nodes/pg_list.h"

#include "shared/locktable.h"
#include "zookeeper/session.h"

/* A worker starts: nothing is due. */
extern void zkl_send_queue_start(void);

/*
 * A ticket has this request to send, in place of the one that it had before.
 */
extern void zkl_send_queue_make_due(ZklEntry *entry, ZklRequest request);

/*
 * The ticket has ended: it has no request to send any more, waits for no list,
 * and has no znode whose bytes count.
 */
extern void zkl_send_queue_forget(ZklEntry *entry);

/* Is the request that would make the ticket's znode still unsent? */
extern bool zkl_send_queue_is_unsent(const ZklEntry *entry);

/*
 * Has the session a ticket, or one on its way, that needs proofs of the
 * session's life?  A ticket by which this server stands for a leadership, and
 * for which nothing else waits, needs no proof until its turn comes.
 * note_standby is called for a ticket whenever that may have changed.
 */
extern bool zkl_send_queue_holds(void);
extern void zkl_send_queue_note_standby(ZklEntry *entry);

/*
 * Send what is due, as far as the session and the window allow.  Returns NULL;
 * or an entry, if its create cannot be sent because the session is full.  Then
 * the caller refuses that create and calls again.
 */
extern ZklEntry *zkl_send_queue_send(void);

/* A request of this ticket has been answered, or the answer is lost. */
extern void zkl_send_queue_answered(ZklEntry *entry, const ZklSessionEvent *event);

/*
 * A semaphore's list has been answered; "attempt" came back with it.  Returns
 * the leases that it serves: their creates were sent before the list.
 */
extern List *zkl_send_queue_take_listeners(ZklEntry *semaphore, uint32 attempt);

#endif							/* ZKL_SENDQUEUE_H */
