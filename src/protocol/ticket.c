/*-------------------------------------------------------------------------
 *
 * ticket.c
 *	  The life of one ticket as a pure step function: event in, request out.
 *
 * The file has four parts: the few ways in which a step ends; the events
 * other than replies; what ZooKeeper's replies mean until the ticket owns the
 * lock; and what they mean after that.
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
 *   changed in another way before.  In that case, ZooKeeper has sent the
 *   directory's watch event first.
 *
 * src/protocol/ticket.c
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <string.h>

#include "protocol/ticket.h"

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
static ZklTicketStep look_again(ZklTicket *ticket);

static ZklTicketStep on_reply(ZklTicket *ticket, const ZklTicketEvent *event);
static ZklTicketStep on_delete_reply(ZklTicket *ticket,
									 const ZklTicketEvent *event);
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

static bool makes_tokens(const ZklTicket *ticket);
static ZklTicketStep take_place(ZklTicket *ticket, const ZklVerdict *verdict);
static ZklTicketStep take_answer(ZklTicket *ticket);

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
static bool still_expected(ZklTicket *ticket, const ZklTicketEvent *event);
static ZklReport note_text(ZklTicket *ticket, const ZklTicketEvent *event);
static void take_readers_name(ZklTicket *ticket);
static ZklTicketStep become_reader(ZklTicket *ticket);

/*
 * The ways in which a step ends
 */

static const ZklTicketStep nothing = {
	ZKL_REQUEST_NOTHING, ZKL_REPORT_NOTHING, ZKL_FAILURE_NONE, false
};

/*
 * The request that each state sends when it begins, and then waits for.  The
 * states that follow CREATING wait for the list that was sent with the create.
 * OWNED requests the watch on its own znode, but does not wait for it.
 */
static const ZklRequest requests[ZKL_TICKET_NSTATES] = {
	[ZKL_TICKET_CREATING_BOTH] = ZKL_REQUEST_CREATE_BOTH,
	[ZKL_TICKET_CREATING] = ZKL_REQUEST_CREATE,
	[ZKL_TICKET_CREATED] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_NO_DIRECTORY] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_UNSURE] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_REFUSED] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_UNDONE] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_FINDING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_INSPECTING] = ZKL_REQUEST_INSPECT,
	[ZKL_TICKET_LISTING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_CHECKING_KIND] = ZKL_REQUEST_SURVEY,
	[ZKL_TICKET_WATCHING] = ZKL_REQUEST_WATCH,
	[ZKL_TICKET_OWNED] = ZKL_REQUEST_WATCH_SELF,
	[ZKL_TICKET_CHECKING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_WRITING_DATA] = ZKL_REQUEST_ANSWER,
	[ZKL_TICKET_DOWNGRADING] = ZKL_REQUEST_DOWNGRADE,
	[ZKL_TICKET_REREADING] = ZKL_REQUEST_WATCH_SELF,
	[ZKL_TICKET_CONFIRMING] = ZKL_REQUEST_INSPECT,
	[ZKL_TICKET_DELETING] = ZKL_REQUEST_DELETE
};

/* Begin this state, and send its request. */
static ZklTicketStep
become(ZklTicket *ticket, ZklTicketState state)
{
	ZklTicketStep step = nothing;

	ticket->state = state;
	step.request = requests[state];
	return step;
}

/*
 * The next state if the znode's name is known: an unwanted ticket is deleted.
 */
static ZklTicketStep
go_on(ZklTicket *ticket, ZklTicketState state)
{
	return become(ticket, ticket->unwanted ? ZKL_TICKET_DELETING : state);
}

static ZklTicketStep
with_report(ZklTicketStep step, ZklReport report)
{
	step.report = report;
	return step;
}

/* Tell why the lock cannot be acquired, if it is still wanted. */
static ZklTicketStep
with_failure(const ZklTicket *ticket, ZklTicketStep step, ZklFailure failure)
{
	if (ticket->unwanted)
		return step;
	step.failure = failure;
	return with_report(step, ZKL_REPORT_FAILED);
}

static ZklTicketStep
gone(ZklTicket *ticket)
{
	ticket->state = ZKL_TICKET_NONE;
	return with_report(nothing, ZKL_REPORT_GONE);
}

/*
 * Write the znode's text.  What the ticket learns meanwhile goes into the next
 * write.
 */
