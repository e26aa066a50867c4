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

#include "unit.h"

#include "ticket.h"

#define FOREIGN(number) \
	"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-lock-000000000" #number

#define MY_CZXID	4711

/* An array of names and its length, for two parameters. */
#define NAMES(...) \
	(const char *const []) {__VA_ARGS__}, \
	lengthof(((const char *const []) {__VA_ARGS__}))
#define NO_NAMES	NULL, 0

/* What the sender does before it sends a create. */
static inline void
begin_attempt(ZklTicket *ticket)
{
	uint8_t		random[16];

	memset(random, (int) ticket->attempt + 1, sizeof(random));
	zkl_ticket_begin_attempt(ticket, random, false);
}

static inline ZklTicketStep
feed(ZklTicket *ticket, const ZklTicketEvent *event)
{
	ZklTicketStep step = zkl_ticket_step(ticket, event);

	if (step.request == ZKL_REQUEST_CREATE)
		begin_attempt(ticket);
	return step;
}

static inline ZklTicketStep
happens(ZklTicket *ticket, ZklTicketEventKind kind)
{
	ZklTicketEvent event = {.kind = kind};

	return feed(ticket, &event);
}

static inline ZklTicketStep
unwant_unsent(ZklTicket *ticket)
{
	ZklTicketEvent event = {.kind = ZKL_EVENT_UNWANT,.unsent = true};

	return feed(ticket, &event);
}

/* A reply that says nothing but how it went. */
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

	zkl_recipe_make_prefix(ticket->uuid, name);
	strcat(name, number);
	return name;
}

static inline ZklTicketStep
created_as(ZklTicket *ticket, const char *number, bool ours)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_CREATE,
		.outcome = ZKL_OUTCOME_OK,
		.name = own_name(ticket, number),
		.czxid = MY_CZXID,
		.ours = ours
	};

	return feed(ticket, &event);
}

static inline ZklTicketStep
created(ZklTicket *ticket)
{
	return created_as(ticket, "0000000005", true);
}

/* The names are copied: a reply does not point into the ticket. */
static inline ZklTicketStep
listed(ZklTicket *ticket, const char *const *children, int nchildren)
{
	char		names[8][2 * ZKL_CHILD_SIZE];
	const char *copies[8];
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_LIST,
		.outcome = ZKL_OUTCOME_OK,
		.children = copies,
		.nchildren = nchildren
	};

	assert_true(nchildren <= lengthof(names));
	for (int i = 0; i < nchildren; i++)
	{
		assert_true(strlen(children[i]) < sizeof(names[i]));
		strcpy(names[i], children[i]);
		copies[i] = names[i];
	}
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

/* The shortest life that ends in this state. */
static inline ZklTicket
ticket_in_state(ZklTicketState state)
{
	ZklTicket	ticket;

	memset(&ticket, 0, sizeof(ticket));
	if (state == ZKL_TICKET_NONE)
		return ticket;

	happens(&ticket, ZKL_EVENT_WANT);
	switch (state)
	{
		case ZKL_TICKET_NONE:
		case ZKL_TICKET_CREATING:
			break;
		case ZKL_TICKET_CREATED:
			created(&ticket);
			break;
		case ZKL_TICKET_HOMELESS:
			reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_ABSENT);
			break;
		case ZKL_TICKET_UNSURE:
			reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_UNKNOWN);
			break;
		case ZKL_TICKET_REFUSED:
			reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_REFUSED);
			break;
		case ZKL_TICKET_MAKING_DIRECTORY:
			ticket = ticket_in_state(ZKL_TICKET_HOMELESS);
			reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT);
			break;
		case ZKL_TICKET_FINDING:
			ticket = ticket_in_state(ZKL_TICKET_UNSURE);
			reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN);
			break;
		case ZKL_TICKET_INSPECTING:
			ticket = ticket_in_state(ZKL_TICKET_FINDING);
			listed(&ticket, NAMES(own_name(&ticket, "0000000005")));
			break;
		case ZKL_TICKET_LISTING:
			ticket = ticket_in_state(ZKL_TICKET_CREATED);
			reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN);
			break;
		case ZKL_TICKET_WATCHING:
			created(&ticket);
			listed(&ticket, NAMES(FOREIGN(1), ticket.name));
			break;
		case ZKL_TICKET_QUEUED:
			ticket = ticket_in_state(ZKL_TICKET_WATCHING);
			reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK);
			break;
		case ZKL_TICKET_OWNED:
			created(&ticket);
			listed(&ticket, NAMES(ticket.name));
			break;
		case ZKL_TICKET_CHECKING:
			ticket = ticket_in_state(ZKL_TICKET_OWNED);
			happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED);
			break;
		case ZKL_TICKET_DELETING:
			ticket = ticket_in_state(ZKL_TICKET_OWNED);
			happens(&ticket, ZKL_EVENT_UNWANT);
			break;
	}
	assert_int_equal(ticket.state, state);
	return ticket;
}

#endif							/* ZKL_PLAY_H */
