/*-------------------------------------------------------------------------
 *
 * test_ticket_table.c
 *	  Every event in every state of a ticket.
 *
 * Each test is a rule that holds in all cases: all modes and states, wanted or
 * not, contended or not, watched or not, with a good number or not, against all
 * events, requests, outcomes and lists.
 *
 * test/unit/test_ticket_table.c
 *
 *-------------------------------------------------------------------------
 */
#include "play.h"

#define S(state)	(1u << ZKL_TICKET_##state)
#define IN(state, set)	((1u << (state)) & (set))

/*
 * What each state waits for.  OWNED waits for nothing, though it may have asked for a watch
 * on its own znode.
 */
static const ZklRequest awaits[ZKL_TICKET_NSTATES] = {
	[ZKL_TICKET_NONE] = ZKL_REQUEST_NOTHING,
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
	[ZKL_TICKET_QUEUED] = ZKL_REQUEST_NOTHING,
	[ZKL_TICKET_OWNED] = ZKL_REQUEST_NOTHING,
	[ZKL_TICKET_WRITING_DATA] = ZKL_REQUEST_ANSWER,
	[ZKL_TICKET_CHECKING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_DOWNGRADING] = ZKL_REQUEST_DOWNGRADE,
	[ZKL_TICKET_REREADING] = ZKL_REQUEST_WATCH_SELF,
	[ZKL_TICKET_CONFIRMING] = ZKL_REQUEST_INSPECT,
	[ZKL_TICKET_DELETING] = ZKL_REQUEST_DELETE,
	[ZKL_TICKET_STUCK] = ZKL_REQUEST_NOTHING,
};

/*
 * An unwanted ticket gets no further than to where its name is known.  A ticket
 * in DELETING or STUCK is always unwanted.
 */
#define UNWANTED_STATES \
	(S(NONE) | S(CREATING_BOTH) | S(CREATING) | S(CREATED) | S(NO_DIRECTORY) | S(UNSURE) | \
	 S(REFUSED) | S(UNDONE) | S(FINDING) | S(DOWNGRADING) | S(DELETING) | \
	 S(STUCK))

/* In these the lock is owned, unless the ticket is unwanted. */
#define OWNING_STATES \
	(S(OWNED) | S(CHECKING) | S(WRITING_DATA) | S(DOWNGRADING) | S(REREADING) | \
	 S(CONFIRMING))

/* Which other znodes are in a list. */
typedef enum Other
{
	NOBODY,
	RIVAL,
	LONG_RIVAL,					/* with a name that is too long */
	STRANGER,					/* of another kind, or no rival */
	TICKET,						/* a rival of zklock */
	TRY,						/* ... that only tries */
	STRANGE_TICKET
} Other;

typedef struct Case
{
	ZklTicket	before;
	ZklTicketEvent event;
	bool		listed;			/* LIST: the own znode is in the list */
	Other		other_before;	/* ... and one with a lower number */
	Other		other_behind;
	bool		leases;			/* ... and a directory "leases" */
	bool		leased;			/* SURVEY: there is a lease */
	bool		sound;			/* the znode's number is below the limit */
	bool		first;			/* ... and 0 */
	bool		tries;			/* it was made for a try */
	ZklTicket	after;
	ZklTicketStep step;
} Case;

typedef void (*Rule) (const Case *c);

static Rule rule;
static int	ncases;

/* hold(condition): the rule does, or the test fails and says where. */
#define hold(condition)		check(c, condition, #condition)

static void
check(const Case *c, bool holds, const char *condition)
{
	if (holds)
		return;
	fail_msg("%s\n\tmode %d in state %s%s%s%s, event %s%s, request %d, outcome %d, "
			 "ours %d, %d children%s: -> %s, request %d, report %d",
			 condition, c->before.mode, state_names[c->before.state],
			 c->before.unwanted ? ", unwanted" : "",
			 c->before.watched ? ", watched" : "",
			 c->before.contended ? ", contended" : "",
			 event_names[c->event.kind], c->event.unsent ? ", unsent" : "",
			 c->event.request, c->event.outcome, c->event.ours,
			 c->event.nchildren, c->listed ? " with the own" : "",
			 state_names[c->after.state], c->step.request, c->step.report);
}

static void
try_event(Case *c)
{
	c->after = c->before;
	c->step = zkl_ticket_step(&c->after, &c->event);
	ncases++;
	rule(c);
}

/* The name that the znode has, or will have. */
static const char *
znode_name(const Case *c)
{
	static char name[ZKL_ZNODE_SIZE + 16];
	char		writer[ZKL_ZNODE_SIZE + 16];

	strcpy(name, own_name(&c->before, c->first ? "0000000000" : c->sound ? "0000000005" : "2147483647"));
	if (c->before.state == ZKL_TICKET_CONFIRMING)
	{
		strcpy(writer, name);
		zkl_recipe_make_downgrade(writer, name);
	}
	return name;
}

/* ... and has after the event.  A downgrade was done, or done before. */
static const char *
name_after(const Case *c)
{
	static char name[ZKL_ZNODE_SIZE + 16];

	if (c->before.state != ZKL_TICKET_DOWNGRADING ||
		c->event.kind != ZKL_EVENT_REPLY ||
		c->event.request != ZKL_REQUEST_DOWNGRADE ||
		(c->event.outcome != ZKL_OUTCOME_OK && c->event.outcome != ZKL_OUTCOME_ABSENT))
		return znode_name(c);
	zkl_recipe_make_downgrade(znode_name(c), name);
	return name;
}