static ZklTicketStep
write_text(ZklTicket *ticket)
{
	assert(ticket->state == ZKL_TICKET_OWNED && ticket->name[0] != '\0');
	ticket->writes_answer = ticket->answers;
	return become(ticket, ZKL_TICKET_WRITING_DATA);
}

static void
set_name(ZklTicket *ticket, const char *name)
{
	strncpy(ticket->name, name, sizeof(ticket->name) - 1);
	ticket->name[sizeof(ticket->name) - 1] = '\0';
}

/* Another znode takes this one's place: neither its text nor a list is known. */
static void
forget_znode(ZklTicket *ticket)
{
	ticket->version = 0;
	ticket->refused = false;
	ticket->revoked = false;
	ticket->queried = false;
	ticket->answers = false;
	ticket->answered = false;
	ticket->write_refused = false;
	ticket->contended = false;
	ticket->asked = false;
}

/*
 * Where is the znode in the list?  If there is no directory, there is no
 * znode.
 */
static ZklVerdict
judge(const ZklTicket *ticket, const ZklTicketEvent *event)
{
	int			nchildren = event->outcome == ZKL_OUTCOME_OK ?
	event->nchildren : 0;

	assert(ticket->name[0] != '\0');
	if (ticket->mode == ZKL_MODE_LEASE)
		return zkl_recipe_judge_lease(event->limit, ticket->name,
									  event->leases, nchildren);
	return zkl_recipe_judge(ticket->mode, ticket->name, event->children,
							nchildren);
}

/*
 * Does the server own the lock by this ticket, as far as it knows?  In the
 * states from OWNED to CONFIRMING it does.
 */
static bool
is_owner(const ZklTicket *ticket)
{
	return ticket->state >= ZKL_TICKET_OWNED &&
		ticket->state <= ZKL_TICKET_CONFIRMING;
}

/* The ticket was owned, and another client may own the lock by now. */
static ZklTicketStep
lose(ZklTicket *ticket)
{
	assert(is_owner(ticket));
	ticket->state = ZKL_TICKET_NONE;
	return with_report(nothing, ZKL_REPORT_LOST);
}

/*
 * The owner lists the directory.  If a list was too long for the connection,
 * another one would end the next connection, too.  Then the ticket reads only
 * its own znode, which shows whether the znode still exists.
 */
static ZklTicketStep
check(ZklTicket *ticket)
{
	return become(ticket, ticket->failure == ZKL_FAILURE_TOO_LONG ?
				  ZKL_TICKET_OWNED : ZKL_TICKET_CHECKING);
}

/*
 * The only znode before this one is gone, and nothing else in the directory
 * had changed before.  So the ticket owns the lock.  A list has still to show
 * which znodes are behind it.
 */
static ZklTicketStep
take_over(ZklTicket *ticket)
{
	assert(ticket->state == ZKL_TICKET_QUEUED && ticket->next);
	assert(ticket->mode != ZKL_MODE_LEASE);
	ticket->predecessor[0] = '\0';
	return with_report(become(ticket, ZKL_TICKET_CHECKING), ZKL_REPORT_OWNED);
}

/* There is no znode, and no request under way will make one. */
static ZklTicketStep
fail(ZklTicket *ticket, ZklFailure failure)
{
	return with_failure(ticket, gone(ticket), failure);
}

/*
 * The znode is of no use: delete it.  Report FAILED now, GONE when it is
 * deleted.
 */
static ZklTicketStep
delete_and_fail(ZklTicket *ticket, ZklFailure failure)
{
	ZklTicketStep step = with_failure(ticket,
									  become(ticket, ZKL_TICKET_DELETING),
									  failure);

	ticket->unwanted = true;
	return step;
}

/*
 * There is, or may be, a znode that ZooKeeper refuses to delete.  It goes
 * before all znodes that the server could make, so the server cannot get the
 * lock until that znode is gone.
 */
static ZklTicketStep
get_stuck(ZklTicket *ticket, ZklFailure failure)
{
	ZklTicketStep step = become(ticket, ZKL_TICKET_STUCK);

	ticket->unwanted = true;
	ticket->failure = failure;
	step.failure = failure;
	return with_report(step, ZKL_REPORT_FAILED);
}

