/*-------------------------------------------------------------------------
 *
 * claimsprocess.c
 *	  The claims process, to which the detached claims and the leaderships of this
 *	  server belong.
 *
 * It never waits for one claim alone.  So its claims have no advisory lock: a
 * backend of this server that has the advisory lock of such a path finds the
 * claim in the lock table, and waits for its end as for any client's.
 *
 * The claims survive a restart of the worker, and end with this process.
 * detached.h and leader.h say what it does for them.
 *
 * src/backend/lock/claimsprocess.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "utils/memutils.h"

#include "backend/lock/claimsprocess.h"
#include "backend/lock/leader.h"
#include "backend/report.h"
#include "compat.h"
#include "settings.h"
#include "shared/detached.h"
#include "shared/locktable.h"
#include "shared/process.h"
#include "shared/sessioninfo.h"

/* How long a backend waits for the process, and how often it looks. */
#define START_LIMIT		ZKL_MS(10 * 1000)
#define START_POLL		ZKL_MS(100)

static int64 tend(void);
static int64 see_to_worker(void);
static void withdraw(int code, Datum arg);
static void look_for_worker(void);

void
zkl_claims_process_register(void)
{
	zkl_process_register("zklock claims", "zkl_claims_process_main");
}

void
zkl_claims_process_main(Datum main_arg)
{
	static uint32 wait_event = 0;
	MemoryContext context;

	zkl_process_begin();
	zkl_detached_begin_owner();
	before_shmem_exit(withdraw, (Datum) 0);
	zkl_leader_start();
	context = AllocSetContextCreate(TopMemoryContext, "zklock claims",
									ALLOCSET_SMALL_SIZES);
	for (;;)
	{
		MemoryContextSwitchTo(context);
		if (zkl_process_look_at_signals())
			zkl_leader_read_setting();
		zkl_process_sleep(tend(), "ZklockClaimsMain", &wait_event);
		MemoryContextReset(context);
	}
}

/* Do what is due, and return the moment of the next look. */
static int64
tend(void)
{
	ZklClaim   *leadership;
	int64		until;
	int64		leader_until;

	do
	{
		leadership = zkl_detached_tend(&until);
		leader_until = zkl_leader_tend(leadership);
	} while (leadership != NULL);
	return Min(Min(until, leader_until), see_to_worker());
}

/*
 * The worker, when it ends, wakes this process.  PostgreSQL starts the worker
 * again after a second, if the postmaster is awake then.
 */
static int64
see_to_worker(void)
{
	if (!ZKL_POSTMASTER_OVERSLEEPS ||
		pg_atomic_read_u32(&zkl_session_info->worker_pid) != 0)
		return ZKL_FOREVER;
	SendPostmasterSignal(PMSIGNAL_BACKGROUND_WORKER_CHANGE);
	return zkl_now() + ZKL_MS(1000);
}

/*
 * The process exits.  After an error it may still hold an LWLock here.
 * Leaderships end last, because they wait for commits.
 */
static void
withdraw(int code, Datum arg)
{
	LWLockReleaseAll();
	zkl_detached_end_owner();
	zkl_leader_end();
	look_for_worker();
}

/*
 * If the server stops after a worker has ended and before PostgreSQL has
 * started the next one, no process closes the session.  Log that.
 */
static void
look_for_worker(void)
{
	if (ShutdownRequestPending &&
		pg_atomic_read_u32(&zkl_session_info->worker_pid) == 0 &&
		zkl_process_server_is_stopping())
		zkl_lock_table_leave_session("the zklock worker is not running");
}

/*
 * In a backend
 */

/* The claims process may not have started yet, or starts again after a second. */
int
zkl_claims_process_find(void)
{
	static uint32 wait_event = 0;
	int			pid = zkl_detached_owner();
	int64		until = zkl_now() + START_LIMIT;

	while (pid == 0)
	{
		if (zkl_now() >= until)
			ereport(ERROR,
					errcode(zkl_report_count(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)),
					errmsg("the claims process is not running"),
					errhint("More details may be available in the server log.  You might need to increase \"max_worker_processes\"."));
		zkl_process_sleep(zkl_now() + START_POLL, "ZklockClaimsStart", &wait_event);
		pid = zkl_detached_owner();
	}
	return pid;
}
