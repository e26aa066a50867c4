/*-------------------------------------------------------------------------
 *
 * ticket.c
 *	  The life of one ticket as a pure step function: event in, request out.
 *
 * What a reply means is in ticketreply.c; all other events are here.
 *
 * Two rules carry the difficult cases:
 *
 * - If the reply to a create was lost, the ticket looks for the znode by its
 *   UUID before it does anything else.  The ticket keeps the znode until its
 *   delete is confirmed or its session is gone.
 *
 * - A watch that fires is only a reason to list again.  So it may fire late,
 *   twice or for nothing.  There is one exception: the watch that says that the
 *   predecessor is gone.  A name never comes back, and no znode ever gets a
 *   place before one that exists.  So if the predecessor was the only znode
 *   before the ticket's, the ticket owns the lock now, unless the directory has
 *   changed in another way before.  The directory's watch has told that first.
 *
 * src/protocol/ticket.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/ticketint.h"

static ZklTicketStep on_want(ZklTicket *ticket, const ZklTicketEvent *event);
static ZklTicketStep on_unwant(ZklTicket *ticket, bool unsent);
static ZklTicketStep on_downgrade(ZklTicket *ticket);
static ZklTicketStep on_watch(ZklTicket *ticket);
static ZklTicketStep on_answer(ZklTicket *ticket);
static ZklTicketStep on_describe(ZklTicket *ticket);
static ZklTicketStep on_look(ZklTicket *ticket);
static ZklTicketStep on_recheck(ZklTicket *ticket);
static ZklTicketStep on_children_changed(ZklTicket *ticket);
static ZklTicketStep on_reconnected(ZklTicket *ticket);
static ZklTicketStep on_expired(ZklTicket *ticket);

ZklTicketStep
zkl_ticket_step(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->kind)
	{
		case ZKL_EVENT_WANT:
			return on_want(ticket, event);
		case ZKL_EVENT_UNWANT:
			return on_unwant(ticket, event->unsent);
		case ZKL_EVENT_DOWNGRADE:
			return on_downgrade(ticket);
		case ZKL_EVENT_WATCH:
			return on_watch(ticket);
		case ZKL_EVENT_ANSWER:
			return on_answer(ticket);
		case ZKL_EVENT_DESCRIBE:
			return on_describe(ticket);
		case ZKL_EVENT_LOOK:
			return on_look(ticket);
		case ZKL_EVENT_RECHECK:
			return on_recheck(ticket);
		case ZKL_EVENT_REPLY:
			return zkl_ticket_on_reply(ticket, event);
		case ZKL_EVENT_CHILDREN_CHANGED:
			return on_children_changed(ticket);

			/*
			 * The znode's text may be an answer now.  The ticket lists again,
			 * and if it still waits for that znode, it reads the text with a
			 * new watch.
			 */
		case ZKL_EVENT_PREDECESSOR_CHANGED:
			if (ticket->state == ZKL_TICKET_QUEUED)
				return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
			return nothing;
		case ZKL_EVENT_PREDECESSOR_GONE:
			if (ticket->state == ZKL_TICKET_QUEUED)
				return ticket->next ? take_over(ticket) :
					become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
			return nothing;

			/*
			 * Another client has deleted the znode, or written to it.  The
			 * list tells which, and after it the ticket reads the text.
			 */
		case ZKL_EVENT_SELF_CHANGED:
			if (ticket->state == ZKL_TICKET_OWNED)
				return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
			return nothing;
		case ZKL_EVENT_RECONNECTED:
			return on_reconnected(ticket);
		case ZKL_EVENT_RESTARTED:
			return zkl_ticket_look_again(ticket);
		case ZKL_EVENT_EXPIRED:
			return on_expired(ticket);
	}
	return nothing;
}

/*
 * Facts about an earlier znode are not true of the next one.  The name in
 * in_use stays: it is another client's znode, which this attempt does not
 * change.
 */
void
zkl_ticket_begin_attempt(ZklTicket *ticket, const uint8_t random[16],
						 bool only_tries)
{
	ticket->attempt++;
	zkl_recipe_make_uuid(random, only_tries, ticket->uuid);
	ticket->name[0] = '\0';
	ticket->version = 0;
	ticket->refused = false;
	ticket->surveyed = false;
	ticket->watched = false;
	ticket->revoked = false;
	ticket->answers = false;
	ticket->answered = false;
	ticket->writes_answer = false;
	ticket->mute = false;
	ticket->listed = false;
	ticket->contended = false;
	ticket->asked = false;
	ticket->asking = false;
	ticket->predecessor[0] = '\0';
	ticket->front[0] = '\0';
	ticket->next = false;
}

/*
 * If the directory is probably missing, the ticket makes it along with the
 * znode.  A CREATE would only come back with ABSENT, a round trip later.
 */
static ZklTicketStep
on_want(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (ticket->state != ZKL_TICKET_NONE)
		return nothing;
	ticket->mode = event->mode;
	ticket->limit = event->limit;
	ticket->unwanted = false;
	ticket->rechecks = false;
	ticket->rounds = 0;
	if (event->is_new)
		return become(ticket, ZKL_TICKET_CREATING_BOTH, ZKL_REQUEST_CREATE_BOTH);
	return become(ticket, ZKL_TICKET_CREATING, ZKL_REQUEST_CREATE);
}

