/*-------------------------------------------------------------------------
 *
 * ask.h
 *	  The worker's requests to ZooKeeper that do not belong to a ticket.
 *
 * An ASK is one request.  Its owner, the ASKER, gets exactly one final answer
 * to it: ZooKeeper's reply, or UNKNOWN if the connection or the handle is
 * lost before that.  An asker that no longer needs the answers cancels its
 * asks.  Then no answer reaches it, and late replies only free their places
 * among the requests that are on their way.
 *
 * An ask waits here until it may be sent.  Askers take turns.  Only a few
 * asks may be on their way at a time, because a ticket's request waits for
 * everything that was sent before it.  The asks of an urgent asker do not
 * wait: it has few, and sends them itself, before the requests of tickets.
 *
 * Only the worker's process uses all this, so no lock protects it.  An error
 * ends the worker (worker.c).
 *
 * src/worker/request/ask.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ASK_H
#define ZKL_ASK_H

#include "lib/ilist.h"

#include "zookeeper/session.h"

typedef struct ZklAsker ZklAsker;

/*
 * Called with the final answer to an ask; "what" and "number" identify the
 * ask.  The answer is freed afterwards.  This function may cancel asks, and
 * may make new ones.
 */
typedef void (*ZklAskAnswered) (ZklAsker *asker, int what, int64 number,
								const ZklSessionEvent *answer);

/*
 * Embedded in its owner, which zeroes it and sets the first fields as needed.
 */
struct ZklAsker
{
	void	   *owner;
	ZklAskAnswered answered;	/* NULL: it needs no answers */
	bool		urgent;
	Oid			role;			/* the role that waits for the answers; 0 if
								 * none */
	int			outstanding;	/* asks without their final answer */
	dlist_head	waiting;		/* asks that are not sent yet */
	dlist_head	sent;
	dlist_node	turn;			/* among the askers with waiting asks */
};

extern void zkl_ask_start(void);

/*
 * These copy their texts.  watched: the session reports the next change.  If
 * the directories above a znode to create are missing, they are made.
 */
extern void zkl_ask_check(ZklAsker *asker, int what);
extern void zkl_ask_sync(ZklAsker *asker, int what);
extern void zkl_ask_children(ZklAsker *asker, int what, int64 number,
							 const char *path, bool watched);
extern void zkl_ask_data(ZklAsker *asker, int what, int64 number,
						 const char *path, int data_size);
extern void zkl_ask_stat(ZklAsker *asker, int what, int64 number,
						 const char *path);
extern void zkl_ask_write(ZklAsker *asker, int what, const char *path,
						  const char *data, int version);
extern void zkl_ask_create(ZklAsker *asker, int what, const char *path,
						   const char *data, ZklCreateMode mode);
extern void zkl_ask_delete(ZklAsker *asker, int what, const char *path);

/*
 * Write the data over this version of the znode; -1: create a persistent
 * znode with them.
 */
extern void zkl_ask_put(ZklAsker *asker, int what, const char *path,
						const char *data, int length, int version);

/* Forget all asks of this asker. */
extern void zkl_ask_cancel(ZklAsker *asker);

/*
 * zkl_ask_send_urgent sends the asks of an urgent asker at once.  Without a
 * usable session they are lost, and their answers come before it returns.
 * zkl_ask_send sends the asks of all other askers, as many as may be on their
 * way.
 */
extern void zkl_ask_send_urgent(ZklAsker *asker);
extern void zkl_ask_send(void);

/* Pass an answer to its asker. */
extern void zkl_ask_handle(const ZklSessionEvent *event);

/* How many asks are on their way, without the urgent ones? */
extern int	zkl_ask_on_the_way(void);

#endif							/* ZKL_ASK_H */
