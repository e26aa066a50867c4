/*-------------------------------------------------------------------------
 *
 * tickets.c
 *	  The worker's side of the tickets: feed events, do what the steps say.
 *
 * What happens in the life of one ticket is decided in ticket.c; here a step
 * is carried out: its request becomes due, its report goes to the lock table.
 *
 * A ticket in state NONE has no request due and none on its way, and only
 * then may its entry be removed.
 *
 * src/worker/tickets.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pg_list.h"

#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "worker/bypass.h"
#include "worker/entrystate.h"
#include "worker/entrywork.h"
#include "worker/lockdirectory.h"
#include "worker/sendqueue.h"
#include "worker/sessionnews.h"
#include "worker/strays.h"
#include "worker/tickets.h"
#include "worker/timers.h"

static void feed_all(ZklTicketEventKind kind);
static void feed(ZklEntry *entry, ZklTicketEventKind kind);
static bool is_to_look(const ZklEntry *entry);
static void carry_out(ZklEntry *entry, ZklTicketStep step);
static void note_stray(ZklEntry *entry);
static void report_difference(const ZklEntry *entry);
static void report(ZklEntry *entry, ZklTicketStep step);
static void do_work(ZklEntry *entry, ZklWork work);
static void retry_deletes(ZklEntry *semaphore);
static void answer(ZklEntry *entry);
static void take_reply(ZklEntry *entry, const ZklSessionEvent *event);
static void feed_if_concerned(ZklEntry *entry, const char *child, bool gone);
static void feed_leases(List *leases);
static void hand_out_list(ZklEntry *semaphore, const ZklSessionEvent *event);
static void look_after_leases(ZklEntry *semaphore, const ZklTicketEvent *list);
static void drop_child_watch(const char *directory, const char *child);
static void delete_leftover(ZklEntry *entry, const ZklTicketEvent *reply);
static void refuse_create(ZklEntry *entry);

void
zkl_tickets_start(const char *prefix)
{
	zkl_lock_directory_start(prefix);
	zkl_timers_start();
	zkl_send_queue_start();

	/*
	 * Shared memory still has the links into the dead worker's heap.  The
	 * adoption forgets them, before a step disarms a timer.
	 */
	zkl_entry_work_adopt();
	zkl_tickets_restarted();
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
 * zklock sets the watches again itself.  The client would send them all in one
 * packet, and a server refuses a packet of more than a megabyte.
 */
