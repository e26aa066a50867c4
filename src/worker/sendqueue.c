/*-------------------------------------------------------------------------
 *
 * sendqueue.c
 *	  The requests of tickets: which are due, and when they are sent.
 *
 * The requests of one lock stand in a line of their own, and so do those of
 * all leases of one semaphore.  The lines take turns, one request each.  So a
 * semaphore of many leases does not hold up the other locks.
 *
 * All leases of a semaphore that need a list get the same one.  It stands in
 * the line behind the creates that were due before, so that it is sent after
 * them: only a list that was sent after a lease's create may grant that lease.
 *
 * src/worker/sendqueue.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "worker/commandrunner.h"
#include "worker/entrystate.h"
#include "worker/lockdirectory.h"
#include "worker/rolewindow.h"
#include "worker/sendqueue.h"
#include "zookeeper/session.h"

/*
 * More requests on the way would only make signs of life wait.  ZooKeeper
 * answers in the order of sending, so a lock's first request waits for all
 * that was sent before it.  Therefore fewer requests may be on the way that
 * come in bulk.
 */
#define WINDOW				128
#define BULK_WINDOW			16

#define DATA_SIZE			(ZKL_ABOUT_SIZE + sizeof(ZKL_PLAIN))

/*
 * Which lines are the next?  A lock that is waited for, then one of those that come
 * in bulk, of their kinds by turns.
 */
typedef enum Turn
{
	TURN_WAITING,				/* of locks that backends wait for */
	TURN_LEASES,				/* of semaphores */
	TURN_TOGETHER,				/* of locks that a backend waits for together
								 * with one that is TURN_WAITING */
	TURN_PARENTS,				/* of locks that backends wait for, and that
								 * need directories above their own: up to 17
								 * creates in one request */
	TURN_REST					/* of locks that are owned, or given up */
} Turn;

#define NTURNS	(TURN_REST + 1)

static dlist_head turns[NTURNS];
static Turn next_bulk = TURN_LEASES;
static bool bulk_is_next = false;	/* a lock for which a backend waits had
									 * its turn */
static int	nbulk = 0;			/* tickets with a bulk request on its way ... */
static uint32 bulk_epoch = 1;	/* ... which have this number */
static int	ncounted = 0;		/* tickets whose bytes count ... */
static int	nstandby = 0;		/* ... and those of them that stand by */

static void start_entry(ZklEntry *entry, void *arg);
static ZklEntry *owner_of_line(ZklEntry *entry);
static Turn turn_of(const ZklEntry *entry);
static void leave_line(ZklEntry *entry);
static void stop_listening(ZklEntry *lease);
static ZklLine *choose_line(Turn *turn);
static ZklLine *first_line(Turn turn);
static bool is_over_share(const ZklEntry *entry);
static Turn bulk_after(Turn bulk);
static bool bulk_may_be_sent(void);
static ZklEntry *send_due(void);
static void count_bulk(ZklEntry *entry);
static bool send_request(ZklEntry *entry, ZklRequest request);
static void send_list(ZklEntry *entry, const char *directory);
static void listen_to(ZklEntry *lease, uint32 list);
static void send_answer(ZklEntry *entry, const char *directory);
static const char *plain_mark(const ZklEntry *entry);
static bool send_create(ZklEntry *entry, ZklRequest request,
						const char *directory);
static void count_bytes(ZklEntry *entry, bool counted);

void
zkl_send_queue_start(void)
{
	for (int i = 0; i < NTURNS; i++)
		dlist_init(&turns[i]);
	zkl_role_window_start();
	pg_atomic_write_u64(&zkl_session_info_mine->ephemeral_bytes, 0);
	zkl_lock_table_visit(zkl_session_info_number(), LW_EXCLUSIVE, start_entry, NULL);
}

/*
 * The lines and lists of the dead worker are forgotten.  What is due again is
 * decided when each ticket hears of the restart.  A ticket counts even if its
 * znode was not made yet: the sum may be too great, but never too small.
 */
