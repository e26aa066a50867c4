/*-------------------------------------------------------------------------
 *
 * owner.c
 *	  The owner process, to which the detached claims of this server belong.
 *
 * It runs from the first request for such a claim on.  The claims survive a restart of
 * the worker, and end with this process.  detached.h says what it does.
 *
 * src/backend/lock/owner.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"

#include "backend/lock/owner.h"
#include "backend/report.h"
#include "compat.h"
#include "settings.h"
#include "shared/detached.h"
#include "shared/process.h"

/* How long a backend waits for the process, and how often it looks. */
#define START_LIMIT		ZKL_MS(10 * 1000)
#define START_POLL		ZKL_MS(10)

static void withdraw(int code, Datum arg);

void
zkl_owner_main(Datum main_arg)
{
	static uint32 wait_event = 0;

	/* There is no statement to cancel. */
	pqsignal(SIGINT, PG_SIG_IGN);
	zkl_process_begin();

	/* Two backends may have started it; the first process stays. */
	if (!zkl_detached_begin_owner())
		proc_exit(0);
	before_shmem_exit(withdraw, (Datum) 0);

	for (;;)
	{
		(void) zkl_process_look_at_signals();
		zkl_process_sleep(zkl_detached_tend(), "ZklockOwnerMain", &wait_event);
	}
}

/* If an error was raised under a lock, PostgreSQL would release that only later. */
static void
withdraw(int code, Datum arg)
{
	LWLockReleaseAll();
	zkl_detached_end_owner();
}

/*
 * In a backend
 */

/*
 * A process that has ended starts again by itself after a second.  If this backend starts
 * one more meanwhile, that one or the other stays.
 */
int
zkl_owner_find(void)
{
	static uint32 wait_event = 0;
	int			pid = zkl_detached_owner();
	int64		until = zkl_now() + START_LIMIT;

	if (pid == 0 && !zkl_process_start("zklock owner", "zkl_owner_main"))
		ereport(ERROR,
				errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				errmsg("could not start the owner process of claims"),
				errhint("You might need to increase \"max_worker_processes\"."));
	while (pid == 0)
	{
		if (zkl_now() >= until)
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("the owner process of claims is not running"),
					errhint("More details may be available in the server log."));
		zkl_process_sleep(zkl_now() + START_POLL, "ZklockOwnerStart", &wait_event);
		pid = zkl_detached_owner();
	}
	return pid;
}
