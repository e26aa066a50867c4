/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  The requests of tickets: due, and sent as soon as that is possible.
 *
 * src/requests.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "directories.h"
#include "requests.h"
#include "session.h"

/* More on the way would only make the heartbeat wait. */
#define WINDOW				128

/*
 * The end of a session is one transaction that names all its ephemeral
 * znodes.  One of some 2 MB brings the whole ensemble down, so stay far below
 * the least that a server is configured for.
 */
#define EPHEMERAL_BYTES_MAX	900000

static dlist_head due = DLIST_STATIC_INIT(due);

static bool may_send(void);
static ZklEntry *send_due(void);
static bool send_request(ZklEntry *entry, ZklRequest request);
static bool send_create(ZklEntry *entry, ZklRequest request,
						const char *directory);
static void count_bytes(ZklEntry *entry, bool counted);

void
zkl_requests_start(void)
{
	int			nentries;
	ZklEntry  **entries = zkl_table_collect(&nentries);

	pg_atomic_write_u64(&zkl_my_session->ephemeral_bytes, 0);
	for (int i = 0; i < nentries; i++)
	{
		entries[i]->due = ZKL_REQUEST_NOTHING;
		entries[i]->counted = false;
		count_bytes(entries[i], true);
	}
	pfree(entries);
}

void
zkl_requests_make_due(ZklEntry *entry, ZklRequest request)
{
	if (entry->due == ZKL_REQUEST_NOTHING)
		dlist_push_tail(&due, &entry->due_link);
	entry->due = request;
}

void
zkl_requests_forget(ZklEntry *entry)
{
	if (entry->due != ZKL_REQUEST_NOTHING)
		dlist_delete(&entry->due_link);
	entry->due = ZKL_REQUEST_NOTHING;
}

void
zkl_requests_uncount(ZklEntry *entry)
{
	count_bytes(entry, false);
}

ZklEntry *
zkl_requests_send(void)
{
	ZklEntry   *refused;

	if (!may_send())
		return NULL;
	zkl_session_begin_sending();
	refused = send_due();
	zkl_session_end_sending();
	return refused;
}

static bool
may_send(void)
{
	return !dlist_is_empty(&due) && zkl_session_is_usable() &&
		zkl_session_outstanding() < WINDOW;
}

static ZklEntry *
send_due(void)
{
	while (may_send())
	{
		ZklEntry   *entry = dlist_head_element(ZklEntry, due_link, &due);
		ZklRequest	request = entry->due;

		zkl_requests_forget(entry);
		if (!send_request(entry, request))
			return entry;
	}
	return NULL;
}

static bool
send_request(ZklEntry *entry, ZklRequest request)
{
	ZklTicket  *ticket = &entry->ticket;
	char		directory[ZKL_DIR_SIZE];
	char		name[ZKL_ZNODE_SIZE];

	zkl_directories_of(entry, directory);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.requests, 1);
	switch (request)
	{
		case ZKL_REQUEST_NOTHING:
			break;
		case ZKL_REQUEST_FOUND:
		case ZKL_REQUEST_CREATE:
			return send_create(entry, request, directory);
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
		case ZKL_REQUEST_ANSWER:
			zkl_session_answer(entry, ticket->attempt, directory,
							   ticket->name, entry->about, ticket->version);
			break;
		case ZKL_REQUEST_SURVEY:
			strlcat(directory, "/" ZKL_LEASES, sizeof(directory));
			zkl_session_survey(entry, ticket->attempt, directory);
			break;
		case ZKL_REQUEST_DOWNGRADE:
			zkl_recipe_make_downgrade(ticket->name, name);
			zkl_session_downgrade(entry, ticket->attempt, directory,
								  ticket->name, name, entry->about);
			break;
		case ZKL_REQUEST_DELETE:
			if (ticket->predecessor[0])
			{
				zkl_session_unwatch(directory, ticket->predecessor);
				ticket->predecessor[0] = '\0';
			}
			zkl_session_delete(entry, ticket->attempt, directory,
							   ticket->name);
			zkl_directories_note(entry);
			break;
	}
	return true;
}

/*
 * Several requests, of which one was counted already.  They go out together,
 * without waiting for one another: the session keeps their order.
 */
static bool
send_create(ZklEntry *entry, ZklRequest request, const char *directory)
{
	ZklTicket  *ticket = &entry->ticket;
	int64		counted = zkl_session_requests() + 1;
	uint8		random_bytes[16];
	char		name[ZKL_ZNODE_SIZE];

	count_bytes(entry, true);
	if (pg_atomic_read_u64(&zkl_my_session->ephemeral_bytes) > EPHEMERAL_BYTES_MAX ||
		!pg_strong_random(random_bytes, sizeof(random_bytes)))
		return false;

	zkl_ticket_begin_attempt(ticket, random_bytes, entry->only_tries);
	zkl_recipe_make_prefix(ticket->mode, ticket->uuid, name);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.tickets, 1);
	if (request == ZKL_REQUEST_FOUND)
		zkl_session_found(entry, ticket->attempt, directory,
						  ticket->rounds > 0, name, entry->about);
	else
	{
		zkl_session_create(entry, ticket->attempt, directory, name, entry->about);
		zkl_session_list(entry, ticket->attempt, directory);
	}
	pg_atomic_fetch_add_u64(&zkl_shared->counters.requests,
							zkl_session_requests() - counted);
	return true;
}

/* What this ticket adds to the transaction that will end the session. */
static void
count_bytes(ZklEntry *entry, bool counted)
{
	int			bytes = zkl_directories_prefix_length() + strlen(entry->path) +
	ZKL_ZNODE_SIZE + sizeof(int32);

	if (counted && !entry->counted)
		pg_atomic_fetch_add_u64(&zkl_my_session->ephemeral_bytes, bytes);
	else if (!counted && entry->counted)
		pg_atomic_fetch_sub_u64(&zkl_my_session->ephemeral_bytes, bytes);
	entry->counted = counted;
}