static const char *
other_ticket(ZklMode mode, Other other, bool before)
{
	static char names[2][2 * ZKL_CHILD_SIZE];
	bool		lock = (mode == ZKL_MODE_LOCK) == (other != STRANGE_TICKET);

	sprintf(names[before], "%s%s000000000%c",
			other == TRY ? TRIES : OURS,
			mode == ZKL_MODE_LEASE ? "lease-" : lock ? "lock-" : "__WRIT__", before ? '3' : '6');
	return names[before];
}

/* A znode in a list, whose number is before ours (3, 4) or behind (6). */
static const char *
other_name(ZklMode mode, Other other, bool before)
{
	static char too_long[2 * ZKL_CHILD_SIZE];

	switch (other)
	{
		case NOBODY:
			break;
		case RIVAL:
			if (mode == ZKL_MODE_LOCK)
				return before ? FOREIGN(3) : FOREIGN(6);
			return before ? WRITER(3) : WRITER(6);
		case LONG_RIVAL:
			memset(too_long, 'x', sizeof(too_long));
			strcpy(too_long + ZKL_CHILD_SIZE, mode == ZKL_MODE_LOCK ?
				   "lock-0000000004" : "__WRIT__0000000004");
			return too_long;
		case STRANGER:
			if (mode == ZKL_MODE_LOCK)
				return before ? WRITER(3) : WRITER(6);
			return before ? FOREIGN(3) : FOREIGN(6);
		case TICKET:
		case TRY:
		case STRANGE_TICKET:
			return other_ticket(mode, other, before);
	}
	return NULL;
}

static void
try_list(Case *c)
{
	const char *children[4];
	const char *before = other_name(c->before.mode, c->other_before, true);
	const char *behind = other_name(c->before.mode, c->other_behind, false);
	ZklLease	leases[lengthof(children)];
	int			n = 0;

	if (before)
		children[n++] = before;
	if (c->listed)
		children[n++] = znode_name(c);
	if (behind)
		children[n++] = behind;
	if (c->leases)
		children[n++] = "leases";
	c->event.children = children;
	c->event.nchildren = n;
	zkl_recipe_order_leases(children, n, leases);
	c->event.leases = leases;
	c->event.limit = MY_LIMIT;
	try_event(c);
	c->event.children = NULL;
	c->event.nchildren = 0;
	c->event.leases = NULL;
}

static void
try_lists(Case *c)
{
	for (int bits = 0; bits < 4; bits++)
	{
		c->listed = bits & 1;
		c->leases = bits & 2;
		for (int before = NOBODY; before <= STRANGE_TICKET; before++)
		{
			for (int behind = NOBODY; behind <= STRANGE_TICKET; behind++)
			{
				c->other_before = (Other) before;
				c->other_behind = (Other) behind;
				if (behind != LONG_RIVAL && (c->listed || (before < TICKET && behind < TICKET)))
					try_list(c);
			}
		}
	}
	c->listed = c->leases = false;
	c->other_before = c->other_behind = NOBODY;
}

static void
try_surveys(Case *c)
{
	const char *const children[] = {"junk", LEASE(1)};

	c->event.children = children;
	for (int n = 0; n <= lengthof(children); n++)
	{
		c->event.nchildren = n;
		c->leased = n == 2;
		try_event(c);
	}
	c->event.children = NULL;
	c->event.nchildren = 0;
	c->leased = false;
}

static void
try_reply(Case *c, ZklRequest request, ZklOutcome outcome, bool yes)
{
	c->event.request = request;
	c->event.outcome = outcome;
	c->event.failure = outcome == ZKL_OUTCOME_REFUSED ? ZKL_FAILURE_PERMISSION : ZKL_FAILURE_NONE;
	c->event.czxid = MY_CZXID + 1;
	c->event.name = znode_name(c);
	c->event.ours = yes;
	c->event.revoked = yes;
	c->event.answered = yes;
	c->event.version = yes ? 7 : 0;
	c->event.stale = false;
	if (request == ZKL_REQUEST_WATCH_SELF)
	{
		c->event.stale = true;
		try_event(c);
		c->event.stale = false;
	}
	if (request == ZKL_REQUEST_LIST && outcome == ZKL_OUTCOME_OK)
		try_lists(c);
	else if (request == ZKL_REQUEST_SURVEY && outcome == ZKL_OUTCOME_OK)
		try_surveys(c);
	else
		try_event(c);
}

static void
try_replies(Case *c)
{
	c->event.kind = ZKL_EVENT_REPLY;
	for (int request = 0; request <= ZKL_REQUEST_DELETE; request++)
	{
		for (int outcome = 0; outcome <= ZKL_OUTCOME_UNDONE; outcome++)
		{
			if (outcome == ZKL_OUTCOME_UNDONE && request != ZKL_REQUEST_CREATE_BOTH &&
				request != ZKL_REQUEST_CREATE && request != ZKL_REQUEST_DELETE)
				continue;
			if (outcome == ZKL_OUTCOME_CHANGED &&
				request != ZKL_REQUEST_ANSWER && request != ZKL_REQUEST_DOWNGRADE)
				continue;
			try_reply(c, (ZklRequest) request, (ZklOutcome) outcome, false);
			try_reply(c, (ZklRequest) request, (ZklOutcome) outcome, true);
		}
	}
}

