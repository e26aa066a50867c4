/*-------------------------------------------------------------------------
 *
 * test_ticket_walk.c
 *	  Tickets of several servers, walked at random through a ZooKeeper that
 *	  loses connections, expires sessions and has other clients.
 *
 * The ZooKeeper is a model: one directory, and for each server a session with
 * two queues, of requests that were sent and of what comes back.  All can stop
 * between any two steps, and a lost connection cuts both queues anywhere.  A
 * small driver stands for the worker.
 *
 * After each step the rules at "Rules" are checked.  From time to time
 * disturbance ends, and all has to come to rest as the rules at "Rest" say.
 * The model orders the queue by the numbers it gave out and by which client
 * excludes whom; it does not know recipe.c.
 *
 * The directory is a mutex's, a read-write lock's or that of a semaphore's
 * leases.
 *
 * Servers let tickets linger, and some only try.  In vain they do so only
 * where a client really used the lock meanwhile, or wanted it; "Tries" has the
 * rule.
 *
 * test/unit/test_ticket_walk.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <inttypes.h>
#include <stdlib.h>

#include "protocol/ticket.h"

#define SERVERS			4
#define FOREIGN_OWNER	SERVERS
#define MAX_CHILDREN	24
#define MAX_FOREIGN		4
#define MAX_MESSAGES	64
#define LIMIT			2		/* of the semaphore */

/* What a child is in the queue. */
typedef enum Role
{
	ROLE_JUNK,
	ROLE_MUTEX,
	ROLE_WRITER,
	ROLE_READER,
	ROLE_KAZOO,
	ROLE_KAZOO_READER,
	ROLE_LEASE
} Role;

#define R(role)	(1u << ROLE_##role)

/* Which clients must not own together. */
static const unsigned excluded[] = {
	[ROLE_MUTEX] = R(MUTEX) | R(KAZOO) | R(KAZOO_READER),
	[ROLE_WRITER] = R(WRITER) | R(READER) | R(KAZOO) | R(KAZOO_READER),
	[ROLE_READER] = R(WRITER) | R(KAZOO),
	[ROLE_LEASE] = 0
};

/* What is locked, and what may go wrong in a walk. */
typedef struct Weather
{
	ZklKind		kind;
	bool		one_at_a_time;	/* acquires a lease, as the mutex's holder */
	bool		other_kinds;	/* are about */
	bool		disconnects;
	bool		expiries;
	bool		restarts;
	bool		reaping;
	bool		refusals;
	bool		spoilers;		/* transactions of several requests fail */
	bool		foreign_hands;	/* delete our znodes */
	bool		tries;			/* some servers only try, and tickets linger */
	int64_t		first_number;
} Weather;

typedef struct Child
{
	char		name[ZKL_CHILD_SIZE];
	Role		role;
	bool		revoked;		/* a client has written so into it */
	bool		queried;		/* ... or queries whether it is in use */
	bool		answered;		/* it says that it is in use */
	int			holder;			/* ... and by which backend; -1: not a word */
	int32_t		version;		/* of what is written in it */
	int64_t		number;
	int64_t		czxid;
	int			owner;			/* a server, or FOREIGN_OWNER */
	int			session;		/* of that server */
	unsigned	watchers;		/* servers, as bits */
} Child;

typedef struct Message
{
	ZklTicketEvent event;
	uint32_t	attempt;
	int32_t		version;		/* ANSWER, DOWNGRADE: of the data that it
								 * replaces */
	bool		answers;		/* ... what the new ones say ... */
	int			holder;			/* ... or WATCH_SELF: these say */
	bool		with_parents;	/* CREATE_BOTH: it makes these, too */
	char		name[ZKL_CHILD_SIZE];	/* prefix, or the znode meant */
	bool		own_exists;		/* PREDECESSOR_GONE: the one that waited for it
								 * had a znode then */
	int			nchildren;
	char		children[MAX_CHILDREN][ZKL_CHILD_SIZE];
} Message;

typedef struct Queue
{
	int			n;
	Message		messages[MAX_MESSAGES];
} Queue;

typedef struct Server
{
	ZklTicket	ticket;
	ZklRequest	due;			/* to be sent */
	bool		wanted;			/* do its backends want the lock? */
	ZklMode		mode;			/* ... that they wanted last */
	bool		withdrawn;		/* the ticket was told that they do not */
	bool		tries;			/* ... or do they just try? */
	bool		is_try;			/* the ticket was made for a try */
	bool		saw_use;		/* meanwhile a client used the lock */
	bool		lingers;		/* owned, and no claim wants it */
	bool		answered;		/* the ticket was told to say that it is in
								 * use */
	bool		unused;			/* it was, or a try failed: no claim uses it */
	bool		list_asked;		/* as in an entry: it was told to list ... */
	bool		watch_asked;	/* ... and to watch, each once */
	int			holder;			/* the backend that the znode shall name */
	int			session;
	bool		alive;			/* the session, at ZooKeeper */
	bool		connected;
	Queue		sent;			/* not done yet */
	Queue		inbox;			/* not seen yet */
} Server;

static uint64_t seed;
static uint64_t first_seed;
static int	nsteps;
static Weather weather;
static Server servers[SERVERS];

/* The model's directory. */
static bool exists;
static int64_t next_number;
static int64_t zxid;
static unsigned directory_watchers;
static bool any_refusal;		/* in this walk */
static int	nchildren;
static Child children[MAX_CHILDREN];

/* What the walk has been through, over all seeds of a test. */
static int	times_in_state[ZKL_TICKET_NSTATES];
static int	times_asked[ZKL_REQUEST_DELETE + 1];
static int	times_reported[ZKL_REPORT_GONE + 1];
static int	times_gave_way_unsent;
static int	times_tried;
static int	times_tried_in_vain;
static int	times_gave_up_lingering;
static int	times_silent;
static int	most_readers;
static int64_t last_token;
static int64_t last_writers_token;

#define check(condition)	check_that(condition, #condition, __LINE__)

static void
check_that(bool holds, const char *condition, int line)
{
	if (!holds)
		fail_msg("line %d: %s\n\tseed %" PRIu64 ", step %d", line, condition, first_seed, nsteps);
}

static bool
one_in(uint32_t n)
{
	return random_below(&seed, n) == 0;
}

/*
 * The model of ZooKeeper
 */

static Message *
push(Queue *queue)
{
	check(queue->n < MAX_MESSAGES);
	memset(&queue->messages[queue->n], 0, sizeof(Message));
	return &queue->messages[queue->n++];
}

static Message
pop(Queue *queue)
{
	Message		first = queue->messages[0];

	queue->n--;
	memmove(&queue->messages[0], &queue->messages[1], sizeof(Message) * (size_t) queue->n);
	return first;
}

static void
push_event(int s, ZklTicketEventKind kind)
{
	push(&servers[s].inbox)->event.kind = kind;
}

static Child *find_child(const char *name);

static void
fire_about(unsigned *watchers, ZklTicketEventKind kind, const char *name)
{
	for (int s = 0; s < SERVERS; s++)
	{
		if (*watchers & 1u << s)
		{
			Message    *message = push(&servers[s].inbox);

			message->event.kind = kind;
			message->own_exists = find_child(servers[s].ticket.name) != NULL;
			strcpy(message->name, name);
		}
	}
	*watchers = 0;
}

static void
fire(unsigned *watchers, ZklTicketEventKind kind)
{
	fire_about(watchers, kind, "");
}

/* The znode's maker watches itself, all others their predecessor. */
static void
fire_child(Child *child, bool gone)
{
	unsigned	self = child->watchers & 1u << child->owner;
	unsigned	others = child->watchers & ~self;

	child->watchers = 0;
	fire_about(&self, ZKL_EVENT_SELF_CHANGED, child->name);
	fire_about(&others, gone ? ZKL_EVENT_PREDECESSOR_GONE : ZKL_EVENT_PREDECESSOR_CHANGED, child->name);
}