void
zkl_tickets_disconnected(void)
{
	int			nentries;
	ZklEntry  **entries = zkl_lock_table_collect(zkl_session_info_number(), &nentries);

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
	List	   *leases;
	ListCell   *cell;

	switch (event->kind)
	{
		case ZKL_SESSION_REPLY:

			/*
			 * The entry still exists: it stays until all requests of its
			 * ticket are answered, or dropped with the handle.
			 */
			entry = event->tag;
			zkl_send_queue_answered(entry, &event->reply);
			if (event->reply.request == ZKL_REQUEST_DELETE &&
				event->reply.outcome == ZKL_OUTCOME_REFUSED)
				ereport(LOG,
						errmsg("could not delete the znode of lock \"%s\": it stays until the ZooKeeper session ends",
							   entry->semaphore ? entry->semaphore->path : entry->path));

			/*
			 * A list of leases is for all leases that listen to it.  Any
			 * other reply is for one ticket, and a reply to an earlier
			 * attempt tells nothing about the present znode.
			 */
			if (entry->semaphore != NULL &&
				event->reply.request == ZKL_REQUEST_LIST)
				hand_out_list(entry->semaphore, event);
			else if (event->attempt == entry->ticket.attempt)
			{
				if (event->reply.request == ZKL_REQUEST_LIST)
					zkl_bypass_look(entry, &event->reply);
				/* First, because the step leaves the state WATCHING. */
				delete_leftover(entry, &event->reply);
				take_reply(entry, event);
			}
			break;
		case ZKL_SESSION_CHILDREN_CHANGED:
			entry = zkl_lock_directory_find(event->path, strlen(event->path));
			if (entry != NULL)
				feed(entry, ZKL_EVENT_CHILDREN_CHANGED);
			leases = zkl_lock_directory_find_leases(event->path, strlen(event->path));
			feed_leases(leases);
			break;
		case ZKL_SESSION_NODE_CHANGED:
			slash = strrchr(event->path, '/');

			/*
			 * The znode may be a ticket in a lock's own directory, or one of
			 * a semaphore's leases.
			 */
			entry = zkl_lock_directory_find(event->path, slash - event->path);
			if (entry != NULL)
				feed_if_concerned(entry, slash + 1, event->gone);
			leases = zkl_lock_directory_find_leases(event->path, slash - event->path);
			foreach(cell, leases)
				feed_if_concerned(lfirst(cell), slash + 1, event->gone);
			break;
		case ZKL_SESSION_CONNECTED:
		case ZKL_SESSION_DISCONNECTED:
		case ZKL_SESSION_EXPIRED:
		case ZKL_SESSION_STRANGER:
		case ZKL_SESSION_REFUSED:
		case ZKL_SESSION_SIGN:
		case ZKL_SESSION_ANSWER:
			/* The session keeper passes none of these on. */
			Assert(false);
			break;
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

	if (reply.request == ZKL_REQUEST_WATCH_SELF &&
		reply.outcome == ZKL_OUTCOME_OK)
		reply.stale = !zkl_entry_state_is_described(entry, event->data,
													event->data_length);
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
 * The leases of a semaphore have changed.  All that wait list again.  Of those
 * that are owned, one lists for all whether other clients wait; if it is given up
 * before it has listed, another one does.
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
		/* The list of this lease is due or under way, and does for all. */
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

	/*
	 * A failed list has no children; that must not look as if all leases were
	 * gone.
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
 * has come back with a backup of ZooKeeper.  No ticket knows it, so only this
 * deletes it.
 */
static void
delete_leftover(ZklEntry *entry, const ZklTicketEvent *reply)
{
	char		directory[ZKL_DIR_SIZE];

	if (reply->request != ZKL_REQUEST_WATCH || !reply->ours ||
		!zkl_session_is_usable() ||
		entry->ticket.state != ZKL_TICKET_WATCHING)
		return;
	zkl_lock_directory_of(entry, directory);

	/*
	 * With an earlier attempt, so that the ticket does not take the reply for
	 * that to a delete of its own znode.
	 */
	zkl_session_delete(entry, entry->ticket.attempt - 1, directory,
					   entry->ticket.predecessor);
}

void
zkl_tickets_take_work(void)
{
	ZklEntry   *entry;

	while ((entry = zkl_entry_work_next()) != NULL)
		do_work(entry, zkl_entry_work_look(entry));
}

void
zkl_tickets_run_timers(void)
{
	int64		now = zkl_now();
	ZklEntry   *entry;

	while ((entry = zkl_timers_take_due(now)) != NULL)
		do_work(entry, zkl_entry_work_timer_fired(entry));
}

/*
 * Every armed timer was computed from the old settings.  Each counts as fired,
 * and is armed anew.
 */
void
zkl_tickets_reset_timers(void)
{
	List	   *armed = NIL;
	ListCell   *cell;
	ZklEntry   *entry;

	/*
	 * Take all before the first is handled: what is handled arms its timer
	 * again, and would be taken again for ever.
	 */
	while ((entry = zkl_timers_take_any()) != NULL)
		armed = lappend(armed, entry);
	foreach(cell, armed)
		do_work(lfirst(cell), zkl_entry_work_timer_fired(lfirst(cell)));
	list_free(armed);
}

/* If the work is empty, the entry may be gone, so nothing here touches it. */
static void
do_work(ZklEntry *entry, ZklWork work)
{
	/* First: a step below may end the ticket, which disarms the timer. */
	if (work.timer_at != 0)
		zkl_timers_arm(entry, work.timer_at);
	if (work.want)
	{
		ZKL_FAULT_POINT("want-seen");
		feed(entry, ZKL_EVENT_WANT);
	}
	if (work.downgrade)
		feed(entry, ZKL_EVENT_DOWNGRADE);
	if (work.watch)
	{
		feed(entry, ZKL_EVENT_WATCH);

		/*
		 * The lock has been held for ZKL_WATCH_AFTER.  From now on the znode
		 * says that it is in use, if other clients queue.
		 */
		answer(entry);
	}
	if (work.describe)
		feed(entry, ZKL_EVENT_DESCRIBE);
	if (work.standby)
		zkl_send_queue_note_standby(entry);
	if (work.look)
		feed(entry, ZKL_EVENT_LOOK);
	if (work.retry)
		retry_deletes(entry);
	if (work.recheck)
		feed(entry, ZKL_EVENT_RECHECK);
	if (work.unwant)
	{
		ZKL_FAULT_POINT("release-seen");
		feed(entry, ZKL_EVENT_UNWANT);
	}
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
	ZklEntry  **entries = zkl_lock_table_collect(zkl_session_info_number(), &nentries);

	for (int i = 0; i < nentries; i++)
	{
		if (entries[i]->semaphore == semaphore &&
			entries[i]->ticket.state == ZKL_TICKET_STUCK)
			feed(entries[i], ZKL_EVENT_UNWANT);
	}
	pfree(entries);
}

void
zkl_tickets_send(void)
{
	ZklEntry   *refused;

	while ((refused = zkl_send_queue_send()) != NULL)
		refuse_create(refused);
}

/* Answer in ZooKeeper's place. */
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
 * To all tickets that have a state to lose.  They are collected first: a
 * visitor of the table holds all partitions, and a step locks the entry's
 * partition itself.
 */
static void
feed_all(ZklTicketEventKind kind)
{
	int			nentries;
	ZklEntry  **entries = zkl_lock_table_collect(zkl_session_info_number(), &nentries);

	for (int i = 0; i < nentries; i++)
		feed(entries[i], kind);
	pfree(entries);
}

/*
 * One event for one ticket.  The worker reads the mode and the limit without
 * the partition; lockentry.h says why it may.
 */
static void
feed(ZklEntry *entry, ZklTicketEventKind kind)
{
	ZklTicketEvent event = {.kind = kind};
	bool		was_to_look = is_to_look(entry);

	/* Only WANT uses these. */
	event.mode = entry->mode;
	event.limit = entry->limit;
	if (kind == ZKL_EVENT_WANT)
		event.is_new = entry->semaphore == NULL &&
			!zkl_lock_directory_is_likely(entry);

	/*
	 * Only UNWANT uses this: a create that was never sent leaves no znode to
	 * look for.
	 */
	event.unsent = zkl_send_queue_is_unsent(entry);
	carry_out(entry, zkl_ticket_step(&entry->ticket, &event));
	/* Now no lease would list; another one takes its place. */
	if (was_to_look && entry->ticket.state == ZKL_TICKET_DELETING)
		feed_leases(zkl_lock_directory_leases_of(entry->semaphore));
}

/*
 * An owned lease whose list was not sent yet: the directory may be without a watch
 * until it is.
 */
static bool
is_to_look(const ZklEntry *entry)
{
	return entry->semaphore != NULL &&
		entry->ticket.state == ZKL_TICKET_CHECKING &&
		entry->due == ZKL_REQUEST_LIST;
}

/*
 * Nothing may fail between a step and the end of its report.  Otherwise the
 * next worker would find the ticket where the step left it, and an entry that
 * was not told.
 */
static void
carry_out(ZklEntry *entry, ZklTicketStep step)
{
	if (step.stray)
		note_stray(entry);

	/*
	 * Before the report, which may remove the entry: nothing of the worker
	 * may point to it any more.
	 */
	if (entry->ticket.state == ZKL_TICKET_NONE)
	{
		zkl_send_queue_forget(entry);
		zkl_send_queue_uncount(entry);
		zkl_timers_disarm(entry);
	}
	else if (step.request != ZKL_REQUEST_NOTHING)
		zkl_send_queue_make_due(entry, step.request);
	zkl_entry_state_note_blocked(entry);
	zkl_send_queue_note_standby(entry);
	report(entry, step);
}

/*
 * From now on only strays.c looks for the znode.  Without the UUID, a ticket
 * whose next create is not sent before its worker ends cannot find that znode
 * and own it, while strays.c deletes it.
 */
static void
note_stray(ZklEntry *entry)
{
	char		directory[ZKL_DIR_SIZE];

	zkl_lock_directory_of(entry, directory);
	zkl_strays_note(directory, entry->ticket.uuid);
	entry->ticket.uuid[0] = '\0';
}

/* If other clients queue and the lock is in use, write so into the znode. */
static void
answer(ZklEntry *entry)
{
	if (!entry->ticket.answered && zkl_entry_state_shall_answer(entry))
		feed(entry, ZKL_EVENT_ANSWER);
}

static void
report_difference(const ZklEntry *entry)
{
	char		directory[ZKL_DIR_SIZE];

	zkl_lock_directory_of(entry, directory);
	zkl_session_news_difference(psprintf("%s/%s", directory, entry->ticket.name));
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
			zkl_entry_state_set_queued(entry);
			break;
		case ZKL_REPORT_OWNED:
			pg_atomic_fetch_add_u64(&zkl_lock_table->counters.owned, 1);
			ZKL_FAULT_POINT("owned");

			/*
			 * False: the last backend withdrew while the reply was under way,
			 * so no claim uses the ticket.
			 */
			if (zkl_entry_state_set_owned(entry, entry->ticket.contended))
			{
				/*
				 * The grant is complete.  What follows is only for the
				 * clients that queue behind the ticket.
				 */
				ZKL_FAULT_POINT("grant-written");
				answer(entry);
			}
			else
				feed(entry, ZKL_EVENT_UNWANT);
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
			break;
		case ZKL_REPORT_DIFFERS:
			report_difference(entry);
			break;
		case ZKL_REPORT_LOST:

			/*
			 * As long as requests can be sent, the session lives, and only
			 * the znode is gone.
			 */
			pg_atomic_fetch_add_u64(&zkl_lock_table->counters.lost, 1);
			ZKL_FAULT_POINT("loss-noticed");
			zkl_entry_state_set_lost(entry, zkl_session_is_usable() ?
									 ZKL_LOSS_DELETED : ZKL_LOSS_EXPIRED);
			ZKL_FAULT_POINT("claims-marked");
			break;
		case ZKL_REPORT_FAILED:
			zkl_entry_state_set_failed(entry, step.failure,
									   entry->ticket.state != ZKL_TICKET_NONE);
			break;
		case ZKL_REPORT_GONE:

			/*
			 * True: a backend has asked for the lock while the delete was
			 * under way.
			 */
			if (zkl_entry_state_set_gone(entry))
				feed(entry, ZKL_EVENT_WANT);
			break;
	}
}