static void
try_all_events(Case *c)
{
	for (int kind = 0; kind < ZKL_TICKET_NEVENTS; kind++)
	{
		memset(&c->event, 0, sizeof(c->event));
		c->event.kind = (ZklTicketEventKind) kind;
		if (kind == ZKL_EVENT_REPLY)
			try_replies(c);
		else
			try_event(c);
		if (kind == ZKL_EVENT_WANT && c->before.mode != ZKL_MODE_LEASE)
		{
			c->event.is_new = true;
			try_event(c);
		}
		if (kind == ZKL_EVENT_UNWANT)
		{
			c->event.unsent = true;
			try_event(c);
		}
	}
}

/* One ticket, in all its variants that can be. */
static void
in_state(ZklMode mode, ZklTicketState state)
{
	for (int bits = 0; bits < 8192; bits++)
	{
		Case		c;

		if (bits & 4096 && state != ZKL_TICKET_OWNED)
			break;
		memset(&c, 0, sizeof(c));
		c.before = ticket_as(mode, state);
		c.before.refused |= (bits & 4096) != 0;
		c.before.unwanted = bits & 1;
		c.before.contended = (bits & 2) != 0;
		c.sound = bits & 4;
		c.before.watched = (bits & 8) != 0;
		c.before.surveyed = (bits & 16) != 0;
		c.before.revoked = (bits & 32) != 0;
		c.before.answers = bits & 64 || state == ZKL_TICKET_WRITING_DATA;
		c.before.answered = (bits & 128) != 0;
		c.tries = (bits & 256) != 0;
		c.before.next = (bits & 512) != 0;
		c.first = bits & 1024 && state == ZKL_TICKET_CREATING_BOTH;
		c.before.write_refused = (bits & 2048) != 0;
		if (c.before.write_refused && !IN(state, OWNING_STATES))
			continue;
		if (state == ZKL_TICKET_STUCK && bits & 1024)
			c.before.name[0] = '\0';
		else if (bits & 1024 && !c.first)
			c.before.listed = !c.before.listed;
		if (c.before.contended && state == ZKL_TICKET_CREATING_BOTH)
			continue;
		if (bits & 1024 && !c.first && (c.before.contended || !IN(state, S(OWNED) | S(CHECKING) | S(STUCK))))
			continue;
		if (c.before.unwanted ? !IN(state, UNWANTED_STATES) : IN(state, S(DELETING) | S(STUCK)))
			continue;
		if (!c.sound && IN(state, S(DOWNGRADING) | S(REREADING) | S(CONFIRMING)))
			continue;
		if (c.before.surveyed && !IN(state, S(CREATED) | S(LISTING)))
			continue;
		if (c.before.next && (mode == ZKL_MODE_LEASE || !IN(state, S(WATCHING) | S(QUEUED))))
			continue;
		if (c.before.revoked && !IN(state, OWNING_STATES))
			continue;
		if (bits & (64 | 128) && (!c.sound || !IN(state, OWNING_STATES)))
			continue;
		if (c.tries)
		{
			if (!IN(state, S(CREATED) | S(LISTING) | S(WATCHING) | S(QUEUED)))
				continue;
			c.before.uuid[17] = 'd';
			c.before.asking = true;
		}
		if (c.before.name[0] != '\0')
			strcpy(c.before.name, znode_name(&c));
		try_all_events(&c);
	}
}

static void
in_all_cases(Rule rule_to_hold)
{
	rule = rule_to_hold;
	ncases = 0;
	for (int mode = ZKL_MODE_LOCK; mode <= ZKL_MODE_LEASE; mode++)
	{
		for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
		{
			if (has_state((ZklMode) mode, (ZklTicketState) s))
				in_state((ZklMode) mode, (ZklTicketState) s);
		}
	}
	assert_true(ncases > 100000);
}

static bool
is_reply(const Case *c)
{
	return c->event.kind == ZKL_EVENT_REPLY;
}

/* What a ticket in this state may have asked for. */
static ZklRequest
request_of(ZklTicketState state)
{
	return state == ZKL_TICKET_OWNED ? ZKL_REQUEST_WATCH_SELF : awaits[state];
}

/* A reply to a request of the state before. */
static bool
is_awaited(const Case *c)
{
	return is_reply(c) && c->event.request != ZKL_REQUEST_NOTHING &&
		c->event.request == request_of(c->before.state);
}

static bool
is_nothing(ZklTicketStep step)
{
	return step.request == ZKL_REQUEST_NOTHING && step.report == ZKL_REPORT_NOTHING;
}

/*
 * The rules
 */

static void
ends_with_the_session(const Case *c)
{
	if (c->event.kind == ZKL_EVENT_EXPIRED)
		hold(c->after.state == ZKL_TICKET_NONE);
}

static void
an_expiry_leaves_no_ticket(void **state)
{
	(void) state;
	in_all_cases(ends_with_the_session);
}

static void
asks_for_what_its_state_awaits(const Case *c)
{
	hold(c->step.request == ZKL_REQUEST_NOTHING || c->step.request == request_of(c->after.state));
}

/* So there is never more than one request, but for the create and its list. */
static void
a_request_is_the_one_that_the_new_state_awaits(void **state)
{
	(void) state;
	in_all_cases(asks_for_what_its_state_awaits);
}