static Child *
find_child(const char *name)
{
	for (int i = 0; i < nchildren; i++)
	{
		if (strcmp(children[i].name, name) == 0)
			return &children[i];
	}
	return NULL;
}

static Child *
add_child(const char *name, int owner, Role role, int64_t number)
{
	Child	   *child = &children[nchildren];

	check(exists && nchildren < MAX_CHILDREN);
	nchildren++;
	memset(child, 0, sizeof(*child));
	strcpy(child->name, name);
	child->role = role;
	child->number = number;
	child->czxid = ++zxid;
	child->owner = owner;
	child->session = owner == FOREIGN_OWNER ? 0 : servers[owner].session;
	fire(&directory_watchers, ZKL_EVENT_CHILDREN_CHANGED);
	return child;
}

static void
remove_child(Child *child)
{
	zxid++;
	fire_child(child, true);
	*child = children[--nchildren];
	fire(&directory_watchers, ZKL_EVENT_CHILDREN_CHANGED);
}

static bool
is_of_session(const Child *child, int s)
{
	return child->owner == s && child->session == servers[s].session;
}

/* In a random order, as ZooKeeper's is none. */
static void
answer_list(int s, Message *answer)
{
	if (!exists)
	{
		answer->event.outcome = ZKL_OUTCOME_ABSENT;
		return;
	}
	for (int i = 0; i < nchildren; i++)
	{
		int			j = (int) random_below(&seed, (uint32_t) i + 1);

		memmove(answer->children[i], answer->children[j], ZKL_CHILD_SIZE);
		strcpy(answer->children[j], children[i].name);
	}
	answer->nchildren = nchildren;
	directory_watchers |= 1u << s;
}

static void make_directory(void);

static const Role roles[] = {
	[ZKL_MODE_LOCK] = ROLE_MUTEX,
	[ZKL_MODE_WRITE] = ROLE_WRITER,
	[ZKL_MODE_READ] = ROLE_READER,
	[ZKL_MODE_LEASE] = ROLE_LEASE
};

static void
answer_create(int s, Message *answer)
{
	char		name[ZKL_CHILD_SIZE];
	Child	   *child;

	if (!exists)
	{
		answer->event.outcome = ZKL_OUTCOME_ABSENT;
		return;
	}
	snprintf(name, sizeof(name), "%.100s%010" PRId64, answer->name, next_number);
	child = add_child(name, s, roles[servers[s].mode], next_number++);
	child->holder = answer->holder;
	strcpy(answer->name, name);
	answer->event.czxid = child->czxid;
	answer->event.ours = true;
}

/* The directory and the znode in it, unless a parent is missing. */
static void
answer_found(int s, Message *answer)
{
	if (answer->with_parents || !one_in(4))
		make_directory();
	answer_create(s, answer);
}

/*
 * One znode instead of the other, or nothing.  The name is given, with its
 * number; still the directory counts it.
 */
static void
answer_downgrade(int s, Message *answer)
{
	Child	   *writer = find_child(answer->name);
	char		name[ZKL_ZNODE_SIZE];
	int64_t		number;

	check(strstr(answer->name, "__WRIT__") != NULL);
	if (writer == NULL)
	{
		answer->event.outcome = ZKL_OUTCOME_ABSENT;
		return;
	}
	if (writer->version != answer->version)
	{
		answer->event.outcome = ZKL_OUTCOME_CHANGED;
		return;
	}

	/* No request to release the lock is deleted unheard. */
	check(!writer->revoked || servers[s].ticket.revoked);
	zkl_recipe_make_downgrade(answer->name, name);
	number = writer->number;
	check(find_child(name) == NULL);
	remove_child(writer);
	add_child(name, s, ROLE_READER, number)->holder = answer->holder;
	next_number++;
}

/* What is in the directory "leases", if there is one. */
static void
answer_survey(Message *answer)
{
	if (find_child("leases") == NULL)
	{
		answer->event.outcome = ZKL_OUTCOME_ABSENT;
		return;
	}
	strcpy(answer->children[answer->nchildren++], "junk");
	if (weather.other_kinds && one_in(2))
		strcpy(answer->children[answer->nchildren++], "x-lease-0000000001");
}

/* Only if no other client has written there meanwhile. */
static void
answer_answer(int s, Message *answer)
{
	Child	   *child = find_child(answer->name);

	if (child == NULL)
		answer->event.outcome = ZKL_OUTCOME_ABSENT;
	else if (child->version != answer->version)
		answer->event.outcome = ZKL_OUTCOME_CHANGED;
	else
	{
		/* No request for the lock is overwritten unread. */
		check(!child->revoked || servers[s].ticket.revoked);
		check(!child->queried || servers[s].ticket.queried || answer->answers);

		/* An answer on which others rely is not taken back. */
		check(!child->answered || answer->answers || weather.refusals);
		child->answered = answer->answers;
		child->holder = answer->holder;
		child->revoked = child->queried = false;
		child->version++;
		fire_child(child, false);
	}
}

static void
answer_about_child(int s, Message *answer)
{
	Child	   *child = find_child(answer->name);

	if (child == NULL)
		answer->event.outcome = ZKL_OUTCOME_ABSENT;
	else if (answer->event.request == ZKL_REQUEST_INSPECT)
	{
		answer->event.czxid = child->czxid;
		answer->event.ours = is_of_session(child, s);
	}
	else if (answer->event.request == ZKL_REQUEST_WATCH || answer->event.request == ZKL_REQUEST_WATCH_SELF)
	{
		child->watchers |= 1u << s;
		answer->event.revoked = child->revoked;
		answer->event.queried = child->queried;
		answer->event.answered = child->answered;
		answer->event.version = child->version;
		answer->holder = child->holder;
	}
	else
		remove_child(child);
}

static void
make_directory(void)
{
	if (exists)
		return;
	exists = true;
	next_number = weather.first_number;
}

/* By the name that its ticket knows, or by the one that a downgrade has given. */
static const Child *
own_child(int s)
{
	const ZklTicket *ticket = &servers[s].ticket;
	const Child *child = find_child(ticket->name);
	char		reader[ZKL_ZNODE_SIZE];

	if (child != NULL || ticket->state != ZKL_TICKET_DOWNGRADING)
		return child;
	zkl_recipe_make_downgrade(ticket->name, reader);
	return find_child(reader);
}

static bool
downgrades(int s)
{
	return servers[s].ticket.state == ZKL_TICKET_DOWNGRADING ||
		servers[s].ticket.state == ZKL_TICKET_REREADING || servers[s].ticket.state == ZKL_TICKET_CONFIRMING;
}

/* At all times, one of a downgrade's two znodes has the place. */
static void
check_places(void)
{
	for (int s = 0; s < SERVERS; s++)
	{
		if (servers[s].alive && !weather.foreign_hands && downgrades(s))
			check(own_child(s) != NULL);
	}
}

/* Do what was requested; the request becomes its answer. */
static void
execute(int s, Message *message)
{
	message->event.outcome = ZKL_OUTCOME_OK;
	switch (message->event.request)
	{
		case ZKL_REQUEST_NOTHING:
			break;
		case ZKL_REQUEST_CREATE_BOTH:
			answer_found(s, message);
			break;
		case ZKL_REQUEST_CREATE:
			answer_create(s, message);
			break;
		case ZKL_REQUEST_LIMIT:
		case ZKL_REQUEST_LIST:
			answer_list(s, message);
			break;
		case ZKL_REQUEST_SURVEY:
			answer_survey(message);
			break;
		case ZKL_REQUEST_ANSWER:
			answer_answer(s, message);
			break;
		case ZKL_REQUEST_DOWNGRADE:
			answer_downgrade(s, message);
			break;
		case ZKL_REQUEST_INSPECT:
		case ZKL_REQUEST_WATCH:
		case ZKL_REQUEST_WATCH_SELF:
		case ZKL_REQUEST_DELETE:
			answer_about_child(s, message);
			break;
	}
	check_places();
}

/*
 * May this request be refused?  Not a downgrade that was done, nor the search
 * for it: these leave a znode to the end of its session.
 */
