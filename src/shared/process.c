/*-------------------------------------------------------------------------
 *
 * process.c
 *	  What zklock's processes do alike: begin, look at signals, sleep.
 *
 * src/shared/process.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "compat.h"
#include "settings.h"
#include "shared/process.h"

/* How soon PostgreSQL starts a process again after an error. */
#define RESTART_SECONDS		1

BackgroundWorker
zkl_process_describe(const char *name, const char *function)
{
	BackgroundWorker bgworker = {0};

	/*
	 * Request a database connection, but connect to no database.  So the
	 * process is in pg_stat_activity, and takes part in what DROP DATABASE
	 * waits for.
	 */
	bgworker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* A hot standby has its processes, too: its backends may need locks. */
	bgworker.bgw_start_time = BgWorkerStart_ConsistentState;
	bgworker.bgw_restart_time = RESTART_SECONDS;
	strlcpy(bgworker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(bgworker.bgw_function_name, function, BGW_MAXLEN);
	strlcpy(bgworker.bgw_name, name, BGW_MAXLEN);
	strlcpy(bgworker.bgw_type, name, BGW_MAXLEN);
	return bgworker;
}

void
zkl_process_begin(void)
{
	/* There is no statement to cancel. */
	pqsignal(SIGINT, PG_SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
}

bool
zkl_process_look_at_signals(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
		proc_exit(1);			/* unless the server stops, start again */
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

void
zkl_process_sleep(int64 until, const char *name, uint32 *event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
					 (until == ZKL_FOREVER ? 0 : WL_TIMEOUT), zkl_ms_until(until),
					 zkl_wait_event(name, event));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}
