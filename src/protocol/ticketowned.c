/*-------------------------------------------------------------------------
 *
 * ticketowned.c
 *	  What ZooKeeper's replies mean to a ticket that owns the lock.
 *
 * An owner learns from lists who queues behind it, and from its own znode what
 * other clients have written there.  It writes into its znode who holds the
 * lock, and it becomes a reader.  Any reply may tell that the znode is gone;
 * then the lock is lost.
 *
 * src/protocol/ticketowned.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/ticketint.h"

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
static ZklTicketStep stay_writer(ZklTicket *ticket);

ZklTicketStep
zkl_ticket_on_owners_reply(ZklTicket *ticket, const ZklTicketEvent *event)
{
	switch (ticket->state)
	{
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
		default:
			assert(!zkl_ticket_is_owner(ticket));
			return nothing;
	}
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

	verdict = zkl_ticket_judge(ticket, event);

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
			if (still_expected(ticket, event))
			{
				step.report = ZKL_REPORT_DIFFERS;
				ticket->answers &= ticket->answered;
				ticket->mute = true;
				return step;
			}
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
		ticket->refused |= event->outcome == ZKL_OUTCOME_CHANGED;
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
			ticket->refused = true;
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
			if (still_expected(ticket, event))
			{
				step = stay_writer(ticket);
				step.report = ZKL_REPORT_DIFFERS;
				return step;
			}
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

/*
 * ZooKeeper has refused a write because of the version of the data, and shows
 * that version now.
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
	if (!event->revoked || ticket->revoked)
		return ZKL_REPORT_NOTHING;
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
	zkl_ticket_set_name(ticket, name);
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
	ticket->refused = false;
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