static void
goes_on_waiting_for_something(const Case *c)
{
	bool		changed = c->before.state != c->after.state;
	bool		is_to_wait = awaits[c->after.state] != ZKL_REQUEST_NOTHING;
	bool		list_is_outstanding = c->before.state == ZKL_TICKET_CREATING && is_reply(c);

	/* The reply that it waited for is used up, or will not come any more. */
	if (changed || is_awaited(c) || c->event.kind == ZKL_EVENT_RESTARTED)
	{
		if (is_to_wait && !list_is_outstanding)
			hold(c->step.request != ZKL_REQUEST_NOTHING);
	}
}

static void
a_ticket_that_waits_for_a_reply_has_asked_for_it(void **state)
{
	(void) state;
	in_all_cases(goes_on_waiting_for_something);
}

static void
ignores_what_is_not_awaited(const Case *c)
{
	if (!is_reply(c) || is_awaited(c))
		return;
	hold(memcmp(&c->before, &c->after, sizeof(ZklTicket)) == 0);
	hold(is_nothing(c->step));
}

static void
stale_replies_change_nothing(void **state)
{
	(void) state;
	in_all_cases(ignores_what_is_not_awaited);
}

/* The loss of an awaited reply leads to the same states as a restart. */
static void
is_as_after_a_restart(const Case *c)
{
	const ZklTicketEvent restart = {.kind = ZKL_EVENT_RESTARTED};
	ZklTicket	restarted = c->before;
	ZklTicketStep step = zkl_ticket_step(&restarted, &restart);
	bool		lost = is_awaited(c) &&
		c->event.outcome == ZKL_OUTCOME_UNKNOWN && !IN(c->before.state, S(CREATING) | S(WRITING_DATA));
	bool		reconnected = c->event.kind == ZKL_EVENT_RECONNECTED &&
		IN(c->before.state, S(WATCHING) | S(QUEUED) | S(OWNED) | S(WRITING_DATA) | S(STUCK));

	if (!lost && !reconnected)
		return;
	hold(!c->after.next);
	hold(memcmp(&restarted, &c->after, sizeof(ZklTicket)) == 0);
	hold(step.request == c->step.request);
	hold(step.report == c->step.report);
	hold(step.failure == c->step.failure);
	hold(step.orphan == c->step.orphan);
}

static void
lost_replies_watches_and_workers_lead_to_the_same(void **state)
{
	(void) state;
	in_all_cases(is_as_after_a_restart);
}

static void
means_nothing_in_other_states(const Case *c)
{
	ZklTicket	before = c->before;
	unsigned	meaningful;

	switch (c->event.kind)
	{
		case ZKL_EVENT_WANT:
			meaningful = S(NONE);
			break;
		case ZKL_EVENT_DOWNGRADE:
			meaningful = c->before.mode == ZKL_MODE_WRITE ? S(OWNED) | S(CHECKING) | S(WRITING_DATA) : 0;
			break;
		case ZKL_EVENT_ANSWER:
			before.answers = true;
			meaningful = c->before.answers || c->before.answered ? 0 : S(OWNED);
			break;
		case ZKL_EVENT_DESCRIBE:
			before.watched = true;
			meaningful = c->before.write_refused ? 0 : S(OWNED);
			break;
		case ZKL_EVENT_WATCH:
			before.watched = true;
			meaningful = c->before.watched ? 0 : S(OWNED);
			break;
		case ZKL_EVENT_LOOK:
			meaningful = c->before.listed ? 0 : S(OWNED);
			break;
		case ZKL_EVENT_RECHECK:
			before.rechecks = true;
			meaningful = S(OWNED) | S(WRITING_DATA);
			break;
		case ZKL_EVENT_CHILDREN_CHANGED:
			meaningful = c->before.contended && !c->before.rechecks ? 0 : S(OWNED) | S(WRITING_DATA);
			if (IN(c->before.state, S(WATCHING) | S(QUEUED)))
				before.next = false;
			if (c->before.mode == ZKL_MODE_LEASE)
				meaningful |= S(QUEUED);
			break;
		case ZKL_EVENT_PREDECESSOR_CHANGED:
		case ZKL_EVENT_PREDECESSOR_GONE:
			meaningful = S(QUEUED);
			break;
		case ZKL_EVENT_SELF_CHANGED:
			meaningful = S(OWNED);
			break;
		case ZKL_EVENT_RECONNECTED:
			meaningful = S(WATCHING) | S(QUEUED) | S(OWNED) | S(WRITING_DATA) | S(STUCK);
			break;
		default:
			return;
	}
	if (IN(c->before.state, meaningful))
	{
		hold(c->step.request != ZKL_REQUEST_NOTHING);
		return;
	}
	hold(memcmp(&before, &c->after, sizeof(ZklTicket)) == 0);
	hold(is_nothing(c->step));
}

static void
late_watches_change_nothing(void **state)
{
	(void) state;
	in_all_cases(means_nothing_in_other_states);
}

static void
rests_on_one_watch(const Case *c)
{
	bool		listed = is_awaited(c) &&
		c->event.request == ZKL_REQUEST_LIST && c->event.outcome == ZKL_OUTCOME_OK;

	bool		watches = c->step.request == ZKL_REQUEST_WATCH_SELF;

	bool		may_not_look = is_awaited(c) &&
		c->before.state == ZKL_TICKET_CHECKING && c->event.outcome == ZKL_OUTCOME_REFUSED;

	/*
	 * Every list leaves the directory's watch, but a contended owner does not
	 * heed it.  A ticket that has watched its own znode goes on doing so.
	 */
	if (listed && c->after.state == ZKL_TICKET_OWNED)
	{
		hold(watches == c->after.watched);
		hold(c->after.watched == (c->before.watched || c->after.contended));
	}
	else if (may_not_look)
		hold(watches && c->after.watched);
	else if (is_awaited(c) && c->event.request == ZKL_REQUEST_ANSWER)
		hold(watches == (c->event.outcome != ZKL_OUTCOME_ABSENT));
	else if (c->after.state == ZKL_TICKET_REREADING)
		hold(watches == (is_awaited(c) || c->event.kind == ZKL_EVENT_RESTARTED));
	else if (c->event.kind == ZKL_EVENT_WATCH)
		hold(watches == (c->before.state == ZKL_TICKET_OWNED && !c->before.watched));
	else
		hold(!watches);
}

