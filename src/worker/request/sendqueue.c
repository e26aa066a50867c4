/*-------------------------------------------------------------------------
 *
 * sendqueue.c
 *	  The requests of tickets: which are due, and when they are sent.
 *
 * The requests of one lock, or of all leases of one semaphore, stand in a line
 * of their own.  The lines take turns, one request each.  So a semaphore of
 * many leases does not hold up the other locks.
 *
 * All leases of a semaphore that need a list get the same one.  The list
 * stands in the line behind the creates that were due before, so that it is
 * sent after them: only a list that was sent after a lease's create may grant
 * that lease.
 *
 * Creates and deletes that will probably succeed go out in batches
 * (batches.h).  Creates and deletes of leases go alone: two leases in one
 * transaction would have the same czxid, but the czxid tells their order.
 *
 * src/worker/request/sendqueue.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "worker/request/ask.h"
#include "worker/request/batches.h"
#include "worker/request/entrystate.h"
#include "worker/request/lockdirectory.h"
#include "worker/request/rolewindow.h"
#include "worker/request/sendqueue.h"
#include "zookeeper/session.h"

/*
 * More requests on the way would only make signs of life wait.  ZooKeeper
 * answers in the order of sending, so a lock's first request waits for all
 * that was sent before it.  Therefore only BULK_WINDOW bulk requests may be on
 * the way.
 */
#define WINDOW				128
#define BULK_WINDOW			16
#define BULK_BATCH_WINDOW	64	/* operations in the batches that are sent
								 * next */

/*
 * Longer than any text of zklock, so that a longer text is certainly not
 * zklock's.
 */
#define WATCHED_DATA_SIZE	(2 * ZKL_TEXT_SIZE)

/*
 * The kinds of lines, which determine the next line.  A lock for which a
 * backend waits comes first, then one of the bulk lines, of their kinds in
 * turn.
 */
typedef enum Turn
{
	TURN_WAITING,				/* of locks that backends wait for */
	TURN_LEASES,				/* of semaphores */
	TURN_TOGETHER,				/* of a backend's other locks, if it waits for
								 * several together */
	TURN_PARENTS,				/* of locks that backends wait for, and that
								 * need directories above their own: up to 17
								 * creates in one request */
	TURN_REST					/* of locks that are owned, or given up */
} Turn;

#define NTURNS	(TURN_REST + 1)

#define UUIDS_A_DRAW		64

/* Of each turn: the lines that need not wait for a batch, and those that do. */
static dlist_head turns[NTURNS][2];
static bool batched_is_next[NTURNS];	/* whether the second list is next */
static Turn next_bulk = TURN_LEASES;
static bool bulk_is_next = false;	/* a lock for which a backend waits had
									 * its turn */
static int	nbulk = 0;			/* tickets with a bulk request on its way */
static int	ncounted = 0;		/* tickets whose bytes count */
static int	nstandby = 0;		/* of the counted tickets, those that stand by */
static ZklAsker directories;	/* deletes the directories in which no ticket
								 * was made */

static void start_entry(ZklEntry *entry, void *arg);
static Turn turn_of(const ZklEntry *entry);
static void leave_line(ZklEntry *entry);
static void stop_listening(ZklEntry *lease);
static bool waits_for_batch(const ZklEntry *entry);
static bool joins_batch(const ZklEntry *entry, ZklRequest request);
static ZklLine *choose_line(Turn *turn);
static ZklLine *first_line(Turn turn);
static ZklLine *first_of(Turn turn, bool batched);
static bool is_over_share(const ZklEntry *entry);
static Turn bulk_after(Turn bulk);
static bool bulk_may_be_sent(const ZklLine *line);
static ZklEntry *send_due(void);
static int64 nrequests(void);
static ZklSessionTag tag_of(ZklEntry *entry, ZklRequest request);
static const char *join_path(const char *directory, const char *child);
static bool send_request(ZklEntry *entry, ZklRequest request);
static void send_list(ZklEntry *entry, const char *directory);
static void send_limit(ZklEntry *lease);
static void listen_to(ZklEntry *lease, uint32 list);
static void send_answer(ZklEntry *entry, const char *directory);
static void send_downgrade(ZklEntry *entry, ZklSessionTag tag,
						   const char *directory);
