/*-------------------------------------------------------------------------
 *
 * ticket.c
 *	  The life of one ticket as a pure step function: event in, request out.
 *
 * Two rules carry the difficult cases:
 *
 * - A create whose reply was lost is looked for by its UUID before anything
 *   else is tried.  The znode is the worker's until its delete is confirmed
 *   or its session is gone.
 *
 * - What a watch says is never believed, only taken as a reason to list
 *   again.  So a watch may fire late, twice or for nothing.
 *
 * src/ticket.c
 *
 *-------------------------------------------------------------------------
 */
#include "ticket.h"

#include <string.h>

/* A directory that is reaped this often under our hands has another cause. */
#define MAX_ROUNDS	10

static ZklTicketStep on_want(ZklTicket *ticket);
static ZklTicketStep on_unwant(ZklTicket *ticket, bool unsent);
static ZklTicketStep on_reply(ZklTicket *ticket, const ZklTicketEvent *event);
static ZklTicketStep on_reconnected(ZklTicket *ticket);
static ZklTicketStep on_restarted(ZklTicket *ticket);
static ZklTicketStep on_expired(ZklTicket *ticket);

static void on_create_reply(ZklTicket *ticket, const ZklTicketEvent *event);
static ZklTicketStep on_list_reply(ZklTicket *ticket,
								   const ZklTicketEvent *event);
static ZklTicketStep on_directory_reply(ZklTicket *ticket,
										const ZklTicketEvent *event);
static ZklTicketStep on_find_reply(ZklTicket *ticket,
								   const ZklTicketEvent *event);
static ZklTicketStep on_inspect_reply(ZklTicket *ticket,
									  const ZklTicketEvent *event);
static ZklTicketStep on_place_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);
static ZklTicketStep on_watch_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);
static ZklTicketStep on_check_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);
static ZklTicketStep on_watch_self_reply(ZklTicket *ticket,
										 const ZklTicketEvent *event);
static ZklTicketStep on_delete_reply(ZklTicket *ticket,
									 const ZklTicketEvent *event);

static ZklTicketStep take_place(ZklTicket *ticket, const ZklVerdict *verdict);
static void set_name(ZklTicket *ticket, const char *name);
static ZklTicketStep create_anew(ZklTicket *ticket);
static ZklTicketStep fail(ZklTicket *ticket, ZklFailure failure);
static ZklTicketStep delete_and_fail(ZklTicket *ticket, ZklFailure failure);
static ZklTicketStep lose(ZklTicket *ticket);
static ZklTicketStep gone(ZklTicket *ticket);
static ZklTicketStep become(ZklTicket *ticket, ZklTicketState state,
							ZklRequest request);

static const ZklTicketStep nothing = {
	ZKL_REQUEST_NOTHING, ZKL_REPORT_NOTHING, ZKL_FAILURE_NONE
};

ZklTicketStep
zkl_ticket_step(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->kind)
	{
		case ZKL_EVENT_WANT:
			return on_want(ticket);
		case ZKL_EVENT_UNWANT:
			return on_unwant(ticket, event->unsent);
		case ZKL_EVENT_REPLY:
			return on_reply(ticket, event);
		case ZKL_EVENT_CHILDREN_CHANGED:
			if (ticket->state == ZKL_TICKET_OWNED && !ticket->contended)
				return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
			return nothing;
		case ZKL_EVENT_PREDECESSOR_CHANGED:
			if (ticket->state == ZKL_TICKET_QUEUED)
				return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
			return nothing;
		case ZKL_EVENT_SELF_CHANGED:
			if (ticket->state == ZKL_TICKET_OWNED)
				return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
			return nothing;
		case ZKL_EVENT_RECONNECTED:
			return on_reconnected(ticket);
		case ZKL_EVENT_RESTARTED:
			return on_restarted(ticket);
		case ZKL_EVENT_EXPIRED:
			return on_expired(ticket);
	}
	return nothing;
}

void
zkl_ticket_begin_attempt(ZklTicket *ticket, const uint8_t random[16],
						 bool only_tries)
{
	ticket->attempt++;
	ticket->name[0] = '\0';
	zkl_recipe_make_uuid(random, only_tries, ticket->uuid);
}

