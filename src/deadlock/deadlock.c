/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *	  A backend's part in finding and breaking deadlocks across servers.
 *
 * In PostgreSQL, a backend looks for deadlocks when it has waited for
 * deadlock_timeout, because most waits end before that.  In zklock a backend
 * does the same.  It looks again after each further deadlock_timeout, because
 * another server may close the circle later.  It looks less often while the
 * same backends wait for it.  If the wait holds nothing up, the backend gives
 * nothing to the worker, and nothing is sent to ZooKeeper.
 *
 * To break a deadlock, the backend that holds the lock in question is
 * cancelled.  The holder need not be the backend that waits for the ticket: it
 * may wait for a row that the waiting backend has locked.  In this case, the
 * backend that waits for the ticket cancels the holder, after checking that
 * the holder still waits for it.
 *
 * src/deadlock/deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backend/lock/cancel.h"
#include "backend/lock/permission.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "deadlock/waits.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/detached.h"
#include "shared/leases.h"
#include "shared/lockstat.h"

/* At most this many times deadlock_timeout pass between two looks. */
#define MAX_INTERVAL	8

/* The present wait of this backend. */
static struct
{
	bool		active;			/* this backend has looked at the wait */
	bool		published;		/* it is in this backend's slot */
	uint64		number;			/* number of the wait; 0 if it was never
								 * published */
	uint32		answered;		/* number of the worker's last request that
								 * was answered */
	TimestampTz since;
	int64		next_look;
	int			interval;		/* the time between two looks, in
								 * deadlock_timeouts */
	uint64		seen;			/* a hash of the holders that the last look
								 * found */
	bool		sentenced;
	ZklWaitSentence sentence;
}			wait;

/* A backend that waits for this one, directly or through others. */
typedef struct Dependent
{
	int			pid;			/* the backend's; for a parallel worker, its
								 * leader's */
	int			waiter;			/* the process that waits: the backend, or its
								 * parallel worker */
	TimestampTz wait_start;		/* when that wait began; if that is not known,
								 * the number of the waiter's transaction */
	TimestampTz since;			/* the latest wait_start of the waits from
								 * that backend to this one */

	/* filled in by a census: */
	bool		holds;			/* it holds a lock */
	bool		is_wanted;		/* other clients may wait for a lock that it
								 * holds */
} Dependent;

/* The search for the dependents. */
typedef struct Search
{
	LockInstanceData *locks;	/* the entries of all locks for which a
								 * process waits */
	int			nlocks;
	LockInstanceData *waiters;	/* of these entries, those of processes that
								 * wait */
	BlockedProcsData **queues;	/* for each waiter, the queue of the lock;
								 * NULL if it was not read */
	int			nwaiters;
	Dependent  *stuck;			/* this backend is the first */
	int			nstuck;
} Search;

/*
 * Backends that cannot go on before this one, and which of them hold a lock.
 */
typedef struct Census
{
	Dependent  *stuck;
	int			nstuck;
	const ZklAwaited *awaited;	/* what this backend waits for */
	bool		i_hold;			/* this backend holds a lock */
	bool		i_may_hold;		/* this backend holds a lock that will count
								 * as soon as other clients want it */
} Census;

static void begin(void);
static int64 look_interval(void);
static void publish(const ZklAwaited *awaited, uint32 asked);
static ZklTicketStatus ticket_of(const ZklAwaited *awaited, int64 *czxid,
								 char znode[ZKL_ZNODE_SIZE]);
static bool note_holders(ZklWaitInfo *info, const ZklAwaited *awaited);
static void choose_interval(const Census *census);
static void note_own_claims(Census *census);
static void note_entry(ZklEntry *entry, void *arg);
static void add_stuck(ZklWaitInfo *info, const Census *census, bool is_wanted);
static void add_holder(ZklWaitInfo *info, int pid, TimestampTz since);
static int	find_dependents(Dependent **stuck);
static bool is_awaited(void);
static bool has_parallel_workers(void);
static TimestampTz wait_start(const LockInstanceData *waiter);
static void copy_locks(Search *search);
static bool has_waiter(const Search *search, const LOCKTAG *tag);
static bool add_waiter(Search *search, int index);
static Dependent *find_stuck(const Search *search, int pid);
static bool is_blocked_by(Search *search, int index,
						  const LockInstanceData *other);