static const char *plain_mark(const ZklEntry *entry);
static void send_delete(ZklEntry *entry, const char *directory);
static const uint8 *next_random(void);
static bool send_create(ZklEntry *entry, ZklRequest request,
						const char *directory);
static void note_undone(ZklEntry *entry, const ZklSessionEvent *event);
static void count_bytes(ZklEntry *entry, bool counted);

void
zkl_send_queue_start(void)
{
	zkl_role_window_start();
	pg_atomic_write_u64(&zkl_session_info->ephemeral_bytes, 0);
	zkl_lock_table_visit(LW_EXCLUSIVE, start_entry, NULL);
}

/*
 * The lines and lists of the dead worker are forgotten.  What is due again is
 * decided when each ticket hears of the restart.  A ticket counts even if its
 * znode was not made yet: the sum may be too great, but never too small.
 */
static void
start_entry(ZklEntry *entry, void *arg)
{
	memset(&entry->sending, 0, sizeof(entry->sending));
	dlist_init(&entry->sending.line.entries);
	dlist_init(&entry->sending.listening);
	/* The dead worker's delete may have been done. */
	entry->sending.not_batched = entry->ticket.state == ZKL_TICKET_DELETING;
	if (entry->ticket.state != ZKL_TICKET_NONE)
		count_bytes(entry, true);
}

void
zkl_send_queue_make_due(ZklEntry *entry, ZklRequest request)
{
	ZklLine    *line = &entry->lock->sending.line;

	/* In these states, a backend waits. */
	if (entry->ticket.state < ZKL_TICKET_OWNED)
		zkl_role_window_note(entry->role, zkl_now());

	/*
	 * A ticket has one request at most.  This one replaces the one that it
	 * had to send before.
	 */
	leave_line(entry);
	entry->sending.due = request;
	dlist_push_tail(&line->entries, &entry->sending.due_link);

	/*
	 * A line that has an entry already keeps its place among the lines, so
	 * that many requests of one lock gain nothing.
	 */
	if (line->turn_link.next == NULL)
	{
		line->batched = waits_for_batch(entry);
		dlist_push_tail(&turns[turn_of(entry)][line->batched], &line->turn_link);
	}
}

/*
 * In the states before OWNED, a backend waits; in the later states, the lock
 * is owned or given up.
 */
static Turn
turn_of(const ZklEntry *entry)
{
	if (zkl_lock_entry_is_lease(entry))
		return TURN_LEASES;
	if (entry->ticket.state >= ZKL_TICKET_OWNED)
		return TURN_REST;
	if (entry->sending.due == ZKL_REQUEST_CREATE_BOTH && entry->ticket.rounds > 0)
		return TURN_PARENTS;
	return entry->in_multilock ? TURN_TOGETHER : TURN_WAITING;
}

/*
 * Does a request of this kind wait while enough of its batches are under way?
 */
static bool
waits_for_batch(const ZklEntry *entry)
{
	ZklRequest	due = entry->sending.due;

	return !zkl_lock_entry_is_lease(entry) && !entry->sending.not_batched &&
		(due == ZKL_REQUEST_DELETE || due == ZKL_REQUEST_CREATE ||
		 (due == ZKL_REQUEST_CREATE_BOTH && entry->ticket.rounds == 0)) &&
		zkl_batches_are_allowed();
}

/*
 * An operation that fails spoils the whole batch.  So a create joins only if
 * its directory, or the one above, existed lately, and if the role is no
 * spoiler (rolewindow.h).
 */
static bool
joins_batch(const ZklEntry *entry, ZklRequest request)
{
	if (zkl_lock_entry_is_lease(entry) || entry->sending.not_batched ||
		!entry->sending.line.batched)
		return false;
	if (request == ZKL_REQUEST_DELETE)
		return true;
	return !zkl_role_window_is_spoiler(entry->role, zkl_now()) &&
		(request == ZKL_REQUEST_CREATE ? zkl_lock_directory_is_likely(entry) :
		 zkl_lock_directory_is_parent_likely(entry));
}