static bool
is_refused(int s, const Message *message)
{
	return weather.refusals && one_in(20) &&
		(message->event.request != ZKL_REQUEST_DOWNGRADE ||
		 find_child(message->name) != NULL) &&
		(message->event.request != ZKL_REQUEST_INSPECT ||
		 servers[s].ticket.state == ZKL_TICKET_INSPECTING) &&
		(message->event.request != ZKL_REQUEST_LIST ||
		 servers[s].ticket.state == ZKL_TICKET_FINDING || servers[s].ticket.state == ZKL_TICKET_LISTING);
}

/* Is this request in one transaction with another that fails? */
static bool
is_spoiled(const Message *message)
{
	return weather.spoilers && one_in(20) &&
		(message->event.request == ZKL_REQUEST_CREATE_BOTH ||
		 message->event.request == ZKL_REQUEST_CREATE ||
		 message->event.request == ZKL_REQUEST_DELETE);
}

/* ZooKeeper comes to the next request of a server. */
static void
serve(int s)
{
	Message		message;

	if (servers[s].sent.n == 0)
		return;
	message = pop(&servers[s].sent);
	if (is_refused(s, &message))
	{
		any_refusal = true;
		message.event.outcome = ZKL_OUTCOME_REFUSED;
		message.event.failure = ZKL_FAILURE_PERMISSION;
	}
	else if (is_spoiled(&message))
		message.event.outcome = ZKL_OUTCOME_UNDONE;
	else
		execute(s, &message);
	*push(&servers[s].inbox) = message;
}

static void
end_session(int s)
{
	servers[s].alive = false;
	for (int i = nchildren - 1; i >= 0; i--)
	{
		if (is_of_session(&children[i], s))
			remove_child(&children[i]);
	}
}

/* Some of the requests under way are done, the rest are not. */
static void
cut_requests(int s)
{
	Server	   *server = &servers[s];
	int			ndone = (int) random_below(&seed, (uint32_t) server->sent.n + 1);

	for (int i = 0; i < ndone; i++)
	{
		Message		forgotten = server->sent.messages[i];

		execute(s, &forgotten);
	}
}

static void
drop_watches(int s)
{
	directory_watchers &= ~(1u << s);
	for (int i = 0; i < nchildren; i++)
		children[i].watchers &= ~(1u << s);
}

/* Answers that have not arrived become UNKNOWN; watches never arrive. */
static void
lose_connection(int s)
{
	Server	   *server = &servers[s];
	int			arrived = (int) random_below(&seed, (uint32_t) server->inbox.n + 1);
	Queue		rest;

	if (!server->connected)
		return;
	cut_requests(s);
	drop_watches(s);
	server->connected = false;

	rest.n = 0;
	for (int i = arrived; i < server->inbox.n; i++)
	{
		if (server->inbox.messages[i].event.kind == ZKL_EVENT_REPLY)
			*push(&rest) = server->inbox.messages[i];
	}
	for (int i = 0; i < server->sent.n; i++)
		*push(&rest) = server->sent.messages[i];
	server->inbox.n = arrived;
	server->sent.n = 0;
	while (rest.n > 0)
	{
		Message    *unknown = push(&server->inbox);

		*unknown = pop(&rest);
		unknown->event.outcome = ZKL_OUTCOME_UNKNOWN;
		unknown->nchildren = 0;
	}
}

/*
 * The driver: what the worker does
 */

/* Tokens grow, but readers of the same turn come in any order. */
static void
check_token(const Server *server)
{
	int64_t		token = server->ticket.czxid;
	bool		reads = server->ticket.mode == ZKL_MODE_READ;

	check(!server->withdrawn);
	if (weather.kind == ZKL_KIND_SEMAPHORE || !server->alive)
		return;
	check(token > (reads ? last_writers_token : last_token) || weather.foreign_hands);
	if (!reads)
		last_writers_token = token;
	if (token > last_token)
		last_token = token;
}

static void feed_kind(int s, ZklTicketEventKind kind);
static bool is_owner(int s);
static bool is_under_way(const Server *server, ZklRequest request);
static void end_try(int s);

/* From now on, the ticket does not linger, whatever becomes of the answer. */
static void
tell_to_answer(int s)
{
	servers[s].answered = true;
	feed_kind(s, ZKL_EVENT_ANSWER);
}

/* Another client wants the lock; the holders hold on to it, or only read. */
static void
say_that_it_is_in_use(int s)
{
	const ZklTicket *ticket = &servers[s].ticket;

	if (!ticket->contended || !servers[s].wanted || weather.kind == ZKL_KIND_SEMAPHORE)
		return;
	if (ticket->mode == ZKL_MODE_WRITE && one_in(3))
		feed_kind(s, ZKL_EVENT_DOWNGRADE);
	else if (ticket->asked || one_in(3))
		tell_to_answer(s);
}

/* How the lock table answers a report, and what becomes of a try. */
static void
on_report(int s, ZklReport what)
{
	Server	   *server = &servers[s];

	switch (what)
	{
		case ZKL_REPORT_QUEUED:
			if (server->tries && !server->ticket.asking)
				end_try(s);
			break;
		case ZKL_REPORT_OWNED:
			check_token(server);
			server->tries = false;
			server->answered = false;
			/* A list that is under way counts as asked for. */
			check(server->ticket.listed || !is_under_way(server, ZKL_REQUEST_LIST));
			server->list_asked = server->ticket.listed;
			server->watch_asked = false;
			say_that_it_is_in_use(s);
			break;
		case ZKL_REPORT_DOWNGRADED:
			server->answered = false;
			break;
		case ZKL_REPORT_CONTENDED:
			times_gave_up_lingering += server->lingers;
			server->unused |= server->lingers;
			server->lingers = false;
			say_that_it_is_in_use(s);
			break;
		case ZKL_REPORT_QUERIED:
			server->unused |= server->lingers;
			if (!server->lingers && server->wanted && !server->ticket.write_refused)
				tell_to_answer(s);
			server->lingers = false;
			break;
			/* A waiter gets an error, and does not ask again by itself. */
		case ZKL_REPORT_FAILED:
			server->wanted = false;
			server->tries = false;
			break;
		default:
			break;
	}
}

static void
feed(int s, const ZklTicketEvent *event)
{
	Server	   *server = &servers[s];
	ZklTicketState before = server->ticket.state;
	ZklTicketStep step = zkl_ticket_step(&server->ticket, event);

	times_in_state[server->ticket.state]++;
	times_asked[step.request]++;
	times_reported[step.report]++;
	if (server->due == ZKL_REQUEST_WATCH_SELF && step.request == ZKL_REQUEST_DELETE)
		times_gave_way_unsent++;
	if (step.request != ZKL_REQUEST_NOTHING)
		server->due = step.request;
	if (server->ticket.state == ZKL_TICKET_NONE)
	{
		server->due = ZKL_REQUEST_NOTHING;
		server->withdrawn = false;
		server->lingers = false;
		check(before == ZKL_TICKET_NONE || step.report != ZKL_REPORT_NOTHING);
	}
	on_report(s, step.report);
}

static void
feed_kind(int s, ZklTicketEventKind kind)
{
	ZklTicketEvent event = {.kind = kind};

	feed(s, &event);
}

/* The session ends for ZooKeeper; a new one takes its place. */
static void
begin_session(int s)
{
	servers[s].session++;
	servers[s].alive = true;
	servers[s].connected = true;
}

static bool
acquires(int s)
{
	ZklTicketState state = servers[s].ticket.state;

	return !servers[s].withdrawn && state != ZKL_TICKET_NONE &&
		state != ZKL_TICKET_OWNED && state != ZKL_TICKET_CHECKING &&
		state != ZKL_TICKET_WRITING_DATA && state != ZKL_TICKET_DELETING;
}

/* A semaphore's mutex is held by another client. */
static bool
must_wait(int s)
{
	for (int other = 0; other < SERVERS && weather.one_at_a_time; other++)
	{
		if (other != s && acquires(other))
			return true;
	}
	return false;
}