/* There is no znode; make one, if the ticket is still wanted. */
static ZklTicketStep
create_anew(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return gone(ticket);
	return become(ticket, ZKL_TICKET_CREATING);
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
static ZklTicketStep
create_both(ZklTicket *ticket)
{
	if (ticket->unwanted)
		return gone(ticket);
	if (++ticket->rounds > MAX_ROUNDS)
		return fail(ticket, ZKL_FAILURE_DIRECTORY);
	return become(ticket, ZKL_TICKET_CREATING_BOTH);
}

/*
 * Events
 */

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
			return on_reply(ticket, event);
		case ZKL_EVENT_CHILDREN_CHANGED:
			return on_children_changed(ticket);

			/*
			 * The znode's text may be an answer now.  The ticket lists again,
			 * and if it still waits for that znode, it reads the text with a
			 * new watch.
			 */
		case ZKL_EVENT_PREDECESSOR_CHANGED:
			if (ticket->state == ZKL_TICKET_QUEUED)
				return become(ticket, ZKL_TICKET_LISTING);
			return nothing;
		case ZKL_EVENT_PREDECESSOR_GONE:
			if (ticket->state == ZKL_TICKET_QUEUED)
				return ticket->next ? take_over(ticket) :
					become(ticket, ZKL_TICKET_LISTING);
			return nothing;

			/*
			 * Another client has deleted the znode, or written to it.  The
			 * list tells which, and after it the ticket reads the text.
			 */
		case ZKL_EVENT_SELF_CHANGED:
			if (ticket->state == ZKL_TICKET_OWNED)
				return check(ticket);
			return nothing;
		case ZKL_EVENT_RECONNECTED:
			return on_reconnected(ticket);
		case ZKL_EVENT_RESTARTED:
			return look_again(ticket);
		case ZKL_EVENT_EXPIRED:
			return on_expired(ticket);
	}
	return nothing;
}

/*
 * Facts about an earlier znode are not true of the next one.  The name in
 * in_use stays, because it is another client's znode.
 */
void
zkl_ticket_begin_attempt(ZklTicket *ticket, const uint8_t random[16],
						 bool only_tries)
{
	ticket->attempt++;
	zkl_recipe_make_uuid(random, only_tries, ticket->uuid);
	ticket->name[0] = '\0';
	forget_znode(ticket);
	ticket->surveyed = false;
	ticket->watched = false;
	ticket->writes_answer = false;
	ticket->listed = false;
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
	ticket->failure = ZKL_FAILURE_NONE;
	ticket->uuid[0] = '\0';		/* no create is sent yet */
	ticket->unwanted = false;
	ticket->rechecks = false;
	ticket->rounds = 0;
	if (event->is_new)
		return become(ticket, ZKL_TICKET_CREATING_BOTH);
	return become(ticket, ZKL_TICKET_CREATING);
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
		case ZKL_TICKET_NO_DIRECTORY:
		case ZKL_TICKET_UNSURE:
		case ZKL_TICKET_REFUSED:
		case ZKL_TICKET_UNDONE:
		case ZKL_TICKET_FINDING:
			ticket->unwanted = true;
			return nothing;

			/*
			 * The znode has the writer's name or the reader's; the reply will
			 * tell.  Even if this request was not sent, an earlier one may
			 * have been done, with its reply lost.
			 */
		case ZKL_TICKET_DOWNGRADING:
			ticket->unwanted = true;
			return nothing;

		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_INSPECTING:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_CHECKING_KIND:
		case ZKL_TICKET_WATCHING:
		case ZKL_TICKET_QUEUED:
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_CHECKING:
		case ZKL_TICKET_WRITING_DATA:
		case ZKL_TICKET_REREADING:
		case ZKL_TICKET_CONFIRMING:
			ticket->unwanted = true;
			return become(ticket, ZKL_TICKET_DELETING);

		case ZKL_TICKET_DELETING:
			return nothing;

			/* ZooKeeper may allow the delete by now. */
		case ZKL_TICKET_STUCK:
			return look_again(ticket);
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
		 ticket->state == ZKL_TICKET_WRITING_DATA))
		return become(ticket, ZKL_TICKET_DOWNGRADING);
	return nothing;
}

/* In other states, the watch comes with the request under way. */
static ZklTicketStep
on_watch(ZklTicket *ticket)
{
	bool		watched = ticket->watched;

	ticket->watched = true;
	if (ticket->state == ZKL_TICKET_OWNED && !watched)
		return become(ticket, ZKL_TICKET_OWNED);
	return nothing;
}