/*
 * Take the ticket's request off its line; if the line is empty then, take it
 * off the list of lines.
 */
static void
leave_line(ZklEntry *entry)
{
	ZklLine    *line = &entry->lock->sending.line;

	if (entry->sending.due == ZKL_REQUEST_NOTHING)
		return;
	entry->sending.due = ZKL_REQUEST_NOTHING;
	dlist_delete(&entry->sending.due_link);
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
	count_bytes(entry, false);
	entry->sending.not_batched = false;
}

/* The lease waits for no list any more. */
static void
stop_listening(ZklEntry *lease)
{
	if (lease->sending.listening_link.next == NULL)
		return;
	dlist_delete(&lease->sending.listening_link);
	lease->sending.listening_link.next = NULL;
}

/* The list of a lease comes due only when its create was sent. */
bool
zkl_send_queue_is_unsent(const ZklEntry *entry)
{
	return entry->sending.due != ZKL_REQUEST_NOTHING &&
		entry->sending.due != ZKL_REQUEST_LIST;
}

ZklEntry *
zkl_send_queue_send(void)
{
	ZklEntry   *refused;
	Turn		turn;

	if (choose_line(&turn) == NULL)
		return NULL;
	/* Pack all requests that the window allows into few packets. */
	zkl_session_cork(true);
	refused = send_due();
	zkl_session_cork(false);
	return refused;
}

/* NULL: nothing can be sent now. */
static ZklLine *
choose_line(Turn *turn)
{
	Turn		bulk = next_bulk;
	ZklLine    *line;

	/*
	 * On a new connection, nothing may be sent before the barrier.  What is
	 * about to be sent counts as being under way.
	 */
	if (!zkl_session_is_usable() ||
		zkl_session_outstanding() + zkl_batches_added() >= WINDOW)
		return NULL;

	/*
	 * A ticket that was given up takes its room until it is deleted.  If
	 * little room is left, deletes come first: else the locks that backends
	 * wait for would be refused.
	 */
	if (!zkl_lock_table_is_half_free() && (line = first_line(TURN_REST)) != NULL)
	{
		*turn = TURN_REST;
		return line;
	}
	for (int i = 0; i < NTURNS; i++)
	{
		/*
		 * Locks for which backends wait come first; after one of them, bulk
		 * lines come first.
		 */
		bool		waiting = i == (bulk_is_next ? NTURNS - 1 : 0);

		*turn = waiting ? TURN_WAITING : bulk;
		if (!waiting)
			bulk = bulk_after(bulk);
		line = first_line(*turn);
		if (line != NULL && (waiting || bulk_may_be_sent(line)))
			return line;
	}
	return NULL;
}

/* Two lists take turns, too: lines that wait for batches, and other lines. */
static ZklLine *
first_line(Turn turn)
{
	ZklLine    *line = first_of(turn, batched_is_next[turn]);

	return line != NULL ? line : first_of(turn, !batched_is_next[turn]);
}

/*
 * The first line.  If backends wait for the locks of this turn, the first
 * that is not over its role's share.
 */
static ZklLine *
first_of(Turn turn, bool batched)
{
	dlist_iter	iter;

	/*
	 * The requests of one turn that wait for batches are all creates, or all
	 * deletes.
	 */
	if (batched && !zkl_batches_are_open(turn == TURN_REST ? ZKL_REQUEST_DELETE : ZKL_REQUEST_CREATE))
		return NULL;
	dlist_foreach(iter, &turns[turn][batched])
	{
		ZklLine    *line = dlist_container(ZklLine, turn_link, iter.cur);

		if (turn != TURN_WAITING ||
			!is_over_share(dlist_head_element(ZklEntry, sending.due_link,
											  &line->entries)))
			return line;
	}
	return NULL;
}

/*
 * A create over the role's share is sent when another create of the role has
 * been answered.
 */
static bool
is_over_share(const ZklEntry *entry)
{
	return (entry->sending.due == ZKL_REQUEST_CREATE ||
			entry->sending.due == ZKL_REQUEST_CREATE_BOTH) &&
		zkl_role_window_is_full(entry->role, zkl_now());
}

