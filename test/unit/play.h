/*-------------------------------------------------------------------------
 *
 * play.h
 *	  Lead a ticket through its life, event by event.
 *
 * The ticket that is played with is number 5 in its queue.
 *
 * test/unit/play.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PLAY_H
#define ZKL_PLAY_H

#include "names.h"

#include "protocol/ticket.h"

#define FOREIGN(number) CURATORS "lock-000000000" #number
#define WRITER(number)	CURATORS "__WRIT__000000000" #number
#define LEASE(number)	CURATORS "lease-000000000" #number

#define MY_CZXID	4711
#define MY_LIMIT	2		/* of a semaphore */

/* An array of names and its length, for two parameters. */
#define NAMES(...) \
	(const char *const []) {__VA_ARGS__}, \
	lengthof(((const char *const []) {__VA_ARGS__}))
#define NO_NAMES	NULL, 0

static const char *const state_names[ZKL_TICKET_NSTATES] = {
	"NONE", "CREATING_BOTH", "CREATING", "CREATED", "NO_DIRECTORY", "UNSURE", "REFUSED", "UNDONE",
	"FINDING", "INSPECTING", "LISTING", "CHECKING_KIND", "WATCHING", "QUEUED", "OWNED", "CHECKING", "WRITING_DATA",
	"DOWNGRADING", "REREADING", "CONFIRMING", "DELETING", "STUCK"
};

static const char *const event_names[ZKL_TICKET_NEVENTS] = {
	"want", "unwant", "downgrade", "watch", "answer", "describe", "look", "recheck", "reply",
	"children-changed", "predecessor-changed", "predecessor-gone", "self-changed", "reconnected",
	"restarted", "expired"
};

/* What the sender does before it sends a create. */
static inline void
begin_attempt(ZklTicket *ticket, bool only_tries)
{
	uint8_t		random[16];

	memset(random, (int) ticket->attempt + 1, sizeof(random));
	zkl_ticket_begin_attempt(ticket, random, only_tries);
}

static inline ZklTicketStep
feed(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step = zkl_ticket_step(ticket, event);

	if (step.request == ZKL_REQUEST_CREATE || step.request == ZKL_REQUEST_CREATE_BOTH)
		begin_attempt(ticket, false);
	return step;
}

static inline ZklTicketStep
happens(ZklTicket *ticket, ZklTicketEventKind kind)
{
	ZklTicketEvent event = {.kind = kind};

	return feed(ticket, &event);
}

static inline ZklTicketStep
wants_anew(ZklTicket *ticket, ZklMode mode, bool is_new)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_WANT,
		.is_new = is_new,
		.mode = mode
	};

	return feed(ticket, &event);
}

static inline ZklTicketStep
unwant_unsent(ZklTicket *ticket)
{
	ZklTicketEvent event = {.kind = ZKL_EVENT_UNWANT,.unsent = true};

	return feed(ticket, &event);
}

/* A reply that has an outcome and nothing else. */
static inline ZklTicketStep
reply(ZklTicket *ticket, ZklRequest request, ZklOutcome outcome)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = request,
		.outcome = outcome
	};

	if (outcome == ZKL_OUTCOME_REFUSED)
		event.failure = ZKL_FAILURE_PERMISSION;
	return feed(ticket, &event);
}

/* The name of the ticket's znode with this number. */
static inline const char *
own_name(const ZklTicket *ticket, const char *number)
{
	static char name[ZKL_ZNODE_SIZE + 16];

	zkl_recipe_make_prefix(ticket->mode, ticket->uuid, name);
	strcat(name, number);
	return name;
}

static inline ZklTicketStep
created(ZklTicket *ticket)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_CREATE,
		.outcome = ZKL_OUTCOME_OK,
		.name = own_name(ticket, "0000000005"),
		.czxid = MY_CZXID,
		.ours = true
	};

	return feed(ticket, &event);
}

/* The children are copied: a reply does not point into the ticket. */
static inline ZklTicketStep
replied_with_names(ZklTicket *ticket, ZklTicketEvent *event, const char *const *children, int nchildren)
{
	char		names[20][2 * ZKL_CHILD_SIZE];
	const char *copies[lengthof(names)];
	ZklLease	leases[lengthof(names)];

	assert_true(nchildren <= lengthof(names));
	for (int i = 0; i < nchildren; i++)
	{
		assert_true(strlen(children[i]) < sizeof(names[i]));
		strcpy(names[i], children[i]);
		copies[i] = names[i];
	}
	zkl_recipe_order_leases(copies, nchildren, leases);
	event->children = copies;
	event->nchildren = nchildren;
	event->leases = leases;
	if (event->limit == 0)
		event->limit = MY_LIMIT;
	return feed(ticket, event);
}

static inline ZklTicketStep
listed(ZklTicket *ticket, const char *const *children, int nchildren)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_LIST,
		.outcome = ZKL_OUTCOME_OK
	};

	return replied_with_names(ticket, &event, children, nchildren);
}

static inline ZklTicketStep
watched_own(ZklTicket *ticket, int32_t version, bool answered, bool revoked)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_WATCH_SELF,
		.outcome = ZKL_OUTCOME_OK,
		.version = version,
		.answered = answered,
		.revoked = revoked
	};

	return feed(ticket, &event);
}

