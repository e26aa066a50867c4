/*-------------------------------------------------------------------------
 *
 * ticketfeed.c
 *	  The worker's side of the tickets: feed events, do what the steps say.
 *
 * ticket.c decides what happens in the life of a ticket.  This file carries
 * out each step: its request becomes due, and its report goes to the lock
 * table.
 *
 * A ticket in state NONE has no request due and none on its way, and only
 * then may its entry be removed.
 *
 * src/worker/request/ticketfeed.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pg_list.h"

#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/leases.h"
#include "worker/request/bypass.h"
#include "worker/request/entrystate.h"
#include "worker/request/lockdirectory.h"
#include "worker/request/orphans.h"
#include "worker/request/sendqueue.h"
#include "worker/request/sessionlog.h"
#include "worker/request/ticketfeed.h"

static void feed(ZklEntry *entry, ZklTicketEventKind kind);
static bool is_to_look(const ZklEntry *entry);
static void carry_out(ZklEntry *entry, ZklTicketStep step);
static void note_orphan(ZklEntry *entry);
static void report_difference(const ZklEntry *entry);
static void report_owned(ZklEntry *entry);
static void report_lost(ZklEntry *entry);
static void report(ZklEntry *entry, ZklTicketStep step);
static void do_work(ZklEntry *entry, const ZklWork *work);
static void retry_deletes(ZklEntry *semaphore);
static void answer(ZklEntry *entry);
static void answer_query(ZklEntry *entry);
static void on_node_changed(const ZklSessionEvent *event);
static void take_reply(ZklEntry *entry, const ZklSessionEvent *event);
static void feed_if_concerned(ZklEntry *entry, const char *child, bool gone);
static void feed_leases(List *leases);
static void hand_out_list(ZklEntry *semaphore, const ZklSessionEvent *event);
static void take_limit(ZklEntry *semaphore, const ZklSessionEvent *event);
static void on_limit_changed(List *leases);
static void forget_limit(const ZklEntry *lease);
static void look_after_leases(ZklEntry *semaphore, const ZklTicketEvent *list);
static void drop_child_watch(const char *directory, const char *child);
static void delete_leftover(ZklEntry *entry, const ZklTicketEvent *reply);
static void refuse_create(ZklEntry *entry);

void
zkl_ticket_feed_start(const char *prefix)
{
	zkl_lock_directory_start(prefix);
	zkl_send_queue_start();

	/*
	 * Shared memory still has the links into the dead worker's heap.  The
	 * adoption forgets them, before a step disarms a timer.
	 */
	zkl_entry_state_adopt();
	zkl_ticket_feed_tell_all(ZKL_EVENT_RESTARTED);
}

/*
 * Give the event to all tickets that have a state to lose.  Collect the
 * tickets first: a visitor of the table holds the entry's partition, and a
 * step locks the partition itself.
 */
void
zkl_ticket_feed_tell_all(ZklTicketEventKind kind)
{
	int			nentries;
	ZklEntry  **entries = zkl_lock_table_collect(&nentries);

	for (int i = 0; i < nentries; i++)
		feed(entries[i], kind);
	pfree(entries);
}

/*
 * Remove the client's watches, because zklock sets them again itself.  The
 * client would set all of them in one packet, and a server refuses a packet
 * of more than a megabyte.
 */