/* Otherwise it would not learn that its znode was deleted. */
static void
an_owner_rests_on_the_directorys_watch_or_on_its_own(void **state)
{
	(void) state;
	in_all_cases(rests_on_one_watch);
}

static void
is_lost_if_absent(const Case *c)
{
	ZklTicket	before = c->before;
	bool		rereading = before.state == ZKL_TICKET_REREADING;
	bool		done = c->event.outcome == ZKL_OUTCOME_OK;
	bool		differs = done && before.refused && c->event.version == before.version;
	bool		revoked;

	if (!is_awaited(c) || c->event.request != ZKL_REQUEST_WATCH_SELF ||
		c->event.outcome == ZKL_OUTCOME_UNKNOWN)
		return;
	if (c->event.outcome == ZKL_OUTCOME_ABSENT)
	{
		hold(c->after.state == ZKL_TICKET_NONE);
		hold(c->step.request == ZKL_REQUEST_NOTHING);
		hold(c->step.report == ZKL_REPORT_LOST);
		return;
	}
	revoked = done && !differs && c->event.revoked;
	before.revoked |= revoked;
	before.refused &= !done;
	before.write_refused |= differs && !rereading;
	if (done && !differs)
	{
		before.version = c->event.version;
		before.answered = c->event.answered;
		before.answers |= c->event.answered;
		if (rereading)
			before.state = ZKL_TICKET_DOWNGRADING;
		else if ((before.answers && !before.answered) || (c->event.stale && !before.write_refused))
		{
			before.state = ZKL_TICKET_WRITING_DATA;
			before.writes_answer = before.answers;
		}
	}
	else if (rereading)
		before.state = ZKL_TICKET_CHECKING;
	else if ((differs || c->event.outcome == ZKL_OUTCOME_REFUSED) && !before.answered)
		before.answers = false;
	hold(memcmp(&before, &c->after, sizeof(ZklTicket)) == 0);
	hold(c->step.report == (differs ? ZKL_REPORT_DIFFERS :
							revoked && !c->before.revoked ? ZKL_REPORT_REVOKED : ZKL_REPORT_NOTHING));
}

/*
 * After a write the data is read in any case, which may lead to the next write; only
 * a refusal ends that.
 */
static void
reads_what_it_wrote(const Case *c)
{
	ZklOutcome	outcome = c->event.outcome;

	if (!is_awaited(c) || c->event.request != ZKL_REQUEST_ANSWER || outcome == ZKL_OUTCOME_ABSENT)
	{
		hold(c->after.write_refused == c->before.write_refused || !c->after.write_refused || c->step.report == ZKL_REPORT_DIFFERS);
		return;
	}
	hold(c->after.state == ZKL_TICKET_OWNED);
	hold(c->step.request == ZKL_REQUEST_WATCH_SELF);
	hold(c->after.refused == (outcome == ZKL_OUTCOME_CHANGED));
	hold(c->after.write_refused == (outcome == ZKL_OUTCOME_REFUSED || (c->before.write_refused && outcome != ZKL_OUTCOME_OK)));
	if (outcome == ZKL_OUTCOME_REFUSED)
		hold(c->after.answered == c->before.answered);
	else
		hold(c->after.answered == (c->before.writes_answer && outcome == ZKL_OUTCOME_OK));
}

static void
a_write_is_read_again_until_it_is_refused(void **state)
{
	(void) state;
	in_all_cases(reads_what_it_wrote);
}

static void
a_watch_on_itself_says_that_the_znode_is_gone_or_revoked(void **state)
{
	(void) state;
	in_all_cases(is_lost_if_absent);
}