/*
 * In other states, the request under way ends with a read of the znode's data,
 * which shows whether the answer is still missing.
 *
 * The ticket writes even if the last write was refused: ZooKeeper may allow
 * the write by now.  If ZooKeeper refuses it again, the ticket does not repeat
 * it until the next ANSWER event.
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
	if (ticket->state == ZKL_TICKET_OWNED && !ticket->write_refused)
		return write_text(ticket);
	return nothing;
}

/*
 * A ticket that created its directory defers its first list until the event
 * LOOK, which comes once.  In an owner's other states, the request under way
 * is that list, or ends with it.
 */
static ZklTicketStep
on_look(ZklTicket *ticket)
{
	if (!ticket->listed &&
		(ticket->state == ZKL_TICKET_OWNED ||
		 ticket->state == ZKL_TICKET_WRITING_DATA))
		return become(ticket, ZKL_TICKET_CHECKING);
	return nothing;
}

/*
 * A ticket that has once been contended does not list any more, except after
 * this event.
 */
static ZklTicketStep
on_recheck(ZklTicket *ticket)
{
	ticket->rechecks = true;
	if (ticket->state == ZKL_TICKET_OWNED ||
		ticket->state == ZKL_TICKET_WRITING_DATA)
		return check(ticket);
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
		 ticket->state == ZKL_TICKET_WRITING_DATA) &&
		(!ticket->contended || ticket->rechecks))
		return check(ticket);
	if (ticket->state == ZKL_TICKET_QUEUED && ticket->mode == ZKL_MODE_LEASE)
		return become(ticket, ZKL_TICKET_LISTING);
	return nothing;
}

/*
 * All watches are gone, and ZooKeeper may now delete a znode that it refused
 * to delete before.  A list that was too long for a connection waits until the
 * lock is wanted again: it would end each connection.  In the other states a
 * request for the new connection is due already, because the ticket got the
 * outcome of the last request first.
 */
static ZklTicketStep
on_reconnected(ZklTicket *ticket)
{
	if (ticket->state == ZKL_TICKET_STUCK &&
		ticket->failure == ZKL_FAILURE_TOO_LONG)
		return nothing;
	if (ticket->state == ZKL_TICKET_WATCHING ||
		ticket->state == ZKL_TICKET_QUEUED ||
		ticket->state == ZKL_TICKET_OWNED ||
		ticket->state == ZKL_TICKET_WRITING_DATA ||
		ticket->state == ZKL_TICKET_STUCK)
		return look_again(ticket);
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
	if (!ticket->unwanted && is_owner(ticket))
		return lose(ticket);
	return gone(ticket);
}

/*
 * The reply to the request under way is lost, or the watches that the ticket
 * relies on are.  The next request finds out what is in ZooKeeper.
 */
static ZklTicketStep
look_again(ZklTicket *ticket)
{
	ticket->next = false;
	switch (ticket->state)
	{
		case ZKL_TICKET_NONE:
			return nothing;
		case ZKL_TICKET_CREATING_BOTH:
		case ZKL_TICKET_CREATING:
		case ZKL_TICKET_UNSURE:
			return become(ticket, ZKL_TICKET_FINDING);
		case ZKL_TICKET_NO_DIRECTORY:
			return create_both(ticket);
		case ZKL_TICKET_REFUSED:
			return fail(ticket, ticket->failure);
		case ZKL_TICKET_UNDONE:
			return create_anew(ticket);
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_CHECKING_KIND:
		case ZKL_TICKET_WATCHING:
		case ZKL_TICKET_QUEUED:
			return go_on(ticket, ZKL_TICKET_LISTING);
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_WRITING_DATA:
			return check(ticket);
		case ZKL_TICKET_STUCK:
			return become(ticket, ticket->name[0] == '\0' ?
						  ZKL_TICKET_FINDING : ZKL_TICKET_DELETING);

			/* These states send their request again. */
		case ZKL_TICKET_FINDING:
		case ZKL_TICKET_INSPECTING:
		case ZKL_TICKET_CHECKING:
		case ZKL_TICKET_DOWNGRADING:
		case ZKL_TICKET_REREADING:
		case ZKL_TICKET_CONFIRMING:
		case ZKL_TICKET_DELETING:
			return become(ticket, ticket->state);
	}
	return nothing;
}

