/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *	  A backend's part in finding and breaking deadlocks across servers.
 *
 * PostgreSQL lets a backend look for deadlocks when it has waited for
 * deadlock_timeout, because most waits end before that.  So does zklock; and
 * it looks again after each further deadlock_timeout, because a circle across
 * servers may close later, behind this wait.  It looks less often while the same
 * backends wait for it.  If nothing is held up by the wait, nothing is left for
 * the worker, and nothing is sent to ZooKeeper.
 *
 * The backend that holds the lock in question is cancelled, which need not be
 * the one that waits for the ticket: it may wait for a row that the other one
 * has locked.  Such a backend is cancelled by the one that waits for the
 * ticket, which first looks whether it is still so.
 *
 * src/backend/deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backend/deadlock.h"
#include "backend/permission.h"
#include "backend/stuck.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"
#include "shared/waits.h"

/* So soon to look again if it is not certain that the ticket has to wait. */
#define UNSURE_MS	20

/* So many times deadlock_timeout are between two looks at most. */
#define MAX_INTERVAL	8

/* The wait that this backend is in. */
static struct
{
	bool		active;			/* there is one that has been looked at */
	bool		published;		/* it is in this backend's slot */
	uint64		number;			/* 0: it never was */
	uint32		answered;		/* the worker's last request */
	TimestampTz since;
	int64		next_look;
	int			interval;		/* in deadlock_timeouts */
	uint64		seen;			/* a hash of the last look's holders */
	bool		sentenced;
	ZklWaitSentence sentence;
}			wait;

/* The statement that the signal handler has cancelled: when it began. */
static volatile TimestampTz cancelled_statement = 0;

/* The backends that cannot go on, and which of them hold a lock. */
typedef struct Census
{
	ZklStuck   *stuck;
	int			nstuck;
	bool	   *holds;			/* each of them ... */
	bool	   *is_wanted;		/* ... and others may wait for that */
	bool		i_hold;			/* this backend does */
} Census;

static void begin(void);
static void publish(ZklClaim *claim, uint32 asked);
static bool note_holders(ZklWaitInfo *info);
static void choose_interval(const Census *census);
static void note_own_claim(ZklLocalClaim *claim, void *arg);
static void note_entry(ZklEntry *entry, void *arg);
static void add_stuck(ZklWaitInfo *info, const Census *census, bool is_wanted);
static void add_holder(ZklWaitInfo *info, int pid, TimestampTz since);
static void execute(ZklClaim *claim, const ZklWaitSentence *sentence);
static int	describe(const ZklWaitSentence *sentence);
static void end_at_exit(int code, Datum arg);
static char *statements_of(const ZklWaitSentence *sentence);
static void explain(void *arg);
static void count_victim(const ZklWaitSentence *sentence);
static void note_local_wait(ZklLocalClaim *claim, void *arg);
static const char *detail_for_client(const char *detail);

int64
zkl_deadlock_look(ZklClaim *claim)
{
	uint32		asked = 0;

	if (!zkl_deadlock_detection)
		return ZKL_FOREVER;
	if (!wait.active)
		begin();

	/*
	 * The caller tries first whether the lock is granted now.  So it calls
	 * again at once, and a wait that is over is no victim.
	 */
	if (wait.sentenced)
		execute(claim, &wait.sentence);
	wait.sentenced = wait.published && zkl_waits_look(&asked, &wait.sentence);
	if (wait.sentenced)
	{
		ZKL_FAULT_POINT("wait-sentenced");
		return 0;
	}

	/*
	 * The request is read before the holders are computed, so they are newer
	 * than whatever made the worker ask.
	 */
	if (zkl_now() >= wait.next_look ||
		(wait.published && asked != wait.answered))
		publish(claim, asked);
	return wait.next_look;
}

static void
begin(void)
{
	static bool registered = false;

	/* A backend that is terminated runs no PG_FINALLY. */
	if (!registered)
		before_shmem_exit(end_at_exit, (Datum) 0);
	registered = true;
	wait.active = true;
	wait.published = wait.sentenced = false;
	wait.number = 0;
	wait.since = GetCurrentTimestamp();
	wait.next_look = zkl_now() + ZKL_MS(DeadlockTimeout);
	wait.interval = 1;
	wait.seen = 0;
}

void
zkl_deadlock_end(void)
{
	if (wait.published)
		zkl_waits_end();
	wait.active = wait.published = false;
}

static void
end_at_exit(int code, Datum arg)
{
	zkl_deadlock_end();
}