static ZklTicketStep
on_unwant(ZklTicket *ticket, bool unsent)
{
	switch (ticket->state)
	{
		case ZKL_TICKET_NONE:
			return gone(ticket);

			/* No znode exists before the create is sent. */
		case ZKL_TICKET_CREATING_BOTH:
		case ZKL_TICKET_CREATING:
			if (unsent)
				return gone(ticket);
			ticket->unwanted = true;
			return nothing;

			/* The name is not known yet; the reply will tell. */
		case ZKL_TICKET_HOMELESS:
		case ZKL_TICKET_UNSURE:
		case ZKL_TICKET_REFUSED:
		case ZKL_TICKET_FINDING:
			ticket->unwanted = true;
			return nothing;

			/*
			 * The znode has the writer's name or the reader's; again, the
			 * reply will tell.  It tells nothing that the request was not
			 * sent: that may repeat an earlier one whose reply was lost.
			 */
		case ZKL_TICKET_DOWNGRADING:
			ticket->unwanted = true;
			return nothing;

		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_INSPECTING:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_SURVEYING:
		case ZKL_TICKET_WATCHING:
		case ZKL_TICKET_QUEUED:
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_CHECKING:
		case ZKL_TICKET_ANSWERING:
		case ZKL_TICKET_REREADING:
		case ZKL_TICKET_CONFIRMING:
			ticket->unwanted = true;
			return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);

		case ZKL_TICKET_DELETING:
			return nothing;

			/* ZooKeeper may allow the delete by now. */
		case ZKL_TICKET_STUCK:
			return zkl_ticket_look_again(ticket);
	}
	return nothing;
}

/*
 * After a refusal, the downgrade is requested again only when the state of the
 * lock changes, and so not in circles.
 */
static ZklTicketStep
on_downgrade(ZklTicket *ticket)
{
	if (ticket->mode == ZKL_MODE_WRITE &&
		(ticket->state == ZKL_TICKET_OWNED ||
		 ticket->state == ZKL_TICKET_CHECKING ||
		 ticket->state == ZKL_TICKET_ANSWERING))
		return become(ticket, ZKL_TICKET_DOWNGRADING, ZKL_REQUEST_DOWNGRADE);
	return nothing;
}

/* In other states, the watch comes with the request under way. */
static ZklTicketStep
on_watch(ZklTicket *ticket)
{
	bool		watched = ticket->watched;

	ticket->watched = true;
	if (ticket->state == ZKL_TICKET_OWNED && !watched)
		return become(ticket, ZKL_TICKET_OWNED, ZKL_REQUEST_WATCH_SELF);
	return nothing;
}

/*
 * In other states, the request under way ends with a read of the znode's data,
 * which shows whether the answer is still missing.
 *
 * The ticket tries even if it is mute: ZooKeeper may allow the write by now,
 * and a refused answer leads to no other until the ticket is told again.
 */
static ZklTicketStep
on_answer(ZklTicket *ticket)
{
	bool		answers = ticket->answers;

	ticket->answers = true;
	if (ticket->state == ZKL_TICKET_OWNED && !answers && !ticket->answered)
		return write_text(ticket);
	return nothing;
}

/*
 * In other states, the request under way ends with a read of the znode's data,
 * which shows that the text is out of date.
 */
static ZklTicketStep
on_describe(ZklTicket *ticket)
{
	ticket->watched = true;
	if (ticket->state == ZKL_TICKET_OWNED && !ticket->mute)
		return write_text(ticket);
	return nothing;
}

/* A ticket that created its directory defers its first list until now. */
static ZklTicketStep
on_look(ZklTicket *ticket)
{
	if (ticket->state == ZKL_TICKET_OWNED && !ticket->listed)
		return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
	return nothing;
}

/*
 * A ticket that has once been contended does not list any more, unless it is
 * asked to.
 */
static ZklTicketStep
on_recheck(ZklTicket *ticket)
{
	ticket->rechecks = true;
	if (ticket->state == ZKL_TICKET_OWNED ||
		ticket->state == ZKL_TICKET_ANSWERING)
		return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
	return nothing;
}

/*
 * A lease waits until there are fewer leases, not for a certain one to go.
 * For another ticket in the queue, the change may be that its own znode is
 * gone.
 */
static ZklTicketStep
on_children_changed(ZklTicket *ticket)
{
	if (ticket->state == ZKL_TICKET_WATCHING ||
		ticket->state == ZKL_TICKET_QUEUED)
		ticket->next = false;
	if ((ticket->state == ZKL_TICKET_OWNED ||
		 ticket->state == ZKL_TICKET_ANSWERING) &&
		(!ticket->contended || ticket->rechecks))
		return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
	if (ticket->state == ZKL_TICKET_QUEUED && ticket->mode == ZKL_MODE_LEASE)
		return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
	return nothing;
}

/*
 * All watches are gone, and ZooKeeper may now delete a znode that it refused
 * to delete before.  In the other states a request for the new connection is
 * due already: the outcome of the one before it was reported first.
 */
static ZklTicketStep
on_reconnected(ZklTicket *ticket)
{
	if (ticket->state == ZKL_TICKET_WATCHING ||
		ticket->state == ZKL_TICKET_QUEUED ||
		ticket->state == ZKL_TICKET_OWNED ||
		ticket->state == ZKL_TICKET_ANSWERING ||
		ticket->state == ZKL_TICKET_STUCK)
		return zkl_ticket_look_again(ticket);
	return nothing;
}

/*
 * ZooKeeper has deleted the znode with the session.  No claim relied on a
 * ticket that was not owned, or that was being given up.
 */
static ZklTicketStep
on_expired(ZklTicket *ticket)
{
	if (ticket->state == ZKL_TICKET_NONE)
		return nothing;
	if (!ticket->unwanted && zkl_ticket_is_owner(ticket))
		return lose(ticket);
	return gone(ticket);
}