static Turn
bulk_after(Turn bulk)
{
	return bulk == TURN_REST ? TURN_LEASES : bulk + 1;
}

/*
 * At most a few bulk requests are on the way at a time, and at least one,
 * however many locks backends wait for.
 */
static bool
bulk_may_be_sent(const ZklLine *line)
{
	int			on_the_way;

	/*
	 * While several roles need ZooKeeper, few tickets have a bulk request on
	 * its way, whatever else is under way.  Otherwise one is sent right after
	 * the request of a lock for which a backend waits, and more as far as the
	 * small window for bulk requests allows.  Requests of commands have a
	 * window of their own.
	 */
	if (zkl_role_window_is_shared(zkl_now()))
		return nbulk < zkl_role_window_size() / 2;
	if (bulk_is_next)
		return true;
	on_the_way = zkl_session_outstanding() - zkl_ask_on_the_way();
	if (!line->batched)
		return on_the_way + zkl_batches_added() < BULK_WINDOW;

	/*
	 * A batch begins only if there is room for a whole one.  If a batch began
	 * after each reply, it would have only the few operations for which there
	 * is room then.
	 */
	return on_the_way < BULK_WINDOW && zkl_batches_added() < BULK_BATCH_WINDOW;
}

static ZklEntry *
send_due(void)
{
	ZklEntry   *refused = NULL;
	Turn		turn;
	ZklLine    *line;

	while (refused == NULL && (line = choose_line(&turn)) != NULL)
	{
		ZklEntry   *entry = dlist_head_element(ZklEntry, sending.due_link,
											   &line->entries);
		ZklRequest	request = entry->sending.due;
		int64		nsent = nrequests();

		/* The line goes behind all others. */
		dlist_delete(&line->turn_link);
		dlist_push_tail(&turns[turn][line->batched], &line->turn_link);
		batched_is_next[turn] = !line->batched;
		bulk_is_next = turn == TURN_WAITING;
		if (!bulk_is_next)
			next_bulk = bulk_after(turn);

		/*
		 * Do this before the sending, which may put the next request of this
		 * ticket into the line.
		 */
		leave_line(entry);
		/* Only a create is refused.  The rest goes on in the next call. */
		if (!send_request(entry, request))
		{
			refused = entry;
			continue;
		}

		/*
		 * The request may have sent nothing, if an answer to another client
		 * has become needless.  Any reply to this ticket ends the mark.
		 */
		if (turn != TURN_WAITING && nrequests() > nsent)
		{
			nbulk += !entry->sending.in_bulk;
			entry->sending.in_bulk = true;
		}
	}
	zkl_batches_send();
	return refused;
}

/* The number grows with each request that is sent, or about to be sent. */
static int64
nrequests(void)
{
	return zkl_session_requests() + zkl_batches_added();
}

/* The reply comes back with the entry and the attempt. */
static ZklSessionTag
tag_of(ZklEntry *entry, ZklRequest request)
{
	ZklSessionTag tag = {ZKL_SESSION_REPLY, entry, entry->ticket.attempt, request, false};

	return tag;
}

/* Allocated in the memory of the worker's turn. */
static const char *
join_path(const char *directory, const char *child)
{
	return psprintf("%s/%s", directory, child);
}

/*
 * False if the request is a create that must not be sent.  Otherwise its reply
 * will come, with this tag and attempt.
 */