static bool is_before(Search *search, int pid, int index);
static void execute(const ZklAwaited *awaited, const ZklWaitSentence *sentence);
static const Dependent *find_dependent(int pid);
static int	describe(const ZklWaitSentence *sentence);
static const char *lines_of(const char *text);
static char *statements_of(const ZklWaitSentence *sentence);
static void explain(void);
static void count_victim(const ZklWaitSentence *sentence);
static const char *detail_for_client(const char *detail);

int64
zkl_deadlock_look(const ZklAwaited *awaited)
{
	uint32		asked = 0;

	if (!zkl_deadlock_detection)
		return ZKL_FOREVER;
	if (!wait.active)
		begin();

	/*
	 * The caller first checks whether the lock is granted now.  So return at
	 * once to let it do so: a wait that is over must not be the victim.
	 */
	if (wait.sentenced)
		execute(awaited, &wait.sentence);
	wait.sentenced = wait.published && zkl_waits_look(&asked, &wait.sentence);
	if (wait.sentenced)
	{
		ZKL_FAULT_POINT("wait-sentenced");
		return 0;
	}

	/*
	 * Read the worker's request before computing the holders.  Then the
	 * holders are newer than the reason for the request.
	 */
	if (zkl_now() >= wait.next_look ||
		(wait.published && asked != wait.answered))
		publish(awaited, asked);
	return wait.next_look;
}

static void
begin(void)
{
	wait.active = true;
	wait.published = wait.sentenced = false;
	wait.number = 0;
	wait.since = GetCurrentTimestamp();
	wait.next_look = zkl_now() + ZKL_MS(DeadlockTimeout);
	wait.interval = 1;
	wait.seen = 0;
}

/* The time between two looks, which also paces the worker's searches. */
static int64
look_interval(void)
{
	return Max(ZKL_MS(DeadlockTimeout), ZKL_LOOK_INTERVAL);
}

void
zkl_deadlock_end(int code, Datum arg)
{
	if (wait.published)
		zkl_waits_end();
	wait.active = wait.published = false;
}

/*
 * Compute the holders, and publish the wait through the worker.  If the wait
 * no longer holds anything up, withdraw it.
 */
static void
publish(const ZklAwaited *awaited, uint32 asked)
{
	ZklWaitInfo info = {0};
	ZklTicketStatus status = ticket_of(awaited, &info.czxid, info.znode);
	bool		any_holds;

	/*
	 * Without a place in the queue, the wait means nothing to other servers.
	 * If ZooKeeper has just reported that the predecessor is gone, the wait
	 * is probably about to end.  And while the session is in doubt, the wait
	 * must not confirm anything.
	 */
	if (status != ZKL_TICKET_WAITS)
	{
		wait.next_look = zkl_now() + (status == ZKL_TICKET_SOON ?
									  ZKL_LOOK_INTERVAL : look_interval());
		return;
	}
	any_holds = note_holders(&info, awaited);
	wait.next_look = zkl_now() + wait.interval * look_interval();
	if (!any_holds)
	{
		if (wait.published)
			zkl_waits_end();
		wait.published = false;
		return;
	}
	if (wait.number == 0)
		wait.number = zkl_waits_new_number();
	info.number = wait.number;
	info.pid = MyProcPid;
	info.role = MyProc->roleId;
	strlcpy(info.path, awaited->path, sizeof(info.path));
	info.mode = awaited->mode;
	info.quantity = info.limit = 1;
	if (awaited->mode == ZKL_MODE_LEASE)
	{
		/* A record never says that a wait needs more leases than there are. */
		info.quantity = awaited->claim->quantity;
		info.limit = Max(zkl_leases_limit(awaited->claim->entry), info.quantity);
	}
	info.since = wait.since;
	info.timeout_ms = look_interval() / ZKL_MS(1);
	info.computed = asked;
	strlcpy(info.owner_text, awaited->owner_text, sizeof(info.owner_text));
	wait.answered = asked;
	wait.published = true;
	zkl_waits_put(&info);
	ZKL_FAULT_POINT("wait-published");
}