static void
want(int s)
{
	Server	   *server = &servers[s];
	ZklTicketEvent event = {.kind = ZKL_EVENT_WANT};

	switch (weather.kind)
	{
		case ZKL_KIND_MUTEX:
			event.mode = ZKL_MODE_LOCK;
			break;
		case ZKL_KIND_READ_WRITE:
			event.mode = one_in(3) ? ZKL_MODE_READ : ZKL_MODE_WRITE;
			break;
		case ZKL_KIND_SEMAPHORE:
			event.mode = ZKL_MODE_LEASE;
			break;
	}
	event.is_new = weather.kind != ZKL_KIND_SEMAPHORE && one_in(2);
	server->mode = event.mode;
	server->is_try = weather.tries ? server->tries : one_in(2);
	server->unused = server->saw_use = false;
	times_tried += server->tries;
	feed(s, &event);
}

/* Tell the ticket what its backends want, if it does not know. */
static void
tell_wish(int s)
{
	Server	   *server = &servers[s];

	if (server->ticket.state == ZKL_TICKET_STUCK)
		feed_kind(s, ZKL_EVENT_UNWANT);
	else if (server->wanted && server->ticket.state == ZKL_TICKET_NONE)
	{
		if (!must_wait(s))
			want(s);
	}
	else if (!server->wanted && !server->withdrawn && !server->lingers &&
			 server->ticket.state != ZKL_TICKET_NONE)
	{
		ZklTicketEvent event = {
			.kind = ZKL_EVENT_UNWANT,
			.unsent = server->due != ZKL_REQUEST_NOTHING
		};

		server->withdrawn = true;
		feed(s, &event);
	}
}

/*
 * The lock is owned for long.  As in entrystate.c, the ticket hears it once, in
 * whatever state it is.
 */
static void
tell_once(int s, ZklTicketEventKind kind)
{
	bool	   *asked = kind == ZKL_EVENT_LOOK ? &servers[s].list_asked : &servers[s].watch_asked;

	if (*asked || !is_owner(s))
		return;
	*asked = true;
	feed_kind(s, kind);
}

/* The holders do not write any more, or the ticket may not be contended any more. */
static void
tell_more(ZklTicketEventKind kind)
{
	for (int s = 0; s < SERVERS; s++)
	{
		if (servers[s].wanted && servers[s].ticket.state != ZKL_TICKET_NONE)
			feed_kind(s, kind);
	}
}

/* The lock was handed on within a server, and is held for long. */
static void
holder_changes(int s)
{
	if (!servers[s].wanted || !is_owner(s))
		return;
	servers[s].holder++;
	feed_kind(s, ZKL_EVENT_DESCRIBE);
}

static Message *
push_request(Server *server, ZklRequest request)
{
	Message    *message = push(&server->sent);

	message->event.kind = ZKL_EVENT_REPLY;
	message->event.request = request;
	message->attempt = server->ticket.attempt;
	message->version = server->ticket.version;
	message->answers = server->ticket.writes_answer;
	message->holder = server->holder;
	message->with_parents = server->ticket.rounds > 0;
	strcpy(message->name, request == ZKL_REQUEST_WATCH ? server->ticket.predecessor : server->ticket.name);
	return message;
}

static void
send_due(int s)
{
	Server	   *server = &servers[s];
	ZklRequest	request = server->due;

	if (request == ZKL_REQUEST_NOTHING || !server->connected)
		return;
	server->due = ZKL_REQUEST_NOTHING;
	if (request == ZKL_REQUEST_CREATE || request == ZKL_REQUEST_CREATE_BOTH)
	{
		uint8_t		random[16];

		random_bytes(&seed, random, sizeof(random));
		zkl_ticket_begin_attempt(&server->ticket, random, server->is_try);
		zkl_recipe_make_prefix(server->ticket.mode, server->ticket.uuid, push_request(server, request)->name);
		if (request == ZKL_REQUEST_CREATE)
			push_request(server, ZKL_REQUEST_LIST);
	}
	else
		push_request(server, request);
}

/* The next event arrives. */
static void
deliver(int s)
{
	Server	   *server = &servers[s];
	Message		message;
	const char *names[MAX_CHILDREN];
	ZklLease	leases[MAX_CHILDREN];

	if (server->inbox.n == 0)
		return;
	message = pop(&server->inbox);
	if (message.event.kind == ZKL_EVENT_REPLY && message.attempt != server->ticket.attempt)
		return;
	if (message.event.kind == ZKL_EVENT_PREDECESSOR_GONE &&
		strcmp(message.name, server->ticket.predecessor) != 0)
		return;
	if (message.event.kind == ZKL_EVENT_EXPIRED)
		begin_session(s);

	for (int i = 0; i < message.nchildren; i++)
		names[i] = message.children[i];
	message.event.name = message.name;
	message.event.children = names;
	message.event.nchildren = message.nchildren;
	zkl_recipe_order_leases(names, message.nchildren, leases);
	message.event.leases = leases;
	message.event.limit = LIMIT;
	message.event.stale = message.event.request == ZKL_REQUEST_WATCH_SELF &&
		message.event.outcome == ZKL_OUTCOME_OK && message.holder != server->holder;
	feed(s, &message.event);

	/* The tickets that were queued at that moment, and no others. */
	if (message.event.kind == ZKL_EVENT_PREDECESSOR_GONE && server->ticket.state == ZKL_TICKET_CHECKING)
		check(message.own_exists);
}

static bool
is_told(const Server *server, ZklTicketEventKind kind)
{
	for (int i = 0; i < server->inbox.n; i++)
	{
		if (server->inbox.messages[i].event.kind == kind)
			return true;
	}
	return false;
}

static bool
expects_news_of_session(int s)
{
	return is_told(&servers[s], ZKL_EVENT_EXPIRED) || is_told(&servers[s], ZKL_EVENT_RECONNECTED);
}

/* Of a session that has expired, only UNKNOWN outcomes may come late. */
static void
tell_expiry_first(Server *server)
{
	Queue		rest = server->inbox;

	server->inbox.n = 0;
	push(&server->inbox)->event.kind = ZKL_EVENT_EXPIRED;
	while (rest.n > 0)
	{
		Message		message = pop(&rest);

		if (message.event.kind == ZKL_EVENT_REPLY && message.event.outcome == ZKL_OUTCOME_UNKNOWN)
			*push(&server->inbox) = message;
	}
}

/* What came over the old connection is handled before the news of the new one. */
static void
reconnect(int s)
{
	Server	   *server = &servers[s];

	if (server->connected || expects_news_of_session(s))
		return;
	if (server->alive)
	{
		server->connected = true;
		push_event(s, ZKL_EVENT_RECONNECTED);
		return;
	}
	switch (random_below(&seed, 3))
	{
		case 0:
			tell_expiry_first(server);
			break;
		case 1:
			server->inbox.n = 0;	/* the handle was closed */
			/* FALLTHROUGH */
		case 2:
			push_event(s, ZKL_EVENT_EXPIRED);
			break;
	}
}

/* A new worker takes over the ticket and, if it lives, the session. */
static void
restart(int s)
{
	Server	   *server = &servers[s];

	if (server->connected)
		cut_requests(s);
	drop_watches(s);
	server->sent.n = 0;
	server->inbox.n = 0;
	server->due = ZKL_REQUEST_NOTHING;
	server->withdrawn = false;
	server->connected = server->alive;
	feed_kind(s, ZKL_EVENT_RESTARTED);
	if (!server->alive)
	{
		begin_session(s);
		feed_kind(s, ZKL_EVENT_EXPIRED);
	}
}

/*
 * Other clients, and accidents
 */

static int
count_foreign(void)
{
	int			n = 0;

	for (int i = 0; i < nchildren; i++)
		n += children[i].owner == FOREIGN_OWNER;
	return n;
}

typedef struct Form
{
	unsigned	kinds;			/* of locks among which it is met */
	Role		role;
	const char *prefix;			/* of a number, but for "leases" */
} Form;