/*
 * What ZooKeeper's replies mean, until the ticket owns the lock
 *
 * A reply is for the state that sent the request.  Any other state has sent
 * another request since, and ignores the reply.
 */

/*
 * A reply for which the ticket's state does not wait is ignored.  A reply with
 * outcome UNKNOWN is treated like a restart of the worker.  There are two
 * exceptions: a create, after which the reply to the list is still to come,
 * and an answer.  So the functions below get OK, ABSENT or REFUSED, and what
 * else ticket.h says of their request.
 */
static ZklTicketStep
on_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (event->request == ZKL_REQUEST_NOTHING ||
		event->request != requests[ticket->state])
		return nothing;
	if (event->outcome == ZKL_OUTCOME_UNKNOWN &&
		ticket->state != ZKL_TICKET_CREATING &&
		ticket->state != ZKL_TICKET_WRITING_DATA)
		return look_again(ticket);

	switch (ticket->state)
	{
		case ZKL_TICKET_CREATING_BOTH:
			return on_create_both_reply(ticket, event);
		case ZKL_TICKET_CREATING:
			on_create_reply(ticket, event);
			break;

			/*
			 * The reply to the list that was sent with a create.  The create
			 * has failed, or its reply was lost: the state says which, and so
			 * what comes next.
			 */
		case ZKL_TICKET_NO_DIRECTORY:
		case ZKL_TICKET_UNSURE:
		case ZKL_TICKET_REFUSED:
		case ZKL_TICKET_UNDONE:
			return look_again(ticket);
		case ZKL_TICKET_FINDING:
			return on_find_reply(ticket, event);
		case ZKL_TICKET_INSPECTING:
			return on_inspect_reply(ticket, event);
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
			return on_place_reply(ticket, event);
		case ZKL_TICKET_CHECKING_KIND:
			return on_survey_reply(ticket, event);
		case ZKL_TICKET_WATCHING:
			return on_watch_reply(ticket, event);
		case ZKL_TICKET_OWNED:
			return on_watch_self_reply(ticket, event);
		case ZKL_TICKET_CHECKING:
			return on_check_reply(ticket, event);
		case ZKL_TICKET_WRITING_DATA:
			return on_answer_reply(ticket, event);
		case ZKL_TICKET_DOWNGRADING:
			return on_downgrade_reply(ticket, event);
		case ZKL_TICKET_REREADING:
			return on_reread_reply(ticket, event);
		case ZKL_TICKET_CONFIRMING:
			return on_confirm_reply(ticket, event);
		case ZKL_TICKET_DELETING:
			return on_delete_reply(ticket, event);
		case ZKL_TICKET_NONE:
		case ZKL_TICKET_QUEUED:
		case ZKL_TICKET_STUCK:
			break;
	}
	return nothing;
}

/* An absent znode is gone as well. */
static ZklTicketStep
on_delete_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (event->outcome == ZKL_OUTCOME_UNDONE)
		return become(ticket, ZKL_TICKET_DELETING);
	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return get_stuck(ticket, ZKL_FAILURE_STUCK);
	return gone(ticket);
}

/*
 * Numbers begin with 0 and only grow, so the znode with number 0 is the first.
 * The leases of a semaphore are listed in any case, because they rely on one
 * watch.
 */
static ZklTicketStep
on_create_both_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	/* Another request failed: this tells nothing about the directory. */
	if (event->outcome == ZKL_OUTCOME_UNDONE)
		return ticket->unwanted ? gone(ticket) :
			become(ticket, ZKL_TICKET_CREATING_BOTH);
	on_create_reply(ticket, event);

	/* Unlike after CREATE, no reply to a list has to come first. */
	if (ticket->state != ZKL_TICKET_CREATED)
		return look_again(ticket);
	if (ticket->unwanted || ticket->mode == ZKL_MODE_LEASE ||
		!makes_tokens(ticket) || zkl_recipe_number(ticket->name) != 0)
		return go_on(ticket, ZKL_TICKET_LISTING);
	ticket->state = ZKL_TICKET_OWNED;
	return with_report(nothing, ZKL_REPORT_OWNED);
}

