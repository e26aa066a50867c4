/*-------------------------------------------------------------------------
 *
 * ticketreply.c
 *	  What ZooKeeper's replies mean to a ticket.
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
static ZklTicketStep on_inspect_reply(ZklTicket *ticket,
									  const ZklTicketEvent *event);
static ZklTicketStep on_place_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);
static ZklTicketStep on_survey_reply(ZklTicket *ticket,
									 const ZklTicketEvent *event);
static ZklTicketStep on_watch_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);
static ZklTicketStep on_check_reply(ZklTicket *ticket,
									const ZklTicketEvent *event);
static ZklTicketStep on_watch_self_reply(ZklTicket *ticket,
										 const ZklTicketEvent *event);
static ZklTicketStep on_answer_reply(ZklTicket *ticket,
									 const ZklTicketEvent *event);
static ZklTicketStep on_downgrade_reply(ZklTicket *ticket,
										const ZklTicketEvent *event);
static ZklTicketStep on_reread_reply(ZklTicket *ticket,
									 const ZklTicketEvent *event);
static ZklTicketStep on_confirm_reply(ZklTicket *ticket,
									  const ZklTicketEvent *event);

static ZklVerdict judge(const ZklTicket *ticket, const ZklTicketEvent *event);
static ZklTicketStep take_place(ZklTicket *ticket, const ZklVerdict *verdict);
static ZklTicketStep take_answer(ZklTicket *ticket);
static ZklReport note_text(ZklTicket *ticket, const ZklTicketEvent *event);
static void set_name(ZklTicket *ticket, const char *name);
static void take_readers_name(ZklTicket *ticket);
static ZklTicketStep become_reader(ZklTicket *ticket);
static ZklTicketStep stay_writer(ZklTicket *ticket);
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
			return on_watch_self_reply(ticket, event);
		case ZKL_TICKET_CHECKING:
			return on_check_reply(ticket, event);
		case ZKL_TICKET_ANSWERING:
			return on_answer_reply(ticket, event);
		case ZKL_TICKET_DOWNGRADING:
			return on_downgrade_reply(ticket, event);
		case ZKL_TICKET_REREADING:
			return on_reread_reply(ticket, event);
		case ZKL_TICKET_CONFIRMING:
			return on_confirm_reply(ticket, event);

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
			set_name(ticket, event->name);
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
				return create_anew(ticket);
			set_name(ticket, found);
			if (ticket->unwanted)
				return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
			return become(ticket, ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT);
		case ZKL_OUTCOME_ABSENT:
			return create_anew(ticket);
		case ZKL_OUTCOME_REFUSED:
			return get_stuck(ticket, event->failure);
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			break;
	}
	return nothing;
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
			verdict = judge(ticket, event);
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
 * By this list an owner learns whether it still owns the lock, and which
 * znodes queue behind it.  While there are none, the directory's watch tells
 * it when its own znode goes.  After that the directory changes too often, and
 * a watch on the znode itself takes over.
 */
static ZklTicketStep
on_check_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step = nothing;
	ZklVerdict	verdict;

	/*
	 * If ZooKeeper refuses the list, the ticket keeps the lock, because its
	 * znode still exists.  Without the directory's watch, only the watch on
	 * its own znode tells if another client deletes that.  No event tells
	 * when other clients come, so assume that they are there.
	 */
	ticket->state = ZKL_TICKET_OWNED;
	ticket->listed = true;
	if (event->outcome == ZKL_OUTCOME_REFUSED)
	{
		if (!ticket->contended)
			step.report = ZKL_REPORT_CONTENDED;
		ticket->watched = ticket->contended = true;
		step.request = ZKL_REQUEST_WATCH_SELF;
		return step;
	}

	verdict = judge(ticket, event);

	/* Another client has deleted the znode. */
	if (!verdict.found)
		return lose(ticket);
	if (verdict.contended)
		step.report = ZKL_REPORT_CONTENDED;
	else
	{
		if (ticket->contended)
			step.report = ZKL_REPORT_UNCONTENDED;
		ticket->rechecks = false;
	}
	ticket->contended = verdict.contended;
	ticket->asked = verdict.asked;
	ticket->watched |= verdict.contended;
	if (ticket->watched)
		step.request = ZKL_REQUEST_WATCH_SELF;
	return step;
}

/*
 * The ticket has read its own znode, and set a watch on it.  The text may
 * request the release, and it may not say what it has to say.  After a refused
 * write, a stale name alone is no reason for another write.
 */
static ZklTicketStep
on_watch_self_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step = nothing;
	ZklReport	report;

	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			report = note_text(ticket, event);
			if ((ticket->answers && !ticket->answered) ||
				(event->stale && !ticket->mute))
				step = write_text(ticket);
			step.report = report;
			return step;
		case ZKL_OUTCOME_REFUSED:

			/* The next ANSWER event may try again. */
			ticket->answers &= ticket->answered;
			return nothing;
		case ZKL_OUTCOME_ABSENT:
			return lose(ticket);
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			break;
	}
	return nothing;
}

/*
 * The ticket reads the data again in any case.  That sets the watch, which the
 * ticket's own write may have used up.  It also shows the result of a write
 * whose reply was lost, and what another client has written instead: perhaps
 * __REVOKE__, to request the release.  The ticket notes that before it
 * overwrites the data.  If ZooKeeper refuses writes, tries get no answer.
 */