static ZklTicketStatus
ticket_of(const ZklAwaited *awaited, int64 *czxid, char znode[ZKL_ZNODE_SIZE])
{
	return awaited->claim != NULL ?
		zkl_claim_status_ticket(awaited->claim, czxid, znode) :
		zkl_detached_ticket(awaited->detached, czxid, znode);
}

/*
 * Fill in the holders.  False if none of the backends that cannot go on holds
 * anything.  Free the lock manager's copies at once, because a wait may last
 * for days.
 */
static bool
note_holders(ZklWaitInfo *info, const ZklAwaited *awaited)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock stuck backends",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(context);
	Census		census = {.awaited = awaited};

	census.nstuck = find_dependents(&census.stuck);
	note_own_claims(&census);

	/* If only this backend is stuck, the whole table need not be read. */
	for (int i = 0; i < ZKL_PARTITIONS && census.nstuck > 0; i++)
		zkl_lock_table_browse(i, note_entry, &census);
	if (census.i_hold)
		add_holder(info, MyProcPid, 0);
	add_stuck(info, &census, true);
	add_stuck(info, &census, false);
	choose_interval(&census);
	MemoryContextSwitchTo(previous);
	MemoryContextDelete(context);
	return info->nholders > 0;
}

/*
 * A look at PostgreSQL's locks costs time, so if a look finds the same as
 * before, the next one comes later.  The interval stays short if no backend
 * waits for this one, because a look then costs very little; and for an inner
 * mutex, because other clients may queue for it at any moment.
 */
static void
choose_interval(const Census *census)
{
	uint64		seen = 0;

	for (int i = 0; i < census->nstuck; i++)
		seen = hash_combine64(hash_combine64(seen, census->stuck[i].pid),
							  census->stuck[i].since);
	wait.interval = seen == 0 || seen != wait.seen || census->i_may_hold ? 1 :
		Min(2 * wait.interval, MAX_INTERVAL);
	wait.seen = seen;
}

/*
 * This reads without the partition's lock: if the claim is just being lost,
 * the next look will find that.
 */
static void
note_own_claims(Census *census)
{
	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
	{
		if (claim->shared->state != ZKL_CLAIM_HELD)
			continue;
		if (zkl_waits_hold_up(census->awaited->mode, census->awaited->path,
							  claim->shared))
			census->i_hold = true;
		else
			census->i_may_hold = true;
	}
}

/* Claims on leases are in the semaphore's entry. */
static void
note_entry(ZklEntry *entry, void *arg)
{
	Census	   *census = arg;
	dlist_iter	iter;

	if (zkl_lock_entry_is_lease(entry))
		return;
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		for (int i = 0; i < census->nstuck; i++)
		{
			if (claim->state != ZKL_CLAIM_HELD ||
				claim->pid != census->stuck[i].pid)
				continue;
			census->stuck[i].holds = true;
			census->stuck[i].is_wanted |= zkl_waits_is_wanted(claim);
		}
	}
}

/*
 * A hundred backends may wait behind this one, and there is not room for all.
 * Put the backends first whose locks other clients want: only these can be
 * part of a circle.
 */
static void
add_stuck(ZklWaitInfo *info, const Census *census, bool is_wanted)
{
	for (int i = 0; i < census->nstuck; i++)
	{
		const Dependent *stuck = &census->stuck[i];

		if (stuck->holds && stuck->is_wanted == is_wanted)
			add_holder(info, stuck->pid, stuck->since);
	}
}

static void
add_holder(ZklWaitInfo *info, int pid, TimestampTz since)
{
	if (info->nholders == ZKL_WAITS_HOLDERS)
	{
		info->truncated = true;
		return;
	}
	info->holders[info->nholders].pid = pid;
	info->holders[info->nholders].since = since;
	info->nholders++;
}

