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
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "compat.h"
#include "settings.h"
#include "shared/process.h"

/* How soon PostgreSQL starts a process again after an error. */
#define RESTART_SECONDS		1

static void add_name(void *name);

void
zkl_process_register(const char *name, const char *function)
{
	BackgroundWorker bgworker = {0};
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = add_name,
		.arg = unconstify(char *, name)
	};

	/*
	 * pg_upgrade starts servers that must not act by themselves.  Such a
	 * server could become the leader of the cluster.
	 */
	if (IsBinaryUpgrade)
		return;

	/*
	 * Request a database connection, but connect to no database.  So the
	 * process is in pg_stat_activity, and takes part in what DROP DATABASE
	 * waits for.
	 */
	bgworker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* Start on a hot standby, too, because its backends may need locks. */
	bgworker.bgw_start_time = BgWorkerStart_ConsistentState;
	bgworker.bgw_restart_time = RESTART_SECONDS;
	strlcpy(bgworker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(bgworker.bgw_function_name, function, BGW_MAXLEN);
	strlcpy(bgworker.bgw_name, name, BGW_MAXLEN);
	strlcpy(bgworker.bgw_type, name, BGW_MAXLEN);

	/* PostgreSQL's message would not say which process will be missing. */
	error_context_stack = &context;
	RegisterBackgroundWorker(&bgworker);
	error_context_stack = context.previous;
}

static void
add_name(void *name)
{
	errcontext("registering the background worker \"%s\"", (const char *) name);
}

/*
 * The postmaster does not tell its children that the server shuts down.  But
 * before it signals them, it writes "stopping" into the last line of its lock
 * file, for pg_ctl.
 */
bool
zkl_process_server_is_stopping(void)
{
	FILE	   *file = AllocateFile("postmaster.pid", "r");
	char		line[MAXPGPATH];
	bool		result = false;

	/*
	 * If the file is missing, the server shuts down.  Any other error proves
	 * nothing; then the worker exits with 1, and the session stays.
	 */
	if (file == NULL)
		return errno == ENOENT;
	while (fgets(line, sizeof(line), file) != NULL)
		result = strncmp(line, "stopping", 8) == 0;
	FreeFile(file);
	return result;
}

/* PostgreSQL says only that the process exited with exit code 1. */
void
zkl_process_exit_terminated(void)
{
	ereport(LOG,
			errmsg("restarting the background worker \"%s\", because it was terminated",
				   MyBgworkerEntry->bgw_name));
	proc_exit(1);
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
	if (ShutdownRequestPending && zkl_process_server_is_stopping())
		proc_exit(1);
	if (ShutdownRequestPending)
		zkl_process_exit_terminated();
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
