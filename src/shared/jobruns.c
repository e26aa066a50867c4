/*-------------------------------------------------------------------------
 *
 * jobruns.c
 *	  The runs of jobs that this server has: what their records have to say.
 *
 * States, their changes and the lock are described in jobruns.h.
 *
 * src/shared/jobruns.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shared/jobruns.h"
#include "shared/locktable.h"
#include "shared/share.h"

#define TRANCHE_NAME	"zklock jobs"

/*
 * A backend begins one run at a time.  The rest is for backends with several
 * runs, and for runs whose end ZooKeeper has not confirmed yet.
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

static Size shared_size(void);
static int	free_slot(void);
static bool is_pending(const ZklJobRun *run);
static void set_state(ZklJobRun *run, ZklJobRunState state);
static bool has_serial(const ZklJobRun *run, uint32 serial);
static bool was_written(const ZklJobRun *run);

void
zkl_job_runs_request(void)
{
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

void
zkl_job_runs_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	runs = ShmemInitStruct(TRANCHE_NAME, shared_size(), &found);
	if (!found)
	{
		memset(runs, 0, shared_size());
		runs->lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
		pg_atomic_init_u32(&runs->npending, 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

static Size
shared_size(void)
{
	return add_size(offsetof(JobRuns, slots),
					mul_size(zkl_job_runs_number(), sizeof(ZklJobRun)));
}

int
zkl_job_runs_number(void)
{
	return SLOTS_PER_BACKEND * MaxBackends;
}

/*
 * The caller holds the lock of the slots.  Each change begins a new serial, so
 * replies to earlier requests are recognized.
 */
static void
set_state(ZklJobRun *run, ZklJobRunState state)
{
	bool		was_pending = is_pending(run);

	run->state = state;
	run->serial++;
	if (is_pending(run) && !was_pending)
		pg_atomic_fetch_add_u32(&runs->npending, 1);
	else if (was_pending && !is_pending(run))
		pg_atomic_fetch_sub_u32(&runs->npending, 1);
}

/* A slot in one of these states waits for the worker. */
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
zkl_job_runs_take(const char *path, int session, const ZklJobRecord *record,
				  const ZklJobZnode *last, bool look)
{
	int			taken;

	LWLockAcquire(runs->lock, LW_EXCLUSIVE);
	taken = free_slot();
	if (taken != ZKL_JOBRUNS_NONE)
	{
		ZklJobRun  *run = &runs->slots[taken];

		run->session = session;
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
 * A slot that this backend may take.  Runs whose end is still to be written
 * count for their role, too, although their backends may be gone.  The caller
 * holds the lock of the slots.
 */
static int
free_slot(void)
{
	int			found = ZKL_JOBRUNS_NONE;
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
	return zkl_share_allows(mine, nfree) ? found : ZKL_JOBRUNS_NONE;
}

/*
 * This reads the slot without its lock.  If the run has ended since, and the
 * slot is another run's, the call wakes a worker for nothing.
 */
void
zkl_job_runs_ask(int slot)
{
	zkl_lock_table_wake_worker(runs->slots[slot].session);
}

void
zkl_job_runs_ask_again(int slot, const ZklJobRecord *record,
					   const ZklJobZnode *last)
{
	ZklJobRun  *run = &runs->slots[slot];

	LWLockAcquire(runs->lock, LW_EXCLUSIVE);

	/*
	 * The run may have ended with its claim meanwhile.  Then the slot may be
	 * another run's.
	 */
	if (run->state == ZKL_JOBRUN_ANSWERED &&
		strcmp(run->record.run, record->run) == 0)
	{
		run->record = *record;
		run->last = *last;
		run->look = false;
		set_state(run, ZKL_JOBRUN_STARTING);
		zkl_lock_table_wake_worker(run->session);
	}
	LWLockRelease(runs->lock);
}

bool
zkl_job_runs_answer(int slot, const char *id, ZklJobAnswer *answer,
					ZklJobZnode *last, int64 *zookeeper_time)
{
	const ZklJobRun *run = &runs->slots[slot];
	bool		answered = true;

	LWLockAcquire(runs->lock, LW_SHARED);

	/* The run may have ended with its claim, and the slot may be reused. */
	if (strcmp(run->record.run, id) != 0 ||
		run->state == ZKL_JOBRUN_FREE || run->state == ZKL_JOBRUN_ENDED)
		*answer = ZKL_JOB_ANSWER_ENDED;
	else if (run->state == ZKL_JOBRUN_ANSWERED)
	{
		*answer = run->answer;
		*last = run->last;
		*zookeeper_time = run->zookeeper_time;
	}
	else
		answered = false;
	LWLockRelease(runs->lock);
	return answered;
}

/*
 * If the start has not been answered, it may still be written.  And after every
 * answer but CHANGED, an earlier write whose answer was lost may have been done.
 */
void
zkl_job_runs_end(int *slot, bool done, bool lost)
{
	ZklJobRun  *run = &runs->slots[*slot];

	if (*slot == ZKL_JOBRUNS_NONE)
		return;

	/* Whatever ends the claim later must not end the run again. */
	*slot = ZKL_JOBRUNS_NONE;
	LWLockAcquire(runs->lock, LW_EXCLUSIVE);
	Assert(run->state == ZKL_JOBRUN_STARTING ||
		   run->state == ZKL_JOBRUN_ANSWERED);
	if (run->state == ZKL_JOBRUN_ANSWERED &&
		run->answer == ZKL_JOB_ANSWER_CHANGED)
		set_state(run, ZKL_JOBRUN_FREE);
	else
	{
		run->unsure = lost || run->state == ZKL_JOBRUN_STARTING ||
			!was_written(run);

		/*
		 * Only a run whose start is certainly written, under a claim that was
		 * not lost, can have ended well.
		 */
		run->record.state = done && !run->unsure ? ZKL_JOB_DONE : ZKL_JOB_FAILED;
		if (run->state == ZKL_JOBRUN_ANSWERED &&
			run->answer == ZKL_JOB_ANSWER_OVERTAKEN)
			zkl_job_record_close(&run->record, run->zookeeper_time);
		run->record.ended = GetCurrentTimestamp() + ZKL_JOB_EPOCH;
		set_state(run, ZKL_JOBRUN_ENDED);
		zkl_lock_table_wake_worker(run->session);
	}
	LWLockRelease(runs->lock);
}

static bool
was_written(const ZklJobRun *run)
{
	return run->answer == ZKL_JOB_ANSWER_WRITTEN ||
		run->answer == ZKL_JOB_ANSWER_OVERTAKEN;
}

/*
 * The worker
 */

/* Whatever asked for the slot before has woken the worker since. */
bool
zkl_job_runs_any(void)
{
	return pg_atomic_read_u32(&runs->npending) > 0;
}

/*
 * The worker gets a copy, and works on without the lock.  If the run changes
 * meanwhile, the serial of the copy is out of date.
 */
bool
zkl_job_runs_get(int slot, int session, ZklJobRun *run)
{
	bool		found;

	LWLockAcquire(runs->lock, LW_SHARED);
	found = is_pending(&runs->slots[slot]) &&
		runs->slots[slot].session == session;
	if (found)
		*run = runs->slots[slot];
	LWLockRelease(runs->lock);
	return found;
}

/*
 * Both the end of one run and the start of the next write the same record.  So
 * the worker sends the end first.
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
 * A reply to a request that a backend has replaced or ended since must not
 * change the slot.
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
		run->epoch = pg_atomic_read_u64(&zkl_session_info_mine->epoch);
		run->zookeeper_time = zookeeper_time;

		/* The next write replaces this version of the record. */
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
