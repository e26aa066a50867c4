/*-------------------------------------------------------------------------
 *
 * zklock.c
 *	  Cluster-wide locks: what happens when PostgreSQL loads the library.
 *
 * This is the roof of the house: it starts the parts, and no file includes
 * anything of it.
 *
 * src/zklock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/builtins.h"

#include "backend/hooks.h"
#include "settings.h"
#include "shared/jobruns.h"
#include "shared/kept.h"
#include "shared/lockstat.h"
#include "shared/locktable.h"
#include "shared/mailbox.h"
#include "shared/serverstat.h"
#include "shared/straytable.h"
#include "shared/waits.h"
#include "worker/worker.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(zklock_version);

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

void		_PG_init(void);

static void request_shared_memory(void);
static void start_shared_memory(void);

void
_PG_init(void)
{
	/*
	 * If zklock is loaded later, it cannot work; the functions raise an
	 * error.
	 */
	if (!process_shared_preload_libraries_in_progress)
		return;

	zkl_settings_define();

	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
	zkl_hooks_init();
	zkl_worker_register();
}

static void
request_shared_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	zkl_lock_table_request();
	zkl_mailbox_request();
	zkl_job_runs_request();
	zkl_lock_stat_request();
	zkl_server_stat_request();
	zkl_waits_request();
	zkl_kept_request();
	zkl_stray_table_request();
}

static void
start_shared_memory(void)
{
	if (previous_startup_hook)
		previous_startup_hook();
	zkl_lock_table_startup();
	zkl_mailbox_startup();
	zkl_job_runs_startup();
	zkl_lock_stat_startup();
	zkl_server_stat_startup();
	zkl_waits_startup();
	zkl_kept_startup();
	zkl_stray_table_startup();
}

/*
 * The version of the library that this server has loaded.  It may be older than
 * the one that is installed, until the server is restarted.
 */
Datum
zklock_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(ZKLOCK_VERSION));
}