static void
start_entry(ZklEntry *entry, void *arg)
{
	entry->due = ZKL_REQUEST_NOTHING;
	dlist_init(&entry->line.entries);
	entry->line.turn_link.next = NULL;
	dlist_init(&entry->listening);
	entry->listening_link.next = NULL;
	entry->counted = false;
	entry->standby = false;
	entry->bulk_epoch = 0;
	if (entry->ticket.state != ZKL_TICKET_NONE)
		count_bytes(entry, true);
}

void
zkl_send_queue_make_due(ZklEntry *entry, ZklRequest request)
{
	ZklLine    *line = &owner_of_line(entry)->line;

	/* A backend waits. */
	if (entry->ticket.state < ZKL_TICKET_OWNED)
		zkl_role_window_note(entry->role, zkl_now());

	/*
	 * A ticket has one request at most.  What it had to send before has been
	 * overtaken by this.
	 */
	leave_line(entry);
	entry->due = request;
	dlist_push_tail(&line->entries, &entry->due_link);

	/*
	 * The line was empty.  Otherwise it keeps its place among the lines, so
	 * that many requests of one lock gain nothing.
	 */
	if (line->turn_link.next == NULL)
		dlist_push_tail(&turns[turn_of(entry)], &line->turn_link);
}

/* All leases of a semaphore share the line of its entry. */
static ZklEntry *
owner_of_line(ZklEntry *entry)
{
	return entry->semaphore != NULL ? entry->semaphore : entry;
}

/*
 * States before OWNED have a backend that waits; the later ones are about
 * locks that are owned or given up.
 */
static Turn
turn_of(const ZklEntry *entry)
{
	if (entry->semaphore != NULL)
		return TURN_LEASES;
	if (entry->ticket.state >= ZKL_TICKET_OWNED)
		return TURN_REST;
	if (entry->due == ZKL_REQUEST_CREATE_BOTH && entry->ticket.rounds > 0)
		return TURN_PARENTS;
	return entry->together ? TURN_TOGETHER : TURN_WAITING;
}

/*
 * Take the ticket's request away, and the line from the others if that was its
 * last one.
 */
static void
leave_line(ZklEntry *entry)
{
	ZklLine    *line = &owner_of_line(entry)->line;

	if (entry->due == ZKL_REQUEST_NOTHING)
		return;
	entry->due = ZKL_REQUEST_NOTHING;
	dlist_delete(&entry->due_link);
	if (dlist_is_empty(&line->entries))
	{
		dlist_delete(&line->turn_link);
		line->turn_link.next = NULL;
	}
}

void
zkl_send_queue_forget(ZklEntry *entry)
{
	leave_line(entry);
	stop_listening(entry);
}

/* The lease waits for no list any more. */
static void
stop_listening(ZklEntry *lease)
{
	if (lease->listening_link.next == NULL)
		return;
	dlist_delete(&lease->listening_link);
	lease->listening_link.next = NULL;
}

/* The list of a lease comes due only when its create was sent. */
bool
zkl_send_queue_is_unsent(const ZklEntry *entry)
{
	return entry->due != ZKL_REQUEST_NOTHING && entry->due != ZKL_REQUEST_LIST;
}

void
zkl_send_queue_uncount(ZklEntry *entry)
{
	count_bytes(entry, false);
}

ZklEntry *
zkl_send_queue_send(void)
{
	ZklEntry   *refused;
	Turn		turn;

	if (choose_line(&turn) == NULL)
		return NULL;
	/* All that the window allows goes out in few packets. */
	zkl_session_begin_sending();
	refused = send_due();
	zkl_session_end_sending();
	return refused;
}

/* NULL: nothing can be sent now. */
static ZklLine *
choose_line(Turn *turn)
{
	Turn		bulk = next_bulk;
	ZklLine    *line;

	/* Before the barrier of a new connection, nothing may be sent. */
	if (!zkl_session_is_usable() || zkl_session_outstanding() >= WINDOW)
		return NULL;
	for (int i = 0; i < NTURNS; i++)
	{
		/* Locks that are waited for come first, or after all that is bulk. */
		bool		waiting = i == (bulk_is_next ? NTURNS - 1 : 0);

		*turn = waiting ? TURN_WAITING : bulk;
		if (!waiting)
			bulk = bulk_after(bulk);
		line = first_line(*turn);
		if (line != NULL && (waiting || bulk_may_be_sent()))
			return line;
	}
	return NULL;
}