/*
 * Which backends of this server cannot go on before this one
 */

/*
 * Find the backends that cannot go on before this one.  PostgreSQL's lock
 * graph shows them: heavyweight locks of all kinds, zklock's advisory locks
 * among them.  A backend waits for another one if the other holds the lock in
 * a conflicting mode, or is before it in the lock's queue with a conflicting
 * request.  PostgreSQL's own deadlock check has the same rule (deadlock.c).
 * But PostgreSQL's check may also rearrange a queue; this search does not.  A
 * parallel worker counts as its leader.
 *
 * The search uses copies that the lock manager makes.  Copying takes time and
 * keeps all partitions of its table locked, so the search ends at once if no
 * process waits for a lock of this backend.  If such a wait begins at that
 * moment, the next search finds it.  The caller holds no LWLock of that table.
 * The result, without this backend, is in the current memory context.
 */
static int
find_dependents(Dependent **stuck)
{
	Search		search = {0};
	bool		changed = is_awaited();

	*stuck = NULL;
	if (!changed)
		return 0;
	copy_locks(&search);

	/*
	 * Each round may find backends that wait for those found before.  It may
	 * also find a way from one of them to this backend that has existed for
	 * longer.
	 */
	while (changed)
	{
		changed = false;
		for (int i = 0; i < search.nwaiters; i++)
			changed |= add_waiter(&search, i);
	}
	*stuck = search.stuck + 1;
	return search.nstuck - 1;
}

/*
 * If another process waits for a lock that this backend has by the fast path,
 * the lock becomes an ordinary one.  Other processes may also wait for locks
 * of this backend's parallel workers.
 */
static bool
is_awaited(void)
{
	bool		awaited = has_parallel_workers();

	for (int i = 0; i < NUM_LOCK_PARTITIONS && !awaited; i++)
		awaited = zkl_awaited_in_partition(i);
	return awaited;
}

/* A backend that once had parallel workers stays in a group of its own. */
static bool
has_parallel_workers(void)
{
	LWLock	   *lock;
	bool		any = false;
	dlist_iter	iter;

	if (MyProc->lockGroupLeader == NULL)
		return false;
	lock = LockHashPartitionLockByProc(MyProc->lockGroupLeader);
	LWLockAcquire(lock, LW_SHARED);
	dlist_foreach(iter, &MyProc->lockGroupLeader->lockGroupMembers)
		any |= dlist_container(PGPROC, lockGroupLink, iter.cur) != MyProc;
	LWLockRelease(lock);
	return any;
}

/* Copy the waits, and all locks for which a process waits. */
static void
copy_locks(Search *search)
{
	LockData   *data = GetLockStatusData();

	ZKL_FAULT_POINT("locks-copied");
	search->locks = palloc(sizeof(LockInstanceData) * (data->nelements + 1));
	search->waiters = palloc(sizeof(LockInstanceData) * (data->nelements + 1));
	for (int i = 0; i < data->nelements; i++)
	{
		LockInstanceData *lock = &data->locks[i];

		if (lock->waitLockMode != NoLock && lock->leaderPid != MyProcPid)
			search->waiters[search->nwaiters++] = *lock;
	}
	search->queues = palloc0(sizeof(BlockedProcsData *) * (search->nwaiters + 1));
	search->stuck = palloc0(sizeof(Dependent) * (search->nwaiters + 1));
	search->stuck[search->nstuck++].pid = MyProcPid;
	for (int i = 0; i < data->nelements; i++)
	{
		if (has_waiter(search, &data->locks[i].locktag))
			search->locks[search->nlocks++] = data->locks[i];
	}
}

/*
 * When the wait began.  A wait that has just begun has no time yet.  And in
 * older releases of PostgreSQL, ProcWakeup() clears the time of the process
 * that calls it: a process that solves a deadlock by rearranging a queue
 * calls it, and goes on waiting.  Without a time, the number of the
 * transaction identifies the wait.  It is smaller than any time.
 */