static ZklTicketStep
on_want(ZklTicket *ticket)
{
	if (ticket->state != ZKL_TICKET_NONE)
		return nothing;
	ticket->unwanted = false;
	ticket->contended = false;
	ticket->rounds = 0;
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
		case ZKL_TICKET_CREATING:
		case ZKL_TICKET_MAKING_DIRECTORY:
			if (unsent)
				return gone(ticket);
			/* FALLTHROUGH */

			/* The name is not known yet; the reply will tell. */
		case ZKL_TICKET_HOMELESS:
		case ZKL_TICKET_UNSURE:
		case ZKL_TICKET_REFUSED:
		case ZKL_TICKET_FINDING:
			ticket->unwanted = true;
			return nothing;

		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_INSPECTING:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_WATCHING:
		case ZKL_TICKET_QUEUED:
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_CHECKING:
			ticket->unwanted = true;
			return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);

		case ZKL_TICKET_DELETING:
			return nothing;
	}
	return nothing;
}

/* A reply that the ticket's state does not wait for is not for it. */
static ZklTicketStep
on_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->request)
	{
		case ZKL_REQUEST_NOTHING:
			break;
		case ZKL_REQUEST_CREATE:
			if (ticket->state == ZKL_TICKET_CREATING)
				on_create_reply(ticket, event);
			break;
		case ZKL_REQUEST_LIST:
			return on_list_reply(ticket, event);
		case ZKL_REQUEST_MAKE_DIRECTORY:
			if (ticket->state == ZKL_TICKET_MAKING_DIRECTORY)
				return on_directory_reply(ticket, event);
			break;
		case ZKL_REQUEST_INSPECT:
			if (ticket->state == ZKL_TICKET_INSPECTING)
				return on_inspect_reply(ticket, event);
			break;
		case ZKL_REQUEST_WATCH:
			if (ticket->state == ZKL_TICKET_WATCHING)
				return on_watch_reply(ticket, event);
			break;
		case ZKL_REQUEST_WATCH_SELF:
			if (ticket->state == ZKL_TICKET_OWNED)
				return on_watch_self_reply(ticket, event);
			break;
		case ZKL_REQUEST_DELETE:
			if (ticket->state == ZKL_TICKET_DELETING)
				return on_delete_reply(ticket, event);
			break;
	}
	return nothing;
}

/* Only take note: the reply to the list follows, and decides. */
static void
on_create_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			/* A znode of another session is no ticket of ours. */
			ticket->state = event->ours ? ZKL_TICKET_CREATED : ZKL_TICKET_UNSURE;
			ticket->czxid = event->czxid;
			set_name(ticket, event->name);
			break;
		case ZKL_OUTCOME_ABSENT:
			ticket->state = ZKL_TICKET_HOMELESS;
			break;
		case ZKL_OUTCOME_UNKNOWN:
			ticket->state = ZKL_TICKET_UNSURE;
			break;
		case ZKL_OUTCOME_REFUSED:
			ticket->state = ZKL_TICKET_REFUSED;
			ticket->failure = event->failure;
			break;
	}
}

static ZklTicketStep
on_list_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (ticket->state)
	{
		case ZKL_TICKET_HOMELESS:
			if (ticket->unwanted)
				return gone(ticket);
			if (++ticket->rounds > MAX_ROUNDS)
				return fail(ticket, ZKL_FAILURE_DIRECTORY);
			return become(ticket, ZKL_TICKET_MAKING_DIRECTORY,
						  ZKL_REQUEST_MAKE_DIRECTORY);
		case ZKL_TICKET_UNSURE:
			return become(ticket, ZKL_TICKET_FINDING, ZKL_REQUEST_LIST);
		case ZKL_TICKET_REFUSED:
			return fail(ticket, ticket->failure);
		case ZKL_TICKET_FINDING:
			return on_find_reply(ticket, event);
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
			return on_place_reply(ticket, event);
		case ZKL_TICKET_CHECKING:
			return on_check_reply(ticket, event);

		case ZKL_TICKET_NONE:
		case ZKL_TICKET_CREATING:
		case ZKL_TICKET_MAKING_DIRECTORY:
		case ZKL_TICKET_INSPECTING:
		case ZKL_TICKET_WATCHING:
		case ZKL_TICKET_QUEUED:
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_DELETING:
			break;
	}
	return nothing;
}

