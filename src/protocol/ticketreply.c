/*-------------------------------------------------------------------------
 *
 * ticketreply.c
 *	  What ZooKeeper's replies mean to a ticket, until it owns the lock.
 *
 * A reply is for the state that sent the request.  Any other state has sent
 * another request since, and ignores the reply.
 *
 * src/protocol/ticketreply.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/ticketint.h"

#include <string.h>

static ZklTicketStep on_create_both_reply(ZklTicket *ticket,
										  const ZklTicketEvent *event);
static void on_create_reply(ZklTicket *ticket, const ZklTicketEvent *event);
static ZklTicketStep on_find_reply(ZklTicket *ticket,
								   const ZklTicketEvent *event);
static ZklTicketStep not_found(ZklTicket *ticket);
static ZklTicketStep on_inspect_reply(ZklTicket *ticket,
									  const ZklTicketEvent *event);
static ZklTicketStep on_place_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);
static ZklTicketStep on_survey_reply(ZklTicket *ticket,
									 const ZklTicketEvent *event);
static ZklTicketStep on_watch_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);

static ZklTicketStep take_place(ZklTicket *ticket, const ZklVerdict *verdict);
static ZklTicketStep take_answer(ZklTicket *ticket);
static ZklTicketStep delete_and_fail(ZklTicket *ticket, ZklFailure failure);

/* OWNED asks for the watch on its own znode, but does not wait for it. */
static const ZklRequest awaited[ZKL_TICKET_NSTATES] = {
	[ZKL_TICKET_CREATING_BOTH] = ZKL_REQUEST_CREATE_BOTH,
	[ZKL_TICKET_CREATING] = ZKL_REQUEST_CREATE,
	[ZKL_TICKET_CREATED] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_HOMELESS] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_UNSURE] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_REFUSED] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_FINDING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_INSPECTING] = ZKL_REQUEST_INSPECT,
	[ZKL_TICKET_LISTING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_SURVEYING] = ZKL_REQUEST_SURVEY,
	[ZKL_TICKET_WATCHING] = ZKL_REQUEST_WATCH,
	[ZKL_TICKET_OWNED] = ZKL_REQUEST_WATCH_SELF,
	[ZKL_TICKET_CHECKING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_ANSWERING] = ZKL_REQUEST_ANSWER,
	[ZKL_TICKET_DOWNGRADING] = ZKL_REQUEST_DOWNGRADE,
	[ZKL_TICKET_REREADING] = ZKL_REQUEST_WATCH_SELF,
	[ZKL_TICKET_CONFIRMING] = ZKL_REQUEST_INSPECT,
	[ZKL_TICKET_DELETING] = ZKL_REQUEST_DELETE
};

/*
 * A reply for which the ticket's state does not wait is ignored.  A reply with
 * outcome UNKNOWN is treated like a restart of the worker.  There are two
 * exceptions: a create, after which the reply to the list is still to come,
 * and an answer.
 */
ZklTicketStep
zkl_ticket_on_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (event->request == ZKL_REQUEST_NOTHING ||
		event->request != awaited[ticket->state])
		return nothing;
	if (event->outcome == ZKL_OUTCOME_UNKNOWN &&
		ticket->state != ZKL_TICKET_CREATING &&
		ticket->state != ZKL_TICKET_ANSWERING)
		return zkl_ticket_look_again(ticket);

	switch (ticket->state)
	{
		case ZKL_TICKET_CREATING_BOTH:
			return on_create_both_reply(ticket, event);
		case ZKL_TICKET_CREATING:
			on_create_reply(ticket, event);
			break;

			/*
			 * The list that was sent along with a create which failed, or
			 * whose reply was lost.  The state says how the create ended, and
			 * what to do next.
			 */
		case ZKL_TICKET_HOMELESS:
		case ZKL_TICKET_UNSURE:
		case ZKL_TICKET_REFUSED:
			return zkl_ticket_look_again(ticket);
		case ZKL_TICKET_FINDING:
			return on_find_reply(ticket, event);
		case ZKL_TICKET_INSPECTING:
			return on_inspect_reply(ticket, event);
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
			return on_place_reply(ticket, event);
		case ZKL_TICKET_SURVEYING:
			return on_survey_reply(ticket, event);
		case ZKL_TICKET_WATCHING:
			return on_watch_reply(ticket, event);
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_CHECKING:
		case ZKL_TICKET_ANSWERING:
		case ZKL_TICKET_DOWNGRADING:
		case ZKL_TICKET_REREADING:
		case ZKL_TICKET_CONFIRMING:
			return zkl_ticket_on_owners_reply(ticket, event);

			/* An absent znode is gone as well. */
		case ZKL_TICKET_DELETING:
			return event->outcome == ZKL_OUTCOME_REFUSED ?
				get_stuck(ticket, ZKL_FAILURE_STUCK) : gone(ticket);

		case ZKL_TICKET_NONE:
		case ZKL_TICKET_QUEUED:
		case ZKL_TICKET_STUCK:
			break;
	}
	return nothing;
}