static void
reports_what_its_state_says(const Case *c)
{
	ZklTicketState before = c->before.state;
	ZklTicketState after = c->after.state;
	bool		is_lease = c->before.mode == ZKL_MODE_LEASE;
	bool		owning = IN(before, OWNING_STATES) && !c->before.unwanted;

	switch (c->step.report)
	{
		case ZKL_REPORT_NOTHING:
			break;
		case ZKL_REPORT_QUEUED:
			if (before == ZKL_TICKET_WATCHING)
				hold(after == ZKL_TICKET_QUEUED && c->event.answered && c->before.asking && !c->after.asking);
			else
				hold(after == (is_lease ? ZKL_TICKET_QUEUED : ZKL_TICKET_WATCHING));
			hold((c->after.predecessor[0] == '\0') == is_lease);
			break;
		case ZKL_REPORT_OWNED:
			if (after == ZKL_TICKET_CHECKING)
			{
				hold(c->before.next && c->after.predecessor[0] == '\0');
				hold(before == ZKL_TICKET_QUEUED && c->event.kind == ZKL_EVENT_PREDECESSOR_GONE);
				break;
			}
			hold(after == ZKL_TICKET_OWNED);
			if (before == ZKL_TICKET_CREATING_BOTH)
			{
				hold(c->event.outcome == ZKL_OUTCOME_OK && c->event.ours);
				hold(zkl_recipe_number(c->event.name) == 0);
				hold(!c->after.listed && !c->after.contended);
				break;
			}
			hold(IN(before, S(CREATED) | S(LISTING)));
			hold(c->listed);
			hold(c->sound || is_lease);
			break;
		case ZKL_REPORT_CONTENDED:
			hold(after == ZKL_TICKET_OWNED && before == ZKL_TICKET_CHECKING);
			hold(c->after.contended);
			break;
		case ZKL_REPORT_UNCONTENDED:
			hold(after == ZKL_TICKET_OWNED && before == ZKL_TICKET_CHECKING);
			hold(c->before.contended && !c->after.contended);
			hold(!c->after.rechecks);
			break;
		case ZKL_REPORT_DOWNGRADED:
			hold(after == ZKL_TICKET_CHECKING);
			hold(IN(before, S(DOWNGRADING) | S(CONFIRMING)));
			hold(c->after.mode == ZKL_MODE_READ && !c->after.contended);
			break;
		case ZKL_REPORT_REVOKED:
			hold((IN(after, S(OWNED) | S(WRITING_DATA)) && before == ZKL_TICKET_OWNED) ||
				 (after == ZKL_TICKET_DOWNGRADING && before == ZKL_TICKET_REREADING));
			hold(c->after.revoked);
			break;
		case ZKL_REPORT_DIFFERS:
			hold(c->before.refused && !c->after.refused);
			hold(c->event.version == c->before.version);
			hold((IN(after, S(OWNED)) && before == ZKL_TICKET_OWNED && c->after.write_refused) ||
				 (IN(after, S(CHECKING) | S(DELETING)) && before == ZKL_TICKET_REREADING));
			break;
		case ZKL_REPORT_LOST:
			hold(after == ZKL_TICKET_NONE);
			hold(owning);
			break;
		case ZKL_REPORT_FAILED:
			hold(IN(after, S(NONE) | S(DELETING) | S(STUCK)));
			hold(!c->before.unwanted || after == ZKL_TICKET_STUCK);
			break;
		case ZKL_REPORT_GONE:
			hold(after == ZKL_TICKET_NONE);
			hold(!owning);
			break;
	}
	hold((c->step.report == ZKL_REPORT_FAILED) == (c->step.failure != ZKL_FAILURE_NONE));
}

static void
a_report_agrees_with_the_state(void **state)
{
	(void) state;
	in_all_cases(reports_what_its_state_says);
}

static void
does_not_acquire_unwanted(const Case *c)
{
	if (c->event.kind == ZKL_EVENT_UNWANT)
		hold(c->after.unwanted || c->after.state == ZKL_TICKET_NONE);
	if (c->event.kind != ZKL_EVENT_WANT && c->before.unwanted)
		hold(c->after.unwanted);
	if (IN(c->after.state, S(DELETING) | S(STUCK)))
		hold(c->after.unwanted);
	if (!c->after.unwanted)
		return;
	hold(IN(c->after.state, UNWANTED_STATES));
	hold(IN(c->step.request, 1u << ZKL_REQUEST_NOTHING |
			1u << ZKL_REQUEST_LIST | 1u << ZKL_REQUEST_DOWNGRADE | 1u << ZKL_REQUEST_DELETE));
	hold(c->step.report != ZKL_REPORT_OWNED);
	hold(c->step.report != ZKL_REPORT_QUEUED);
	hold(c->step.report != ZKL_REPORT_DOWNGRADED);
	hold(c->step.report != ZKL_REPORT_REVOKED);
}

static void
an_unwanted_ticket_does_not_go_on_acquiring(void **state)
{
	(void) state;
	in_all_cases(does_not_acquire_unwanted);
}

/*
 * Is it certain after this event that no znode of the ticket is left?  Read
 * from what ZooKeeper said, not from what the ticket makes of it.
 */
static bool
no_znode_is_left(const Case *c)
{
	ZklOutcome	outcome = c->event.outcome;
	bool		absent = outcome == ZKL_OUTCOME_ABSENT || (outcome == ZKL_OUTCOME_OK && !c->listed);

	if (c->event.kind == ZKL_EVENT_EXPIRED || c->before.state == ZKL_TICKET_NONE)
		return true;

	/* A create that was not sent, or answered with an error, made nothing. */
	if (c->event.kind == ZKL_EVENT_UNWANT)
		return c->event.unsent && IN(c->before.state, S(CREATING_BOTH) | S(CREATING));
	if (c->event.kind == ZKL_EVENT_RESTARTED || is_reply(c))
	{
		if (IN(c->before.state, S(NO_DIRECTORY) | S(REFUSED) | S(UNDONE)))
			return true;
	}
	if (!is_awaited(c))
		return false;

	switch (c->before.state)
	{
		case ZKL_TICKET_CREATING_BOTH:
			return outcome == ZKL_OUTCOME_ABSENT || outcome == ZKL_OUTCOME_REFUSED ||
				outcome == ZKL_OUTCOME_UNDONE;
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_CHECKING:
			return absent;
		case ZKL_TICKET_FINDING:
			return absent;
		case ZKL_TICKET_INSPECTING:
			return outcome == ZKL_OUTCOME_ABSENT || (outcome == ZKL_OUTCOME_OK && !c->event.ours);
		case ZKL_TICKET_CONFIRMING:
			/* The writer's is gone.  Refused: left to the session's end. */
			return outcome == ZKL_OUTCOME_ABSENT ||
				outcome == ZKL_OUTCOME_REFUSED || (outcome == ZKL_OUTCOME_OK && !c->event.ours);
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_WRITING_DATA:
		case ZKL_TICKET_REREADING:
			return outcome == ZKL_OUTCOME_ABSENT;
		case ZKL_TICKET_DELETING:
			return outcome == ZKL_OUTCOME_OK || outcome == ZKL_OUTCOME_ABSENT;
		default:
			return false;
	}
}

