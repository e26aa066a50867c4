/*-------------------------------------------------------------------------
 *
 * tickets.c
 *	  The worker's side of the tickets: feed events, do what the steps say.
 *
 * What happens in the life of one ticket is decided in ticket.c; here a step
 * is carried out: its request becomes due and is sent as soon as the session
 * and the window allow, its report goes to the lock table.
 *
 * A ticket in state NONE has no request due and none on its way, and only
 * then may its entry be removed.
 *
 * src/tickets.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pg_list.h"

#include "compat.h"
#include "entry.h"
#include "tickets.h"
#include "timers.h"
#include "zklock.h"

/* More on the way would only make the heartbeat wait. */
#define WINDOW				128

/*
 * The end of a session is one transaction that names all its ephemeral
 * znodes.  One of some 2 MB brings the whole ensemble down, so stay far below
 * the least that a server is configured for.
 */
#define EPHEMERAL_BYTES_MAX	900000

static dlist_head due = DLIST_STATIC_INIT(due);
static char prefix[ZKL_ROOT_SIZE];

static void feed_all(ZklTicketEventKind kind);
static void feed(ZklEntry *entry, ZklTicketEventKind kind);
static void carry_out(ZklEntry *entry, ZklTicketStep step);
static void report(ZklEntry *entry, ZklTicketStep step);
static void do_work(ZklEntry *entry, ZklWork work, int64 timer_at);
static void drop_child_watch(const char *directory, const char *child);
static void make_due(ZklEntry *entry, ZklRequest request);
static void clear_due(ZklEntry *entry);
static void send_request(ZklEntry *entry, ZklRequest request);
static void send_create(ZklEntry *entry, const char *directory);
static void refuse_create(ZklEntry *entry);
static void count_bytes(ZklEntry *entry, bool counted);
static void directory_of(const ZklEntry *entry, char *directory);
static ZklEntry *find_directory(const char *directory, size_t length);

void
zkl_tickets_start(const char *directory_prefix)
{
	int			nentries;
	ZklEntry  **entries;

	strlcpy(prefix, directory_prefix, sizeof(prefix));
	zkl_timers_start();
	pg_atomic_write_u64(&zkl_shared->ephemeral_bytes, 0);

	entries = zkl_table_collect(&nentries);
	for (int i = 0; i < nentries; i++)
	{
		if (entries[i]->ticket.state == ZKL_TICKET_NONE)
			continue;
		entries[i]->due = ZKL_REQUEST_NOTHING;
		entries[i]->counted = false;
		count_bytes(entries[i], true);
	}
	pfree(entries);

	zkl_tickets_restarted();
	zkl_entry_adopt_work();
}

void
zkl_tickets_restarted(void)
{
	feed_all(ZKL_EVENT_RESTARTED);
}

void
zkl_tickets_reconnected(void)
{
	feed_all(ZKL_EVENT_RECONNECTED);
}

void
zkl_tickets_expired(void)
{
	feed_all(ZKL_EVENT_EXPIRED);
}

/*
 * Watches are set again by ourselves: the client would send them all in one
 * packet, and a server does not take one of more than a megabyte.
 */
void
zkl_tickets_disconnected(void)
{
	int			nentries;
	ZklEntry  **entries = zkl_table_collect(&nentries);

	for (int i = 0; i < nentries; i++)
	{
		const ZklTicket *ticket = &entries[i]->ticket;
		char		directory[ZKL_DIR_SIZE];

		if (ticket->state == ZKL_TICKET_NONE)
			continue;
		directory_of(entries[i], directory);
		zkl_session_drop_watch(directory);
		drop_child_watch(directory, ticket->predecessor);
		drop_child_watch(directory, ticket->name);
	}
	pfree(entries);
}

static void
drop_child_watch(const char *directory, const char *child)
{
	char		path[ZKL_SESSION_PATH_SIZE];

	if (child[0] == '\0')
		return;
	snprintf(path, sizeof(path), "%s/%s", directory, child);
	zkl_session_drop_watch(path);
}

void
zkl_tickets_handle(const ZklSessionEvent *event)
{
	ZklEntry   *entry;
	const char *slash;

	switch (event->kind)
	{
		case ZKL_SESSION_REPLY:
			entry = event->tag;
			if (event->reply.request == ZKL_REQUEST_DELETE &&
				event->reply.outcome == ZKL_OUTCOME_REFUSED)
				ereport(LOG,
						errmsg("could not delete the znode of lock \"%s\": it stays until the ZooKeeper session ends",
							   entry->path));
			if (event->attempt == entry->ticket.attempt)
				carry_out(entry, zkl_ticket_step(&entry->ticket,
												 &event->reply));
			break;
		case ZKL_SESSION_CHILDREN_CHANGED:
			entry = find_directory(event->path, strlen(event->path));
			if (entry != NULL)
				feed(entry, ZKL_EVENT_CHILDREN_CHANGED);
			break;
		case ZKL_SESSION_NODE_CHANGED:
			slash = strrchr(event->path, '/');
			entry = find_directory(event->path, slash - event->path);
			if (entry == NULL)
				break;
			if (strcmp(entry->ticket.predecessor, slash + 1) == 0)
				feed(entry, ZKL_EVENT_PREDECESSOR_CHANGED);
			else if (strcmp(entry->ticket.name, slash + 1) == 0)
				feed(entry, ZKL_EVENT_SELF_CHANGED);
			break;
		case ZKL_SESSION_CONNECTED:
		case ZKL_SESSION_DISCONNECTED:
		case ZKL_SESSION_EXPIRED:
		case ZKL_SESSION_STRANGER:
		case ZKL_SESSION_HEARTBEAT:
			Assert(false);
			break;
	}
}