/*
 * Numbers begin with 0 and only grow, so the znode with number 0 is the first.
 * The leases of a semaphore are listed in any case, because they rely on one
 * watch.
 */
static ZklTicketStep
on_create_both_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step;

	on_create_reply(ticket, event);

	/*
	 * No list is under way that would have to come first, as it would after
	 * CREATE.
	 */
	if (ticket->state != ZKL_TICKET_CREATED)
		return zkl_ticket_look_again(ticket);
	if (ticket->unwanted)
		return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
	if (ticket->mode == ZKL_MODE_LEASE ||
		!zkl_recipe_is_first_ever(ticket->name))
		return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
	step = become(ticket, ZKL_TICKET_OWNED, ZKL_REQUEST_NOTHING);
	step.report = ZKL_REPORT_OWNED;
	return step;
}

/* Only take note: the reply to the list follows, and decides. */
static void
on_create_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			/* A znode of another session is no ticket of ours. */
			ticket->state = ZKL_TICKET_UNSURE;
			if (!event->ours)
				break;
			ticket->state = ZKL_TICKET_CREATED;
			ticket->czxid = event->czxid;
			zkl_ticket_set_name(ticket, event->name);
			break;
		case ZKL_OUTCOME_ABSENT:
			ticket->state = ZKL_TICKET_HOMELESS;
			break;
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			ticket->state = ZKL_TICKET_UNSURE;
			break;
		case ZKL_OUTCOME_REFUSED:
			ticket->state = ZKL_TICKET_REFUSED;
			ticket->failure = event->failure;
			break;
	}
}

/*
 * The reply to a create was lost.  The list shows by the UUID whether the
 * create was done.  If so, the ticket still lacks the czxid and the owner of
 * the znode.  If ZooKeeper refuses the list, there may be a znode that the
 * ticket cannot name.
 */
static ZklTicketStep
on_find_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	const char *found;

	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			found = zkl_recipe_find(ticket->mode, ticket->uuid,
									event->children, event->nchildren);
			if (found == NULL)
				return not_found(ticket);
			zkl_ticket_set_name(ticket, found);
			if (ticket->unwanted)
				return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
			return become(ticket, ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT);
		case ZKL_OUTCOME_ABSENT:
			return not_found(ticket);
		case ZKL_OUTCOME_REFUSED:
			return get_stuck(ticket, event->failure);
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			break;
	}
	return nothing;
}

/*
 * The create was not done; but it may be done late, behind the ticket's back.
 * Without a UUID it was never sent: its worker ended before that.
 */
static ZklTicketStep
not_found(ZklTicket *ticket)
{
	ZklTicketStep step = create_anew(ticket);

	step.stray = ticket->uuid[0] != '\0';
	return step;
}

/*
 * A znode of another session goes when that one ends, so the ticket cannot
 * rely on it.
 */
static ZklTicketStep
on_inspect_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			if (!event->ours)
				return create_anew(ticket);
			ticket->czxid = event->czxid;
			return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
		case ZKL_OUTCOME_ABSENT:
			return create_anew(ticket);
		case ZKL_OUTCOME_REFUSED:
			return delete_and_fail(ticket, event->failure);
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			break;
	}
	return nothing;
}

/* The list by which a znode that exists learns its place in the queue. */
static ZklTicketStep
on_place_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklVerdict	verdict;

	assert(ticket->name[0] != '\0');

	/* Withdrawn while the create was under way: now it has a name. */
	if (ticket->unwanted)
		return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);

	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			verdict = zkl_ticket_judge(ticket, event);
			return take_place(ticket, &verdict);

			/* Without a directory, there is no znode either. */
		case ZKL_OUTCOME_ABSENT:
			return create_anew(ticket);
		case ZKL_OUTCOME_REFUSED:
			return delete_and_fail(ticket, event->failure);
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			break;
	}
	return nothing;
}

/*
 * Leases below the directory make the path a semaphore.  If ZooKeeper forbids
 * to read them, the ticket cannot know, and goes on.
 */
static ZklTicketStep
on_survey_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	assert(ticket->mode != ZKL_MODE_LEASE && !ticket->surveyed);
	if (event->outcome == ZKL_OUTCOME_OK &&
		zkl_recipe_any_lease(event->children, event->nchildren))
		return delete_and_fail(ticket, ZKL_FAILURE_OTHER_KIND);
	ticket->surveyed = true;
	return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
}

