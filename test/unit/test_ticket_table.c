/*-------------------------------------------------------------------------
 *
 * test_ticket_table.c
 *	  Every event in every state of a ticket.
 *
 * Each test is a rule that holds in all cases: all states, wanted or not,
 * contended or not, with a good number or not, against all events, requests,
 * outcomes and lists.
 *
 * test/unit/test_ticket_table.c
 *
 *-------------------------------------------------------------------------
 */
#include "play.h"

#define S(state)	(1u << ZKL_TICKET_##state)
#define IN(state, set)	((1u << (state)) & (set))

/*
 * What each state waits for, and where it can lead.  OWNED waits for nothing,
 * though it may have asked for a watch on its own znode.
 */
static const struct
{
	const char *name;
	ZklRequest	awaits;
	unsigned	successors;		/* by anything but EXPIRED */
}			states[ZKL_TICKET_NSTATES] = {
	[ZKL_TICKET_NONE] = {
		"NONE", ZKL_REQUEST_NOTHING,
		S(CREATING)
	},
	[ZKL_TICKET_CREATING] = {
		"CREATING", ZKL_REQUEST_CREATE,
		S(CREATED) | S(HOMELESS) | S(UNSURE) | S(REFUSED) |
		S(FINDING) | S(NONE)
	},
	[ZKL_TICKET_CREATED] = {
		"CREATED", ZKL_REQUEST_LIST,
		S(WATCHING) | S(OWNED) | S(LISTING) | S(CREATING) |
		S(DELETING)
	},
	[ZKL_TICKET_HOMELESS] = {
		"HOMELESS", ZKL_REQUEST_LIST,
		S(MAKING_DIRECTORY) | S(CREATING) | S(NONE)
	},
	[ZKL_TICKET_UNSURE] = {
		"UNSURE", ZKL_REQUEST_LIST,
		S(FINDING)
	},
	[ZKL_TICKET_REFUSED] = {
		"REFUSED", ZKL_REQUEST_LIST,
		S(NONE)
	},
	[ZKL_TICKET_MAKING_DIRECTORY] = {
		"MAKING_DIRECTORY", ZKL_REQUEST_MAKE_DIRECTORY,
		S(CREATING) | S(NONE)
	},
	[ZKL_TICKET_FINDING] = {
		"FINDING", ZKL_REQUEST_LIST,
		S(INSPECTING) | S(CREATING) | S(DELETING) | S(NONE)
	},
	[ZKL_TICKET_INSPECTING] = {
		"INSPECTING", ZKL_REQUEST_INSPECT,
		S(LISTING) | S(CREATING) | S(DELETING)
	},
	[ZKL_TICKET_LISTING] = {
		"LISTING", ZKL_REQUEST_LIST,
		S(WATCHING) | S(OWNED) | S(CREATING) | S(DELETING)
	},
	[ZKL_TICKET_WATCHING] = {
		"WATCHING", ZKL_REQUEST_WATCH,
		S(QUEUED) | S(LISTING) | S(DELETING)
	},
	[ZKL_TICKET_QUEUED] = {
		"QUEUED", ZKL_REQUEST_NOTHING,
		S(LISTING) | S(DELETING)
	},
	[ZKL_TICKET_OWNED] = {
		"OWNED", ZKL_REQUEST_NOTHING,
		S(CHECKING) | S(DELETING) | S(NONE)
	},
	[ZKL_TICKET_CHECKING] = {
		"CHECKING", ZKL_REQUEST_LIST,
		S(OWNED) | S(DELETING) | S(NONE)
	},
	[ZKL_TICKET_DELETING] = {
		"DELETING", ZKL_REQUEST_DELETE,
		S(NONE)
	},
};

/*
 * An unwanted ticket gets no further than to where its name is known.  (To
 * LISTING only by a restart.)  A ticket in DELETING is always unwanted.
 */
#define UNWANTED_STATES \
	(S(NONE) | S(CREATING) | S(CREATED) | S(HOMELESS) | S(UNSURE) | \
	 S(REFUSED) | S(MAKING_DIRECTORY) | S(FINDING) | S(LISTING) | S(DELETING))