/* An unknown outcome needs no look: the create will say what is there. */
static ZklTicketStep
on_directory_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return fail(ticket, event->failure);
	return create_anew(ticket);
}

static ZklTicketStep
on_find_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	const char *found;

	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			found = zkl_recipe_find(ticket->uuid, event->children,
									event->nchildren);
			if (found == NULL)
				return create_anew(ticket);
			set_name(ticket, found);
			if (ticket->unwanted)
				return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
			return become(ticket, ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT);
		case ZKL_OUTCOME_ABSENT:
			return create_anew(ticket);
		case ZKL_OUTCOME_UNKNOWN:
			return become(ticket, ZKL_TICKET_FINDING, ZKL_REQUEST_LIST);
		case ZKL_OUTCOME_REFUSED:
			return fail(ticket, event->failure);
	}
	return nothing;
}

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
		case ZKL_OUTCOME_UNKNOWN:
			return become(ticket, ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT);
		case ZKL_OUTCOME_REFUSED:
			return delete_and_fail(ticket, event->failure);
	}
	return nothing;
}

/* The list by which a znode that exists learns its place in the queue. */
static ZklTicketStep
on_place_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklVerdict	verdict;

	/* Withdrawn while the create was under way: now it has a name. */
	if (ticket->unwanted)
		return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);

	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			verdict = zkl_recipe_judge(ticket->name, event->children,
									   event->nchildren);
			return take_place(ticket, &verdict);
		case ZKL_OUTCOME_ABSENT:
			return create_anew(ticket);
		case ZKL_OUTCOME_UNKNOWN:
			return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
		case ZKL_OUTCOME_REFUSED:
			return delete_and_fail(ticket, event->failure);
	}
	return nothing;
}

static ZklTicketStep
on_watch_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			ticket->state = ZKL_TICKET_QUEUED;
			return nothing;
		case ZKL_OUTCOME_ABSENT:
		case ZKL_OUTCOME_UNKNOWN:
			return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
		case ZKL_OUTCOME_REFUSED:
			return delete_and_fail(ticket, event->failure);
	}
	return nothing;
}

/*
 * The list by which an owner learns whether it still is, and who queues
 * behind it.  Until somebody does, the directory's watch tells it when its own
 * znode goes; after that it is told too often, and a watch on the znode itself
 * takes over.
 */
static ZklTicketStep
on_check_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step = nothing;
	ZklVerdict	verdict;

	if (event->outcome == ZKL_OUTCOME_UNKNOWN)
		return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);

	/* Who may not look keeps the lock; nobody has taken it away. */
	ticket->state = ZKL_TICKET_OWNED;
	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return nothing;

	verdict = zkl_recipe_judge(ticket->name, event->children,
							   event->outcome == ZKL_OUTCOME_OK ?
							   event->nchildren : 0);
	if (!verdict.found)
		return lose(ticket);
	ticket->contended = verdict.contended;
	if (verdict.contended)
	{
		step.request = ZKL_REQUEST_WATCH_SELF;
		step.report = ZKL_REPORT_CONTENDED;
	}
	return step;
}

static ZklTicketStep
on_watch_self_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
		case ZKL_OUTCOME_REFUSED:
			return nothing;
		case ZKL_OUTCOME_ABSENT:
			return lose(ticket);
		case ZKL_OUTCOME_UNKNOWN:
			return become(ticket, ZKL_TICKET_OWNED, ZKL_REQUEST_WATCH_SELF);
	}
	return nothing;
}

static ZklTicketStep
on_delete_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (event->outcome == ZKL_OUTCOME_UNKNOWN)
		return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);

	/*
	 * A refusal leaves the znode to the end of the session: there is nothing
	 * else that could be done about it.
	 */
	return gone(ticket);
}