/* Of those that are waited for, the first that is not over its role's share. */
static ZklLine *
first_line(Turn turn)
{
	dlist_iter	iter;

	dlist_foreach(iter, &turns[turn])
	{
		ZklLine    *line = dlist_container(ZklLine, turn_link, iter.cur);

		if (turn != TURN_WAITING ||
			!is_over_share(dlist_head_element(ZklEntry, due_link, &line->entries)))
			return line;
	}
	return NULL;
}

/* Then it is sent when another create of the role has been answered. */
static bool
is_over_share(const ZklEntry *entry)
{
	return (entry->due == ZKL_REQUEST_CREATE ||
			entry->due == ZKL_REQUEST_CREATE_BOTH) &&
		zkl_role_window_is_full(entry->role, zkl_now());
}

static Turn
bulk_after(Turn bulk)
{
	return bulk == TURN_REST ? TURN_LEASES : bulk + 1;
}

/*
 * Only few bulk requests are on the way at a time; but some always are, for
 * however many locks backends wait.
 */
static bool
bulk_may_be_sent(void)
{
	/*
	 * While several roles need ZooKeeper, few tickets have one, whatever else
	 * is under way.  Otherwise one is sent right after a lock that is waited
	 * for, and more as far as their small window allows.  Requests of
	 * commands have a window of their own.
	 */
	if (zkl_role_window_is_shared(zkl_now()))
		return nbulk < zkl_role_window_size() / 2;
	return bulk_is_next ||
		zkl_session_outstanding() - zkl_command_runner_outstanding() < BULK_WINDOW;
}

static ZklEntry *
send_due(void)
{
	Turn		turn;
	ZklLine    *line;

	while ((line = choose_line(&turn)) != NULL)
	{
		ZklEntry   *entry = dlist_head_element(ZklEntry, due_link,
											   &line->entries);
		ZklRequest	request = entry->due;
		int64		nsent = zkl_session_requests();

		/* The line goes behind all others. */
		dlist_delete(&line->turn_link);
		dlist_push_tail(&turns[turn], &line->turn_link);
		bulk_is_next = turn == TURN_WAITING;
		if (!bulk_is_next)
			next_bulk = bulk_after(turn);

		/*
		 * Before the sending, which may put the next request of this ticket
		 * into the line.
		 */
		leave_line(entry);
		/* Only a create is refused.  The rest goes on in the next call. */
		if (!send_request(entry, request))
			return entry;
		/* An answer to another client may have become needless. */
		if (turn != TURN_WAITING && zkl_session_requests() != nsent)
			count_bulk(entry);
	}
	return NULL;
}

/* Any answer to this ticket takes it off again. */
static void
count_bulk(ZklEntry *entry)
{
	if (entry->bulk_epoch != bulk_epoch)
		nbulk++;
	entry->bulk_epoch = bulk_epoch;
}

/*
 * False if the request is a create that must not be sent.  Otherwise its reply
 * will come, with this tag and attempt.
 */