static const char *const event_names[ZKL_TICKET_NEVENTS] = {
	[ZKL_EVENT_WANT] = "WANT",
	[ZKL_EVENT_UNWANT] = "UNWANT",
	[ZKL_EVENT_REPLY] = "REPLY",
	[ZKL_EVENT_CHILDREN_CHANGED] = "CHILDREN_CHANGED",
	[ZKL_EVENT_PREDECESSOR_CHANGED] = "PREDECESSOR_CHANGED",
	[ZKL_EVENT_SELF_CHANGED] = "SELF_CHANGED",
	[ZKL_EVENT_RECONNECTED] = "RECONNECTED",
	[ZKL_EVENT_RESTARTED] = "RESTARTED",
	[ZKL_EVENT_EXPIRED] = "EXPIRED",
};

typedef struct Case
{
	ZklTicket	before;
	ZklTicketEvent event;
	bool		listed;			/* LIST: the own znode is in the list */
	bool		sound;			/* the znode's number is below the limit */
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
	fail_msg("%s\n\tin state %s%s%s, event %s%s, request %d, outcome %d, "
			 "ours %d, %d children%s: -> %s, request %d, report %d",
			 condition, states[c->before.state].name,
			 c->before.unwanted ? ", unwanted" : "",
			 c->before.contended ? ", contended" : "",
			 event_names[c->event.kind], c->event.unsent ? ", unsent" : "",
			 c->event.request, c->event.outcome, c->event.ours,
			 c->event.nchildren, c->listed ? " with the own" : "",
			 states[c->after.state].name, c->step.request, c->step.report);
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
name_of(const Case *c)
{
	static char name[ZKL_ZNODE_SIZE + 16];

	strcpy(name, own_name(&c->before,
						  c->sound ? "0000000005" : "2147483647"));
	return name;
}

static void
try_lists(Case *c)
{
	char		too_long[2 * ZKL_CHILD_SIZE];
	const char *children[3];
	const char *const before[] = {NULL, FOREIGN(3), too_long};
	const char *const behind[] = {NULL, FOREIGN(6)};

	memset(too_long, 'x', sizeof(too_long));
	strcpy(too_long + ZKL_CHILD_SIZE, "lock-0000000004");
	c->event.children = children;

	for (int i = 0; i < 2 * lengthof(before) * lengthof(behind); i++)
	{
		int			n = 0;

		c->listed = i % 2 == 1;
		if (before[i / 2 % lengthof(before)])
			children[n++] = before[i / 2 % lengthof(before)];
		if (c->listed)
			children[n++] = name_of(c);
		if (behind[i / 2 / lengthof(before)])
			children[n++] = behind[i / 2 / lengthof(before)];
		c->event.nchildren = n;
		try_event(c);
	}
	c->event.children = NULL;
	c->event.nchildren = 0;
	c->listed = false;
}

static void
try_replies(Case *c)
{
	c->event.kind = ZKL_EVENT_REPLY;
	for (int request = 0; request <= ZKL_REQUEST_DELETE; request++)
	{
		for (int outcome = 0; outcome <= ZKL_OUTCOME_REFUSED; outcome++)
		{
			c->event.request = (ZklRequest) request;
			c->event.outcome = (ZklOutcome) outcome;
			c->event.failure = outcome == ZKL_OUTCOME_REFUSED ?
				ZKL_FAILURE_PERMISSION : ZKL_FAILURE_NONE;
			c->event.czxid = MY_CZXID + 1;
			c->event.name = name_of(c);
			for (int ours = 0; ours < 2; ours++)
			{
				c->event.ours = ours == 1;
				if (request == ZKL_REQUEST_LIST && outcome == ZKL_OUTCOME_OK)
					try_lists(c);
				else
					try_event(c);
			}
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
		if (kind == ZKL_EVENT_UNWANT)
		{
			c->event.unsent = true;
			try_event(c);
		}
	}
}

static void
in_all_cases(Rule rule_to_hold)
{
	rule = rule_to_hold;
	ncases = 0;
	for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
	{
		for (int bits = 0; bits < 8; bits++)
		{
			Case		c;

			memset(&c, 0, sizeof(c));
			c.before = ticket_in_state((ZklTicketState) s);
			c.before.unwanted = bits & 1;
			c.before.contended = (bits & 2) != 0;
			c.sound = bits & 4;
			if (c.before.unwanted ? !IN(s, UNWANTED_STATES) :
				s == ZKL_TICKET_DELETING)
				continue;
			if (c.before.name[0] != '\0')
				strcpy(c.before.name, name_of(&c));
			try_all_events(&c);
		}
	}
	assert_true(ncases > 5000);
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
	return state == ZKL_TICKET_OWNED ? ZKL_REQUEST_WATCH_SELF :
		states[state].awaits;
}

/* A reply to what was asked for in the state before. */
static bool
is_awaited(const Case *c)
{
	return is_reply(c) && c->event.request != ZKL_REQUEST_NOTHING &&
		c->event.request == request_of(c->before.state);
}

static bool
is_nothing(ZklTicketStep step)
{
	return step.request == ZKL_REQUEST_NOTHING &&
		step.report == ZKL_REPORT_NOTHING;
}

/*
 * The rules
 */

static void
leads_to_a_successor(const Case *c)
{
	if (c->event.kind == ZKL_EVENT_EXPIRED)
		hold(c->after.state == ZKL_TICKET_NONE);
	else if (c->after.state != c->before.state)
		hold(IN(c->after.state, states[c->before.state].successors));
}

static void
a_ticket_goes_only_where_the_table_says(void **state)
{
	(void) state;
	in_all_cases(leads_to_a_successor);
}

static unsigned seen[ZKL_TICKET_NSTATES];

static void
note_successor(const Case *c)
{
	if (c->event.kind != ZKL_EVENT_EXPIRED &&
		c->after.state != c->before.state)
		seen[c->before.state] |= 1u << c->after.state;
}

/* Else the table would say too much. */
static void
a_ticket_does_go_everywhere_the_table_says(void **state)
{
	(void) state;
	in_all_cases(note_successor);
	for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
	{
		if (seen[s] != states[s].successors)
			fail_msg("%s leads to 0x%x, and not to 0x%x", states[s].name,
					 seen[s], states[s].successors);
	}
}

static void
asks_for_what_its_state_awaits(const Case *c)
{
	hold(c->step.request == ZKL_REQUEST_NOTHING ||
		 c->step.request == request_of(c->after.state));
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
	bool		awaits = states[c->after.state].awaits != ZKL_REQUEST_NOTHING;
	bool		list_is_outstanding = c->before.state == ZKL_TICKET_CREATING &&
		is_reply(c);

	/* The reply that it waited for is used up, or will not come any more. */
	if (changed || is_awaited(c) || c->event.kind == ZKL_EVENT_RESTARTED)
	{
		if (awaits && !list_is_outstanding)
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

static void
means_nothing_in_other_states(const Case *c)
{
	unsigned	meaningful;

	switch (c->event.kind)
	{
		case ZKL_EVENT_WANT:
			meaningful = S(NONE);
			break;
		case ZKL_EVENT_CHILDREN_CHANGED:
			meaningful = c->before.contended ? 0 : S(OWNED);
			break;
		case ZKL_EVENT_PREDECESSOR_CHANGED:
			meaningful = S(QUEUED);
			break;
		case ZKL_EVENT_SELF_CHANGED:
			meaningful = S(OWNED);
			break;
		case ZKL_EVENT_RECONNECTED:
			meaningful = S(QUEUED) | S(OWNED);
			break;
		default:
			return;
	}
	if (IN(c->before.state, meaningful))
	{
		hold(c->step.request != ZKL_REQUEST_NOTHING);
		return;
	}
	hold(memcmp(&c->before, &c->after, sizeof(ZklTicket)) == 0);
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
		c->event.request == ZKL_REQUEST_LIST &&
		c->event.outcome == ZKL_OUTCOME_OK;

	/* Every list leaves the directory's watch; only who is alone heeds it. */
	if (listed && c->after.state == ZKL_TICKET_OWNED)
		hold((c->step.request == ZKL_REQUEST_WATCH_SELF) ==
			 c->after.contended);
	else if (is_awaited(c) && c->event.request == ZKL_REQUEST_WATCH_SELF)
		hold((c->step.request == ZKL_REQUEST_WATCH_SELF) ==
			 (c->event.outcome == ZKL_OUTCOME_UNKNOWN));
	else
		hold(c->step.request != ZKL_REQUEST_WATCH_SELF);
}

/* Else it would not learn that its znode was deleted. */
static void
an_owner_rests_on_the_directorys_watch_or_on_its_own(void **state)
{
	(void) state;
	in_all_cases(rests_on_one_watch);
}

static void
is_lost_if_absent(const Case *c)
{
	if (!is_awaited(c) || c->event.request != ZKL_REQUEST_WATCH_SELF)
		return;
	if (c->event.outcome == ZKL_OUTCOME_ABSENT)
	{
		hold(c->after.state == ZKL_TICKET_NONE);
		hold(c->step.request == ZKL_REQUEST_NOTHING);
		hold(c->step.report == ZKL_REPORT_LOST);
		return;
	}
	hold(memcmp(&c->before, &c->after, sizeof(ZklTicket)) == 0);
	hold(c->step.report == ZKL_REPORT_NOTHING);
}

static void
a_watch_on_itself_says_nothing_but_that_the_znode_is_gone(void **state)
{
	(void) state;
	in_all_cases(is_lost_if_absent);
}

static void
reports_what_its_state_says(const Case *c)
{
	ZklTicketState before = c->before.state;
	ZklTicketState after = c->after.state;

	switch (c->step.report)
	{
		case ZKL_REPORT_NOTHING:
			break;
		case ZKL_REPORT_QUEUED:
			hold(after == ZKL_TICKET_WATCHING);
			hold(c->after.predecessor[0] != '\0');
			break;
		case ZKL_REPORT_OWNED:
			hold(after == ZKL_TICKET_OWNED);
			hold(IN(before, S(CREATED) | S(LISTING)));
			hold(c->sound && c->listed);
			break;
		case ZKL_REPORT_CONTENDED:
			hold(after == ZKL_TICKET_OWNED && before == ZKL_TICKET_CHECKING);
			hold(c->after.contended);
			break;
		case ZKL_REPORT_LOST:
			hold(after == ZKL_TICKET_NONE);
			hold(IN(before, S(OWNED) | S(CHECKING)));
			break;
		case ZKL_REPORT_FAILED:
			hold(IN(after, S(NONE) | S(DELETING)));
			hold(!c->before.unwanted);
			break;
		case ZKL_REPORT_GONE:
			hold(after == ZKL_TICKET_NONE);
			hold(!IN(before, S(OWNED) | S(CHECKING)));
			break;
	}
	hold((c->step.report == ZKL_REPORT_FAILED) ==
		 (c->step.failure != ZKL_FAILURE_NONE));
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
	if (c->after.state == ZKL_TICKET_DELETING)
		hold(c->after.unwanted);
	if (!c->after.unwanted)
		return;
	hold(IN(c->after.state, UNWANTED_STATES));
	hold(IN(c->step.request, 1u << ZKL_REQUEST_NOTHING |
			1u << ZKL_REQUEST_LIST | 1u << ZKL_REQUEST_DELETE));
	hold(c->step.report != ZKL_REPORT_OWNED);
	hold(c->step.report != ZKL_REPORT_QUEUED);
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
	bool		absent = outcome == ZKL_OUTCOME_ABSENT ||
		(outcome == ZKL_OUTCOME_OK && !c->listed);

	if (c->event.kind == ZKL_EVENT_EXPIRED ||
		c->before.state == ZKL_TICKET_NONE)
		return true;

	/* A create that was not sent, or answered with an error, made nothing. */
	if (c->event.kind == ZKL_EVENT_UNWANT)
		return c->event.unsent &&
			IN(c->before.state, S(CREATING) | S(MAKING_DIRECTORY));
	if (c->event.kind == ZKL_EVENT_RESTARTED || is_reply(c))
	{
		if (IN(c->before.state, S(HOMELESS) | S(MAKING_DIRECTORY) | S(REFUSED)))
			return true;
	}
	if (!is_awaited(c))
		return false;

	switch (c->before.state)
	{
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_CHECKING:
			return absent;
		case ZKL_TICKET_FINDING:
			/* Refused: it may be there, but its name cannot be learnt. */
			return absent || outcome == ZKL_OUTCOME_REFUSED;
		case ZKL_TICKET_INSPECTING:
			return outcome == ZKL_OUTCOME_ABSENT ||
				(outcome == ZKL_OUTCOME_OK && !c->event.ours);
		case ZKL_TICKET_OWNED:
			return outcome == ZKL_OUTCOME_ABSENT;
		case ZKL_TICKET_DELETING:
			/* Refused: left to the end of the session. */
			return outcome != ZKL_OUTCOME_UNKNOWN;
		default:
			return false;
	}
}

static void
does_not_forget_a_znode(const Case *c)
{
	bool		forgets = c->after.state == ZKL_TICKET_NONE ||
		c->step.request == ZKL_REQUEST_CREATE;

	if (forgets)
		hold(no_znode_is_left(c));
	hold(c->after.state != ZKL_TICKET_NONE ||
		 c->before.state == ZKL_TICKET_NONE ||
		 c->step.report == ZKL_REPORT_GONE ||
		 c->step.report == ZKL_REPORT_LOST ||
		 c->step.report == ZKL_REPORT_FAILED);
}

static void
a_znode_that_may_exist_is_never_forgotten(void **state)
{
	(void) state;
	in_all_cases(does_not_forget_a_znode);
}

static void
names_what_it_asks_for(const Case *c)
{
	bool		names_own = c->step.request == ZKL_REQUEST_INSPECT ||
		c->step.request == ZKL_REQUEST_WATCH_SELF ||
		c->step.request == ZKL_REQUEST_DELETE;

	hold(memchr(c->after.name, '\0', sizeof(c->after.name)) != NULL);
	hold(memchr(c->after.predecessor, '\0',
				sizeof(c->after.predecessor)) != NULL);
	if (names_own)
		hold(strcmp(c->after.name, name_of(c)) == 0);
	if (c->step.request == ZKL_REQUEST_WATCH)
		hold(strcmp(c->after.predecessor, FOREIGN(3)) == 0);
}

static void
a_request_for_a_znode_has_its_name(void **state)
{
	(void) state;
	in_all_cases(names_what_it_asks_for);
}

static void
keeps_its_attempt(const Case *c)
{
	hold(c->after.attempt == c->before.attempt);
	hold(strcmp(c->after.uuid, c->before.uuid) == 0);
}

/* That is the sender's to change, and it may send later or never. */
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
		hold(c->after.czxid == MY_CZXID);
	if (c->after.czxid != c->before.czxid)
		hold(is_awaited(c) && c->event.outcome == ZKL_OUTCOME_OK &&
			 c->after.czxid == c->event.czxid);
}

/* The fencing token is made of it. */
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
		cmocka_unit_test(a_ticket_goes_only_where_the_table_says),
		cmocka_unit_test(a_ticket_does_go_everywhere_the_table_says),
		cmocka_unit_test(a_request_is_the_one_that_the_new_state_awaits),
		cmocka_unit_test(a_ticket_that_waits_for_a_reply_has_asked_for_it),
		cmocka_unit_test(stale_replies_change_nothing),
		cmocka_unit_test(late_watches_change_nothing),
		cmocka_unit_test(an_owner_rests_on_the_directorys_watch_or_on_its_own),
		cmocka_unit_test(a_watch_on_itself_says_nothing_but_that_the_znode_is_gone),
		cmocka_unit_test(a_report_agrees_with_the_state),
		cmocka_unit_test(an_unwanted_ticket_does_not_go_on_acquiring),
		cmocka_unit_test(a_znode_that_may_exist_is_never_forgotten),
		cmocka_unit_test(a_request_for_a_znode_has_its_name),
		cmocka_unit_test(a_step_begins_no_attempt),
		cmocka_unit_test(a_czxid_comes_from_a_reply_about_the_own_znode),
	};

	return cmocka_run_group_tests_name("ticket, case by case", tests,
									   NULL, NULL);
}