void
zkl_ticket_feed_disconnected(void)
{
	int			nentries;
	ZklEntry  **entries = zkl_lock_table_collect(&nentries);

	for (int i = 0; i < nentries; i++)
	{
		const ZklTicket *ticket = &entries[i]->ticket;
		char		directory[ZKL_DIR_SIZE];

		/*
		 * These are all watches that a ticket may have: on its directory, on
		 * the znode that it waits for, and on its own znode.
		 */
		zkl_lock_directory_of(entries[i], directory);
		zkl_session_drop_watch(directory);
		drop_child_watch(directory, ticket->predecessor);
		drop_child_watch(directory, ticket->name);
		if (zkl_lock_entry_is_lease(entries[i]))
		{
			zkl_lock_directory_limit(entries[i]->lock, directory);
			zkl_session_drop_watch(directory);
		}
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

/*
 * The entry still exists: it stays until all requests of its ticket are
 * answered.
 */
void
zkl_ticket_feed_take_reply(const ZklSessionEvent *event)
{
	ZklEntry   *entry = event->tag;

	zkl_send_queue_answered(entry, event);
	if (event->reply.request == ZKL_REQUEST_DELETE &&
		event->reply.outcome == ZKL_OUTCOME_REFUSED)
		ereport(LOG,
				errmsg("could not delete the znode of lock \"%s\": it stays until the ZooKeeper session ends",
					   entry->lock->path));

	/*
	 * A list of leases is for all leases that listen to it.  Any other reply
	 * is for one ticket, and a reply to an earlier attempt tells nothing
	 * about the present znode.
	 */
	if (event->reply.request == ZKL_REQUEST_LIMIT)
		take_limit(entry->lock, event);
	else if (zkl_lock_entry_is_lease(entry) &&
			 event->reply.request == ZKL_REQUEST_LIST)
		hand_out_list(entry->lock, event);
	else if (event->attempt == entry->ticket.attempt)
	{
		if (event->reply.request == ZKL_REQUEST_LIST)
			zkl_bypass_look(entry, &event->reply);
		/* Do this first, because the step leaves the state WATCHING. */
		delete_leftover(entry, &event->reply);
		take_reply(entry, event);
	}
}

void
zkl_ticket_feed_note_change(const ZklSessionEvent *event)
{
	ZklEntry   *entry;

	if (event->kind == ZKL_SESSION_NODE_CHANGED)
	{
		on_node_changed(event);
		return;
	}
	entry = zkl_lock_directory_find(event->path, strlen(event->path));
	if (entry != NULL)
		feed(entry, ZKL_EVENT_CHILDREN_CHANGED);
	feed_leases(zkl_lock_directory_find_leases(event->path, strlen(event->path)));
}

/*
 * The znode may be a ticket in a lock's own directory, one of a semaphore's
 * leases, or a semaphore's limit.
 */
static void
on_node_changed(const ZklSessionEvent *event)
{
	const char *child = strrchr(event->path, '/') + 1;
	int			length = child - 1 - event->path;
	ZklEntry   *entry = zkl_lock_directory_find(event->path, length);
	List	   *leases = zkl_lock_directory_find_leases(event->path, length);
	ListCell   *cell;

	if (entry != NULL)
		feed_if_concerned(entry, child, event->gone);
	foreach(cell, leases)
		feed_if_concerned(lfirst(cell), child, event->gone);
	if (strcmp(child, ZKL_LIMIT) == 0)
	{
		const char *sibling = psprintf("%.*s/" ZKL_LEASES, length, event->path);

		on_limit_changed(zkl_lock_directory_find_leases(sibling, strlen(sibling)));
	}
}

/*
 * The step is pure.  So what it must know of the lock table is added to the
 * reply here: whether the text in the znode names the right backend.  And the
 * lock table learns what is in the znode that the ticket waits for.
 */
static void
take_reply(ZklEntry *entry, const ZklSessionEvent *event)
{
	ZklTicketEvent reply = event->reply;
	char		owner_text[ZKL_OWNER_TEXT_SIZE];

	if (reply.request == ZKL_REQUEST_WATCH_SELF &&
		reply.outcome == ZKL_OUTCOME_OK)
		reply.stale = zkl_entry_state_copy_owner_text(entry, owner_text) &&
			!zkl_recipe_names_owner(event->data, event->data_length, owner_text);
	if (reply.request == ZKL_REQUEST_WATCH && reply.outcome == ZKL_OUTCOME_OK)
		zkl_entry_state_note_before(entry, event->data, event->data_length);
	carry_out(entry, zkl_ticket_step(&entry->ticket, &reply));
}

/* A znode has changed: is it this ticket's own, or the one it waits for? */
static void
feed_if_concerned(ZklEntry *entry, const char *child, bool gone)
{
	if (strcmp(entry->ticket.predecessor, child) == 0)
		feed(entry, gone ? ZKL_EVENT_PREDECESSOR_GONE :
			 ZKL_EVENT_PREDECESSOR_CHANGED);
	else if (strcmp(entry->ticket.name, child) == 0)
		feed(entry, ZKL_EVENT_SELF_CHANGED);
}

/*
 * The leases of a semaphore have changed.  All leases that wait list again.
 * Of the owned leases, one lists for all, to see whether other clients wait;
 * if that lease is given up before it has listed, another one lists.
 */
static void
feed_leases(List *leases)
{
	ListCell   *cell;
	bool		looked = false;

	foreach(cell, leases)
	{
		ZklEntry   *lease = lfirst(cell);

		if (lease->ticket.state == ZKL_TICKET_QUEUED)
			feed(lease, ZKL_EVENT_CHILDREN_CHANGED);
		/* This lease's list is due or under way, and serves all leases. */
		else if (lease->ticket.state == ZKL_TICKET_CHECKING)
			looked = true;
		else if (lease->ticket.state == ZKL_TICKET_OWNED &&
				 !lease->ticket.contended && !looked)
		{
			feed(lease, ZKL_EVENT_CHILDREN_CHANGED);
			looked = true;
			ZKL_FAULT_POINT("lease-to-look");
		}
	}
}

/*
 * A semaphore's list is put in order once, and goes to all leases that wait for
 * it.
 */
static void
hand_out_list(ZklEntry *semaphore, const ZklSessionEvent *event)
{
	ZklTicketEvent reply = event->reply;
	ZklLease   *leases = palloc((reply.nchildren + 1) * sizeof(ZklLease));
	List	   *listeners = zkl_send_queue_take_listeners(semaphore,
														  event->attempt);
	ListCell   *cell;

	zkl_recipe_order_leases(reply.children, reply.nchildren, leases);
	reply.leases = leases;
	reply.limit = zkl_leases_limit(semaphore);

	/*
	 * The limit has changed between the read of the limit and the list.  So
	 * the list tells nothing, and each lease lists again.
	 */
	if (!semaphore->limit_read && reply.outcome == ZKL_OUTCOME_OK)
		reply.outcome = ZKL_OUTCOME_UNKNOWN;

	/*
	 * A failed list has no children, which must not look as if all leases
	 * were gone.
	 */
	if (reply.outcome == ZKL_OUTCOME_OK)
		look_after_leases(semaphore, &reply);
	foreach(cell, listeners)
	{
		ZklEntry   *lease = lfirst(cell);

		carry_out(lease, zkl_ticket_step(&lease->ticket, &reply));
	}
}

/*
 * The reply to the list comes next.  Data that are no limit count as no
 * limit: they may be the data of a directory, of a lock with this path.
 */
static void
take_limit(ZklEntry *semaphore, const ZklSessionEvent *event)
{
	bool		found = event->reply.outcome == ZKL_OUTCOME_OK;

	semaphore->limit_read = event->reply.outcome != ZKL_OUTCOME_UNKNOWN;
	if (semaphore->limit_read)
		zkl_entry_state_set_limit(semaphore, found ?
								  zkl_recipe_read_limit(event->data, event->data_length) :
								  ZKL_LIMIT_NONE);
	ZKL_FAULT_POINT("limit-read");
}

/*
 * ZooKeeper tells of the change before it shows any newer list.  All leases
 * list again, and so read the limit first.
 */
static void
on_limit_changed(List *leases)
{
	ListCell   *cell;

	ZKL_FAULT_POINT("limit-changed");
	foreach(cell, leases)
	{
		ZklEntry   *lease = lfirst(cell);

		lease->lock->limit_read = false;
		if (lease->ticket.state == ZKL_TICKET_QUEUED)
			feed(lease, ZKL_EVENT_CHILDREN_CHANGED);
		else if (lease->ticket.state == ZKL_TICKET_OWNED ||
				 lease->ticket.state == ZKL_TICKET_WRITING_DATA)
			feed(lease, ZKL_EVENT_RECHECK);
	}
}

/*
 * A ticket has ended.  If it was the last one of its semaphore, the limit is
 * not watched any more.  Without a watch, this sends nothing.
 */
static void
forget_limit(const ZklEntry *lease)
{
	char		path[ZKL_DIR_SIZE];

	if (lease->lock->nleases > (lease->lease_link.next != NULL ? 1 : 0))
		return;
	zkl_lock_directory_limit(lease->lock, path);
	zkl_session_unwatch(path);
}

/*
 * Another client has deleted the leases that are owned but not in the list.
 * Make them find out.
 */
static void
look_after_leases(ZklEntry *semaphore, const ZklTicketEvent *list)
{
	List	   *leases = zkl_lock_directory_leases_of(semaphore);
	ListCell   *cell;

	foreach(cell, leases)
	{
		ZklEntry   *lease = lfirst(cell);

		if (lease->ticket.state == ZKL_TICKET_OWNED &&
			!zkl_recipe_has_lease(lease->ticket.name, list->leases,
								  list->nchildren))
			feed(lease, ZKL_EVENT_SELF_CHANGED);
	}
}

/*
 * A server queues once for a lock, and never behind itself.  A znode of this
 * session before the ticket's is one that this server has deleted, and that
 * has come back with a backup of ZooKeeper.  No ticket knows the znode, so
 * only this function deletes it.
 */
static void
delete_leftover(ZklEntry *entry, const ZklTicketEvent *reply)
{
	ZklSessionTag tag = {ZKL_SESSION_REPLY, entry, entry->ticket.attempt - 1, ZKL_REQUEST_DELETE, false};
	char		directory[ZKL_DIR_SIZE];

	if (reply->request != ZKL_REQUEST_WATCH || !reply->ours ||
		!zkl_session_is_usable() ||
		entry->ticket.state != ZKL_TICKET_WATCHING)
		return;
	zkl_lock_directory_of(entry, directory);

	/*
	 * The tag has an earlier attempt, so that the ticket does not take the
	 * reply for the reply to a delete of its own znode.
	 */
	zkl_session_delete(tag, psprintf("%s/%s", directory, entry->ticket.predecessor));
}

void
zkl_ticket_feed_take_work(void)
{
	ZklEntry   *entry;
	ZklWork		work;

	while ((entry = zkl_entry_state_next(&work)) != NULL)
		do_work(entry, &work);
}

void
zkl_ticket_feed_run_timers(void)
{
	int64		now = zkl_now();
	ZklEntry   *entry;
	ZklWork		work;

	while ((entry = zkl_entry_state_next_due(now, &work)) != NULL)
		do_work(entry, &work);
}

/* If there is no work, the entry may be gone, so do not touch it. */
static void
do_work(ZklEntry *entry, const ZklWork *work)
{
	for (int i = 0; i < work->nevents; i++)
	{
		ZklTicketEventKind kind = work->events[i];

		if (kind == ZKL_EVENT_WANT)
			ZKL_FAULT_POINT("want-seen");
		else if (kind == ZKL_EVENT_UNWANT)
			ZKL_FAULT_POINT("release-seen");
		feed(entry, kind);

		/*
		 * The lock has been held for a while.  From now on the znode says
		 * that the lock is in use, if other clients queue.
		 */
		if (kind == ZKL_EVENT_WATCH)
			answer(entry);
	}
	if (work->standby)
		zkl_send_queue_note_standby(entry);
	if (work->retry)
		retry_deletes(entry);
}

/*
 * A claim needs a path at which leases of this server are stuck: ZooKeeper
 * refused to delete their znodes.  Such leases are in none of the semaphore's
 * lists, so search all tickets.
 */
static void
retry_deletes(ZklEntry *semaphore)
{
	int			nentries;
	ZklEntry  **entries = zkl_lock_table_collect(&nentries);

	for (int i = 0; i < nentries; i++)
	{
		if (entries[i]->lock == semaphore &&
			entries[i]->ticket.state == ZKL_TICKET_STUCK)
			feed(entries[i], ZKL_EVENT_UNWANT);
	}
	pfree(entries);
}

void
zkl_ticket_feed_send(void)
{
	ZklEntry   *refused;

	while ((refused = zkl_send_queue_send()) != NULL)
		refuse_create(refused);
}

/* Give the ticket the reply in ZooKeeper's place. */
static void
refuse_create(ZklEntry *entry)
{
	ZklTicketEvent reply = {.kind = ZKL_EVENT_REPLY};

	reply.request = entry->ticket.state == ZKL_TICKET_CREATING_BOTH ?
		ZKL_REQUEST_CREATE_BOTH : ZKL_REQUEST_CREATE;
	reply.outcome = ZKL_OUTCOME_REFUSED;
	reply.failure = ZKL_FAILURE_SESSION_FULL;
	/* A CREATE has two replies: see ticket.h. */
	carry_out(entry, zkl_ticket_step(&entry->ticket, &reply));
	if (reply.request == ZKL_REQUEST_CREATE_BOTH)
		return;

	reply.request = ZKL_REQUEST_LIST;
	carry_out(entry, zkl_ticket_step(&entry->ticket, &reply));
}

/*
 * Steps
 */

/*
 * One event for one ticket.  The worker reads the mode without the partition;
 * lockentry.h says why it may.
 */
static void
feed(ZklEntry *entry, ZklTicketEventKind kind)
{
	ZklTicketEvent event = {.kind = kind};
	bool		was_to_look = is_to_look(entry);

	/* Only WANT uses these fields. */
	event.mode = entry->mode;
	if (kind == ZKL_EVENT_WANT)
		event.is_new = !zkl_lock_entry_is_lease(entry) &&
			!zkl_lock_directory_is_likely(entry);

	/*
	 * Only UNWANT uses "unsent": a create that was never sent leaves no znode
	 * to look for.
	 */
	event.unsent = zkl_send_queue_is_unsent(entry);
	carry_out(entry, zkl_ticket_step(&entry->ticket, &event));
	/* If this lease was to list, another lease must list in its place. */
	if (was_to_look && entry->ticket.state == ZKL_TICKET_DELETING)
		feed_leases(zkl_lock_directory_leases_of(entry->lock));
}

/*
 * Is this an owned lease whose list was not sent yet?  Until it is sent, the
 * directory may be without a watch.
 */
static bool
is_to_look(const ZklEntry *entry)
{
	return zkl_lock_entry_is_lease(entry) &&
		entry->ticket.state == ZKL_TICKET_CHECKING &&
		entry->sending.due == ZKL_REQUEST_LIST;
}

/*
 * Nothing may fail between a step and the end of its report.  Otherwise the
 * next worker would find the ticket where the step left it, and an entry that
 * was not told.
 */
static void
carry_out(ZklEntry *entry, ZklTicketStep step)
{
	if (step.orphan)
		note_orphan(entry);

	/*
	 * Do this before the report, which may remove the entry: nothing in the
	 * worker may point to it then.
	 */
	if (entry->ticket.state == ZKL_TICKET_NONE)
	{
		zkl_send_queue_forget(entry);
		if (zkl_lock_entry_is_lease(entry))
			forget_limit(entry);
	}
	else if (step.request != ZKL_REQUEST_NOTHING)
		zkl_send_queue_make_due(entry, step.request);
	zkl_entry_state_note_blocked(entry);
	zkl_send_queue_note_standby(entry);
	report(entry, step);
}

/*
 * From now on only orphans.c looks for the znode.  Without the UUID, a ticket
 * whose next create is not sent before its worker ends cannot find that znode
 * and own it, while orphans.c deletes it.
 */
static void
note_orphan(ZklEntry *entry)
{
	char		directory[ZKL_DIR_SIZE];

	zkl_lock_directory_of(entry, directory);
	zkl_orphans_note(directory, entry->ticket.uuid);
	entry->ticket.uuid[0] = '\0';
}

/* If other clients queue and the lock is in use, write so into the znode. */
static void
answer(ZklEntry *entry)
{
	if (!entry->ticket.answered && zkl_entry_state_shall_answer(entry))
		feed(entry, ZKL_EVENT_ANSWER);
}

/*
 * Another client has queried the ticket by a mark in its znode.  If the ticket
 * lingers, it goes.  After a refused write, the next write waits for another
 * event, because each write ends with a read of the same text.
 */
static void
answer_query(ZklEntry *entry)
{
	if (zkl_entry_state_set_queried(entry))
		feed(entry, ZKL_EVENT_UNWANT);
	else if (!entry->ticket.write_refused)
		feed(entry, ZKL_EVENT_ANSWER);
}

static void
report_difference(const ZklEntry *entry)
{
	char		directory[ZKL_DIR_SIZE];

	zkl_lock_directory_of(entry, directory);
	zkl_session_log_difference(psprintf("%s/%s", directory, entry->ticket.name));
}

static void
report_owned(ZklEntry *entry)
{
	zkl_session_log_czxid(entry->ticket.czxid);
	ZKL_FAULT_POINT("owned");

	/*
	 * False: the last backend withdrew while the reply was under way, so no
	 * claim uses the ticket.
	 */
	if (!zkl_entry_state_set_owned(entry, entry->ticket.contended))
	{
		feed(entry, ZKL_EVENT_UNWANT);
		return;
	}

	/*
	 * The grant is complete.  What follows is only for the clients that queue
	 * behind the ticket.
	 */
	ZKL_FAULT_POINT("grant-written");
	answer(entry);
}

/*
 * As long as requests can be sent, the session lives, and only the znode is
 * gone.
 */
static void
report_lost(ZklEntry *entry)
{
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.lost, 1);
	ZKL_FAULT_POINT("loss-noticed");
	zkl_entry_state_set_lost(entry, zkl_session_is_usable() ?
							 ZKL_LOSS_DELETED : ZKL_LOSS_EXPIRED);
	ZKL_FAULT_POINT("claims-marked");
}

/* If no znode is left, the entry may be gone afterwards. */
static void
report(ZklEntry *entry, ZklTicketStep step)
{
	switch (step.report)
	{
		case ZKL_REPORT_NOTHING:
			break;
		case ZKL_REPORT_QUEUED:
			zkl_entry_state_set_queued(entry);
			break;
		case ZKL_REPORT_OWNED:
			report_owned(entry);
			break;
		case ZKL_REPORT_CONTENDED:
			/* True: the ticket lingered, and another client waits for it. */
			if (zkl_entry_state_set_contended(entry))
				feed(entry, ZKL_EVENT_UNWANT);
			else
				answer(entry);
			break;
		case ZKL_REPORT_UNCONTENDED:
			zkl_entry_state_set_uncontended(entry);
			break;
		case ZKL_REPORT_DOWNGRADED:
			zkl_entry_state_set_downgraded(entry);
			break;
		case ZKL_REPORT_REVOKED:
			if (zkl_entry_state_set_revoked(entry))
				feed(entry, ZKL_EVENT_UNWANT);
			else if (entry->ticket.queried)
				answer_query(entry);
			break;
		case ZKL_REPORT_QUERIED:
			answer_query(entry);
			break;
		case ZKL_REPORT_DIFFERS:
			report_difference(entry);
			break;
		case ZKL_REPORT_LOST:
			report_lost(entry);
			break;
		case ZKL_REPORT_FAILED:
			zkl_entry_state_set_failed(entry, step.failure,
									   entry->ticket.state != ZKL_TICKET_NONE);
			break;
		case ZKL_REPORT_GONE:

			/*
			 * True: a backend has requested the lock while the delete was
			 * under way.
			 */
			if (zkl_entry_state_set_gone(entry))
				feed(entry, ZKL_EVENT_WANT);
			break;
	}
}