/* Only note the outcome: the reply to the list follows, and decides. */
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
			ticket->state = ZKL_TICKET_NO_DIRECTORY;
			break;
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
			ticket->state = ZKL_TICKET_UNSURE;
			break;
		case ZKL_OUTCOME_REFUSED:
			ticket->state = ZKL_TICKET_REFUSED;
			ticket->failure = event->failure;
			break;
		case ZKL_OUTCOME_UNDONE:
			ticket->state = ZKL_TICKET_UNDONE;
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
	const char *found = NULL;
	ZklTicketStep step;

	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return get_stuck(ticket, event->failure);
	if (event->outcome == ZKL_OUTCOME_OK)
		found = zkl_recipe_find(ticket->mode, ticket->uuid,
								event->children, event->nchildren);
	if (found != NULL)
	{
		set_name(ticket, found);
		return go_on(ticket, ZKL_TICKET_INSPECTING);
	}

	/*
	 * The create was not done; but it may be done late, behind the ticket's
	 * back.  Without a UUID it was never sent: its worker ended.
	 */
	step = create_anew(ticket);
	step.orphan = ticket->uuid[0] != '\0';
	return step;
}

/*
 * A znode of another session goes when that one ends, so the ticket cannot
 * rely on it.
 */
static ZklTicketStep
on_inspect_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return delete_and_fail(ticket, event->failure);
	if (event->outcome == ZKL_OUTCOME_ABSENT || !event->ours)
		return create_anew(ticket);
	ticket->czxid = event->czxid;
	return become(ticket, ZKL_TICKET_LISTING);
}

/* The list by which a znode that exists learns its place in the queue. */
static ZklTicketStep
on_place_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklVerdict	verdict;

	assert(ticket->name[0] != '\0');

	/*
	 * The ticket was withdrawn while the create was under way; now its name
	 * is known.
	 */
	if (ticket->unwanted)
		return become(ticket, ZKL_TICKET_DELETING);
	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return delete_and_fail(ticket, event->failure);

	/* Without a directory, there is no znode either. */
	if (event->outcome == ZKL_OUTCOME_ABSENT)
		return create_anew(ticket);
	if (event->limit == ZKL_LIMIT_NONE)
		return delete_and_fail(ticket, ZKL_FAILURE_LIMIT);
	verdict = judge(ticket, event);
	return take_place(ticket, &verdict);
}

/*
 * Leases below the directory make the path a semaphore.  If ZooKeeper forbids
 * to read them, the ticket cannot know, and goes on.  If there are too many to
 * read, there may be leases among them.
 */
static ZklTicketStep
on_survey_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	assert(ticket->mode != ZKL_MODE_LEASE && !ticket->surveyed);
	if (event->failure == ZKL_FAILURE_TOO_LONG)
		return delete_and_fail(ticket, event->failure);
	if (event->outcome == ZKL_OUTCOME_OK &&
		zkl_recipe_any_lease(event->children, event->nchildren))
		return delete_and_fail(ticket, ZKL_FAILURE_OTHER_KIND);
	ticket->surveyed = true;
	return become(ticket, ZKL_TICKET_LISTING);
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
	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return delete_and_fail(ticket, event->failure);
	if (event->outcome == ZKL_OUTCOME_ABSENT)
		return become(ticket, ZKL_TICKET_LISTING);
	ticket->state = ZKL_TICKET_QUEUED;
	if (ticket->asking && event->answered)
		return take_answer(ticket);
	return nothing;
}

/*
 * A greater czxid would make the token negative, and so smaller than all
 * earlier tokens.  Then an earlier holder would pass for the newest one.
 */
static bool
makes_tokens(const ZklTicket *ticket)
{
	return ticket->czxid >= 0 && ticket->czxid <= ZKL_TICKET_CZXID_MAX;
}

/*
 * What the list means for a znode in the queue: it owns the lock, it waits for
 * another znode, or it has to go.  If the path is in use as another kind of
 * lock, the ticket fails at once only if there is no znode to query.
 */
