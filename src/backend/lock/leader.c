/*-------------------------------------------------------------------------
 *
 * leader.c
 *	  The leader process, which stands for the leaderships of this server.
 *
 * A background process has one claim for each path in zklock.leader_of, and never
 * waits for one of them alone.  So it takes no local lock: a backend of this
 * server that has the local lock of such a path finds the claim in the lock
 * table, and waits for its end as for any client's.
 *
 * The claims are those of this process, not of the worker that keeps the
 * ZooKeeper session.  So they survive a restart of that worker.
 *
 * src/backend/lock/leader.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "backend/lock/history.h"
#include "backend/lock/leader.h"
#include "backend/lock/locallock.h"
#include "backend/report.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/claim.h"
#include "shared/grant.h"
#include "shared/leadership.h"
#include "shared/passes.h"
#include "shared/process.h"

/*
 * How often to look at what wakes no process: a session that is certain again, or a
 * pause that was changed; the end of recovery, for which a failover waits; and the
 * record of a path whose last leader had a newer history.
 */
#define LOOK_INTERVAL		ZKL_MS(1000)
#define RECOVERY_INTERVAL	ZKL_MS(100)
#define REFUSED_INTERVAL	ZKL_MS(5000)

typedef struct Leadership
{
	char		path[ZKL_PATH_SIZE];
	ZklClaim   *claim;			/* NULL: not standing */
	bool		held;			/* the claim; a loss of it is signalled */
	bool		leads;
	bool		may_lead;		/* the claim is held, and the record has this
								 * server's history */
	ZklHistoryLook look;
	int64		stand_at;		/* not before that, after a failure */
	ZklFailure	told;			/* the failure in the log */
	bool		told_beginning; /* ... or that the claim could not begin */
} Leadership;

/* In any order; only this process uses them. */
static Leadership leaderships[ZKL_LEADERS_MAX];
static int	nleaderships = 0;
static char about[ZKL_ABOUT_SIZE];

static void start_up(void);
static void wake(SIGNAL_ARGS);
static void withdraw(int code, Datum arg);
static void read_setting(void);
static void want(const char *path);
static int64 tend_all(void);
static bool stands_in_recovery(const Leadership *leadership);
static int64 tend(Leadership *leadership, bool may_stand, int64 now);
static bool must_end(Leadership *leadership, bool may_stand);
static void begin(Leadership *leadership, int64 now);
static int64 try_to_lead(Leadership *leadership, int64 now);
static bool needs_history(const Leadership *leadership);
static int64 look_at_history(Leadership *leadership, int64 now);
static void lead(Leadership *leadership);
static void end(Leadership *leadership);
static void report_beginning(Leadership *leadership, ZklBeginning beginning);
static void report_failure(Leadership *leadership, ZklFailure failure);

void
zkl_leader_main(Datum main_arg)
{
	static uint32 wait_event = 0;
	MemoryContext context;

	start_up();
	context = AllocSetContextCreate(TopMemoryContext, "zklock leader",
									ALLOCSET_SMALL_SIZES);
	for (;;)
	{
		MemoryContextSwitchTo(context);
		if (zkl_process_look_at_signals())
			read_setting();
		zkl_process_sleep(tend_all(), "ZklockLeaderMain", &wait_event);
		MemoryContextReset(context);
	}
}

/*
 * The worker may start this process once too often: when it was restarted, or
 * after a crash, when the postmaster starts all processes again.
 */
static void
start_up(void)
{
	uint32		nobody = 0;

	pqsignal(SIGINT, wake);
	zkl_process_begin();

	/*
	 * The first process stays.  Only that one registers withdraw(), which
	 * would otherwise clear the ID of the other process.
	 */
	if (!pg_atomic_compare_exchange_u32(&zkl_lock_table->leader_pid, &nobody,
										MyProcPid))
		proc_exit(0);
	before_shmem_exit(withdraw, (Datum) 0);
	zkl_znode_text_of_leader(about);
	read_setting();
}

/*
 * A claim was lost: the worker sends the signal that begin() chose.  The main
 * loop then finds out which.
 */
static void
wake(SIGNAL_ARGS)
{
	int			save_errno = errno;

	SetLatch(MyLatch);
	errno = save_errno;
}

/*
 * The process exits.  The claims end first, because the next leader process
 * begins its own.
 */
static void
withdraw(int code, Datum arg)
{
	for (int i = 0; i < nleaderships; i++)
		end(&leaderships[i]);
	pg_atomic_write_u32(&zkl_lock_table->leader_pid, 0);
}

/*
 * The setting
 */

