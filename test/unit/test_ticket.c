/*-------------------------------------------------------------------------
 *
 * test_ticket.c
 *	  The life of one ticket: plays the traces in ticket.trace.
 *
 * That file says what happens in which situation, and describes its words.
 * test_ticket_walk.c has many tickets at once.
 *
 * test/unit/test_ticket.c
 *
 *-------------------------------------------------------------------------
 */
#include "play.h"
#include "trace.h"

static ZklTicket ticket;

static const char *const request_names[] = {
	[ZKL_REQUEST_NOTHING] = "",
	[ZKL_REQUEST_CREATE_BOTH] = "CREATE_BOTH",
	[ZKL_REQUEST_CREATE] = "CREATE",
	[ZKL_REQUEST_LIST] = "LIST",
	[ZKL_REQUEST_LIMIT] = "LIMIT",
	[ZKL_REQUEST_INSPECT] = "INSPECT",
	[ZKL_REQUEST_SURVEY] = "SURVEY",
	[ZKL_REQUEST_WATCH] = "WATCH",
	[ZKL_REQUEST_WATCH_SELF] = "WATCH_SELF",
	[ZKL_REQUEST_ANSWER] = "ANSWER",
	[ZKL_REQUEST_DOWNGRADE] = "DOWNGRADE",
	[ZKL_REQUEST_DELETE] = "DELETE"
};

static const char *const outcome_names[] = {
	[ZKL_OUTCOME_OK] = "OK",
	[ZKL_OUTCOME_ABSENT] = "ABSENT",
	[ZKL_OUTCOME_CHANGED] = "CHANGED",
	[ZKL_OUTCOME_UNKNOWN] = "UNKNOWN",
	[ZKL_OUTCOME_REFUSED] = "REFUSED",
	[ZKL_OUTCOME_UNDONE] = "UNDONE"
};

static const char *const report_names[] = {
	[ZKL_REPORT_NOTHING] = "",
	[ZKL_REPORT_QUEUED] = "queued",
	[ZKL_REPORT_OWNED] = "owned",
	[ZKL_REPORT_CONTENDED] = "contended",
	[ZKL_REPORT_UNCONTENDED] = "uncontended",
	[ZKL_REPORT_DOWNGRADED] = "downgraded",
	[ZKL_REPORT_REVOKED] = "revoked",
	[ZKL_REPORT_QUERIED] = "queried",
	[ZKL_REPORT_DIFFERS] = "differs",
	[ZKL_REPORT_LOST] = "lost",
	[ZKL_REPORT_FAILED] = "failed",
	[ZKL_REPORT_GONE] = "gone"
};

static const char *const failure_names[] = {
	[ZKL_FAILURE_NONE] = "",
	[ZKL_FAILURE_PERMISSION] = "PERMISSION",
	[ZKL_FAILURE_ACL] = "ACL",
	[ZKL_FAILURE_EPHEMERAL_PARENT] = "EPHEMERAL_PARENT",
	[ZKL_FAILURE_DIRECTORY] = "DIRECTORY",
	[ZKL_FAILURE_SEQUENCE] = "SEQUENCE",
	[ZKL_FAILURE_TOKENS] = "TOKENS",
	[ZKL_FAILURE_FOREIGN_NAME] = "FOREIGN_NAME",
	[ZKL_FAILURE_SESSION_FULL] = "SESSION_FULL",
	[ZKL_FAILURE_STUCK] = "STUCK",
	[ZKL_FAILURE_OTHER_KIND] = "OTHER_KIND",
	[ZKL_FAILURE_QUOTA] = "QUOTA",
	[ZKL_FAILURE_LIMIT] = "LIMIT",
	[ZKL_FAILURE_TOO_LONG] = "TOO_LONG",
	[ZKL_FAILURE_REFUSED] = "REFUSED"
};

static void
trace_begin(void)
{
	memset(&ticket, 0, sizeof(ticket));
}

/* The ticket's own znodes have words, too, and so have long names. */
static void
own_name_of(const char *word, char *name)
{
	if (strcmp(word, "me") == 0)
		strcpy(name, own_name(&ticket, "0000000005"));
	else if (strncmp(word, "me/", 3) == 0)
		strcpy(name, own_name(&ticket, word + 3));
	else if (strcmp(word, "my-writer") == 0 || strcmp(word, "my-reader") == 0)
	{
		zkl_recipe_make_prefix(word[3] == 'w' ? ZKL_MODE_WRITE : ZKL_MODE_READ, ticket.uuid, name);
		strcat(name, "0000000005");
	}
	else if (strncmp(word, "long-", 5) == 0)
	{
		memset(name, 'x', 2 * ZKL_CHILD_SIZE);
		strcpy(name + atoi(word + 5) - strlen("lock-0000000001"), "lock-0000000001");
	}
	else
		name_of(word, name);
}