static ZklTicketStep
take_place(ZklTicket *ticket, const ZklVerdict *verdict)
{
	ZklTicketStep step;
	const char *before;

	ticket->predecessor[0] = '\0';
	ticket->front[0] = '\0';

	/* A lease needs no sequence number below ZKL_SEQUENCE_LIMIT. */
	if (ticket->mode != ZKL_MODE_LEASE &&
		zkl_recipe_number(ticket->name) < 0)
		return delete_and_fail(ticket, ZKL_FAILURE_SEQUENCE);
	if (!makes_tokens(ticket))
		return delete_and_fail(ticket, ZKL_FAILURE_TOKENS);
	if (!verdict->found)
		return create_anew(ticket); /* another client deleted it */
	if (verdict->other_kind && verdict->ask == NULL)
		return delete_and_fail(ticket, ZKL_FAILURE_OTHER_KIND);
	if (verdict->maybe_semaphore && !ticket->surveyed)
		return become(ticket, ZKL_TICKET_CHECKING_KIND);

	ticket->listed = true;
	ticket->next = verdict->next;
	ticket->contended = verdict->contended;
	ticket->asked = verdict->asked;

	/*
	 * A znode that has said "in use" need not be queried again: its text
	 * stays true.
	 */
	ticket->asking = verdict->ask != NULL &&
		(verdict->other_kind || strcmp(verdict->ask, ticket->in_use) != 0);
	ticket->other_kind = verdict->ask_other_kind;
	if (verdict->owned && !verdict->other_kind)
	{
		ticket->watched |= verdict->contended;
		step = become(ticket, ZKL_TICKET_OWNED);
		if (!ticket->watched)
			step.request = ZKL_REQUEST_NOTHING;
		return with_report(step, ZKL_REPORT_OWNED);
	}

	/* The directory's watch tells a lease when other leases go. */
	if (ticket->mode == ZKL_MODE_LEASE)
		return with_report(become(ticket, ZKL_TICKET_QUEUED), ZKL_REPORT_QUEUED);

	/* A ticket that queries another znode watches that znode. */
	before = verdict->ask ? verdict->ask : verdict->predecessor;
	if (strlen(before) >= sizeof(ticket->predecessor))
		return delete_and_fail(ticket, ZKL_FAILURE_FOREIGN_NAME);
	strcpy(ticket->predecessor, before);
	if (verdict->front != NULL &&
		strlen(verdict->front) < sizeof(ticket->front))
		strcpy(ticket->front, verdict->front);
	return with_report(become(ticket, ZKL_TICKET_WATCHING), ZKL_REPORT_QUEUED);
}

/*
 * The lock is in use as long as that znode exists, so the next attempt need
 * not query it again.  If another claim now waits with this ticket, the watch
 * on that znode is enough: that znode goes before the ticket's turn comes.
 */
static ZklTicketStep
take_answer(ZklTicket *ticket)
{
	assert(ticket->state == ZKL_TICKET_QUEUED && ticket->predecessor[0] != '\0');
	ticket->asking = false;
	strcpy(ticket->in_use, ticket->predecessor);
	if (ticket->other_kind)
		return delete_and_fail(ticket, ZKL_FAILURE_OTHER_KIND);
	return with_report(nothing, ZKL_REPORT_QUEUED);
}

/*
 * What the replies mean to a ticket that owns the lock
 *
 * An owner learns from lists who queues behind it, and from its own znode what
 * other clients have written there.  It writes into its znode which backend
 * holds the lock, and a downgrade makes it a reader's.  Any reply may tell
 * that the znode is gone; then the lock is lost.
 */

/*
 * By this list an owner learns whether it still owns the lock, and whether
 * znodes queue behind it.  While there are none, the directory's watch tells
 * it when its own znode goes.  After that the directory changes too often,
 * and a watch on the znode itself takes over.
 */
static ZklTicketStep
on_check_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step = nothing;
	ZklVerdict	verdict;

	/*
	 * If ZooKeeper refuses the list, the ticket keeps the lock, because its
	 * znode still exists.  Without the directory's watch, only the watch on
	 * its own znode tells if another client deletes the znode.  No event
	 * tells when other clients come, so assume that they are there.
	 */
	ticket->state = ZKL_TICKET_OWNED;
	ticket->listed = true;
	if (event->outcome == ZKL_OUTCOME_REFUSED)
	{
		if (!ticket->contended)
			step.report = ZKL_REPORT_CONTENDED;
		ticket->watched = ticket->contended = true;
		ticket->failure = event->failure;
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
 * request the release, or lack what it has to say.  After a refused write, a
 * stale name alone is no reason for another write.
 */
static ZklTicketStep
on_watch_self_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklReport	report;

	if (event->outcome == ZKL_OUTCOME_ABSENT)
		return lose(ticket);
	if (event->outcome == ZKL_OUTCOME_REFUSED)
	{
		/* The next ANSWER event may try again. */
		ticket->answers &= ticket->answered;
		return nothing;
	}
	if (still_expected(ticket, event))
	{
		ticket->answers &= ticket->answered;
		ticket->write_refused = true;
		return with_report(nothing, ZKL_REPORT_DIFFERS);
	}
	report = note_text(ticket, event);
	if ((ticket->answers && !ticket->answered) ||
		(event->stale && !ticket->write_refused))
		return with_report(write_text(ticket), report);
	return with_report(nothing, report);
}