/* Follow zklock.leader_of. */
static void
read_setting(void)
{
	const char *at = zkl_leader_of;
	char		path[ZKL_SETTINGS_LEADER_SIZE];

	/* First end those that it no longer names, so that there is room. */
	for (int i = nleaderships - 1; i >= 0; i--)
	{
		if (zkl_settings_lists_leader(zkl_leader_of, leaderships[i].path))
			continue;

		/*
		 * The last leadership fills the gap.  It has been looked at already,
		 * because the loop comes from the end.
		 */
		end(&leaderships[i]);
		zkl_leadership_end_pause(leaderships[i].path);
		leaderships[i] = leaderships[--nleaderships];
	}
	while (zkl_settings_next_leader(&at, path))
		want(path);
}

static void
want(const char *path)
{
	for (int i = 0; i < nleaderships; i++)
	{
		if (strcmp(leaderships[i].path, path) == 0)
			return;
	}
	if (nleaderships == ZKL_LEADERS_MAX)
		return;					/* of a value that was not checked */
	memset(&leaderships[nleaderships], 0, sizeof(Leadership));
	strlcpy(leaderships[nleaderships++].path, path, ZKL_PATH_SIZE);
}

/*
 * Leaderships
 */

/* Returns when to look again. */
static int64
tend_all(void)
{
	bool		in_recovery = nleaderships > 0 && RecoveryInProgress();
	int64		now = zkl_now();
	int64		until = in_recovery ? now + RECOVERY_INTERVAL : ZKL_FOREVER;

	for (int i = 0; i < nleaderships; i++)
		until = Min(until, tend(&leaderships[i],
								!in_recovery || stands_in_recovery(&leaderships[i]), now));
	return until;
}

/* A standby has nothing to commit, and would only be in the primary's way. */
static bool
stands_in_recovery(const Leadership *leadership)
{
	return zkl_leader_on_standby &&
		!zkl_settings_lists_leader(zkl_commit_requires, leadership->path);
}

/*
 * Do what is due for one leadership: end it, begin its claim, or try to lead.
 * Returns when to look again; a wake-up may come before that.
 */
static int64
tend(Leadership *leadership, bool may_stand, int64 now)
{
	int64		paused_until;

	if (leadership->claim != NULL && must_end(leadership, may_stand))
		end(leadership);

	/* tend_all() looks again anyway while the server is in recovery. */
	if (!may_stand)
		return ZKL_FOREVER;

	/*
	 * This comes after the look at the claim, because a resignation sets
	 * both, with the partition locked, for which end() waits.  And a pause
	 * may be set while the claim begins.
	 */
	paused_until = zkl_leadership_paused_until(leadership->path);
	if (now < paused_until)
	{
		end(leadership);
		return Min(paused_until, now + LOOK_INTERVAL);
	}
	if (leadership->claim == NULL && now < leadership->stand_at)
		return leadership->stand_at;
	if (leadership->claim == NULL)
		begin(leadership, now);
	if (leadership->claim == NULL)
		return leadership->stand_at;
	if (!leadership->held)
		return try_to_lead(leadership, now);
	if (needs_history(leadership))
		return look_at_history(leadership, now);
	return ZKL_FOREVER;
}

/*
 * Does the claim have to end, because the leadership was resigned or lost, or
 * because a standby must not lead?  A claim that still waits has no status, so
 * only that of one that is held is asked for.
 */
static bool
must_end(Leadership *leadership, bool may_stand)
{
	return !may_stand ||
		leadership->claim->resigned ||
		(leadership->held &&
		 zkl_claim_status(leadership->claim, 0) == ZKL_STATUS_LOST);
}

/*
 * Begin a claim.  If there is no room for it, or the path is in use as
 * another kind of lock, the process tries again later.
 */
static void
begin(Leadership *leadership, int64 now)
{
	int			limit = 0;
	ZklClaimant claimant = zkl_claim_claimant(about, SIGINT);
	ZklBeginning beginning = zkl_claim_begin(leadership->path, ZKL_MODE_LOCK,
											 &limit, 0, &claimant,
											 &leadership->claim);

	if (beginning == ZKL_BEGUN)
	{
		leadership->told_beginning = false;
		return;
	}
	leadership->stand_at = now + LOOK_INTERVAL;
	report_beginning(leadership, beginning);
}

/*
 * Ask for the lock, without a wait: the worker wakes this process when it
 * owns the ticket.
 */