/* Watches are gone; who rests on one has to look again. */
static ZklTicketStep
on_reconnected(ZklTicket *ticket)
{
	if (ticket->state == ZKL_TICKET_QUEUED)
		return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
	if (ticket->state == ZKL_TICKET_OWNED)
		return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
	return nothing;
}

/* Whatever was under way was answered to a worker that is no more. */
static ZklTicketStep
on_restarted(ZklTicket *ticket)
{
	switch (ticket->state)
	{
		case ZKL_TICKET_NONE:
			return nothing;
		case ZKL_TICKET_CREATING:
		case ZKL_TICKET_UNSURE:
		case ZKL_TICKET_FINDING:
			return become(ticket, ZKL_TICKET_FINDING, ZKL_REQUEST_LIST);
		case ZKL_TICKET_HOMELESS:
		case ZKL_TICKET_MAKING_DIRECTORY:
			return create_anew(ticket);
		case ZKL_TICKET_REFUSED:
			return fail(ticket, ticket->failure);
		case ZKL_TICKET_INSPECTING:
			return become(ticket, ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT);
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_WATCHING:
		case ZKL_TICKET_QUEUED:
			return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_CHECKING:
			return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
		case ZKL_TICKET_DELETING:
			return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
	}
	return nothing;
}

static ZklTicketStep
on_expired(ZklTicket *ticket)
{
	if (ticket->state == ZKL_TICKET_NONE)
		return nothing;
	if (ticket->state == ZKL_TICKET_OWNED ||
		ticket->state == ZKL_TICKET_CHECKING)
		return lose(ticket);
	return gone(ticket);
}

static ZklTicketStep
take_place(ZklTicket *ticket, const ZklVerdict *verdict)
{
	ZklTicketStep step;

	ticket->predecessor[0] = '\0';
	if (!zkl_recipe_sequence_is_sound(ticket->name))
		return delete_and_fail(ticket, ZKL_FAILURE_SEQUENCE);
	if (!verdict->found)
		return create_anew(ticket); /* deleted by a foreign hand */

	ticket->contended = verdict->contended;
	if (verdict->owned)
	{
		step = become(ticket, ZKL_TICKET_OWNED, verdict->contended ?
					  ZKL_REQUEST_WATCH_SELF : ZKL_REQUEST_NOTHING);
		step.report = ZKL_REPORT_OWNED;
		return step;
	}

	if (strlen(verdict->predecessor) >= sizeof(ticket->predecessor))
		return delete_and_fail(ticket, ZKL_FAILURE_FOREIGN_NAME);
	strcpy(ticket->predecessor, verdict->predecessor);
	step = become(ticket, ZKL_TICKET_WATCHING, ZKL_REQUEST_WATCH);
	step.report = ZKL_REPORT_QUEUED;
	return step;
}

static void
set_name(ZklTicket *ticket, const char *name)
{
	strncpy(ticket->name, name, sizeof(ticket->name) - 1);
	ticket->name[sizeof(ticket->name) - 1] = '\0';
}

/* There is no znode; make one, if anybody still wants it. */
static ZklTicketStep
create_anew(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return gone(ticket);
	return become(ticket, ZKL_TICKET_CREATING, ZKL_REQUEST_CREATE);
}

/*
 * There is no znode and there will be none.  (Only where even the list is
 * refused that shall find a lost create is that not certain; then the znode
 * stays until the session ends.)
 */
static ZklTicketStep
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

/* There is a znode of no use.  FAILED now, GONE when the delete is done. */
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

/* It was owned, and somebody else may own the lock by now. */
static ZklTicketStep
lose(ZklTicket *ticket)
{
	ZklTicketStep step = nothing;

	ticket->state = ZKL_TICKET_NONE;
	step.report = ZKL_REPORT_LOST;
	return step;
}

static ZklTicketStep
gone(ZklTicket *ticket)
{
	ZklTicketStep step = nothing;

	ticket->state = ZKL_TICKET_NONE;
	step.report = ZKL_REPORT_GONE;
	return step;
}

static ZklTicketStep
become(ZklTicket *ticket, ZklTicketState state, ZklRequest request)
{
	ZklTicketStep step = nothing;

	ticket->state = state;
	step.request = request;
	return step;
}