/*
 * Events
 */

/*
 * "start MODE STATE", and "tries" if the ticket was made for a try.  The mode
 * "any" is a mutex's, where a mutex has this state.
 */
static void
start(const TraceLine *line)
{
	int			mode = trace_find(mode_names, NMODES, line->event[1]);
	int			state = trace_find(state_names, lengthof(state_names), line->event[2]);

	if (strcmp(line->event[1], "any") == 0 && state >= 0)
		mode = has_state(ZKL_MODE_LOCK, (ZklTicketState) state) ? ZKL_MODE_LOCK : ZKL_MODE_WRITE;
	if (mode < 0 || state < 0)
		fail_msg("%s:%d: unknown mode or state", trace_file, line->number);
	ticket = ticket_as((ZklMode) mode, (ZklTicketState) state);
	if (line->nevent > 3)
	{
		ticket = ticket_as((ZklMode) mode, ZKL_TICKET_CREATING);
		begin_attempt(&ticket, true);
		created(&ticket);
		assert_int_equal(ticket.state, state);
	}
}

/* "want", "new" if the directory is probably missing, "tries", "unsent", a mode. */
static ZklTicketStep
want(const TraceLine *line)
{
	ZklTicketEvent event = {.kind = ZKL_EVENT_WANT};
	ZklTicketStep step;
	bool		tries = false;
	bool		unsent = false;

	for (int i = 1; i < line->nevent; i++)
	{
		const char *word = line->event[i];
		int			mode = trace_find(mode_names, NMODES, word);

		if (mode >= 0)
			event.mode = (ZklMode) mode;
		else if (strcmp(word, "new") == 0)
			event.is_new = true;
		else if (strcmp(word, "tries") == 0)
			tries = true;
		else if (strcmp(word, "unsent") == 0)
			unsent = true;
		else
			fail_msg("%s:%d: unknown word \"%s\"", trace_file, line->number, word);
	}
	step = zkl_ticket_step(&ticket, &event);
	if (step.request != ZKL_REQUEST_NOTHING && !unsent)
		begin_attempt(&ticket, tries);
	return step;
}

/* What a reply says besides its outcome: one word of a line. */
static void
say(ZklTicketEvent *event, const TraceLine *line, const char *word)
{
	static char name[2 * ZKL_CHILD_SIZE];
	int			failure = trace_find(failure_names, lengthof(failure_names), word);

	if (failure > 0)
		event->failure = (ZklFailure) failure;
	else if (strcmp(word, "foreign") == 0)
		event->ours = false;
	else if (strcmp(word, "answered") == 0)
		event->answered = true;
	else if (strcmp(word, "revoked") == 0)
		event->revoked = true;
	else if (strcmp(word, "queried") == 0)
		event->queried = true;
	else if (strcmp(word, "stale") == 0)
		event->stale = true;
	else if (strncmp(word, "version=", 8) == 0)
		event->version = atoi(word + 8);
	else if (strncmp(word, "czxid=", 6) == 0)
		event->czxid = strtoll(word + 6, NULL, 10);
	else if (strncmp(word, "me/", 3) == 0)
	{
		own_name_of(word, name);
		event->name = name;
	}
	else
		fail_msg("%s:%d: unknown word \"%s\"", trace_file, line->number, word);
}

/* "REQUEST OUTCOME", and what the reply says. */
static ZklTicketStep
reply_to(const TraceLine *line)
{
	int			request = trace_find(request_names, lengthof(request_names), line->event[0]);
	int			outcome = trace_find(outcome_names, lengthof(outcome_names), line->event[1]);
	char		names[TRACE_WORDS][2 * ZKL_CHILD_SIZE];
	const char *children[TRACE_WORDS];
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = (ZklRequest) request,
		.outcome = (ZklOutcome) outcome
	};

	if (request <= 0 || outcome < 0)
		fail_msg("%s:%d: unknown event \"%s\"", trace_file, line->number, line->text);
	if (request == ZKL_REQUEST_LIST || request == ZKL_REQUEST_SURVEY)
	{
		int			n = 0;

		for (int i = 2; i < line->nevent; i++)
		{
			if (strncmp(line->event[i], "limit=", 6) == 0)
			{
				event.limit = atoi(line->event[i] + 6);
				continue;
			}
			own_name_of(line->event[i], names[n]);
			children[n] = names[n];
			n++;
		}
		if (outcome == ZKL_OUTCOME_REFUSED)
			event.failure = line->nevent > 2 ?
				(ZklFailure) trace_find(failure_names, lengthof(failure_names), line->event[2]) :
				ZKL_FAILURE_PERMISSION;
		return replied_with_names(&ticket, &event, children, n);
	}
	if (outcome == ZKL_OUTCOME_REFUSED)
		event.failure = ZKL_FAILURE_PERMISSION;
	else if (outcome == ZKL_OUTCOME_OK)
	{
		event.name = own_name(&ticket, "0000000005");
		event.czxid = MY_CZXID;
		event.ours = true;
	}
	for (int i = 2; i < line->nevent; i++)
		say(&event, line, line->event[i]);
	return feed(&ticket, &event);
}