/*
 * Compute the holders, and leave them for the worker; or withdraw the wait, if
 * it holds nothing up any more.
 */
static void
publish(ZklClaim *claim, uint32 asked)
{
	ZklWaitInfo info = {0};
	ZklTicketStatus status = zkl_claim_status_ticket(claim, &info.czxid,
													 info.znode);
	bool		any_holds;

	/*
	 * Without a place in the queue the wait has no meaning for other servers.
	 * And if ZooKeeper has just said that the predecessor is gone, the wait
	 * is probably over soon.  While the session is in doubt, the wait
	 * confirms nothing.
	 */
	if (status != ZKL_TICKET_WAITS)
	{
		wait.next_look = zkl_now() + ZKL_MS(status == ZKL_TICKET_SOON ?
											Min(DeadlockTimeout, UNSURE_MS) :
											DeadlockTimeout);
		return;
	}
	any_holds = note_holders(&info);
	wait.next_look = zkl_now() + wait.interval * ZKL_MS(DeadlockTimeout);
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
	strlcpy(info.path, claim->entry->path, sizeof(info.path));
	info.mode = claim->mode;
	info.limit = claim->mode == ZKL_MODE_LEASE ? claim->entry->limit : 1;
	info.quantity = claim->mode == ZKL_MODE_LEASE ? claim->quantity : 1;
	info.since = wait.since;
	info.timeout_ms = DeadlockTimeout;
	info.computed = asked;
	strlcpy(info.about, claim->about, sizeof(info.about));
	wait.answered = asked;
	wait.published = true;
	zkl_waits_put(&info);
	ZKL_FAULT_POINT("wait-published");
}

/*
 * False if no backend that cannot go on holds anything.  What the lock manager
 * copies is freed at once, because a wait may last for days.
 */
static bool
note_holders(ZklWaitInfo *info)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock stuck backends",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(context);
	Census		census = {0};

	census.nstuck = zkl_stuck_find(&census.stuck);
	zkl_claim_table_visit(note_own_claim, &census);

	/* Only what other backends hold needs a look at the whole table. */
	if (census.nstuck > 0)
	{
		census.holds = palloc0(census.nstuck * sizeof(bool));
		census.is_wanted = palloc0(census.nstuck * sizeof(bool));
		for (int i = 0; i < ZKL_PARTITIONS; i++)
			zkl_lock_table_browse(i, note_entry, &census);
	}
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
 * A look at the locks of PostgreSQL costs time.  The more often it has found
 * the same, the longer it can wait.  Where no backend waits for this one, a look
 * costs next to nothing.
 */
static void
choose_interval(const Census *census)
{
	uint64		seen = 0;

	for (int i = 0; i < census->nstuck; i++)
		seen = hash_combine64(hash_combine64(seen, census->stuck[i].pid),
							  census->stuck[i].since);
	wait.interval = seen == 0 || seen != wait.seen ? 1 :
		Min(2 * wait.interval, MAX_INTERVAL);
	wait.seen = seen;
}

/*
 * Without the partition's lock: if the claim is just being lost, the next look
 * finds it so.
 */
static void
note_own_claim(ZklLocalClaim *claim, void *arg)
{
	if (claim->shared->state == ZKL_CLAIM_HELD)
		((Census *) arg)->i_hold = true;
}

/* The claims on leases are in the semaphore's entry. */
static void
note_entry(ZklEntry *entry, void *arg)
{
	Census	   *census = arg;
	dlist_iter	iter;

	if (entry->semaphore != NULL)
		return;
	dlist_foreach(iter, &entry->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		for (int i = 0; i < census->nstuck; i++)
		{
			if (claim->state != ZKL_CLAIM_HELD ||
				claim->pid != census->stuck[i].pid)
				continue;
			census->holds[i] = true;
			census->is_wanted[i] |= zkl_waits_is_wanted(claim);
		}
	}
}

/*
 * A hundred backends may wait behind this one, and there is no room for all.
 * Those with locks that others want come first: the others are in no circle.
 */