#define K(kind)		(1u << ZKL_KIND_##kind)
#define CURATORS	"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-"
#define GO			"_c_f81d4fae7dec41d0a76500a0c91e6bf6-"
#define KAZOOS		"f81d4fae7dec41d0a76500a0c91e6bf6"

static const Form forms[] = {
	{K(MUTEX), ROLE_MUTEX, CURATORS "lock-"},
	{K(MUTEX), ROLE_MUTEX, GO "lock-"},
	{K(READ_WRITE), ROLE_WRITER, CURATORS "__WRIT__"},
	{K(READ_WRITE), ROLE_READER, CURATORS "__READ__"},
	{K(MUTEX) | K(READ_WRITE), ROLE_KAZOO, KAZOOS "__lock__"},
	{K(MUTEX) | K(READ_WRITE), ROLE_KAZOO_READER, KAZOOS "__rlock__"},
	{K(MUTEX) | K(READ_WRITE), ROLE_JUNK, "leases"},
	{K(SEMAPHORE), ROLE_LEASE, CURATORS "lease-"},
	{K(MUTEX) | K(READ_WRITE) | K(SEMAPHORE), ROLE_JUNK, "0-junk-"},
};

/* Clients that take the path for another kind of lock. */
static const Form strange_forms[] = {
	{K(MUTEX), ROLE_JUNK, CURATORS "__WRIT__"},
	{K(MUTEX), ROLE_JUNK, CURATORS "__READ__"},
	{K(READ_WRITE), ROLE_JUNK, CURATORS "lock-"},
};

static void
foreigner_comes(void)
{
	const Form *form = &forms[random_below(&seed, lengthof(forms))];
	char		name[ZKL_CHILD_SIZE];

	if (weather.other_kinds && one_in(3))
		form = &strange_forms[random_below(&seed, lengthof(strange_forms))];
	if (count_foreign() >= MAX_FOREIGN || !(form->kinds & 1u << weather.kind))
		return;
	make_directory();
	if (strcmp(form->prefix, "leases") == 0)
		strcpy(name, form->prefix);
	else
		snprintf(name, sizeof(name), "%s%010" PRId64, form->prefix, next_number);
	if (find_child(name) != NULL)
		return;
	add_child(name, FOREIGN_OWNER, form->role, next_number);
	next_number++;
}

/* Curator's way: the reader's znode is made, and the writer's goes later. */
static void
foreigner_downgrades(void)
{
	char		name[ZKL_CHILD_SIZE];

	for (int i = 0; i < nchildren && nchildren < MAX_CHILDREN; i++)
	{
		if (children[i].owner != FOREIGN_OWNER || children[i].role != ROLE_WRITER)
			continue;
		zkl_recipe_make_downgrade(children[i].name, name);
		if (find_child(name) != NULL)
			continue;
		add_child(name, FOREIGN_OWNER, ROLE_READER, children[i].number);
		next_number++;
		return;
	}
}

static void
foreigner_goes(void)
{
	int			n = count_foreign();

	if (n == 0)
		return;
	n = (int) random_below(&seed, (uint32_t) n);
	for (int i = 0; i < nchildren; i++)
	{
		if (children[i].owner == FOREIGN_OWNER && n-- == 0)
		{
			remove_child(&children[i]);
			return;
		}
	}
}

/*
 * Its data is set: the watches fire, and it stays.  Where an owner may be
 * refused to read its own znode, an answer that another client takes away is
 * gone.
 */
static void
child_changes(void)
{
	Child	   *child;

	if (nchildren == 0)
		return;
	child = &children[random_below(&seed, (uint32_t) nchildren)];
	child->version++;
	child->revoked = one_in(3);
	child->queried = one_in(3);
	if (one_in(2) && !weather.refusals)
	{
		child->answered = false;
		child->holder = -1;
	}
	fire_child(child, false);
}

static void
any_child_is_deleted(void)
{
	if (nchildren > 0)
		remove_child(&children[random_below(&seed, (uint32_t) nchildren)]);
}

static void
reap_directory(void)
{
	if (nchildren > 0 || !exists)
		return;
	exists = false;
	zxid++;
	fire(&directory_watchers, ZKL_EVENT_CHILDREN_CHANGED);
}

/* A watch of long ago. */
static void
watch_fires_for_nothing(int s)
{
	static const ZklTicketEventKind kinds[] = {
		ZKL_EVENT_CHILDREN_CHANGED, ZKL_EVENT_PREDECESSOR_CHANGED,
		ZKL_EVENT_SELF_CHANGED
	};

	if (servers[s].connected)
		push_event(s, kinds[random_below(&seed, lengthof(kinds))]);
}

static void
accident(int s)
{
	switch (random_below(&seed, 6))
	{
		case 0:
		case 1:
			if (weather.disconnects)
				lose_connection(s);
			break;
		case 2:
			if (weather.expiries)
			{
				lose_connection(s);
				end_session(s);
			}
			break;
		case 3:
			if (weather.restarts)
				restart(s);
			break;
		case 4:
			if (weather.foreign_hands)
				any_child_is_deleted();
			break;
		case 5:
			watch_fires_for_nothing(s);
			break;
	}
}

/*
 * Rules
 */

static bool
is_rival(const Child *mine, const Child *other)
{
	return (excluded[mine->role] & 1u << other->role) != 0;
}

/* Does this child go before ours?  Others of the same number do. */
static bool
goes_before(const Child *other, const Child *mine)
{
	return other != mine && is_rival(mine, other) && other->number <= mine->number;
}

/* The last child that goes before it. */
static const Child *
predecessor_of(const Child *znode)
{
	const Child *nearest = NULL;

	for (int i = 0; i < nchildren; i++)
	{
		if (goes_before(&children[i], znode) && (nearest == NULL || children[i].number > nearest->number))
			nearest = &children[i];
	}
	return nearest;
}

static bool
is_downgraded(int s)
{
	return servers[s].ticket.mode != servers[s].mode;
}

/* There are never two. */
static const Child *
znode_of(int s)
{
	const Child *znode = NULL;

	for (int i = 0; i < nchildren; i++)
	{
		if (!is_of_session(&children[i], s))
			continue;
		check(znode == NULL);
		znode = &children[i];
	}
	return znode;
}

static bool
is_owner(int s)
{
	return servers[s].ticket.state == ZKL_TICKET_OWNED ||
		servers[s].ticket.state == ZKL_TICKET_CHECKING ||
		servers[s].ticket.state == ZKL_TICKET_WRITING_DATA ||
		(downgrades(s) && !servers[s].withdrawn && !servers[s].ticket.unwanted);
}

/* The event for which a ticket in this state waits. */
static const ZklRequest awaited[ZKL_TICKET_NSTATES] = {
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
	[ZKL_TICKET_CHECKING] = ZKL_REQUEST_LIST,
	[ZKL_TICKET_WRITING_DATA] = ZKL_REQUEST_ANSWER,
	[ZKL_TICKET_DOWNGRADING] = ZKL_REQUEST_DOWNGRADE,
	[ZKL_TICKET_REREADING] = ZKL_REQUEST_WATCH_SELF,
	[ZKL_TICKET_CONFIRMING] = ZKL_REQUEST_INSPECT,
	[ZKL_TICKET_DELETING] = ZKL_REQUEST_DELETE
};

static bool
is_in(const Queue *queue, ZklRequest request, uint32_t attempt)
{
	for (int i = 0; i < queue->n; i++)
	{
		if (queue->messages[i].event.kind == ZKL_EVENT_REPLY &&
			queue->messages[i].event.request == request && queue->messages[i].attempt == attempt)
			return true;
	}
	return false;
}

/* The request is to be sent, was sent, or is answered: so there will be a reply. */
static bool
is_under_way(const Server *server, ZklRequest request)
{
	return server->due == request ||
		is_in(&server->sent, request, server->ticket.attempt) ||
		is_in(&server->inbox, request, server->ticket.attempt);
}

static void
check_awaited(const Server *server)
{
	ZklRequest	request = awaited[server->ticket.state];

	if (request != ZKL_REQUEST_NOTHING && server->alive)
		check(is_under_way(server, request));
}