static int64
try_to_lead(Leadership *leadership, int64 now)
{
	ZklClaim   *claim = leadership->claim;

	/*
	 * There is no local lock to take.  But the claim must wait in the present
	 * generation, or it would be told that its local lock is stale.
	 */
	(void) zkl_claim_generation(claim);

	/* If this is required, it leads only when its history has been looked at. */
	zkl_leadership_allow(claim, !needs_history(leadership));

	switch (zkl_grant_request(claim, false, about))
	{
		case ZKL_ANSWER_HELD:
			ZKL_FAULT_POINT("leader-granted");

			/* From here on a loss is signalled; look whether it came before. */
			claim->session_count = 1;
			leadership->held = true;
			leadership->told = ZKL_FAILURE_NONE;
			if (!needs_history(leadership))
				lead(leadership);
			return now;
		case ZKL_ANSWER_FAILED:
			report_failure(leadership, claim->failure);
			end(leadership);
			leadership->stand_at = now + LOOK_INTERVAL;
			break;
		default:
			break;
	}
	return now + LOOK_INTERVAL;
}

/*
 * Commits rely on the leadership, so the record in ZooKeeper has to name this
 * server's history.  The setting may begin to require that while the server leads.
 */
static bool
needs_history(const Leadership *leadership)
{
	return !leadership->may_lead &&
		zkl_settings_lists_leader(zkl_commit_requires, leadership->path);
}

/*
 * While this waits for ZooKeeper, the server does not lead yet.  If the lock is lost
 * meanwhile, the look ends with the claim.
 */
static int64
look_at_history(Leadership *leadership, int64 now)
{
	char		why[ZKL_WHY_SIZE] = "";
	char		told[ZKL_WHY_SIZE];

	switch (zkl_history_look(&leadership->look, leadership->path, why))
	{
		case ZKL_HISTORY_PENDING:
			/* The answer sets the latch; a free slot of the mailbox does not. */
			return now + RECOVERY_INTERVAL;
		case ZKL_HISTORY_MAY_LEAD:
			leadership->may_lead = true;
			if (!leadership->leads)
				lead(leadership);
			return now;
		case ZKL_HISTORY_REFUSED:
			break;
	}
	if (!zkl_leadership_is_refused(leadership->path, told) || strcmp(told, why) != 0)
		ereport(LOG,
				errmsg("this server must not lead \"%s\"", leadership->path),
				errdetail_internal("%s", why),
				errhint("If this server shall lead nevertheless, call zk_leader_forget(%s).",
						quote_literal_cstr(leadership->path)));
	end(leadership);
	zkl_leadership_pause(leadership->path, now + REFUSED_INTERVAL, why);
	return now + LOOK_INTERVAL;
}

static void
lead(Leadership *leadership)
{
	zkl_leadership_allow(leadership->claim, true);
	leadership->leads = true;
	ereport(LOG,
			errmsg("this server now leads \"%s\"", leadership->path));
}

/*
 * End the claim, if there is one.  Commits that rely on this leadership are
 * refused from here on, and those that have passed their guard come first.  Only
 * then may another server lead, and the log says that the leadership has ended.
 * This waits for as long as a commit takes; at most until those transactions
 * could not count on the leadership any more.
 */
static void
end(Leadership *leadership)
{
	int64		relied_until;

	if (leadership->claim == NULL)
		return;
	zkl_history_end(&leadership->look);
	ZKL_FAULT_POINT("leader-ending");
	relied_until = zkl_leadership_stop(leadership->claim);
	for (int64 poll = ZKL_PASSES_POLL;
		 zkl_now() < relied_until && zkl_passes_any(leadership->path);
		 poll = Min(2 * poll, ZKL_LOOK_INTERVAL))
	{
		/* DROP DATABASE waits for each process. */
		if (ProcSignalBarrierPending)
			ProcessProcSignalBarrier();
		pg_usleep(poll);
	}
	zkl_claim_end(leadership->claim);
	leadership->claim = NULL;
	if (leadership->leads)
		ereport(LOG,
				errmsg("this server no longer leads \"%s\"", leadership->path));
	leadership->leads = leadership->held = leadership->may_lead = false;
}

/*
 * The log
 */

static void
report_beginning(Leadership *leadership, ZklBeginning beginning)
{
	if (leadership->told_beginning)
		return;
	leadership->told_beginning = true;
	ereport(LOG,
			errmsg("this server cannot stand for the leadership of \"%s\"",
				   leadership->path),
			beginning == ZKL_BEGIN_FULL ?
			errdetail("All of \"%s\" are in use.", zkl_lock_table_limiting_setting()) :
			errdetail("The path is in use as another kind of lock."));
}

/* The error that a backend would raise, once. */
static void
report_failure(Leadership *leadership, ZklFailure failure)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *error;

	if (leadership->told == failure)
		return;
	leadership->told = failure;
	PG_TRY();
	{
		zkl_report_failure(leadership->path, failure);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		ereport(LOG,
				errcode(error->sqlerrcode),
				errmsg("this server cannot stand for the leadership of \"%s\"",
					   leadership->path),
				errdetail_internal("%s", error->detail ? error->detail : error->message));
	}
	PG_END_TRY();
}