static void
does_not_forget_a_znode(const Case *c)
{
	bool		forgets = c->after.state == ZKL_TICKET_NONE ||
		c->step.request == ZKL_REQUEST_CREATE || c->step.request == ZKL_REQUEST_CREATE_BOTH;

	if (forgets)
		hold(no_znode_is_left(c));
	hold(c->after.state != ZKL_TICKET_NONE ||
		 c->before.state == ZKL_TICKET_NONE ||
		 c->step.report == ZKL_REPORT_GONE ||
		 c->step.report == ZKL_REPORT_LOST || c->step.report == ZKL_REPORT_FAILED);
}

static void
a_znode_that_may_exist_is_never_forgotten(void **state)
{
	(void) state;
	in_all_cases(does_not_forget_a_znode);
}

/* The order of the znodes, by the list alone. */
static bool
has_the_lock(const Case *c)
{
	bool		alone = c->other_before == NOBODY;
	bool		behind_counts = c->other_behind != NOBODY && (c->other_behind <= STRANGER || !c->sound);

	if (c->before.mode == ZKL_MODE_LEASE)
		return c->listed && !alone + behind_counts + c->leases < MY_LIMIT;
	return c->listed && alone && c->sound && (c->before.surveyed || !c->leases);
}

static void
gets_what_the_list_says(const Case *c)
{
	if (!is_awaited(c) || c->event.request != ZKL_REQUEST_LIST ||
		c->event.outcome != ZKL_OUTCOME_OK || c->before.unwanted ||
		!IN(c->before.state, S(CREATED) | S(LISTING)))
		return;
	hold((c->after.state == ZKL_TICKET_OWNED) == has_the_lock(c));
	if (!c->listed || c->before.mode == ZKL_MODE_LEASE)
		return;
	hold((c->step.failure == ZKL_FAILURE_SEQUENCE) == !c->sound);
	hold((c->step.failure == ZKL_FAILURE_OTHER_KIND) == (c->sound && c->other_before == STRANGER));
	hold((c->after.state == ZKL_TICKET_CHECKING_KIND) ==
		 (c->sound && c->other_before != STRANGER && c->leases && !c->before.surveyed));
	if (!IN(c->after.state, S(OWNED) | S(WATCHING)))
		return;
	hold(c->after.contended == (c->other_behind == RIVAL || c->other_behind >= TICKET));
	hold(c->after.asked == (c->other_behind >= TRY));
	hold(c->after.next == (c->after.state == ZKL_TICKET_WATCHING &&
						   IN(c->other_before, 1u << RIVAL | 1u << LONG_RIVAL | 1u << TICKET | 1u << TRY) &&
						   c->before.mode != ZKL_MODE_WRITE));
	hold(c->after.asking == (c->other_before == STRANGE_TICKET || (c->tries && c->other_before >= TICKET)));
}

static void
a_list_decides_who_has_the_lock(void **state)
{
	(void) state;
	in_all_cases(gets_what_the_list_says);
}

static void
heeds_the_survey(const Case *c)
{
	bool		answered = c->event.outcome != ZKL_OUTCOME_UNKNOWN;

	if (!is_awaited(c) || c->event.request != ZKL_REQUEST_SURVEY)
		return;
	hold((c->step.failure == ZKL_FAILURE_OTHER_KIND) == c->leased);
	hold(c->after.state == (c->leased ? ZKL_TICKET_DELETING : ZKL_TICKET_LISTING));
	hold(c->leased || c->after.surveyed == answered);
}

static void
a_survey_refuses_what_is_a_semaphore(void **state)
{
	(void) state;
	in_all_cases(heeds_the_survey);
}

/*
 * What a reply says about a downgrade; the reader's znode may have the writer's
 * place as soon as it was asked for.
 */
static void
heeds_the_reply(const Case *c)
{
	ZklOutcome	outcome = c->event.outcome;
	bool		confirming = c->before.state == ZKL_TICKET_CONFIRMING;
	bool		done = outcome == ZKL_OUTCOME_OK && (!confirming || c->event.ours);

	hold((c->after.mode == ZKL_MODE_READ) == done);
	hold((c->step.report == ZKL_REPORT_DOWNGRADED) == (done && !c->before.unwanted));
	if (done)
		hold(!c->after.contended && !c->after.revoked &&
			 !c->after.answers && !c->after.answered && !c->after.write_refused &&
			 c->after.version == 0 && c->after.watched == c->before.watched);
	if (confirming)
	{
		hold((c->step.report == ZKL_REPORT_LOST) == !done);
		return;
	}
	hold((c->after.state == ZKL_TICKET_CONFIRMING) == (outcome == ZKL_OUTCOME_ABSENT && !c->before.unwanted));
	hold((c->after.state == ZKL_TICKET_REREADING) == (outcome == ZKL_OUTCOME_CHANGED && !c->before.unwanted));
}