static bool
send_request(ZklEntry *entry, ZklRequest request)
{
	ZklTicket  *ticket = &entry->ticket;
	char		directory[ZKL_DIR_SIZE];
	char		name[ZKL_ZNODE_SIZE];

	zkl_lock_directory_of(entry, directory);
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
	switch (request)
	{
		case ZKL_REQUEST_NOTHING:
			break;
		case ZKL_REQUEST_CREATE_BOTH:
		case ZKL_REQUEST_CREATE:
			return send_create(entry, request, directory);
		case ZKL_REQUEST_LIST:
			send_list(entry, directory);
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
			send_answer(entry, directory);
			break;
		case ZKL_REQUEST_SURVEY:
			strlcat(directory, "/" ZKL_LEASES, sizeof(directory));
			zkl_session_survey(entry, ticket->attempt, directory);
			break;
		case ZKL_REQUEST_DOWNGRADE:

			/*
			 * With the version that the ticket read last: a request to
			 * release the lock that came since must not be deleted unread.
			 */
			zkl_recipe_make_downgrade(ticket->name, name);
			zkl_session_downgrade(entry, ticket->attempt, directory,
								  ticket->name, ticket->version, name,
								  entry->about);
			break;
		case ZKL_REQUEST_DELETE:

			/*
			 * The ticket no longer waits for that znode.  Otherwise every
			 * wait that is given up would leave a watch in the client and in
			 * ZooKeeper.
			 */
			if (ticket->predecessor[0])
			{
				zkl_session_unwatch(directory, ticket->predecessor);
				ticket->predecessor[0] = '\0';
			}
			zkl_session_delete(entry, ticket->attempt, directory,
							   ticket->name);
			/* The directory exists, and will stay for a while. */
			zkl_lock_directory_note(entry);
			break;
	}
	return true;
}

/*
 * A semaphore's list comes back with the number of the list, and with the
 * lease for which it was sent first.  That lease stays until all its requests
 * are answered.
 */
static void
send_list(ZklEntry *entry, const char *directory)
{
	static uint32 nlists = 0;
	dlist_mutable_iter iter;

	/* The list of a lock is for one ticket, and has its attempt. */
	if (entry->semaphore == NULL)
	{
		zkl_session_list(entry, entry->ticket.attempt, directory);
		return;
	}

	nlists++;

	/*
	 * Leases whose lists stand in the line have sent their creates, so this
	 * list serves them as well.
	 */
	listen_to(entry, nlists);
	dlist_foreach_modify(iter, &entry->semaphore->line.entries)
	{
		ZklEntry   *other = dlist_container(ZklEntry, due_link, iter.cur);

		if (other->semaphore != NULL && other->due == ZKL_REQUEST_LIST)
		{
			leave_line(other);
			listen_to(other, nlists);
		}
	}
	zkl_session_list(entry, nlists, directory);
}

/* From now on, the lease waits for the list with this number. */
static void
listen_to(ZklEntry *lease, uint32 list)
{
	stop_listening(lease);
	lease->list = list;
	dlist_push_tail(&lease->semaphore->listening, &lease->listening_link);
}

List *
zkl_send_queue_take_listeners(ZklEntry *semaphore, uint32 attempt)
{
	List	   *leases = NIL;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &semaphore->listening)
	{
		ZklEntry   *lease = dlist_container(ZklEntry, listening_link, iter.cur);

		if (lease->list != attempt)
			continue;
		stop_listening(lease);
		leases = lappend(leases, lease);
	}
	return leases;
}

/*
 * Several requests, of which one was counted already.  They go out together,
 * without waiting for one another, because the session keeps their order.  The
 * list of a lease comes due only now, because it serves other leases as well.
 */
static bool
send_create(ZklEntry *entry, ZklRequest request, const char *directory)
{
	ZklTicket  *ticket = &entry->ticket;
	int64		counted = zkl_session_requests() + 1;
	uint8		random_bytes[16];
	char		name[ZKL_ZNODE_SIZE];
	char		data[DATA_SIZE];

	/*
	 * Counted first.  If the create is refused, the ticket ends, and that
	 * takes the bytes off the sum again.
	 */
	count_bytes(entry, true);
	if (pg_atomic_read_u64(&zkl_session_info_mine->ephemeral_bytes) > ZKL_EPHEMERAL_BYTES_MAX ||
		!pg_strong_random(random_bytes, sizeof(random_bytes)))
		return false;

	stop_listening(entry);		/* ... to a list that was sent before */
	zkl_ticket_begin_attempt(ticket, random_bytes, entry->only_tries);
	zkl_recipe_make_prefix(ticket->mode, ticket->uuid, name);
	entry->sent_for = entry->role;
	/* Directories above the lock's would be timed as well. */
	entry->sent_at = ticket->rounds > 0 ? 0 : zkl_now();
	zkl_role_window_sent(entry->sent_for);
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.tickets, 1);
	snprintf(data, sizeof(data), "%s%s", entry->about, plain_mark(entry));
	if (request == ZKL_REQUEST_CREATE_BOTH)
		zkl_session_create_both(entry, ticket->attempt, directory,
								ticket->rounds > 0, name, data);
	else
	{
		zkl_session_create(entry, ticket->attempt, directory, name, data);

		/*
		 * The list of a lease stands behind the creates of other leases that
		 * are due, and then serves them, too.
		 */
		if (entry->semaphore != NULL)
			zkl_send_queue_make_due(entry, ZKL_REQUEST_LIST);
		else
			zkl_session_list(entry, ticket->attempt, directory);
	}
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests,
							zkl_session_requests() - counted);
	return true;
}

