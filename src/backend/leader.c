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
 * src/backend/leader.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "backend/describe.h"
#include "backend/leader.h"
#include "backend/locallock.h"
#include "backend/report.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/grant.h"
#include "shared/leadership.h"
#include "shared/sharedclaim.h"

/*
 * How often to look at what wakes no process: the end of recovery, or a session
 * that is certain again.
 */
#define LOOK_INTERVAL	ZKL_MS(1000)

typedef struct Leadership
{
	char		path[ZKL_PATH_SIZE];
	ZklClaim   *claim;			/* NULL: not standing */
	bool		leads;
	bool		wanted;			/* by the setting */
	int64		stand_at;		/* not before that */
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
static void want(const char *path, void *arg);
static int64 tend_all(void);
static int64 tend(Leadership *leadership, bool may_stand, int64 now);
static bool must_end(Leadership *leadership, bool may_stand);
static void begin(Leadership *leadership, int64 now);
static int64 try_to_lead(Leadership *leadership, int64 now);
static void end(Leadership *leadership);
static void report_beginning(Leadership *leadership, ZklBeginning beginning);
static void report_failure(Leadership *leadership, ZklFailure failure);
static void wait_until(int64 until);

void
zkl_leader_main(Datum main_arg)
{
	MemoryContext context;

	start_up();
	context = AllocSetContextCreate(TopMemoryContext, "zklock leader",
									ALLOCSET_SMALL_SIZES);
	for (;;)
	{
		MemoryContextSwitchTo(context);
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			proc_exit(1);		/* unless the server stops, start again */
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			read_setting();
		}
		wait_until(tend_all());
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

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGINT, wake);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	/*
	 * The first process stays.  Only that one registers withdraw(), which
	 * would otherwise clear the ID of the other process.
	 */
	if (!pg_atomic_compare_exchange_u32(&zkl_lock_table->leader_pid, &nobody,
										MyProcPid))
		proc_exit(0);
	before_shmem_exit(withdraw, (Datum) 0);
	zkl_describe_leader(about);
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

/*
 * Follow zklock.leader_of.  The first visit marks the leaderships that stay,
 * and the second adds those for which there was no room.
 */
static void
read_setting(void)
{
	for (int i = 0; i < nleaderships; i++)
		leaderships[i].wanted = false;
	zkl_settings_visit_leaders(zkl_leader_of, want, NULL);

	/* The other leaderships end here, so that there is room for the new ones. */
	for (int i = nleaderships - 1; i >= 0; i--)
	{
		if (leaderships[i].wanted)
			continue;

		/*
		 * The last leadership fills the gap.  It has been looked at already,
		 * because the loop comes from the end.
		 */
		end(&leaderships[i]);
		leaderships[i] = leaderships[--nleaderships];
	}
	zkl_settings_visit_leaders(zkl_leader_of, want, NULL);
}

static void
want(const char *path, void *arg)
{
	for (int i = 0; i < nleaderships; i++)
	{
		if (strcmp(leaderships[i].path, path) == 0)
		{
			leaderships[i].wanted = true;
			return;
		}
	}
	if (nleaderships == ZKL_LEADERS_MAX)
		return;					/* the second visit has room */
	memset(&leaderships[nleaderships], 0, sizeof(Leadership));
	strlcpy(leaderships[nleaderships].path, path, ZKL_PATH_SIZE);
	leaderships[nleaderships].wanted = true;
	nleaderships++;
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
	int64		until = in_recovery ? now + LOOK_INTERVAL : ZKL_FOREVER;

	for (int i = 0; i < nleaderships; i++)
		until = Min(until, tend(&leaderships[i],
								zkl_leader_on_standby || !in_recovery, now));
	return until;
}

/*
 * Do what is due for one leadership: end it, begin its claim, or try to lead.
 * Returns when to look again; a wake-up may come before that.
 */
static int64
tend(Leadership *leadership, bool may_stand, int64 now)
{
	if (leadership->claim != NULL && must_end(leadership, may_stand))
		end(leadership);

	/* tend_all() looks again anyway while the server is in recovery. */
	if (!may_stand)
		return ZKL_FOREVER;
	if (leadership->claim == NULL && now < leadership->stand_at)
		return leadership->stand_at;
	if (leadership->claim == NULL)
		begin(leadership, now);
	if (leadership->claim == NULL)
		return leadership->stand_at;
	return leadership->leads ? ZKL_FOREVER : try_to_lead(leadership, now);
}

/*
 * Does the claim have to end, because the leadership was resigned or lost, or
 * because a standby must not lead?  A claim that still waits has no status, so
 * only that of a leader is asked for.
 */
static bool
must_end(Leadership *leadership, bool may_stand)
{
	int64		resigned_until;

	if (zkl_leadership_has_resigned(leadership->claim, &resigned_until))
	{
		leadership->stand_at = resigned_until;
		return true;
	}
	return !may_stand || (leadership->leads &&
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
	ZklClaimant claimant = zkl_shared_claim_claimant(about, SIGINT);
	ZklBeginning beginning = zkl_shared_claim_begin(leadership->path, ZKL_MODE_LOCK,
													&limit, 0, &claimant,
													&leadership->claim);

	if (beginning == ZKL_BEGUN)
	{
		zkl_leadership_begin(leadership->claim);
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
	(void) zkl_shared_claim_generation(claim);

	/* A backend of this server came first. */
	if (!zkl_leadership_is_its_turn(claim))
		return now + LOOK_INTERVAL;
	switch (zkl_grant_request(claim, false, about))
	{
		case ZKL_ANSWER_HELD:
			ZKL_FAULT_POINT("leader-granted");

			/* From here on a loss is signalled; look whether it came before. */
			claim->session_count = 1;
			leadership->leads = true;
			leadership->told = ZKL_FAILURE_NONE;
			ereport(LOG,
					errmsg("this server now leads \"%s\"", leadership->path));
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
 * End the claim, if there is one.  That raises the count of losses, so
 * commits that rely on this leadership are refused from then on; only then
 * the log says that it has ended.
 */
static void
end(Leadership *leadership)
{
	if (leadership->claim == NULL)
		return;
	ZKL_FAULT_POINT("leader-ending");
	zkl_shared_claim_end(leadership->claim);
	leadership->claim = NULL;
	if (leadership->leads)
		ereport(LOG,
				errmsg("this server no longer leads \"%s\"", leadership->path));
	leadership->leads = false;
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

static void
wait_until(int64 until)
{
	static uint32 wait_event = 0;
	int64		now = zkl_now();
	int64		timeout = until == ZKL_FOREVER ? -1 : Max(0, (until - now + 999) / 1000);

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
					 (timeout < 0 ? 0 : WL_TIMEOUT),
					 (long) Min(timeout, 60 * 1000),
					 zkl_wait_event("ZklockLeaderMain", &wait_event));
	ResetLatch(MyLatch);
}