static bool
send_request(ZklEntry *entry, ZklRequest request)
{
	ZklTicket  *ticket = &entry->ticket;
	ZklSessionTag tag = tag_of(entry, request);
	char		directory[ZKL_DIR_SIZE];

	zkl_lock_directory_of(entry, directory);
	switch (request)
	{
		case ZKL_REQUEST_NOTHING:
		case ZKL_REQUEST_LIMIT:
			break;
		case ZKL_REQUEST_CREATE_BOTH:
		case ZKL_REQUEST_CREATE:
			return send_create(entry, request, directory);
		case ZKL_REQUEST_LIST:
			send_list(entry, directory);
			break;
		case ZKL_REQUEST_INSPECT:
			zkl_session_stat(tag, join_path(directory, ticket->name));
			break;
		case ZKL_REQUEST_WATCH:
			zkl_session_data(tag, join_path(directory, ticket->predecessor),
							 WATCHED_DATA_SIZE, true);
			break;
		case ZKL_REQUEST_WATCH_SELF:
			zkl_session_data(tag, join_path(directory, ticket->name),
							 WATCHED_DATA_SIZE, true);
			break;
		case ZKL_REQUEST_ANSWER:
			send_answer(entry, directory);
			break;
		case ZKL_REQUEST_SURVEY:
			zkl_session_children(tag, join_path(directory, ZKL_LEASES), false);
			break;
		case ZKL_REQUEST_DOWNGRADE:
			send_downgrade(entry, tag, directory);
			break;
		case ZKL_REQUEST_DELETE:

			/*
			 * The ticket no longer waits for its predecessor.  Otherwise
			 * every wait that is given up would leave a watch in the client
			 * and in ZooKeeper.
			 */
			if (ticket->predecessor[0])
			{
				zkl_session_unwatch(join_path(directory, ticket->predecessor));
				ticket->predecessor[0] = '\0';
			}
			send_delete(entry, directory);
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
	ZklSessionTag tag;
	dlist_mutable_iter iter;

	/* The list of a lock serves one ticket; the tag has its attempt. */
	if (!zkl_lock_entry_is_lease(entry))
	{
		zkl_session_children(tag_of(entry, ZKL_REQUEST_LIST), directory, true);
		return;
	}

	nlists++;

	/*
	 * Leases whose lists stand in the line have sent their creates, so this
	 * list serves them as well.
	 */
	listen_to(entry, nlists);
	dlist_foreach_modify(iter, &entry->lock->sending.line.entries)
	{
		ZklEntry   *other = dlist_container(ZklEntry, sending.due_link, iter.cur);

		if (zkl_lock_entry_is_lease(other) && other->sending.due == ZKL_REQUEST_LIST)
		{
			leave_line(other);
			listen_to(other, nlists);
		}
	}
	send_limit(entry);
	tag = tag_of(entry, ZKL_REQUEST_LIST);
	tag.attempt = nlists;
	zkl_session_children(tag, directory, true);
}

/*
 * Read the limit right before each list, so that no list grants by a limit
 * from before the leases' creates.  The watch tells of a change between the
 * two.
 */
static void
send_limit(ZklEntry *lease)
{
	char		path[ZKL_DIR_SIZE];

	zkl_lock_directory_limit(lease->lock, path);
	zkl_session_data(tag_of(lease, ZKL_REQUEST_LIMIT), path,
					 ZKL_LIMIT_SIZE + 1, true);
}

/* From now on, the lease waits for the list with this number. */
static void
listen_to(ZklEntry *lease, uint32 list)
{
	stop_listening(lease);
	lease->sending.list = list;
	dlist_push_tail(&lease->lock->sending.listening, &lease->sending.listening_link);
}

List *
zkl_send_queue_take_listeners(ZklEntry *semaphore, uint32 attempt)
{
	List	   *leases = NIL;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &semaphore->sending.listening)
	{
		ZklEntry   *lease = dlist_container(ZklEntry, sending.listening_link, iter.cur);

		if (lease->sending.list != attempt)
			continue;
		stop_listening(lease);
		leases = lappend(leases, lease);
	}
	return leases;
}

static void
send_delete(ZklEntry *entry, const char *directory)
{
	ZklSessionOperation operation = {
		.tag = tag_of(entry, ZKL_REQUEST_DELETE),
		.path = join_path(directory, entry->ticket.name)
	};

	if (joins_batch(entry, ZKL_REQUEST_DELETE))
		zkl_batches_add(entry, operation);
	else
		zkl_session_send_alone(&operation);
}

/*
 * Sixteen random bytes, for one UUID; NULL if there are none.  They are drawn
 * for many UUIDs at a time, because a draw costs as much as the rest of a
 * create.
 */