void
zkl_send_queue_answered(ZklEntry *entry, const ZklTicketEvent *reply)
{
	int64		now = zkl_now();
	bool		is_timed = reply->outcome == ZKL_OUTCOME_OK &&
	entry->sent_at != 0;

	if (entry->bulk_epoch == bulk_epoch)
	{
		nbulk--;
		entry->bulk_epoch = 0;
	}
	if (reply->request == ZKL_REQUEST_CREATE ||
		reply->request == ZKL_REQUEST_CREATE_BOTH)
		zkl_role_window_answered(entry->sent_for,
								 is_timed ? now - entry->sent_at : -1, now);
}

void
zkl_send_queue_forget_requests(void)
{
	nbulk = 0;
	bulk_epoch++;
	zkl_role_window_start();
}

/*
 * zk_lock_force_release() trusts the mark, so it must be true as long as the
 * znode exists.
 */
static const char *
plain_mark(const ZklEntry *entry)
{
	return zkl_entry_state_says_plain(entry) ? ZKL_PLAIN : "";
}

/*
 * If the ticket is given up, its delete follows, and the text in the entry is
 * already that of the next one.
 */
static void
send_answer(ZklEntry *entry, const char *directory)
{
	const ZklTicket *ticket = &entry->ticket;
	char		about[ZKL_ABOUT_SIZE];
	char		words[ZKL_TEXT_SIZE];

	if (!zkl_entry_state_copy_about(entry, about))
		return;

	/*
	 * The whole text is written each time, and only over the version that the
	 * ticket read last.
	 */
	snprintf(words, sizeof(words), "%s%s%s", about, plain_mark(entry),
			 ticket->writes_answer ? ZKL_IN_USE : "");
	zkl_session_answer(entry, ticket->attempt, directory, ticket->name, words,
					   ticket->version);
}

/*
 * The bytes that this ticket adds to the transaction that will end the
 * session.
 */
static void
count_bytes(ZklEntry *entry, bool counted)
{
	int			bytes = zkl_lock_directory_prefix_length() + strlen(entry->path) +
	ZKL_ZNODE_SIZE + sizeof(int32);

	/* Called more than once for a znode, this must count it once. */
	if (counted && !entry->counted)
	{
		pg_atomic_fetch_add_u64(&zkl_session_info_mine->ephemeral_bytes, bytes);
		ncounted++;
	}
	else if (!counted && entry->counted)
	{
		pg_atomic_fetch_sub_u64(&zkl_session_info_mine->ephemeral_bytes, bytes);
		ncounted--;
	}
	entry->counted = counted;
}

bool
zkl_send_queue_holds(void)
{
	return ncounted > nstandby;
}

/*
 * Claims may begin or end at this moment.  Then the worker is asked to look at the
 * entry, and notes it anew.
 */
void
zkl_send_queue_note_standby(ZklEntry *entry)
{
	bool		standby = entry->counted &&
	entry->ticket.state == ZKL_TICKET_QUEUED &&
	zkl_entry_state_is_for_leader(entry);

	nstandby += standby - entry->standby;
	entry->standby = standby;
}