/*
 * The ticket reads the data again in any case.  The read sets the watch, which
 * the ticket's own write may have used up.  The data also show the result of a
 * write whose reply was lost, and whether another client has written
 * __REVOKE__ to request the release.  The ticket notes such a request before
 * it overwrites the data.  If ZooKeeper refuses writes, other clients' tries
 * are not told that the lock is in use.
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
		ticket->write_refused = true;
	}
	else
	{
		ticket->answered = event->outcome == ZKL_OUTCOME_OK &&
			ticket->writes_answer;
		ticket->write_refused &= event->outcome != ZKL_OUTCOME_OK;
		ticket->refused |= event->outcome == ZKL_OUTCOME_CHANGED;
	}
	return become(ticket, ZKL_TICKET_OWNED);
}

/*
 * The reader's znode takes the writer's place in the queue in one transaction.
 * So no other znode can come between.  And if the writer's znode is gone, the
 * transaction fails, because another client may own the lock by now.
 */
static ZklTicketStep
on_downgrade_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	assert(ticket->mode == ZKL_MODE_WRITE);
	if (event->outcome == ZKL_OUTCOME_OK)
	{
		take_readers_name(ticket);
		return become_reader(ticket);
	}

	/*
	 * Another client has deleted the writer's znode; or this ticket has, and
	 * the reply was lost.
	 */
	if (event->outcome == ZKL_OUTCOME_ABSENT)
	{
		take_readers_name(ticket);
		return go_on(ticket, ZKL_TICKET_CONFIRMING);
	}

	/*
	 * Another client wrote to the znode, or this ticket did just before.  In
	 * any case the writer's znode is still there.
	 */
	if (event->outcome == ZKL_OUTCOME_CHANGED)
	{
		ticket->refused = true;
		return go_on(ticket, ZKL_TICKET_REREADING);
	}

	/*
	 * ZooKeeper forbids the downgrade.  This server's readers can use the
	 * writer's znode; other servers' readers wait.
	 */
	return go_on(ticket, ZKL_TICKET_CHECKING);
}

/*
 * The ticket has now read a request that the downgrade would have deleted
 * with the writer's znode.
 */
static ZklTicketStep
on_reread_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	assert(ticket->mode == ZKL_MODE_WRITE);
	if (event->outcome == ZKL_OUTCOME_ABSENT)
		return lose(ticket);

	/* Go on as after a refusal of the downgrade. */
	if (event->outcome == ZKL_OUTCOME_REFUSED)
		return go_on(ticket, ZKL_TICKET_CHECKING);
	if (still_expected(ticket, event))
		return with_report(go_on(ticket, ZKL_TICKET_CHECKING),
						   ZKL_REPORT_DIFFERS);
	return with_report(become(ticket, ZKL_TICKET_DOWNGRADING),
					   note_text(ticket, event));
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

/*
 * Did ZooKeeper refuse the write because of the data's version, although it
 * shows the same version now?
 */
static bool
still_expected(ZklTicket *ticket, const ZklTicketEvent *event)
{
	bool		refused = ticket->refused;

	ticket->refused = false;
	return refused && event->version == ticket->version;
}

/* What the ticket read in its own znode. */
static ZklReport
note_text(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ticket->version = event->version;
	ticket->answered = event->answered;
	ticket->answers |= event->answered;
	ticket->queried = event->queried && !event->answered;
	if (!event->revoked || ticket->revoked)
		return ticket->queried ? ZKL_REPORT_QUERIED : ZKL_REPORT_NOTHING;
	ticket->revoked = true;
	return ZKL_REPORT_REVOKED;
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
	assert(ticket->mode == ZKL_MODE_WRITE);
	ticket->mode = ZKL_MODE_READ;
	forget_znode(ticket);
	if (ticket->unwanted)
		return become(ticket, ZKL_TICKET_DELETING);
	return with_report(become(ticket, ZKL_TICKET_CHECKING),
					   ZKL_REPORT_DOWNGRADED);
}