static const uint8 *
next_random(void)
{
	static uint8 drawn[UUIDS_A_DRAW][16];
	static int	nleft = 0;

	if (nleft == 0)
	{
		if (!pg_strong_random(drawn, sizeof(drawn)))
			return NULL;
		nleft = UUIDS_A_DRAW;
	}
	return drawn[--nleft];
}

/*
 * A create may take several requests.  They go out together, without waiting
 * for one another, because the session keeps their order.  The list of a
 * lease comes due only now, because it serves other leases as well.
 */
static bool
send_create(ZklEntry *entry, ZklRequest request, const char *directory)
{
	ZklTicket  *ticket = &entry->ticket;
	ZklSessionOperation operation = {0};
	const uint8 *random_bytes;
	char		name[ZKL_ZNODE_SIZE];

	/*
	 * Count the bytes first.  If the create is refused, the ticket ends, and
	 * its end takes the bytes off the sum again.
	 */
	count_bytes(entry, true);
	if (pg_atomic_read_u64(&zkl_session_info->ephemeral_bytes) >
		ZKL_EPHEMERAL_BYTES_MAX + (entry->leader ? ZKL_EPHEMERAL_BYTES_LEADERS : 0) ||
		(random_bytes = next_random()) == NULL)
		return false;

	stop_listening(entry);		/* to a list that was sent before */
	zkl_ticket_begin_attempt(ticket, random_bytes, entry->only_tries);
	zkl_recipe_make_prefix(ticket->mode, ticket->uuid, name);
	entry->sending.role = entry->role;
	/* Do not measure a create whose time includes the directories above. */
	entry->sending.create_at = ticket->rounds > 0 ? 0 : zkl_now();
	zkl_role_window_sent(entry->sending.role);
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.tickets, 1);
	operation.tag = tag_of(entry, request);
	operation.path = join_path(directory, name);
	operation.data = psprintf("%s%s", entry->owner_text, plain_mark(entry));
	if (request == ZKL_REQUEST_CREATE_BOTH)
		operation.parents = ticket->rounds > 0 ? ZKL_PARENTS_ALL : ZKL_PARENTS_NEAREST;
	if (joins_batch(entry, request))
	{
		zkl_batches_add(entry, operation);
		return true;
	}
	zkl_session_send_alone(&operation);

	/*
	 * The list of a lease stands behind the creates of other leases that are
	 * due, and then serves them, too.
	 */
	if (request == ZKL_REQUEST_CREATE && zkl_lock_entry_is_lease(entry))
		zkl_send_queue_make_due(entry, ZKL_REQUEST_LIST);
	else if (request == ZKL_REQUEST_CREATE)
		send_list(entry, directory);
	return true;
}

void
zkl_send_queue_answered(ZklEntry *entry, const ZklSessionEvent *event)
{
	const ZklTicketEvent *reply = &event->reply;
	int64		now = zkl_now();
	bool		creates = reply->request == ZKL_REQUEST_CREATE ||
	reply->request == ZKL_REQUEST_CREATE_BOTH;
	bool		is_timed = reply->outcome == ZKL_OUTCOME_OK &&
	entry->sending.create_at != 0;

	nbulk -= entry->sending.in_bulk;
	entry->sending.in_bulk = false;
	if (creates)
		zkl_role_window_answered(entry->sending.role,
								 is_timed ? now - entry->sending.create_at : -1, now);
	if (event->ends_batch)
		zkl_batches_answered(event);
	if (reply->outcome == ZKL_OUTCOME_UNDONE)
		note_undone(entry, event);

	/*
	 * The repeated delete of a znode that is gone would spoil a batch.  And a
	 * batch that makes a server close the connection must not be sent again.
	 */
	else if (reply->outcome == ZKL_OUTCOME_UNKNOWN)
		entry->sending.not_batched |= creates || reply->request == ZKL_REQUEST_DELETE;
	else if (reply->outcome == ZKL_OUTCOME_OK && creates)
	{
		entry->sending.not_batched = false;
		if (reply->request == ZKL_REQUEST_CREATE_BOTH)
			zkl_lock_directory_note_parent(entry);
	}
}