/* Play a line, and tell the effect as a line does. */
static void
trace_play(const TraceLine *line, char *effect)
{
	int			kind = trace_find(event_names, lengthof(event_names), line->event[0]);
	ZklTicketEvent event = {.kind = (ZklTicketEventKind) kind};
	ZklTicketStep step;

	if (strcmp(line->event[0], "start") == 0)
	{
		start(line);
		return;
	}
	if (kind == ZKL_EVENT_WANT)
		step = want(line);
	else if (kind >= 0)
	{
		event.unsent = kind == ZKL_EVENT_UNWANT && line->nevent > 1;
		step = feed(&ticket, &event);
	}
	else
		step = reply_to(line);

	trace_add(effect, request_names[step.request]);
	trace_add(effect, report_names[step.report]);
	trace_add(effect, failure_names[step.failure]);
	trace_add(effect, step.orphan ? "orphan" : "");
}

/*
 * Facts
 */

/* The value of a field as text; a flag's is "yes" or "no". */
static void
value_of(const char *field, char *value)
{
	const struct
	{
		const char *name;
		bool		value;
	}			flags[] = {
		{"contended", ticket.contended}, {"asked", ticket.asked}, {"asking", ticket.asking},
		{"answers", ticket.answers}, {"answered", ticket.answered}, {"revoked", ticket.revoked}, {"queried", ticket.queried},
		{"mute", ticket.write_refused}, {"listed", ticket.listed}, {"next", ticket.next},
		{"rechecks", ticket.rechecks}, {"unwanted", ticket.unwanted}
	};
	const struct
	{
		const char *name;
		const char *value;
	}			names[] = {
		{"name", ticket.name}, {"uuid", ticket.uuid}, {"predecessor", ticket.predecessor},
		{"front", ticket.front}, {"mode", mode_names[ticket.mode]}
	};
	const struct
	{
		const char *name;
		int64_t		value;
	}			numbers[] = {
		{"attempt", ticket.attempt}, {"rounds", ticket.rounds}, {"czxid", ticket.czxid},
		{"version", ticket.version}
	};

	strcpy(value, "unknown");
	for (int i = 0; i < lengthof(flags); i++)
	{
		if (strcmp(field, flags[i].name) == 0)
			strcpy(value, flags[i].value ? "yes" : "no");
	}
	for (int i = 0; i < lengthof(names); i++)
	{
		if (strcmp(field, names[i].name) == 0)
			strcpy(value, names[i].value);
	}
	for (int i = 0; i < lengthof(numbers); i++)
	{
		if (strcmp(field, numbers[i].name) == 0)
			sprintf(value, "%d", (int) numbers[i].value);
	}
}

/* A state, "flag", "!flag" or "field=value". */
static bool
trace_fact(const char *fact, char *now)
{
	char		field[TRACE_SIZE];
	char		expected[TRACE_SIZE];
	char	   *value;

	if (isupper((unsigned char) fact[0]))
	{
		strcpy(now, state_names[ticket.state]);
		return strcmp(fact, now) == 0;
	}
	strcpy(field, fact[0] == '!' ? fact + 1 : fact);
	value = strchr(field, '=');
	if (value == NULL)
		strcpy(expected, fact[0] == '!' ? "no" : "yes");
	else
	{
		*value = '\0';
		own_name_of(value + 1, expected);
	}
	value_of(field, now);
	return strcmp(now, expected) == 0;
}

/*
 * What no trace can say
 */

TEST(an_attempt_begins_under_a_new_uuid_and_without_a_name)
{
	ZklTicket	owner = ticket_as(ZKL_MODE_LOCK, ZKL_TICKET_OWNED);
	char		uuid[ZKL_UUID_SIZE];
	bool		only_tries = false;
	char		prefix[ZKL_ZNODE_SIZE];

	strcpy(uuid, owner.uuid);
	begin_attempt(&owner, true);
	assert_string_equal(owner.name, "");
	assert_int_equal(owner.attempt, 2);
	assert_string_not_equal(owner.uuid, uuid);
	zkl_recipe_make_prefix(owner.mode, owner.uuid, prefix);
	assert_true(zkl_recipe_is_zklock(prefix, &only_tries));
	assert_true(only_tries);
}

int
main(void)
{
	trace_all = state_names;
	trace_nall = lengthof(state_names);
	return trace_main("ticket", "test/unit/ticket.trace");
}
