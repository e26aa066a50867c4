/*-------------------------------------------------------------------------
 *
 * jobruns.c
 *	  The runs of jobs on this server, whose begin and end must be recorded.
 *
 * States, their changes and the lock are described in jobruns.h.
 *
 * src/jobs/jobruns.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "jobs/jobruns.h"
#include "settings.h"
#include "shared/claim.h"
#include "shared/locktable.h"
#include "shared/rolequota.h"

/*
 * A backend runs one job at a time.  The other places are for backends with
 * several runs, and for runs whose end ZooKeeper has not confirmed yet.
 */
#define SLOTS_PER_BACKEND	2

typedef struct JobRuns
{
	LWLock	   *lock;			/* protects the slots */
	pg_atomic_uint32 npending;	/* slots that are STARTING or ENDED; written
								 * under the lock */
	ZklJobRun	slots[FLEXIBLE_ARRAY_MEMBER];
} JobRuns;

static JobRuns *runs = NULL;

static void end_run(int *slot, bool done, bool lost);
static int	free_slot(void);
static bool is_pending(const ZklJobRun *run);
static void set_state(ZklJobRun *run, ZklJobRunState state);
static bool has_serial(const ZklJobRun *run, uint32 serial);

Size
zkl_job_runs_size(void)
{
	return add_size(offsetof(JobRuns, slots),
					mul_size(zkl_job_runs_number(), sizeof(ZklJobRun)));
}

void
zkl_job_runs_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	runs = memory;
	zkl_claim_end_run_hook = end_run;
	if (!is_new)
		return;
	runs->lock = &locks->lock;
	pg_atomic_init_u32(&runs->npending, 0);
}

int
zkl_job_runs_number(void)
{
	return SLOTS_PER_BACKEND * MaxBackends;
}

/*
 * Change the state.  The caller holds the lock of the slots.  Each change
 * begins a new serial, so that the worker recognizes replies to earlier
 * requests.
 */
static void
set_state(ZklJobRun *run, ZklJobRunState state)
{
	bool		was_pending = is_pending(run);

	Assert(LWLockHeldByMeInMode(runs->lock, LW_EXCLUSIVE));
	run->state = state;
	run->serial++;
	if (is_pending(run) && !was_pending)
		pg_atomic_fetch_add_u32(&runs->npending, 1);
	else if (was_pending && !is_pending(run))
		pg_atomic_fetch_sub_u32(&runs->npending, 1);
}

/* Does a slot in this state wait for the worker? */
static bool
is_pending(const ZklJobRun *run)
{
	return run->state == ZKL_JOBRUN_STARTING || run->state == ZKL_JOBRUN_ENDED;
}

/*
 * Backends
 */

int
zkl_job_runs_mine(void)
{
	int			mine = 0;

	LWLockAcquire(runs->lock, LW_SHARED);
	for (int i = 0; i < zkl_job_runs_number(); i++)
	{
		const ZklJobRun *run = &runs->slots[i];

		mine += run->proc_number == zkl_my_proc_number() &&
			(run->state == ZKL_JOBRUN_STARTING || run->state == ZKL_JOBRUN_ANSWERED);
	}
	LWLockRelease(runs->lock);
	return mine;
}

int
zkl_job_runs_take(const char *path, const ZklJobRecord *record,
				  const ZklJobZnode *last, bool look)
{
	int			taken;

	LWLockAcquire(runs->lock, LW_EXCLUSIVE);
	taken = free_slot();
	if (taken != ZKL_RUN_NONE)
	{
		ZklJobRun  *run = &runs->slots[taken];

		run->proc_number = zkl_my_proc_number();
		run->role = MyProc->roleId;
		run->look = look;
		run->unsure = false;
		strlcpy(run->path, path, sizeof(run->path));
		run->record = *record;
		run->last = *last;
		set_state(run, ZKL_JOBRUN_STARTING);
	}
	LWLockRelease(runs->lock);
	return taken;
}

/*
 * Find a slot that this backend may take.  Runs whose end is still to be
 * written also count for their role, even if their backends are gone.  The
 * caller holds the lock of the slots.
 */
static int
free_slot(void)
{
	int			found = ZKL_RUN_NONE;
	int			nfree = 0;
	int			mine = 0;

	for (int i = 0; i < zkl_job_runs_number(); i++)
	{
		if (runs->slots[i].state == ZKL_JOBRUN_FREE)
		{
			found = i;
			nfree++;
		}
		else
			mine += runs->slots[i].role == MyProc->roleId;
	}
	return zkl_role_quota_allows(mine, nfree) ? found : ZKL_RUN_NONE;
}

void
zkl_job_runs_ask_again(int slot, const ZklJobRecord *record,
					   const ZklJobZnode *last)
{
	ZklJobRun  *run = &runs->slots[slot];

	LWLockAcquire(runs->lock, LW_EXCLUSIVE);

	/*
	 * The run may have ended with its claim meanwhile, and its slot may have
	 * another run now.
	 */
	if (run->state == ZKL_JOBRUN_ANSWERED &&
		strcmp(run->record.run, record->run) == 0)
	{
		run->record = *record;
		run->last = *last;
		run->look = false;
		set_state(run, ZKL_JOBRUN_STARTING);
		zkl_lock_table_wake_worker();
	}
	LWLockRelease(runs->lock);
}