static ZklTicketStep
on_answer_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (event->outcome == ZKL_OUTCOME_ABSENT)
		return lose(ticket);
	if (event->outcome == ZKL_OUTCOME_REFUSED)
	{
		/* The next ANSWER event may try again. */
		ticket->answers &= ticket->answered;
		ticket->mute = true;
	}
	else
	{
		ticket->answered = event->outcome == ZKL_OUTCOME_OK &&
			ticket->writes_answer;
		ticket->mute &= event->outcome != ZKL_OUTCOME_OK;
	}
	return become(ticket, ZKL_TICKET_OWNED, ZKL_REQUEST_WATCH_SELF);
}

/*
 * The reader's znode takes the writer's place in the queue in one moment.  So
 * no other znode can come between.  And if the writer's znode is gone, the
 * ticket does not take a place that may be another client's by now.
 */
static ZklTicketStep
on_downgrade_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	assert(ticket->mode == ZKL_MODE_WRITE);
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			take_readers_name(ticket);
			return become_reader(ticket);

			/*
			 * Deleted by another client, or by this ticket, if a reply was
			 * lost.
			 */
		case ZKL_OUTCOME_ABSENT:
			take_readers_name(ticket);
			if (ticket->unwanted)
				return become(ticket, ZKL_TICKET_DELETING,
							  ZKL_REQUEST_DELETE);
			return become(ticket, ZKL_TICKET_CONFIRMING, ZKL_REQUEST_INSPECT);

			/*
			 * Another client wrote to the znode, or this ticket did just
			 * before.  In any case the writer's znode is still there.
			 */
		case ZKL_OUTCOME_CHANGED:
			if (ticket->unwanted)
				break;
			return become(ticket, ZKL_TICKET_REREADING,
						  ZKL_REQUEST_WATCH_SELF);
		case ZKL_OUTCOME_UNKNOWN:
		case ZKL_OUTCOME_REFUSED:
			break;
	}
	return stay_writer(ticket);
}

/*
 * Now the ticket has heard a request that would have been deleted with the
 * writer's znode.
 */
static ZklTicketStep
on_reread_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step;
	ZklReport	report;

	assert(ticket->mode == ZKL_MODE_WRITE);
	switch (event->outcome)
	{
		case ZKL_OUTCOME_OK:
			report = note_text(ticket, event);
			step = become(ticket, ZKL_TICKET_DOWNGRADING,
						  ZKL_REQUEST_DOWNGRADE);
			step.report = report;
			return step;
		case ZKL_OUTCOME_ABSENT:
			return lose(ticket);
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
		case ZKL_OUTCOME_REFUSED:
			break;
	}
	return stay_writer(ticket);
}

/*
 * If the reader's znode belongs to this session, a downgrade has made it.  If
 * ZooKeeper refuses to say, the ticket loses the lock, because another client
 * may have it.  Then the znode, if there is one, stays until the session ends.
 */
static ZklTicketStep
on_confirm_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	assert(ticket->mode == ZKL_MODE_WRITE);
	if (event->outcome == ZKL_OUTCOME_OK && event->ours)
		return become_reader(ticket);
	return lose(ticket);
}

/* Where does the znode stand in the list?  Without a directory there is none. */
static ZklVerdict
judge(const ZklTicket *ticket, const ZklTicketEvent *event)
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

/* What the ticket read in its own znode. */
static ZklReport
note_text(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ticket->version = event->version;
	ticket->answered = event->answered;
	ticket->answers |= event->answered;
	if (!event->revoked || ticket->revoked)
		return ZKL_REPORT_NOTHING;
	ticket->revoked = true;
	return ZKL_REPORT_REVOKED;
}

static void
set_name(ZklTicket *ticket, const char *name)
{
	strncpy(ticket->name, name, sizeof(ticket->name) - 1);
	ticket->name[sizeof(ticket->name) - 1] = '\0';
}

/*
 * The reader's znode keeps the writer's sequence number, so the ticket knows
 * its name without a reply.
 */
static void
take_readers_name(ZklTicket *ticket)
{
	char		name[ZKL_ZNODE_SIZE];

	zkl_recipe_make_downgrade(ticket->name, name);
	set_name(ticket, name);
}

/*
 * The downgrade is done.  The facts about the writer's znode must be found out
 * anew for the reader's: which clients wait for it, and whether its release is
 * requested.  The list sets its watches.  The czxid stays the writer's,
 * because the tokens of the present holders are made of it.
 */
static ZklTicketStep
become_reader(ZklTicket *ticket)
{
	ZklTicketStep step;

	assert(ticket->mode == ZKL_MODE_WRITE);
	ticket->mode = ZKL_MODE_READ;
	ticket->contended = false;
	ticket->asked = false;
	ticket->answers = false;
	ticket->answered = false;
	ticket->mute = false;
	ticket->version = 0;
	ticket->revoked = false;
	if (ticket->unwanted)
		return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
	step = become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
	step.report = ZKL_REPORT_DOWNGRADED;
	return step;
}

/*
 * The writer's znode is still there, or ZooKeeper forbids all deletes.  This
 * server's readers can use it; other servers' readers wait.
 */
static ZklTicketStep
stay_writer(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
	return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
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