static TimestampTz
wait_start(const LockInstanceData *waiter)
{
	return waiter->waitStart != 0 ? waiter->waitStart :
		zkl_local_xid_of(waiter);
}

static bool
has_waiter(const Search *search, const LOCKTAG *tag)
{
	for (int i = 0; i < search->nwaiters; i++)
	{
		if (memcmp(&search->waiters[i].locktag, tag, sizeof(LOCKTAG)) == 0)
			return true;
	}
	return false;
}

/*
 * Does this process wait for a stuck process?  If several ways lead from it to
 * this backend, use the one that has existed for the longest.  True if this
 * changes the result.
 */
static bool
add_waiter(Search *search, int index)
{
	const LockInstanceData *waiter = &search->waiters[index];
	Dependent  *known = find_stuck(search, waiter->leaderPid);
	TimestampTz start = wait_start(waiter);
	bool		changed = false;

	for (int i = 0; i < search->nlocks; i++)
	{
		const LockInstanceData *other = &search->locks[i];
		const Dependent *holder = find_stuck(search, other->leaderPid);

		if (other->leaderPid == waiter->leaderPid || holder == NULL ||
			(known != NULL && known->since <= Max(holder->since, start)) ||
			!is_blocked_by(search, index, other))
			continue;
		if (known == NULL)
			known = &search->stuck[search->nstuck++];
		known->pid = waiter->leaderPid;
		known->waiter = waiter->pid;
		known->wait_start = start;
		known->since = Max(holder->since, start);
		changed = true;
	}
	return changed;
}

/* The entry of this process or its lock group, if it is stuck; else NULL. */
static Dependent *
find_stuck(const Search *search, int pid)
{
	for (int i = 0; i < search->nstuck; i++)
	{
		if (search->stuck[i].pid == pid)
			return &search->stuck[i];
	}
	return NULL;
}

/* All heavyweight locks have the same table of conflicts. */
static bool
is_blocked_by(Search *search, int index, const LockInstanceData *other)
{
	const LockInstanceData *waiter = &search->waiters[index];

	if (memcmp(&waiter->locktag, &other->locktag, sizeof(LOCKTAG)) != 0)
		return false;
	for (LOCKMODE mode = 1; mode <= MaxLockMode; mode++)
	{
		if ((other->holdMask & LOCKBIT_ON(mode)) != 0 &&
			DoLockModesConflict(waiter->waitLockMode, mode))
			return true;
	}
	return other->waitLockMode != NoLock &&
		DoLockModesConflict(waiter->waitLockMode, other->waitLockMode) &&
		is_before(search, other->pid, index);
}

/* Is this process before the waiter in the queue of the lock? */
static bool
is_before(Search *search, int pid, int index)
{
	BlockedProcsData *queue = search->queues[index];

	if (queue == NULL)
		queue = search->queues[index] =
			GetBlockerStatusData(search->waiters[index].pid);
	for (int i = 0; i < queue->npids; i++)
	{
		if (queue->waiter_pids[i] == pid)
			return true;
	}
	return false;
}

/*
 * Breaking a deadlock
 */

/*
 * Break the deadlock, if it still exists: this backend waits, the claim is
 * held, and the claim's backend waits for this one.  In two cases this backend
 * is the victim, although it may not hold the lock: the claim is a
 * transaction's use of a detached claim, which a rollback would not end; or
 * this backend waits for a detached claim, which keeps its place in the queue.
 */
static void
execute(const ZklAwaited *awaited, const ZklWaitSentence *sentence)
{
	const Dependent *holder = NULL;
	int64		czxid;
	char		znode[ZKL_ZNODE_SIZE];
	bool		is_use;

	if (zkl_now() >= sentence->until ||
		ticket_of(awaited, &czxid, znode) != ZKL_TICKET_WAITS)
		return;
	if (sentence->pid != MyProcPid)
	{
		holder = find_dependent(sentence->pid);
		if (holder == NULL)
			return;
		ZKL_FAULT_POINT("holder-found");
	}
	if (!zkl_waits_is_held(sentence, &is_use))
		return;
	if (holder != NULL && !is_use && awaited->claim != NULL)
	{
		zkl_waits_cancel(sentence, holder->waiter, holder->wait_start);
		return;
	}
	pgstat_report_deadlock();
	if (awaited->claim != NULL)
		zkl_lock_stat_failed(awaited->claim, ERRCODE_T_R_DEADLOCK_DETECTED);
	else
		zkl_detached_note_deadlock(awaited->detached);
	ereport(ERROR, describe(sentence));
}