ZklJobReply
zkl_job_runs_answer(int slot, const char *id)
{
	const ZklJobRun *run = &runs->slots[slot];
	ZklJobReply reply = {0};

	LWLockAcquire(runs->lock, LW_SHARED);

	/* As in zkl_job_runs_ask_again(), the slot may have another run now. */
	if (strcmp(run->record.run, id) != 0 ||
		run->state == ZKL_JOBRUN_FREE || run->state == ZKL_JOBRUN_ENDED)
		reply.answer = ZKL_JOB_ANSWER_ENDED;
	else if (run->state == ZKL_JOBRUN_ANSWERED)
	{
		reply.answer = run->answer;
		reply.last = run->last;
		reply.zookeeper_time = run->zookeeper_time;
	}
	LWLockRelease(runs->lock);
	return reply;
}

/*
 * The start may still be written if ZooKeeper has not replied to it.  And
 * after every answer but CHANGED, an earlier write whose reply was lost may
 * have been done.  In both cases the run is unsure.
 */
static void
end_run(int *slot, bool done, bool lost)
{
	ZklJobRun  *run = &runs->slots[*slot];

	if (*slot == ZKL_RUN_NONE)
		return;

	/* Clear *slot first: the end of the claim must not end the run again. */
	*slot = ZKL_RUN_NONE;
	LWLockAcquire(runs->lock, LW_EXCLUSIVE);
	Assert(run->state == ZKL_JOBRUN_STARTING ||
		   run->state == ZKL_JOBRUN_ANSWERED);
	if (run->state == ZKL_JOBRUN_ANSWERED &&
		run->answer == ZKL_JOB_ANSWER_CHANGED)
		set_state(run, ZKL_JOBRUN_FREE);
	else
	{
		run->unsure = lost || run->state == ZKL_JOBRUN_STARTING ||
			(run->answer != ZKL_JOB_ANSWER_WRITTEN &&
			 run->answer != ZKL_JOB_ANSWER_OVERTAKEN);

		/*
		 * A run can have succeeded only if its start was certainly written,
		 * and if its claim was not lost.
		 */
		run->record.state = done && !run->unsure ? ZKL_JOB_DONE : ZKL_JOB_FAILED;
		if (run->state == ZKL_JOBRUN_ANSWERED &&
			run->answer == ZKL_JOB_ANSWER_OVERTAKEN)
			zkl_job_record_close(&run->record, run->zookeeper_time);
		run->record.ended = GetCurrentTimestamp() + ZKL_POSTGRES_EPOCH;
		set_state(run, ZKL_JOBRUN_ENDED);
		zkl_lock_table_wake_worker();
	}
	LWLockRelease(runs->lock);
}

/*
 * The worker
 */

/*
 * This takes no lock.  A process first makes a slot pending and then wakes
 * the worker, so the worker misses no slot.
 */
bool
zkl_job_runs_any(void)
{
	return pg_atomic_read_u32(&runs->npending) > 0;
}

/*
 * The worker gets a copy, and uses it without the lock.  If the run changes
 * meanwhile, the serial of the copy is out of date.
 */
bool
zkl_job_runs_get(int slot, ZklJobRun *run)
{
	bool		found;

	LWLockAcquire(runs->lock, LW_SHARED);
	found = is_pending(&runs->slots[slot]);
	if (found)
		*run = runs->slots[slot];
	LWLockRelease(runs->lock);
	return found;
}

/*
 * The end of one run and the start of the next write the same record, so the
 * worker must send the end first.
 */
bool
zkl_job_runs_is_ending(const char *path)
{
	bool		found = false;

	LWLockAcquire(runs->lock, LW_SHARED);
	for (int i = 0; i < zkl_job_runs_number() && !found; i++)
		found = runs->slots[i].state == ZKL_JOBRUN_ENDED &&
			strcmp(runs->slots[i].path, path) == 0;
	LWLockRelease(runs->lock);
	return found;
}

/*
 * Find the slot of this request.  A reply to a request that a backend has
 * replaced or ended since must not change the slot.
 */
static bool
has_serial(const ZklJobRun *run, uint32 serial)
{
	return is_pending(run) && run->serial == serial;
}

void
zkl_job_runs_set_answer(int slot, uint32 serial, ZklJobAnswer answer,
						const ZklJobZnode *znode, int64 zookeeper_time)
{
	ZklJobRun  *run = &runs->slots[slot];

	LWLockAcquire(runs->lock, LW_EXCLUSIVE);
	if (has_serial(run, serial))
	{
		Assert(run->state == ZKL_JOBRUN_STARTING);
		run->answer = answer;
		run->epoch = pg_atomic_read_u64(&zkl_session_info->epoch);
		run->zookeeper_time = zookeeper_time;

		/* From now on, this version of the record is the one to replace. */
		if (znode != NULL)
			run->last = *znode;
		set_state(run, ZKL_JOBRUN_ANSWERED);
		SetLatch(&zkl_proc(run->proc_number)->procLatch);
	}
	LWLockRelease(runs->lock);
}

void
zkl_job_runs_finish(int slot, uint32 serial)
{
	LWLockAcquire(runs->lock, LW_EXCLUSIVE);
	if (has_serial(&runs->slots[slot], serial))
	{
		Assert(runs->slots[slot].state == ZKL_JOBRUN_ENDED);
		set_state(&runs->slots[slot], ZKL_JOBRUN_FREE);
	}
	LWLockRelease(runs->lock);
}
