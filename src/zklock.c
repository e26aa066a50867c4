/*-------------------------------------------------------------------------
 *
 * zklock.c
 *	  Cluster-wide locks: what happens when PostgreSQL loads the library.
 *
 * This file is at the top of the layers: it starts the parts, and no file
 * includes it.
 *
 * src/zklock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "backend/lock/claimsprocess.h"
#include "backend/lock/hooks.h"
#include "deadlock/waits.h"
#include "jobs/jobruns.h"
#include "settings.h"
#include "shared/detached.h"
#include "shared/lingerquota.h"
#include "shared/lockstat.h"
#include "shared/locktable.h"
#include "shared/mailbox.h"
#include "shared/passes.h"
#include "shared/serverstat.h"
#include "shared/sessioninfo.h"
#include "worker/request/orphans.h"
#include "worker/worker.h"

PG_MODULE_MAGIC;

/*
 * The parts of shared memory, in the order in which each process attaches to
 * them.  The postmaster finds a part new, and zeroed.
 */
typedef struct SharedPart
{
	const char *name;			/* also of its tranche of LWLocks */
	Size		(*size) (void);
	void		(*attach) (void *memory, LWLockPadded *locks, bool is_new);
	int			nlocks;			/* "locks" is NULL if the part has none, or is
								 * not new */
	Size		(*hash_size) (void);	/* size of the hash table that attach
										 * makes; NULL: there is none */
} SharedPart;

static const SharedPart shared_parts[] = {
	{"zklock session", zkl_session_info_size, zkl_session_info_attach, 0, NULL},
	{"zklock", zkl_lock_table_size, zkl_lock_table_attach,
	ZKL_LOCKTABLE_LOCKS, zkl_lock_table_hash_size},
	{"zklock claims", zkl_lock_table_claims_size, zkl_lock_table_attach_claims, 0, NULL},
	{"zklock detached claims", zkl_detached_size, zkl_detached_attach, 1, NULL},
	{"zklock commands", zkl_mailbox_size, zkl_mailbox_attach, 1, NULL},
	{"zklock jobs", zkl_job_runs_size, zkl_job_runs_attach, 1, NULL},
	{"zklock statistics of locks", zkl_lock_stat_size, zkl_lock_stat_attach,
	0, zkl_lock_stat_hash_size},
	{"zklock statistics", zkl_server_stat_size, zkl_server_stat_attach, 0, NULL},
	{"zklock waits", zkl_waits_size, zkl_waits_attach, 1, NULL},
	{"zklock kept tickets", zkl_linger_quota_size, zkl_linger_quota_attach, 0, NULL},
	{"zklock passes", zkl_passes_size, zkl_passes_attach, 0, NULL},
	{"zklock orphans", zkl_orphans_size, zkl_orphans_attach, 0, NULL}
};

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

void		_PG_init(void);

static void request_shared_memory(void);
static void start_shared_memory(void);

void
_PG_init(void)
{
	/*
	 * If zklock is loaded later, it cannot work, and its functions raise an
	 * error.  CREATE EXTENSION calls none of them, so it gets only a WARNING.
	 */
	if (!process_shared_preload_libraries_in_progress)
	{
		if (creating_extension)
			ereport(WARNING,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("zklock is not loaded via \"shared_preload_libraries\""),
					errdetail("Its functions raise an error until the server has loaded it."),
					errhint("Add \"zklock\" to \"shared_preload_libraries\", and restart the server."));
		return;
	}

	zkl_settings_define();

	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
	zkl_hooks_init();
	zkl_worker_register();
	zkl_claims_process_register();
}

static void
request_shared_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	for (int i = 0; i < lengthof(shared_parts); i++)
	{
		const SharedPart *part = &shared_parts[i];

		RequestAddinShmemSpace(part->size());
		if (part->hash_size)
			RequestAddinShmemSpace(part->hash_size());
		if (part->nlocks > 0)
			RequestNamedLWLockTranche(part->name, part->nlocks);
	}
}

/* A child that did not inherit the postmaster's pointers attaches, too. */
static void
start_shared_memory(void)
{
	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < lengthof(shared_parts); i++)
	{
		const SharedPart *part = &shared_parts[i];
		bool		found;
		void	   *memory = ShmemInitStruct(part->name, part->size(), &found);

		if (!found)
			memset(memory, 0, part->size());
		part->attach(memory, part->nlocks > 0 && !found ?
					 GetNamedLWLockTranche(part->name) : NULL, !found);
	}
	LWLockRelease(AddinShmemInitLock);
}