/*
 * The ticket sends its request again, alone.  If ZooKeeper has removed a
 * directory which was there a moment ago, that is not the role's fault.  But
 * a directory in which a directory was made lately has children, so ZooKeeper
 * does not remove it so soon.  If none can be made there now, other creates
 * below it fail as well, and a role may have brought that about.
 */
static void
note_undone(ZklEntry *entry, const ZklSessionEvent *event)
{
	ZklRequest	request = event->reply.request;
	char		directory[ZKL_DIR_SIZE];

	entry->sending.not_batched = true;

	/*
	 * ZooKeeper removes a container only after it has had a child, so the
	 * directory would stay for good.  If another client uses it meanwhile,
	 * ZooKeeper refuses to delete it.
	 */
	if (request == ZKL_REQUEST_CREATE_BOTH && entry->ticket.unwanted)
	{
		zkl_lock_directory_of(entry, directory);
		zkl_ask_delete(&directories, 0, directory);
	}
	if (event->cause == ZKL_OUTCOME_OK || request == ZKL_REQUEST_DELETE)
		return;
	if (event->cause == ZKL_OUTCOME_ABSENT && request == ZKL_REQUEST_CREATE)
		zkl_lock_directory_note_removed(entry);
	else
		zkl_role_window_note_spoiler(entry->sending.role, zkl_now());
	if (event->cause == ZKL_OUTCOME_ABSENT && request == ZKL_REQUEST_CREATE_BOTH)
		zkl_lock_directory_forget_parent(entry);
}

/*
 * zk_lock_force_release() trusts the mark, so it must be true as long as the
 * znode exists.
 */
static const char *
plain_mark(const ZklEntry *entry)
{
	return zkl_entry_state_excludes_superuser(entry) ? ZKL_PLAIN : "";
}

/*
 * If the ticket is given up, its delete follows, and the entry already has the
 * text for the next ticket.
 */
static void
send_answer(ZklEntry *entry, const char *directory)
{
	const ZklTicket *ticket = &entry->ticket;
	char		owner_text[ZKL_OWNER_TEXT_SIZE];
	char		words[ZKL_TEXT_SIZE];

	if (!zkl_entry_state_copy_owner_text(entry, owner_text))
		return;

	/*
	 * Write the whole text each time, and only over the version that the
	 * ticket read last.
	 */
	snprintf(words, sizeof(words), "%s%s%s", owner_text, plain_mark(entry),
			 ticket->writes_answer ? ZKL_IN_USE : "");
	zkl_session_write(tag_of(entry, ZKL_REQUEST_ANSWER),
					  join_path(directory, ticket->name), words, strlen(words),
					  ticket->version);
}

/*
 * Send the version that the ticket read last: a request to release the lock
 * that came since must not be deleted unread.
 */
static void
send_downgrade(ZklEntry *entry, ZklSessionTag tag, const char *directory)
{
	const ZklTicket *ticket = &entry->ticket;
	char		reader[ZKL_ZNODE_SIZE];

	zkl_entry_state_note_downgrade(entry);
	zkl_recipe_make_downgrade(ticket->name, reader);
	zkl_session_downgrade(tag, join_path(directory, ticket->name),
						  ticket->version, join_path(directory, reader),
						  entry->owner_text);
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

	/* Callers may repeat a call for a znode, which counts once. */
	if (counted && !entry->sending.counted)
	{
		pg_atomic_fetch_add_u64(&zkl_session_info->ephemeral_bytes, bytes);
		ncounted++;
	}
	else if (!counted && entry->sending.counted)
	{
		pg_atomic_fetch_sub_u64(&zkl_session_info->ephemeral_bytes, bytes);
		ncounted--;
	}
	entry->sending.counted = counted;
}

bool
zkl_send_queue_holds(void)
{
	return ncounted > nstandby;
}

/*
 * Claims may begin or end at this moment.  Each such change makes the worker
 * look at the entry, and call this again.
 */
void
zkl_send_queue_note_standby(ZklEntry *entry)
{
	bool		standby = entry->sending.counted &&
	entry->ticket.state == ZKL_TICKET_QUEUED &&
	zkl_entry_state_is_for_leader(entry);

	nstandby += standby - entry->sending.needs_no_proof;
	entry->sending.needs_no_proof = standby;
}
