/*-------------------------------------------------------------------------
 *
 * ticketint.h
 *	  What ticket.c and ticketreply.c share; nobody else includes it.
 *
 * The few ways in which a step ends.
 *
 * src/ticketint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TICKETINT_H
#define ZKL_TICKETINT_H

#include "ticket.h"

/* What a reply to one of the ticket's requests means. */
extern ZklTicketStep zkl_ticket_on_reply(ZklTicket *ticket,
										 const ZklTicketEvent *event);

/*
 * The reply to what was under way is lost, or the watches are that the ticket
 * rests on.  The next request finds out how things stand.
 */
extern ZklTicketStep zkl_ticket_look_again(ZklTicket *ticket);

static const ZklTicketStep nothing = {
	ZKL_REQUEST_NOTHING, ZKL_REPORT_NOTHING, ZKL_FAILURE_NONE
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

/* Write the znode's text; what the ticket learns meanwhile is for the next write. */
static inline ZklTicketStep
write_text(ZklTicket *ticket)
{
	ticket->writes_answer = ticket->answers;
	return become(ticket, ZKL_TICKET_ANSWERING, ZKL_REQUEST_ANSWER);
}

/* It was owned, and somebody else may own the lock by now. */
static inline ZklTicketStep
lose(ZklTicket *ticket)
{
	ZklTicketStep step = nothing;

	ticket->state = ZKL_TICKET_NONE;
	step.report = ZKL_REPORT_LOST;
	return step;
}

/*
 * Who was the only one before it is gone, and that was the first change.  It still
 * has to see who queues behind it.
 */
static inline ZklTicketStep
take_over(ZklTicket *ticket)
{
	ZklTicketStep step = become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);

	ticket->predecessor[0] = '\0';
	step.report = ZKL_REPORT_OWNED;
	return step;
}

/* There is no znode and there will be none. */
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
 * There is a znode, or perhaps there is, that cannot be deleted now.  It goes
 * before all that the server could make, so the lock cannot be had before it is
 * gone.
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

/* There is no znode; make one, if anybody still wants it. */
static inline ZklTicketStep
create_anew(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return gone(ticket);
	return become(ticket, ZKL_TICKET_CREATING, ZKL_REQUEST_CREATE);
}

/* A directory that is missing this often under our hands has another cause. */
#define MAX_ROUNDS	10

/*
 * There is no directory, and perhaps not even its parent.  ZooKeeper removes no
 * directory that never had a child, so none is made but with a znode in it.
 */
static inline ZklTicketStep
found_directory(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return gone(ticket);
	if (++ticket->rounds > MAX_ROUNDS)
		return fail(ticket, ZKL_FAILURE_DIRECTORY);
	return become(ticket, ZKL_TICKET_FOUNDING, ZKL_REQUEST_FOUND);
}

#endif							/* ZKL_TICKETINT_H */