/*
 * What the ticket is told once it does not forget, also if it was told in a
 * state in which it could not do so.
 */
static void
check_told(const Server *server)
{
	if (server->ticket.state != ZKL_TICKET_OWNED)
		return;
	check(server->ticket.listed || !server->list_asked);
	check(server->ticket.watched || !server->watch_asked);
}

/*
 * A ticket that will own the lock when its predecessor goes watches the
 * directory, or is about to learn that something has changed there.
 */
static void
check_next(int s)
{
	const Server *server = &servers[s];

	if (server->ticket.state != ZKL_TICKET_QUEUED || !server->ticket.next || !server->connected)
		return;
	check(directory_watchers & 1u << s ||
		  is_told(server, ZKL_EVENT_CHILDREN_CHANGED) || is_told(server, ZKL_EVENT_RECONNECTED));
}

/*
 * An owner hears of all that concerns it: of the first that waits, by the
 * directory's watch, and then of its own znode by the watch on that.
 */
static void
check_owner_is_told(int s)
{
	const Server *server = &servers[s];
	const Child *znode = find_child(server->ticket.name);

	if (server->ticket.state != ZKL_TICKET_OWNED || !server->ticket.listed ||
		!server->connected || !server->alive || is_told(server, ZKL_EVENT_RECONNECTED))
		return;
	if (!server->ticket.contended || server->ticket.rechecks)
		check(directory_watchers & 1u << s || is_told(server, ZKL_EVENT_CHILDREN_CHANGED));
	if (server->ticket.watched && !any_refusal && znode != NULL &&
		server->due == ZKL_REQUEST_NOTHING && !is_under_way(server, ZKL_REQUEST_WATCH_SELF))
		check(znode->watchers & 1u << s || is_told(server, ZKL_EVENT_SELF_CHANGED));
}

static void look_for_use(int s);

static bool
a_create_is_under_way(int s)
{
	for (int i = 0; i < servers[s].sent.n; i++)
	{
		ZklRequest	request = servers[s].sent.messages[i].event.request;

		if (request == ZKL_REQUEST_CREATE || request == ZKL_REQUEST_CREATE_BOTH)
			return true;
	}
	return false;
}

/* Returns whether the server owns the lock, and rightly. */
static bool
check_owner(int s)
{
	const Server *server = &servers[s];
	const Child *znode = own_child(s);

	if (znode == NULL)
	{
		check(weather.foreign_hands);
		return false;
	}
	check(is_of_session(znode, s));
	check(is_downgraded(s) || downgrades(s) || server->ticket.czxid == znode->czxid);
	check(predecessor_of(znode) == NULL);
	return true;
}

/*
 * A ticket whose session has expired does not know it yet; its claims are in
 * doubt by then.  The same goes for one that another client has deleted.
 * A ticket that is downgraded does not write any more.
 */
static void
check_rules(void)
{
	int			nreaders = 0;
	int			nothers = 0;

	for (int s = 0; s < SERVERS; s++)
		look_for_use(s);
	for (int s = 0; s < SERVERS; s++)
	{
		const Server *server = &servers[s];
		const Child *znode = znode_of(s);

		check_awaited(server);
		check_told(server);
		check_next(s);
		check_owner_is_told(s);
		if (server->ticket.state == ZKL_TICKET_NONE)
		{
			check(znode == NULL);
			check(!a_create_is_under_way(s) || !server->alive);
		}
		if (!is_owner(s) || !server->alive || !check_owner(s))
			continue;
		if (server->ticket.mode == ZKL_MODE_READ || downgrades(s))
			nreaders++;
		else
			nothers++;
	}
	if (weather.kind == ZKL_KIND_SEMAPHORE)
		check(nothers <= LIMIT);
	else
		check(nothers == 0 || nothers + nreaders == 1);
	if (nreaders > most_readers)
		most_readers = nreaders;
}

/*
 * Tries
 *
 * One that ends in vain has seen a znode before its own that was there for a
 * client that held the lock or waited for it, or had just ceased to; not just
 * for a server that let its ticket linger, or for another try.
 */

/*
 * The znode belongs to a lock request that has ended.  A restarted worker has
 * the ticket told so once more, but the ticket knows.
 */
static bool
is_given_up(const Server *server)
{
	return server->withdrawn || server->ticket.unwanted;
}

static bool
is_in_use(const Child *child)
{
	const Server *server = &servers[child->owner];

	if (child->owner == FOREIGN_OWNER)
		return true;
	return !server->lingers && !server->unused &&
		(!server->tries || is_given_up(server) || is_owner(child->owner));
}

static void
look_for_use(int s)
{
	const Child *mine = znode_of(s);

	for (int i = 0; i < nchildren && mine != NULL; i++)
	{
		if (goes_before(&children[i], mine) && is_in_use(&children[i]))
			servers[s].saw_use = true;
	}
}

static void
end_try(int s)
{
	times_tried_in_vain++;
	check(servers[s].saw_use);
	servers[s].wanted = servers[s].tries = false;
	servers[s].unused = true;
}

/* The lock is released, or given up. */
static void
end_wish(int s)
{
	Server	   *server = &servers[s];

	server->unused |= server->tries && !is_given_up(server) && !is_owner(s);
	server->wanted = server->tries = false;
	if (weather.tries && is_owner(s) && !server->ticket.contended && !server->answered)
		server->lingers = one_in(2);
}

/* A ticket that waits already, or lingers, serves this request as well. */
static void
begin_wish(int s)
{
	Server	   *server = &servers[s];

	server->wanted = true;
	if (server->ticket.state == ZKL_TICKET_NONE || is_given_up(server))
		server->tries = weather.tries && one_in(2);
	else
		server->lingers = server->unused = false;
}

/*
 * The walk
 */

static void
take_step(void)
{
	int			s = (int) random_below(&seed, SERVERS);
	uint32_t	dice = random_below(&seed, 1000);

	nsteps++;
	if (dice < 40 && servers[s].wanted)
		end_wish(s);
	else if (dice < 40)
		begin_wish(s);
	else if (dice < 180)
		tell_wish(s);
	else if (dice < 195)
		tell_more(ZKL_EVENT_DOWNGRADE);
	else if (dice < 198)
		tell_once(s, ZKL_EVENT_WATCH);
	else if (dice < 200)
		tell_more(ZKL_EVENT_RECHECK);
	else if (dice < 205)
		tell_once(s, ZKL_EVENT_LOOK);
	else if (dice < 215)
		holder_changes(s);
	else if (dice < 400)
		send_due(s);
	else if (dice < 600)
		serve(s);
	else if (dice < 850)
		deliver(s);
	else if (dice < 870)
		foreigner_comes();
	else if (dice < 905)
		foreigner_goes();
	else if (dice < 910)
		foreigner_downgrades();
	else if (dice < 920)
		child_changes();
	else if (dice < 950)
		reconnect(s);
	else if (dice < 970 && weather.reaping)
		reap_directory();
	else
		accident(s);
	check_rules();
}

/*
 * Rest
 */

/* After a while, the holder of a contended lock says that it is in use, asked or not. */
static bool
owes_an_answer(int s)
{
	const ZklTicket *ticket = &servers[s].ticket;

	return weather.tries && servers[s].wanted && ticket->contended &&
		ticket->state == ZKL_TICKET_OWNED && !ticket->answered;
}

/* Time makes an owner list and watch. */
static bool
is_to_be_told(int s)
{
	return servers[s].ticket.state == ZKL_TICKET_OWNED &&
		!(servers[s].ticket.listed && servers[s].watch_asked);
}

static bool
is_at_rest(int s)
{
	const Server *server = &servers[s];

	return !is_to_be_told(s) &&
		!owes_an_answer(s) && server->connected && server->alive && server->inbox.n == 0 &&
		server->sent.n == 0 && server->due == ZKL_REQUEST_NOTHING &&
		((server->wanted || server->lingers) ==
		 (server->ticket.state != ZKL_TICKET_NONE) || (server->wanted && must_wait(s)));
}

