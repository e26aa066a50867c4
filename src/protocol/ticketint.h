/*-------------------------------------------------------------------------
 *
 * ticketint.h
 *	  What the files of a ticket share; no other file includes it.
 *
 * The few ways in which a step ends.
 *
 * src/protocol/ticketint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TICKETINT_H
#define ZKL_TICKETINT_H

#include <assert.h>
#include <string.h>

#include "protocol/ticket.h"

/* What a reply to one of the ticket's requests means. */
extern ZklTicketStep zkl_ticket_on_reply(ZklTicket *ticket,
										 const ZklTicketEvent *event);

/* The same, for a ticket that owns the lock as far as it knows. */
extern ZklTicketStep zkl_ticket_on_owners_reply(ZklTicket *ticket,
												const ZklTicketEvent *event);

/*
 * The reply to the request under way is lost, or the watches that the ticket
 * relies on are.  The next request finds out what is in ZooKeeper.
 */
extern ZklTicketStep zkl_ticket_look_again(ZklTicket *ticket);

static const ZklTicketStep nothing = {
	ZKL_REQUEST_NOTHING, ZKL_REPORT_NOTHING, ZKL_FAILURE_NONE, false
};

static inline ZklTicketStep
become(ZklTicket *ticket, ZklTicketState state, ZklRequest request)
{
	ZklTicketStep step = nothing;

	ticket->state = state;
	step.request = request;
	return step;
}

static inline ZklTicketStep
gone(ZklTicket *ticket)
{
	ZklTicketStep step = nothing;

	ticket->state = ZKL_TICKET_NONE;
	step.report = ZKL_REPORT_GONE;
	return step;
}

/*
 * Write the znode's text.  What the ticket learns meanwhile goes into the next
 * write.
 */
static inline ZklTicketStep
write_text(ZklTicket *ticket)
{
	assert(ticket->state == ZKL_TICKET_OWNED && ticket->name[0] != '\0');
	ticket->writes_answer = ticket->answers;
	return become(ticket, ZKL_TICKET_ANSWERING, ZKL_REQUEST_ANSWER);
}

static inline void
zkl_ticket_set_name(ZklTicket *ticket, const char *name)
{
	strncpy(ticket->name, name, sizeof(ticket->name) - 1);
	ticket->name[sizeof(ticket->name) - 1] = '\0';
}

/* Where does the znode stand in the list?  Without a directory there is none. */
static inline ZklVerdict
zkl_ticket_judge(const ZklTicket *ticket, const ZklTicketEvent *event)
{
	int			nchildren = event->outcome == ZKL_OUTCOME_OK ?
	event->nchildren : 0;

	assert(ticket->name[0] != '\0');
	if (ticket->mode == ZKL_MODE_LEASE)
		return zkl_recipe_judge_lease(ticket->limit, ticket->name,
									  event->leases, nchildren);
	return zkl_recipe_judge(ticket->mode, ticket->name, event->children,
							nchildren);
}

/* Does the server own the lock by this ticket, as far as it knows? */
static inline bool
zkl_ticket_is_owner(const ZklTicket *ticket)
{
	return ticket->state == ZKL_TICKET_OWNED ||
		ticket->state == ZKL_TICKET_CHECKING ||
		ticket->state == ZKL_TICKET_ANSWERING ||
		ticket->state == ZKL_TICKET_DOWNGRADING ||
		ticket->state == ZKL_TICKET_REREADING ||
		ticket->state == ZKL_TICKET_CONFIRMING;
}

/* The ticket was owned, and another client may own the lock by now. */
static inline ZklTicketStep
lose(ZklTicket *ticket)
{
	ZklTicketStep step = nothing;

	assert(zkl_ticket_is_owner(ticket));

	ticket->state = ZKL_TICKET_NONE;
	step.report = ZKL_REPORT_LOST;
	return step;
}

/*
 * The only znode before this one is gone, and nothing else in the directory
 * had changed before that.  So the ticket owns the lock.  A list has still to
 * show which znodes are behind it.
 */
static inline ZklTicketStep
take_over(ZklTicket *ticket)
{
	ZklTicketStep step;

	assert(ticket->state == ZKL_TICKET_QUEUED && ticket->next);
	assert(ticket->mode != ZKL_MODE_LEASE);
	step = become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
	ticket->predecessor[0] = '\0';
	step.report = ZKL_REPORT_OWNED;
	return step;
}

/* There is no znode, and no request under way will make one. */
static inline ZklTicketStep
fail(ZklTicket *ticket, ZklFailure failure)
{
	ZklTicketStep step = gone(ticket);

	if (!ticket->unwanted)
	{
		step.report = ZKL_REPORT_FAILED;
		step.failure = failure;
	}
	return step;
}

/*
 * There is a znode, or perhaps is, that ZooKeeper refuses to delete.  It goes
 * before all znodes that the server could make, so the server cannot get the
 * lock until that znode is gone.
 */
static inline ZklTicketStep
get_stuck(ZklTicket *ticket, ZklFailure failure)
{
	ZklTicketStep step = become(ticket, ZKL_TICKET_STUCK,
								ZKL_REQUEST_NOTHING);

	ticket->unwanted = true;
	step.report = ZKL_REPORT_FAILED;
	step.failure = failure;
	return step;
}

/* There is no znode; make one, if the ticket is still wanted. */
static inline ZklTicketStep
create_anew(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return gone(ticket);
	return become(ticket, ZKL_TICKET_CREATING, ZKL_REQUEST_CREATE);
}

/*
 * ZooKeeper may remove an empty directory before a znode is made in it.  If
 * that seems to happen more often, it has another cause.
 */
#define MAX_ROUNDS	10

/*
 * There is no directory, and perhaps not even its parent.  The request makes a
 * directory only together with a znode in it: ZooKeeper never removes a
 * container that has had no child, so an empty one would stay for ever.
 */
static inline ZklTicketStep
create_both(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return gone(ticket);
	if (++ticket->rounds > MAX_ROUNDS)
		return fail(ticket, ZKL_FAILURE_DIRECTORY);
	return become(ticket, ZKL_TICKET_CREATING_BOTH, ZKL_REQUEST_CREATE_BOTH);
}

#endif							/* ZKL_TICKETINT_H */