void
zkl_tickets_take_work(void)
{
	ZklEntry   *entry;

	while ((entry = zkl_entry_next_work()) != NULL)
	{
		int64		timer_at = 0;
		ZklWork		work = zkl_entry_look(entry, &timer_at);

		do_work(entry, work, timer_at);
	}
}

void
zkl_tickets_run_timers(void)
{
	int64		now = zkl_now();
	ZklEntry   *entry;

	while ((entry = zkl_timers_take_due(now)) != NULL)
	{
		int64		timer_at = 0;
		ZklWork		work = zkl_entry_timer_fired(entry, &timer_at);

		do_work(entry, work, timer_at);
	}
}

void
zkl_tickets_reset_timers(void)
{
	List	   *armed = NIL;
	ListCell   *cell;
	ZklEntry   *entry;

	while ((entry = zkl_timers_take_any()) != NULL)
		armed = lappend(armed, entry);
	foreach(cell, armed)
	{
		int64		timer_at = 0;
		ZklWork		work = zkl_entry_timer_fired(lfirst(cell), &timer_at);

		do_work(lfirst(cell), work, timer_at);
	}
	list_free(armed);
}

static void
do_work(ZklEntry *entry, ZklWork work, int64 timer_at)
{
	switch (work)
	{
		case ZKL_WORK_NOTHING:
			break;
		case ZKL_WORK_WANT:
			feed(entry, ZKL_EVENT_WANT);
			break;
		case ZKL_WORK_UNWANT:
			feed(entry, ZKL_EVENT_UNWANT);
			break;
		case ZKL_WORK_TIMER:
			zkl_timers_arm(entry, timer_at);
			break;
	}
}

void
zkl_tickets_send(void)
{
	while (!dlist_is_empty(&due) && zkl_session_is_usable() &&
		   zkl_session_outstanding() < WINDOW)
	{
		ZklEntry   *entry = dlist_head_element(ZklEntry, due_link, &due);
		ZklRequest	request = entry->due;

		clear_due(entry);
		send_request(entry, request);
	}
}

/*
 * Steps
 */

/* To all tickets that have a state to lose. */
static void
feed_all(ZklTicketEventKind kind)
{
	int			nentries;
	ZklEntry  **entries = zkl_table_collect(&nentries);

	for (int i = 0; i < nentries; i++)
	{
		if (entries[i]->ticket.state != ZKL_TICKET_NONE)
			feed(entries[i], kind);
	}
	pfree(entries);
}

static void
feed(ZklEntry *entry, ZklTicketEventKind kind)
{
	ZklTicketEvent event = {.kind = kind};

	event.unsent = entry->due != ZKL_REQUEST_NOTHING;
	carry_out(entry, zkl_ticket_step(&entry->ticket, &event));
}

static void
carry_out(ZklEntry *entry, ZklTicketStep step)
{
	if (entry->ticket.state == ZKL_TICKET_NONE)
	{
		clear_due(entry);
		count_bytes(entry, false);
	}
	else if (step.request != ZKL_REQUEST_NOTHING)
		make_due(entry, step.request);
	report(entry, step);
}

/* The entry may be gone afterwards, where no ticket is left. */
static void
report(ZklEntry *entry, ZklTicketStep step)
{
	switch (step.report)
	{
		case ZKL_REPORT_NOTHING:
			break;
		case ZKL_REPORT_QUEUED:
			zkl_entry_set_queued(entry);
			break;
		case ZKL_REPORT_OWNED:
			pg_atomic_fetch_add_u64(&zkl_shared->counters.owned, 1);
			if (!zkl_entry_set_owned(entry, entry->ticket.contended))
				feed(entry, ZKL_EVENT_UNWANT);
			break;
		case ZKL_REPORT_CONTENDED:
			if (zkl_entry_set_contended(entry))
				feed(entry, ZKL_EVENT_UNWANT);
			break;
		case ZKL_REPORT_LOST:
			pg_atomic_fetch_add_u64(&zkl_shared->counters.lost, 1);
			zkl_entry_set_lost(entry, zkl_session_is_usable() ?
							   ZKL_LOSS_DELETED : ZKL_LOSS_EXPIRED);
			break;
		case ZKL_REPORT_FAILED:
			zkl_entry_set_failed(entry, step.failure,
								 entry->ticket.state != ZKL_TICKET_NONE);
			break;
		case ZKL_REPORT_GONE:
			if (zkl_entry_set_gone(entry))
				feed(entry, ZKL_EVENT_WANT);
			break;
	}
}