static inline ZklTicketStep
inspected(ZklTicket *ticket, bool ours)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_INSPECT,
		.outcome = ZKL_OUTCOME_OK,
		.czxid = MY_CZXID,
		.ours = ours
	};

	return feed(ticket, &event);
}

/* A znode with number 1 that goes before a ticket of this mode. */
static inline const char *
rival_of(ZklMode mode)
{
	return mode == ZKL_MODE_LOCK ? FOREIGN(1) : mode == ZKL_MODE_LEASE ? LEASE(1) : WRITER(1);
}

/* Does a ticket that was wanted in this mode ever get to this state? */
static inline bool
has_state(ZklMode mode, ZklTicketState state)
{
	switch (state)
	{
		case ZKL_TICKET_DOWNGRADING:
		case ZKL_TICKET_REREADING:
		case ZKL_TICKET_CONFIRMING:
			return mode == ZKL_MODE_WRITE;
		case ZKL_TICKET_CHECKING_KIND:
		case ZKL_TICKET_WATCHING:
			return mode != ZKL_MODE_LEASE;
		default:
			return true;
	}
}

static inline ZklTicket ticket_as(ZklMode mode, ZklTicketState state);

/* From CREATING to a state in which the znode may not be known. */
static inline void
lead_to_known_znode(ZklTicket *ticket, ZklTicketState state)
{
	switch (state)
	{
		case ZKL_TICKET_NO_DIRECTORY:
			reply(ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_ABSENT);
			break;
		case ZKL_TICKET_UNSURE:
			reply(ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_UNKNOWN);
			break;
		case ZKL_TICKET_REFUSED:
			reply(ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_REFUSED);
			break;
		case ZKL_TICKET_UNDONE:
			reply(ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_UNDONE);
			break;
		case ZKL_TICKET_FINDING:
			*ticket = ticket_as(ticket->mode, ZKL_TICKET_UNSURE);
			reply(ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN);
			break;
		case ZKL_TICKET_INSPECTING:
			*ticket = ticket_as(ticket->mode, ZKL_TICKET_FINDING);
			listed(ticket, NAMES(own_name(ticket, "0000000005")));
			break;
		default:
			break;
	}
}

/* From CREATED to a state in which its place is known or requested. */
static inline void
lead_to_place(ZklTicket *ticket, ZklTicketState state)
{
	const char *rival = rival_of(ticket->mode);

	switch (state)
	{
		case ZKL_TICKET_LISTING:
			reply(ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN);
			break;
		case ZKL_TICKET_CHECKING_KIND:
			listed(ticket, NAMES("leases", ticket->name));
			break;
		case ZKL_TICKET_WATCHING:
			listed(ticket, NAMES(rival, ticket->name));
			break;
		case ZKL_TICKET_QUEUED:
			listed(ticket, NAMES(rival, ticket->name, LEASE(2)));
			reply(ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK);
			break;
		default:
			break;
	}
}

/* From CREATED to OWNED, or a state that comes after it. */
static inline void
lead_to_end(ZklTicket *ticket, ZklTicketState state)
{
	listed(ticket, NAMES(ticket->name));
	switch (state)
	{
		case ZKL_TICKET_CHECKING:
			happens(ticket, ZKL_EVENT_CHILDREN_CHANGED);
			break;
		case ZKL_TICKET_WRITING_DATA:
			happens(ticket, ZKL_EVENT_ANSWER);
			break;
		case ZKL_TICKET_DOWNGRADING:
			happens(ticket, ZKL_EVENT_DOWNGRADE);
			break;
		case ZKL_TICKET_REREADING:
			happens(ticket, ZKL_EVENT_DOWNGRADE);
			reply(ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_CHANGED);
			break;
		case ZKL_TICKET_CONFIRMING:
			happens(ticket, ZKL_EVENT_DOWNGRADE);
			reply(ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_ABSENT);
			break;
		case ZKL_TICKET_DELETING:
			happens(ticket, ZKL_EVENT_UNWANT);
			break;
		case ZKL_TICKET_STUCK:
			happens(ticket, ZKL_EVENT_UNWANT);
			reply(ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_REFUSED);
			break;
		default:
			break;
	}
}

/* The shortest life that ends in this state. */
static inline ZklTicket
ticket_as(ZklMode mode, ZklTicketState state)
{
	ZklTicket	ticket;

	assert_true(has_state(mode, state));
	memset(&ticket, 0, sizeof(ticket));
	if (state == ZKL_TICKET_NONE)
		return ticket;

	wants_anew(&ticket, mode, state == ZKL_TICKET_CREATING_BOTH);
	lead_to_known_znode(&ticket, state);
	if (state == ZKL_TICKET_CREATED || state >= ZKL_TICKET_LISTING)
		created(&ticket);
	lead_to_place(&ticket, state);
	if (state >= ZKL_TICKET_OWNED)
		lead_to_end(&ticket, state);
	assert_int_equal(ticket.state, state);
	return ticket;
}

#endif							/* ZKL_PLAY_H */