static void
add_stuck(ZklWaitInfo *info, const Census *census, bool is_wanted)
{
	for (int i = 0; i < census->nstuck; i++)
	{
		if (census->holds[i] && census->is_wanted[i] == is_wanted)
			add_holder(info, census->stuck[i].pid, census->stuck[i].since);
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
 * Break the deadlock, if it is still there: this backend waits, the claim is
 * held, and its backend waits for this one.
 */
static void
execute(ZklClaim *claim, const ZklWaitSentence *sentence)
{
	ZklStuck   *stuck;
	int			nstuck;
	int64		czxid;
	char		znode[ZKL_ZNODE_SIZE];

	if (zkl_now() >= sentence->until ||
		zkl_claim_status_ticket(claim, &czxid, znode) != ZKL_TICKET_WAITS)
		return;
	if (sentence->pid != MyProcPid)
	{
		nstuck = zkl_stuck_find(&stuck);
		for (int i = 0; i < nstuck; i++)
		{
			if (stuck[i].pid != sentence->pid)
				continue;
			ZKL_FAULT_POINT("holder-found");
			(void) zkl_waits_cancel(sentence, stuck[i].waiter,
									stuck[i].wait_start);
		}
		return;
	}
	if (!zkl_waits_is_held(sentence))
		return;
	pgstat_report_deadlock();
	zkl_lock_stat_failed(claim, ERRCODE_T_R_DEADLOCK_DETECTED);
	ereport(ERROR, describe(sentence));
}

/* What the error that is being raised says. */
static int
describe(const ZklWaitSentence *sentence)
{
	const char *detail = zkl_znode_text_show(sentence->detail);

	errcode(ERRCODE_T_R_DEADLOCK_DETECTED);
	errmsg("deadlock detected");
	errdetail_internal("%s", detail_for_client(detail));
	errdetail_log("%s%s", detail, statements_of(sentence));
	return errhint("See server log for query details.");
}

/* The paths of others are not for a role that may use some only. */
static const char *
detail_for_client(const char *detail)
{
	return zkl_permission_allows_all() ? detail :
		_("The server log has the processes and the locks.");
}

/*
 * What the processes of this server execute, for the log.  Those of other
 * servers are in those servers' views only.
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
 * The backend that is cancelled
 */

bool
zkl_deadlock_on_signal(int64 told_until, SIGNAL_ARGS)
{
	if (!zkl_waits_has_notice())
		return false;

	/*
	 * The wait may have ended before the signal came.  Then the signal means
	 * nothing, unless the worker has told of a loss at the same time.
	 */
	if (!zkl_waits_accept_notice())
		return !zkl_lock_table_has_lost(MyProcPid, told_until);
	cancelled_statement = GetCurrentStatementStartTimestamp();
	StatementCancelHandler(ZKL_SIGNAL_ARGUMENTS);
	return true;
}

/*
 * PostgreSQL's own handler for SIGINT does not look at the notice.  So that may
 * be one that has come late, for a wait of an earlier statement.
 */
bool
zkl_deadlock_has_cancelled(void)
{
	TimestampTz statement = GetCurrentStatementStartTimestamp();

	if (zkl_claims_loss_signal == SIGINT)
		return zkl_waits_has_notice() && zkl_waits_notice_at() >= statement;
	return cancelled_statement != 0 && cancelled_statement == statement;
}

/*
 * The cancel may be raised where no hook sees it, such as in the parser or at the
 * end of a transaction.  But every error passes the contexts, and this is the
 * last of them.  PostgreSQL forgets it with each error that reaches its main
 * loop.  So it is put there again when the transaction or savepoint ends, and
 * before each statement.
 */
void
zkl_deadlock_listen(void)
{
	static ErrorContextCallback context = {.callback = explain};

	if (error_context_stack == NULL)
		error_context_stack = &context;
}

/* Put the deadlock into the error that is being raised. */
static void
explain(void *arg)
{
	ZklWaitSentence sentence;

	if (geterrcode() != ERRCODE_QUERY_CANCELED || !zkl_deadlock_has_cancelled())
		return;
	cancelled_statement = 0;
	zkl_waits_read_notice(&sentence);
	pgstat_report_deadlock();
	count_victim(&sentence);
	(void) describe(&sentence);
}

/*
 * A wait for a local lock counts itself when it ends.  Any other wait, such as
 * for a row, counts at the lock that this backend holds.
 */
static void
count_victim(const ZklWaitSentence *sentence)
{
	ZklLocalClaim *claim = zkl_claim_table_find(sentence->path);
	bool		waits_locally = false;

	zkl_claim_table_visit(note_local_wait, &waits_locally);
	if (claim != NULL && !waits_locally)
		zkl_lock_stat_failed(claim->shared, ERRCODE_T_R_DEADLOCK_DETECTED);
}

static void
note_local_wait(ZklLocalClaim *claim, void *arg)
{
	*(bool *) arg |= claim->shared->waits_locally;
}