/* Let everything take its course, without accidents. */
static void
come_to_rest(void)
{
	bool		resting = false;

	for (int round = 0; !resting; round++)
	{
		check(round < 1000);
		resting = true;
		for (int s = 0; s < SERVERS; s++)
		{
			reconnect(s);
			tell_wish(s);
			if (owes_an_answer(s))
				tell_to_answer(s);
			tell_once(s, ZKL_EVENT_LOOK);
			tell_once(s, ZKL_EVENT_WATCH);
			send_due(s);
			serve(s);
			deliver(s);
			check_rules();
		}
		for (int s = 0; s < SERVERS; s++)
			resting &= is_at_rest(s);
	}
}

static bool
any_ticket_waits_for(const Child *znode)
{
	for (int i = 0; i < nchildren; i++)
	{
		if (is_rival(znode, &children[i]) && children[i].number > znode->number)
			return true;
	}
	return znode->role == ROLE_LEASE && nchildren > LIMIT;
}

/*
 * Another client deleted the znode.  A queued ticket learns it when the turn of
 * the predecessor is over, but an owner has learnt it.
 */
static void
check_rest_without_znode(const Server *server, int s)
{
	const Child *predecessor;

	check(weather.foreign_hands);
	check(server->ticket.state == ZKL_TICKET_QUEUED);
	check(weather.kind != ZKL_KIND_SEMAPHORE);
	predecessor = find_child(server->ticket.predecessor);
	check(predecessor != NULL);
	check(predecessor->watchers & 1u << s);
}

static void
check_rest_of_owner(const Server *server, const Child *znode, int s)
{
	check(predecessor_of(znode) == NULL);
	check(strcmp(server->ticket.name, znode->name) == 0);
	check(server->ticket.contended || !any_ticket_waits_for(znode));
	check(server->ticket.watched);
	if (!server->ticket.contended)
		check(directory_watchers & 1u << s);
	if (server->ticket.watched && !weather.refusals)
	{
		check(znode->watchers & 1u << s);
		check(server->ticket.revoked || !znode->revoked);
		check(server->ticket.queried || znode->answered || !znode->queried);
		check(znode->holder == server->holder);
	}
}

/* The znode was made for a try, and may watch the first one in the queue. */
static bool
only_tries(const Server *server)
{
	bool		tries;

	return zkl_recipe_is_zklock(server->ticket.name, &tries) && tries;
}

/*
 * Only another try that has become a wait meanwhile is silent.  It
 * wants the lock, and is not its owner; so time ends this try.
 */
static void
end_silent_try(int s)
{
	const Child *before = find_child(servers[s].ticket.predecessor);
	const Server *other;

	check(before != NULL && before->owner != FOREIGN_OWNER);
	other = &servers[before->owner];
	check(other->is_try && other->wanted && !other->tries);
	check(other->ticket.state == ZKL_TICKET_QUEUED);
	times_silent++;
	end_try(s);
}

/* Each waiting ticket waits for something that will happen. */
static void
check_rest(int s)
{
	const Server *server = &servers[s];
	const Child *znode = znode_of(s);
	const Child *predecessor;

	if (server->tries)
		end_silent_try(s);
	if (server->ticket.state == ZKL_TICKET_NONE)
		return;					/* and without a znode, by the rules */

	if (znode == NULL)
	{
		check_rest_without_znode(server, s);
		return;
	}
	if (server->ticket.state == ZKL_TICKET_OWNED)
	{
		check_rest_of_owner(server, znode, s);
		return;
	}
	check(server->ticket.state == ZKL_TICKET_QUEUED);
	if (weather.kind == ZKL_KIND_SEMAPHORE)
	{
		check(nchildren > LIMIT);
		check(directory_watchers & 1u << s);
		return;
	}
	predecessor = find_child(server->ticket.predecessor);
	check(predecessor != NULL && goes_before(predecessor, znode));
	check(predecessor->number == predecessor_of(znode)->number || only_tries(server));
	check(predecessor->watchers & 1u << s);
}

static int
count_wishes(void)
{
	int			n = 0;

	for (int s = 0; s < SERVERS; s++)
		n += servers[s].wanted;
	return n;
}

/*
 * Without the mutex, all may have too many leases and none enough: then one
 * has to give up.
 */
static int
find_owner(void)
{
	int			owner = -1;

	for (int s = 0; s < SERVERS; s++)
	{
		if (servers[s].ticket.state == ZKL_TICKET_OWNED && servers[s].wanted)
			owner = s;
	}
	for (int s = 0; s < SERVERS && owner < 0; s++)
	{
		if (servers[s].wanted && weather.kind == ZKL_KIND_SEMAPHORE && !weather.one_at_a_time)
			owner = s;
	}
	check(owner >= 0);
	return owner;
}

/* One after the other gets the lock, and in the end nothing is left. */
static void
serve_all_wishes(void)
{
	bool		refusals = weather.refusals;

	weather.refusals = false;
	while (count_foreign() > 0)
	{
		foreigner_goes();
		come_to_rest();
	}
	for (int left = count_wishes(); left > 0; left--)
	{
		servers[find_owner()].wanted = false;
		come_to_rest();
		check(count_wishes() == left - 1);
	}
	for (int s = 0; s < SERVERS; s++)
		servers[s].lingers = false;
	come_to_rest();
	check(nchildren == 0);
	weather.refusals = refusals;
}

static void
begin_walk(uint64_t with_seed)
{
	first_seed = seed = with_seed;
	nsteps = 0;
	memset(servers, 0, sizeof(servers));
	for (int s = 0; s < SERVERS; s++)
		begin_session(s);
	exists = false;
	any_refusal = false;
	directory_watchers = 0;
	nchildren = 0;
	zxid = 1;
	last_token = last_writers_token = 0;
}

static void
walk(const Weather *of_the_day, int nseeds)
{
	weather = *of_the_day;
	memset(times_in_state, 0, sizeof(times_in_state));
	memset(times_asked, 0, sizeof(times_asked));
	memset(times_reported, 0, sizeof(times_reported));
	times_gave_way_unsent = 0;
	times_tried = times_tried_in_vain = times_gave_up_lingering = 0;
	times_silent = 0;
	most_readers = 0;
	for (int i = 1; i <= nseeds; i++)
	{
		begin_walk((uint64_t) i * 1000003);
		for (int leg = 0; leg < 20; leg++)
		{
			for (int step = 0; step < 1000; step++)
				take_step();
			come_to_rest();
			for (int s = 0; s < SERVERS; s++)
				check_rest(s);
			if (leg % 4 == 3)
				serve_all_wishes();
		}
	}
}

/* Otherwise a walk might prove nothing. */
static void
assert_was_in(ZklTicketState first, ZklTicketState last)
{
	for (int s = first; s <= (int) last; s++)
	{
		if (times_in_state[s] == 0)
			fail_msg("the walk was never in state %d", s);
	}
}

static void
assert_had(const int *times, int n, unsigned but_for, const char *what)
{
	for (int i = 0; i < n; i++)
	{
		if (times[i] == 0 && !(but_for & 1u << i))
			fail_msg("the walk never had %s %d", what, i);
		if (times[i] != 0 && but_for & 1u << i)
			fail_msg("the walk should not have had %s %d", what, i);
	}
}

/* Everything but what another kind of lock has. */
static void
assert_was_everywhere(void)
{
	unsigned	states = 0;
	unsigned	requests = 1u << ZKL_REQUEST_LIMIT;	/* no step asks for it */
	unsigned	reports = 0;

	if (weather.kind != ZKL_KIND_READ_WRITE)
	{
		states = 1u << ZKL_TICKET_DOWNGRADING | 1u << ZKL_TICKET_REREADING | 1u << ZKL_TICKET_CONFIRMING;
		requests |= 1u << ZKL_REQUEST_DOWNGRADE;
		reports = 1u << ZKL_REPORT_DOWNGRADED;
	}
	if (weather.kind == ZKL_KIND_SEMAPHORE)
	{
		states |= 1u << ZKL_TICKET_CHECKING_KIND | 1u << ZKL_TICKET_WATCHING;
		requests |= 1u << ZKL_REQUEST_SURVEY | 1u << ZKL_REQUEST_WATCH;
	}
	assert_had(times_in_state, lengthof(times_in_state), states, "state");
	assert_had(times_asked, lengthof(times_asked), requests, "request");

	/* The servers of this ZooKeeper never differ. */
	assert_had(times_reported, lengthof(times_reported), reports | 1u << ZKL_REPORT_DIFFERS, "report");
	assert_true(times_gave_way_unsent > 100);
}