static void
ends_a_downgrade(const Case *c)
{
	if (!IN(c->before.state, S(DOWNGRADING) | S(CONFIRMING)))
	{
		hold(c->after.state != ZKL_TICKET_CONFIRMING);
		hold(c->after.state != ZKL_TICKET_REREADING || c->before.state == ZKL_TICKET_REREADING);
		hold(c->after.mode == c->before.mode || c->event.kind == ZKL_EVENT_WANT);
	}
	else if (c->event.kind == ZKL_EVENT_EXPIRED)
		return;
	else if (is_awaited(c) && c->event.outcome != ZKL_OUTCOME_UNKNOWN)
		heeds_the_reply(c);
	else if (c->event.kind == ZKL_EVENT_UNWANT && c->before.state == ZKL_TICKET_CONFIRMING)
		hold(c->after.state == ZKL_TICKET_DELETING);
	else
		hold(c->after.state == c->before.state);
}

static void
a_downgrade_is_not_left_half_done(void **state)
{
	(void) state;
	in_all_cases(ends_a_downgrade);
}

static void
names_what_it_asks_for(const Case *c)
{
	bool		names_own = c->step.request == ZKL_REQUEST_INSPECT ||
		c->step.request == ZKL_REQUEST_WATCH_SELF ||
		c->step.request == ZKL_REQUEST_ANSWER || c->step.request == ZKL_REQUEST_DELETE;

	hold(memchr(c->after.name, '\0', sizeof(c->after.name)) != NULL);
	hold(memchr(c->after.predecessor, '\0', sizeof(c->after.predecessor)) != NULL);
	if (names_own || c->step.request == ZKL_REQUEST_DOWNGRADE)
		hold(strcmp(c->after.name, name_after(c)) == 0);
	if (c->step.request == ZKL_REQUEST_DOWNGRADE)
		hold(strstr(c->after.name, "__WRIT__") != NULL);
	if (c->step.request == ZKL_REQUEST_WATCH)
		hold(strcmp(c->after.predecessor, other_name(c->before.mode, c->other_before, true)) == 0);
}

static void
a_request_for_a_znode_has_its_name(void **state)
{
	(void) state;
	in_all_cases(names_what_it_asks_for);
}

/* The ticket has looked for its znode, and found none. */
static void
may_leave_an_orphan(const Case *c)
{
	hold(c->step.orphan == (c->before.state == ZKL_TICKET_FINDING &&
						   is_awaited(c) && c->before.uuid[0] != '\0' &&
						   (c->event.outcome == ZKL_OUTCOME_ABSENT ||
							(c->event.outcome == ZKL_OUTCOME_OK && !c->listed))));
}

static void
a_search_in_vain_is_told(void **state)
{
	(void) state;
	in_all_cases(may_leave_an_orphan);
}

static void
keeps_its_attempt(const Case *c)
{
	hold(c->after.attempt == c->before.attempt);
	hold(strcmp(c->after.uuid, c->before.uuid) == 0);
}

/* The sender may change the name that it creates with, and it may send later or never. */
static void
a_step_begins_no_attempt(void **state)
{
	(void) state;
	in_all_cases(keeps_its_attempt);
}

static void
owns_a_known_znode(const Case *c)
{
	if (c->step.report == ZKL_REPORT_OWNED)
		hold(c->after.czxid == (c->before.state == ZKL_TICKET_CREATING_BOTH ? c->event.czxid : MY_CZXID));
	if (c->after.czxid != c->before.czxid)
		hold(is_awaited(c) && c->event.outcome == ZKL_OUTCOME_OK &&
			 IN(c->before.state, S(CREATING_BOTH) | S(CREATING) | S(INSPECTING)) &&
			 c->after.czxid == c->event.czxid);
}

/* The fencing token is made of the number. */
static void
a_czxid_comes_from_a_reply_about_the_own_znode(void **state)
{
	(void) state;
	in_all_cases(owns_a_known_znode);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_expiry_leaves_no_ticket),
		cmocka_unit_test(a_request_is_the_one_that_the_new_state_awaits),
		cmocka_unit_test(a_ticket_that_waits_for_a_reply_has_asked_for_it),
		cmocka_unit_test(stale_replies_change_nothing),
		cmocka_unit_test(lost_replies_watches_and_workers_lead_to_the_same),
		cmocka_unit_test(late_watches_change_nothing),
		cmocka_unit_test(an_owner_rests_on_the_directorys_watch_or_on_its_own),
		cmocka_unit_test(a_watch_on_itself_says_that_the_znode_is_gone_or_revoked),
		cmocka_unit_test(a_write_is_read_again_until_it_is_refused),
		cmocka_unit_test(a_report_agrees_with_the_state),
		cmocka_unit_test(an_unwanted_ticket_does_not_go_on_acquiring),
		cmocka_unit_test(a_znode_that_may_exist_is_never_forgotten),
		cmocka_unit_test(a_list_decides_who_has_the_lock),
		cmocka_unit_test(a_survey_refuses_what_is_a_semaphore),
		cmocka_unit_test(a_downgrade_is_not_left_half_done),
		cmocka_unit_test(a_request_for_a_znode_has_its_name),
		cmocka_unit_test(a_search_in_vain_is_told),
		cmocka_unit_test(a_step_begins_no_attempt),
		cmocka_unit_test(a_czxid_comes_from_a_reply_about_the_own_znode),
	};

	return cmocka_run_group_tests_name("ticket, case by case", tests, NULL, NULL);
}