/*
 * The ticket has read its predecessor's znode, and set a watch on it.  If the
 * znode had gone before, the watch would never fire, so the ticket lists
 * again.
 */
static ZklTicketStep
on_watch_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	assert(ticket->predecessor[0] != '\0');
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			ticket->state = ZKL_TICKET_QUEUED;
			if (ticket->asking && event->answered)
				return take_answer(ticket);
			return nothing;
		case ZKL_OUTCOME_ABSENT:
			return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
		case ZKL_OUTCOME_REFUSED:
			return delete_and_fail(ticket, event->failure);
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			break;
	}
	return nothing;
}

/*
 * What the list means for a znode in the queue: it owns the lock, it waits for
 * another znode, or it has to go.  If the path is in use as another kind of
 * lock, the ticket fails at once only if there is no ticket to ask.
 */
static ZklTicketStep
take_place(ZklTicket *ticket, const ZklVerdict *verdict)
{
	ZklTicketStep step;
	const char *before;

	ticket->predecessor[0] = '\0';
	ticket->front[0] = '\0';

	/* The order of leases does not matter. */
	if (ticket->mode != ZKL_MODE_LEASE &&
		!zkl_recipe_sequence_is_sound(ticket->name))
		return delete_and_fail(ticket, ZKL_FAILURE_SEQUENCE);
	if (!verdict->found)
		return create_anew(ticket); /* another client deleted it */
	if (verdict->other_kind && verdict->ask == NULL)
		return delete_and_fail(ticket, ZKL_FAILURE_OTHER_KIND);
	if (verdict->maybe_semaphore && !ticket->surveyed)
		return become(ticket, ZKL_TICKET_SURVEYING, ZKL_REQUEST_SURVEY);

	ticket->listed = true;
	ticket->next = verdict->next;
	ticket->contended = verdict->contended;
	ticket->asked = verdict->asked;

	/*
	 * A znode that has said "in use" need not be asked again: its text stays
	 * true.
	 */
	ticket->asking = verdict->ask != NULL &&
		(verdict->other_kind || strcmp(verdict->ask, ticket->in_use) != 0);
	ticket->other_kind = verdict->ask_other_kind;
	if (verdict->owned && !verdict->other_kind)
	{
		ticket->watched |= verdict->contended;
		step = become(ticket, ZKL_TICKET_OWNED, ticket->watched ?
					  ZKL_REQUEST_WATCH_SELF : ZKL_REQUEST_NOTHING);
		step.report = ZKL_REPORT_OWNED;
		return step;
	}

	/* The directory's watch tells a lease when other leases go. */
	if (ticket->mode == ZKL_MODE_LEASE)
	{
		step = become(ticket, ZKL_TICKET_QUEUED, ZKL_REQUEST_NOTHING);
		step.report = ZKL_REPORT_QUEUED;
		return step;
	}

	/* A ticket that asks watches the znode that has to answer. */
	before = verdict->ask ? verdict->ask : verdict->predecessor;
	if (strlen(before) >= sizeof(ticket->predecessor))
		return delete_and_fail(ticket, ZKL_FAILURE_FOREIGN_NAME);
	strcpy(ticket->predecessor, before);
	if (verdict->front != NULL &&
		strlen(verdict->front) < sizeof(ticket->front))
		strcpy(ticket->front, verdict->front);
	step = become(ticket, ZKL_TICKET_WATCHING, ZKL_REQUEST_WATCH);
	step.report = ZKL_REPORT_QUEUED;
	return step;
}

/*
 * The lock is in use as long as that znode exists, so the next attempt need
 * not ask it again.  If another claim now waits with this ticket, the watch on
 * that znode is enough: that znode goes before the ticket's turn comes.
 */
static ZklTicketStep
take_answer(ZklTicket *ticket)
{
	ZklTicketStep step = nothing;

	assert(ticket->state == ZKL_TICKET_QUEUED && ticket->predecessor[0] != '\0');
	ticket->asking = false;
	strcpy(ticket->in_use, ticket->predecessor);
	if (ticket->other_kind)
		return delete_and_fail(ticket, ZKL_FAILURE_OTHER_KIND);
	step.report = ZKL_REPORT_QUEUED;
	return step;
}

/*
 * The znode is of no use: delete it.  Report FAILED now, GONE when it is
 * deleted.
 */
static ZklTicketStep
delete_and_fail(ZklTicket *ticket, ZklFailure failure)
{
	ZklTicketStep step = become(ticket, ZKL_TICKET_DELETING,
								ZKL_REQUEST_DELETE);

	if (!ticket->unwanted)
	{
		step.report = ZKL_REPORT_FAILED;
		step.failure = failure;
	}
	ticket->unwanted = true;
	return step;
}