/*
 * The tests: a weather, and what the walks in it must have seen
 */

#define NEVER	(-1)

typedef struct Forecast
{
	const char *title;
	int			nseeds;
	Weather		weather;

	/* reports: more than so many, or NEVER; 0: any number */
	int			owned;
	int			downgraded;
	int			lost;
	int			failed;

	bool		everywhere;		/* all that this kind of lock has */
	ZklTicketState first;		/* the states from here to there; last 0: any */
	ZklTicketState last;
	int			readers;		/* at once, at least */
} Forecast;

#define MUTEX			.kind = ZKL_KIND_MUTEX
#define READ_WRITE		.kind = ZKL_KIND_READ_WRITE
#define SEMAPHORE		.kind = ZKL_KIND_SEMAPHORE
#define DISCONNECTS		.disconnects = true
#define EXPIRIES		.expiries = true
#define RESTARTS		.restarts = true
#define REAPING			.reaping = true
#define REFUSALS		.refusals = true
#define SPOILERS		.spoilers = true
#define FOREIGN_HANDS	.foreign_hands = true
#define OTHER_KINDS		.other_kinds = true
#define ONE_AT_A_TIME	.one_at_a_time = true
#define TRIES			.tries = true
#define COUNTER_ENDS	.first_number = ZKL_SEQUENCE_LIMIT - 100
#define ALL_FAULTS		DISCONNECTS, EXPIRIES, RESTARTS, REAPING, REFUSALS, SPOILERS

static const Forecast forecasts[] = {
	{"in fair weather all get their turn", 30, {MUTEX},
	.owned = 1000,.lost = NEVER,.failed = NEVER},
	{"lost connections lose no lock and no znode", 60, {MUTEX, DISCONNECTS},
	.owned = 1000,.lost = NEVER,.failed = NEVER,.first = ZKL_TICKET_FINDING,.last = ZKL_TICKET_CHECKING},
	{"expired sessions leave one owner", 60, {MUTEX, DISCONNECTS, EXPIRIES},
	.lost = 100,.failed = NEVER},
	{"restarted workers lose no lock and no znode", 60, {MUTEX, DISCONNECTS, RESTARTS},
	.lost = NEVER,.failed = NEVER},
	{"reaped directories are made again", 60, {MUTEX, DISCONNECTS, REAPING},
	.lost = NEVER,.first = ZKL_TICKET_NO_DIRECTORY,.last = ZKL_TICKET_NO_DIRECTORY},
	{"refusals leave no znode", 60, {MUTEX, DISCONNECTS, REAPING, REFUSALS},
	.failed = 100},
	{"transactions that fail lose no lock and no znode", 60, {MUTEX, DISCONNECTS, RESTARTS, REAPING, SPOILERS},
	.owned = 1000,.lost = NEVER,.first = ZKL_TICKET_UNDONE,.last = ZKL_TICKET_UNDONE},
	{"a counter that runs out grants nothing unsafe", 60, {MUTEX, DISCONNECTS, RESTARTS, COUNTER_ENDS},
	.owned = 100,.failed = 100},
	{"in any weather the rules hold", 120, {MUTEX, ALL_FAULTS},
	.everywhere = true},
	{"other clients that delete znodes do not confuse the others", 60,
		{MUTEX, DISCONNECTS, EXPIRIES, RESTARTS, REAPING, FOREIGN_HANDS},
	.lost = 100},
	/* Only watches tell an owner here. */
	{"owners learn that another client deleted their znode", 60, {MUTEX, FOREIGN_HANDS},
	.lost = 100,.failed = NEVER},
	{"other kinds about do not confuse a mutex", 60, {MUTEX, OTHER_KINDS, DISCONNECTS},
	.owned = 100,.failed = 100},

	{"in fair weather readers and writers get their turn", 30, {READ_WRITE},
	.owned = 1000,.downgraded = 200,.lost = NEVER,.failed = NEVER,.readers = 3},
	{"lost connections and restarts keep readers and writers apart", 100,
		{READ_WRITE, DISCONNECTS, RESTARTS, REAPING},
	.downgraded = 500,.lost = NEVER,.failed = NEVER,.first = ZKL_TICKET_NONE,.last = ZKL_TICKET_UNSURE},
	{"in any weather the rules hold for readers and writers", 120, {READ_WRITE, OTHER_KINDS, ALL_FAULTS},
	.everywhere = true},
	{"other clients that delete znodes do not confuse readers and writers", 60,
		{READ_WRITE, DISCONNECTS, EXPIRIES, RESTARTS, REAPING, FOREIGN_HANDS},
	.lost = 100},

	{"in fair weather all get a lease", 30, {SEMAPHORE, ONE_AT_A_TIME},
	.owned = 1000,.lost = NEVER,.failed = NEVER},
	/* A client that creates and then counts needs the mutex only to get on, not to be safe. */
	{"without the mutex there are never too many leases", 60, {SEMAPHORE, DISCONNECTS, RESTARTS, REAPING},
	.owned = 1000,.lost = NEVER,.failed = NEVER},
	{"in any weather the rules hold for leases", 120, {SEMAPHORE, ONE_AT_A_TIME, ALL_FAULTS, COUNTER_ENDS},
	.everywhere = true},
	{"leases that other clients delete are lost", 60, {SEMAPHORE, ONE_AT_A_TIME, DISCONNECTS, FOREIGN_HANDS},
	.lost = 100},

	{"in fair weather no try fails for nothing", 60, {MUTEX, TRIES},
	.lost = NEVER,.failed = NEVER},
	{"no try of readers and writers fails for nothing", 60, {READ_WRITE, TRIES},
	.downgraded = 200,.lost = NEVER,.failed = NEVER},
	{"in any weather no try fails for nothing", 60, {MUTEX, TRIES, ALL_FAULTS},
	.everywhere = true},
	{"in any weather no try of readers and writers fails for nothing", 60, {READ_WRITE, TRIES, ALL_FAULTS},
	.everywhere = false},
};

static void
assert_reported(ZklReport report, int forecast)
{
	if (forecast == NEVER)
		assert_int_equal(times_reported[report], 0);
	else if (forecast != 0)
		assert_true(times_reported[report] > forecast);
}

static void
assert_tried(void)
{
	assert_true(times_tried > 1000);
	assert_true(times_tried_in_vain > 300);
	assert_true(times_gave_up_lingering > 100);
	assert_true(times_silent < times_tried_in_vain / 100);
}

static void
comes_true(void **state)
{
	const Forecast *forecast = *state;

	walk(&forecast->weather, forecast->nseeds);
	assert_reported(ZKL_REPORT_OWNED, forecast->owned);
	assert_reported(ZKL_REPORT_DOWNGRADED, forecast->downgraded);
	assert_reported(ZKL_REPORT_LOST, forecast->lost);
	assert_reported(ZKL_REPORT_FAILED, forecast->failed);
	assert_true(most_readers >= forecast->readers);
	if (forecast->last != 0)
		assert_was_in(forecast->first, forecast->last);
	if (forecast->everywhere)
		assert_was_everywhere();
	if (forecast->weather.tries)
		assert_tried();
}

int
main(void)
{
	for (int i = 0; i < lengthof(forecasts); i++)
		add_test((struct CMUnitTest) {
			.name = forecasts[i].title,.test_func = comes_true,.initial_state = (void *) &forecasts[i]
		});
	return run_all_tests("ticket, walked at random");
}