/*
 * Requests
 */

static void
make_due(ZklEntry *entry, ZklRequest request)
{
	if (entry->due == ZKL_REQUEST_NOTHING)
		dlist_push_tail(&due, &entry->due_link);
	entry->due = request;
}

static void
clear_due(ZklEntry *entry)
{
	if (entry->due != ZKL_REQUEST_NOTHING)
		dlist_delete(&entry->due_link);
	entry->due = ZKL_REQUEST_NOTHING;
}

static void
send_request(ZklEntry *entry, ZklRequest request)
{
	ZklTicket  *ticket = &entry->ticket;
	char		directory[ZKL_DIR_SIZE];

	directory_of(entry, directory);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.requests, 1);
	switch (request)
	{
		case ZKL_REQUEST_NOTHING:
			break;
		case ZKL_REQUEST_CREATE:
			send_create(entry, directory);
			break;
		case ZKL_REQUEST_MAKE_DIRECTORY:
			zkl_session_make_directory(entry, ticket->attempt, directory);
			break;
		case ZKL_REQUEST_LIST:
			zkl_session_list(entry, ticket->attempt, directory);
			break;
		case ZKL_REQUEST_INSPECT:
			zkl_session_inspect(entry, ticket->attempt, directory,
								ticket->name);
			break;
		case ZKL_REQUEST_WATCH:
			zkl_session_watch(entry, ticket->attempt, request, directory,
							  ticket->predecessor);
			break;
		case ZKL_REQUEST_WATCH_SELF:
			zkl_session_watch(entry, ticket->attempt, request, directory,
							  ticket->name);
			break;
		case ZKL_REQUEST_DELETE:
			if (ticket->predecessor[0])
			{
				zkl_session_unwatch(directory, ticket->predecessor);
				ticket->predecessor[0] = '\0';
			}
			zkl_session_delete(entry, ticket->attempt, directory,
							   ticket->name);
			break;
	}
}

/*
 * The list goes out with the create, without waiting for it: the session
 * keeps their order.
 */
static void
send_create(ZklEntry *entry, const char *directory)
{
	ZklTicket  *ticket = &entry->ticket;
	uint8		random_bytes[16];
	char		name[ZKL_ZNODE_SIZE];

	count_bytes(entry, true);
	if (pg_atomic_read_u64(&zkl_shared->ephemeral_bytes) > EPHEMERAL_BYTES_MAX ||
		!pg_strong_random(random_bytes, sizeof(random_bytes)))
	{
		refuse_create(entry);
		return;
	}

	zkl_ticket_begin_attempt(ticket, random_bytes, entry->only_tries);
	zkl_recipe_make_prefix(ticket->uuid, name);
	zkl_session_create(entry, ticket->attempt, directory, name, entry->about);
	zkl_session_list(entry, ticket->attempt, directory);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.requests, 1);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.tickets, 1);
}

/* Answer in ZooKeeper's place. */
static void
refuse_create(ZklEntry *entry)
{
	ZklTicketEvent reply = {.kind = ZKL_EVENT_REPLY};

	reply.request = ZKL_REQUEST_CREATE;
	reply.outcome = ZKL_OUTCOME_REFUSED;
	reply.failure = ZKL_FAILURE_SESSION_FULL;
	carry_out(entry, zkl_ticket_step(&entry->ticket, &reply));

	reply.request = ZKL_REQUEST_LIST;
	carry_out(entry, zkl_ticket_step(&entry->ticket, &reply));
}

/* What this ticket adds to the transaction that will end the session. */
static void
count_bytes(ZklEntry *entry, bool counted)
{
	int			bytes = strlen(prefix) + strlen(entry->path) +
	ZKL_ZNODE_SIZE + sizeof(int32);

	if (counted && !entry->counted)
		pg_atomic_fetch_add_u64(&zkl_shared->ephemeral_bytes, bytes);
	else if (!counted && entry->counted)
		pg_atomic_fetch_sub_u64(&zkl_shared->ephemeral_bytes, bytes);
	entry->counted = counted;
}

/*
 * Directories
 */

static void
directory_of(const ZklEntry *entry, char *directory)
{
	snprintf(directory, ZKL_DIR_SIZE, "%s%s", prefix, entry->path);
}

/* The entry with a ticket whose directory this is; NULL: none. */
static ZklEntry *
find_directory(const char *directory, size_t length)
{
	char		path[ZKL_PATH_SIZE];
	size_t		prefix_length = strlen(prefix);
	ZklEntry   *entry;
	uint32		hash;

	if (strncmp(directory, prefix, prefix_length) != 0 ||
		length <= prefix_length || length - prefix_length >= sizeof(path))
		return NULL;
	memset(path, 0, sizeof(path));
	memcpy(path, directory + prefix_length, length - prefix_length);

	hash = zkl_table_hash(path);
	LWLockAcquire(zkl_table_partition(hash), LW_SHARED);
	entry = zkl_table_find(path, hash);
	LWLockRelease(zkl_table_partition(hash));

	if (entry == NULL || entry->ticket.state == ZKL_TICKET_NONE)
		return NULL;
	return entry;
}