static const Dependent *
find_dependent(int pid)
{
	Dependent  *stuck;
	int			nstuck = find_dependents(&stuck);

	for (int i = 0; i < nstuck; i++)
	{
		if (stuck[i].pid == pid)
			return &stuck[i];
	}
	return NULL;
}

/* Fill in the error that is being raised. */
static int
describe(const ZklWaitSentence *sentence)
{
	const char *detail = lines_of(sentence->detail);

	errcode(ERRCODE_T_R_DEADLOCK_DETECTED);
	errmsg("deadlock detected");
	errdetail_internal("%s", detail_for_client(detail));
	errdetail_log("%s%s", detail, statements_of(sentence));
	return errhint("See server log for query details.");
}

/*
 * Make each line safe to show.  The worker has escaped the names in the
 * lines, but may have cut the last one within a character.
 */
static const char *
lines_of(const char *text)
{
	StringInfoData lines;

	initStringInfo(&lines);
	for (const char *at = text; *at; at += strspn(at, "\n"))
	{
		size_t		length = strcspn(at, "\n");

		appendStringInfo(&lines, "%s%s", at > text ? "\n" : "",
						 zkl_znode_text_show(pnstrdup(at, length)));
		at += length;
	}
	return lines.data;
}

/* A role that may use only some paths must not see other paths. */
static const char *
detail_for_client(const char *detail)
{
	return zkl_permission_allows_all() ? detail :
		_("The server log has the processes and the locks.");
}

/*
 * The statements of this server's processes, for the log.  Other servers show
 * their statements only in their own views.
 */
static char *
statements_of(const ZklWaitSentence *sentence)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < sentence->nprocesses; i++)
		appendStringInfo(&text, _("\nProcess %d: %s"), sentence->processes[i],
						 pgstat_get_backend_current_activity(sentence->processes[i],
															 false));
	return text.data;
}

/*
 * Being cancelled
 */

bool
zkl_deadlock_on_signal(int64 told_until, SIGNAL_ARGS)
{
	if (!zkl_waits_has_notice())
		return false;

	/*
	 * The wait may have ended before the signal came: then ignore the notice.
	 * In either case, the worker may also have reported a loss.
	 */
	if (zkl_waits_accept_notice())
		zkl_cancel_statement(explain, ZKL_SIGNAL_ARGUMENTS);
	return !zkl_lock_table_has_lost(MyProcPid, told_until);
}

/*
 * PostgreSQL's own handler for SIGINT does not read the notice.  So the
 * notice may have come too late, for a wait that has ended with an earlier
 * statement.
 */
bool
zkl_deadlock_explain_likely(void)
{
	if (!zkl_waits_has_notice() ||
		zkl_waits_notice_at() < GetCurrentStatementStartTimestamp())
		return false;
	explain();
	return true;
}

/* Turn the error that is being raised into the error of a deadlock. */
static void
explain(void)
{
	ZklWaitSentence sentence;

	zkl_waits_read_notice(&sentence);
	pgstat_report_deadlock();
	count_victim(&sentence);
	(void) describe(&sentence);
}

/*
 * A wait for an advisory lock is counted when it ends.  Count any other wait,
 * such as a wait for a row, for the lock that this backend holds.
 */
static void
count_victim(const ZklWaitSentence *sentence)
{
	const ZklLocalClaim *held = zkl_local_claim_find(sentence->path);

	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
	{
		if (claim->shared->waits_locally)
			return;
	}
	if (held != NULL)
		zkl_lock_stat_failed(held->shared, ERRCODE_T_R_DEADLOCK_DETECTED);
}
