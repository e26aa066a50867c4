/*-------------------------------------------------------------------------
 *
 * runonce.c
 *	  Run a job once a tick.
 *
 * The backend first reads the record; if the tick is used up, it is done.
 * Otherwise it acquires the job's lock, and has the record written on
 * condition that it has not changed since the read.  If it has changed,
 * another run has begun or ended; so the backend decides again, now with the
 * lock held.
 *
 * src/jobs/runonce.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/acquire.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/wait.h"
#include "backend/lock/xact.h"
#include "backend/report.h"
#include "backend/znodes.h"
#include "compat.h"
#include "faultpoint.h"
#include "jobs/runonce.h"
#include "settings.h"
#include "shared/process.h"

/*
 * If a backend has waited for the lock for longer than this, it has the
 * record read again before it is replaced: zk_job_forget may have allowed
 * other runs meanwhile.
 */
#define READ_IS_OLD		ZKL_MS(20)

typedef struct Attempt
{
	const ZklLockRequest *request;
	const ZklJobTick *tick;
	ZklJobZnode last;			/* the record, as far as it is known */
	int64		read_at;		/* when "last" was read */
	ZklJobRecord record;		/* the record that will replace it */
} Attempt;

/* The errors for the answers that say why the record was not written. */
static const ZklCommandOutcome refusals[] = {
	[ZKL_JOB_ANSWER_DENIED] = ZKL_COMMAND_DENIED,
	[ZKL_JOB_ANSWER_QUOTA] = ZKL_COMMAND_QUOTA,
	[ZKL_JOB_ANSWER_REFUSED] = ZKL_COMMAND_REFUSED,
	[ZKL_JOB_ANSWER_DIFFERS] = ZKL_COMMAND_DIFFERS
};

static void read_for(const ZklLockRequest *request, ZklJobZnode *znode);
static void check_may_write(const char *path);
static bool may_run(Attempt *attempt);
static bool run_with_new_claim(ZklLocalClaim *claim, const ZklLockRequest *request,
							   void *attempt);
static bool run_with_claim(ZklLocalClaim *claim, Attempt *attempt);
static bool start(ZklLocalClaim *claim, Attempt *attempt);
static void describe(const ZklLocalClaim *claim, ZklJobRecord *record);
static int	ask(ZklLocalClaim *claim, const Attempt *attempt);
static ZklJobReply wait_for_answer(int slot, const Attempt *attempt);
static void report_ahead(const Attempt *attempt, int64 zookeeper_time);
static void report_full(const char *path);

bool
zkl_run_once_begin(const ZklLockRequest *request, const ZklJobTick *tick)
{
	Attempt		attempt = {.request = request,.tick = tick};
	ZklLocalClaim *claim;

	claim = zkl_hold_counts_update_to_acquire(request);

	/* This backend itself is running the job, perhaps since this very call. */
	if (claim != NULL && claim->shared->run != ZKL_RUN_NONE)
		return zkl_local_claim_is_repeated(claim, request);

	/*
	 * Other transactions may use the same claim, and would find this
	 * transaction's run without a runner.
	 */
	if (claim != NULL && claim->shared->is_use)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("cannot run job \"%s\" while using a claim on its lock",
					   zkl_display_path(request->path)),
				errhint("Run the job without the claim: it acquires the lock itself."));

	read_for(request, &attempt.last);
	attempt.read_at = zkl_now();
	ZKL_FAULT_POINT("record-read");
	if (!may_run(&attempt))
		return false;
	if (request->scope == ZKL_SCOPE_XACT)
		check_may_write(request->path);
	if (claim == NULL)
	{
		zkl_hold_counts_check_room(1);
		return zkl_local_claim_begin_for(request, run_with_new_claim, &attempt);
	}

	/*
	 * This backend already holds the job's lock.  The run may begin only
	 * while the session certainly lives.
	 */
	zkl_wait_for_certainty(request, claim);
	return run_with_claim(claim, &attempt);
}

/*
 * The run would use the tick up.  If its transaction cannot write, the job
 * would never be done.  A read-only transaction on a primary is the user's
 * own choice.
 */
static void
check_may_write(const char *path)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_READ_ONLY_SQL_TRANSACTION)),
				errmsg("cannot run job \"%s\" in a transaction on a standby",
					   zkl_display_path(path)),
				errdetail("The run would use up the tick, and its transaction could write nothing."),
				errhint("Run the job on the primary, or use zk_run_once() for work that a standby can do."));
	zkl_xact_require();
}

/*
 * Read the record for a call.  If the time is over before the reply, that is
 * an error: the caller would take false for a job that another session has
 * run.  The error tells whether ZooKeeper is silent or the time was merely
 * too short.
 */
static void
read_for(const ZklLockRequest *request, ZklJobZnode *znode)
{
	int64		until = request->only_tries ? ZKL_FOREVER : request->until;
	int64		asked_at = zkl_now();

	if (zkl_run_once_read(request->path, Min(until, request->lock_timeout_at),
						  request->only_tries ? ZKL_PATIENCE_TRY : ZKL_PATIENCE_WAIT,
						  znode))
		return;
	if (zkl_now() < until)
		zkl_report_lock_timeout(NULL);
	if (zkl_now() >= zkl_session_info_in_touch_until() ||
		zkl_session_info_is_silent(asked_at))
		zkl_report_unreachable(request->path);
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_LOCK_NOT_AVAILABLE)),
			errmsg("could not read the record of job \"%s\"",
				   zkl_display_path(request->path)),
			errdetail("The timeout has passed."));
}

bool
zkl_run_once_read(const char *path, int64 until, ZklPatience patience,
				  ZklJobZnode *znode)
{
	char		record[ZKL_PATH_NAME_SIZE];
	const ZklListingNode *node;

	zkl_path_name(path, record);
	node = zkl_znodes_node(ZKL_PATH_JOBS, record, until, patience);
	memset(znode, 0, sizeof(*znode));
	znode->exists = node != NULL;
	if (!znode->exists)
		return zkl_now() < until;	/* there is no record, or no reply */

	/*
	 * The record exists, but ZooKeeper's access control does not let this
	 * server read it.
	 */
	if (node->data == NULL)
		zkl_report_failure(path, ZKL_FAILURE_PERMISSION);
	znode->czxid = node->czxid;
	znode->version = node->version;
	znode->length = Min(node->data_length, (int) sizeof(znode->data));
	memcpy(znode->data, node->data, znode->length);
	return true;
}

/*
 * Decide whether this backend may run the tick, from what it knows of the
 * record.  If so, fill in the tick and the attempt of the new record.
 */
static bool
may_run(Attempt *attempt)
{
	const ZklJobZnode *last = &attempt->last;
	ZklJobRecord record;

	if (last->exists &&
		!zkl_job_record_parse(last->data, last->length, &record))
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_DATA_CORRUPTED)),
				errmsg("could not read the record of job \"%s\"",
					   zkl_display_path(attempt->request->path)),
				errdetail("Its znode does not contain what zklock writes."),
				errhint("If no run of the job can be in progress, remove the record with \"zk_job_forget\"."));
	return zkl_job_record_decide(last->exists ? &record : NULL, attempt->tick,
								 &attempt->record);
}

/* Acquire the job's lock for the run. */
static bool
run_with_new_claim(ZklLocalClaim *claim, const ZklLockRequest *request, void *attempt)
{
	return zkl_acquire_claim(claim, request) && run_with_claim(claim, attempt);
}

/*
 * The claim is held; begin the run.  If that succeeds, the run ends with the
 * acquire that is counted here.  Otherwise it ends here, so that its slot
 * does not stay in use.
 */
static bool
run_with_claim(ZklLocalClaim *claim, Attempt *attempt)
{
	volatile bool started = false;

	PG_TRY();
	{
		started = start(claim, attempt);
		ZKL_FAULT_POINT("run-started");
		if (started)
		{
			zkl_hold_counts_add(claim, attempt->request);
			zkl_hold_counts_begin_run(claim, attempt->request->scope);
		}
	}
	PG_CATCH();
	{
		zkl_claim_end_run(claim->shared, false);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (!started)
		zkl_claim_end_run(claim->shared, false);
	return started;
}

/*
 * Have the record written.  This gives the run a slot, which the caller must
 * end unless this returns true.
 */
static bool
start(ZklLocalClaim *claim, Attempt *attempt)
{
	const char *path = attempt->request->path;
	int			slot;

	/*
	 * Have the record written while this backend holds the lock, if ZooKeeper
	 * still has the record that was read.  Each round decides again with a
	 * newer record.
	 */
	describe(claim, &attempt->record);
	slot = ask(claim, attempt);
	for (;;)
	{
		ZklJobReply reply = wait_for_answer(slot, attempt);

		switch (reply.answer)
		{
			case ZKL_JOB_ANSWER_WRITTEN:

				/*
				 * The session may have become unsafe while the backend waited
				 * for the record.  The job must not start then.
				 */
				zkl_wait_for_certainty(attempt->request, claim);
				return true;
			case ZKL_JOB_ANSWER_OVERTAKEN:

				/*
				 * The record that was read has been removed since, and the
				 * write has replaced another one.  The replaced record may
				 * have been that of a run of the same tick, or of a later
				 * one.  So this run does not begin, and its end closes the
				 * record.
				 */
				return false;
			case ZKL_JOB_ANSWER_CHANGED:
				attempt->last = reply.last;
				if (!may_run(attempt))
					return false;
				zkl_job_runs_ask_again(slot, &attempt->record, &attempt->last);
				break;
			case ZKL_JOB_ANSWER_AHEAD:
				report_ahead(attempt, reply.zookeeper_time);
				break;
			case ZKL_JOB_ANSWER_FULL:
				report_full(path);
				break;
			case ZKL_JOB_ANSWER_DENIED:
			case ZKL_JOB_ANSWER_QUOTA:
			case ZKL_JOB_ANSWER_REFUSED:
			case ZKL_JOB_ANSWER_DIFFERS:
				zkl_report_command(path, refusals[reply.answer]);
			case ZKL_JOB_ANSWER_NONE:
			case ZKL_JOB_ANSWER_ENDED:
				zkl_local_claim_report_lost(ERROR, claim);
				break;
		}
	}
}

/*
 * Fill in what may_run() has left open.  By the run's ID, the worker
 * recognizes its own write if the reply was lost.
 */
static void
describe(const ZklLocalClaim *claim, ZklJobRecord *record)
{
	uint8		random_bytes[16];

	if (!pg_strong_random(random_bytes, sizeof(random_bytes)))
		elog(ERROR, "could not generate random values");
	zkl_path_make_id(random_bytes, record->run);
	record->state = ZKL_JOB_STARTED;
	record->token = claim->shared->token;
	record->started = GetCurrentTimestamp() + ZKL_POSTGRES_EPOCH;
	record->ended = 0;
	strlcpy(record->owner_text, claim->shared->owner_text, sizeof(record->owner_text));
}

/*
 * Take a slot for the run, and give it to the claim, which wakes the worker.
 * Once the claim has the slot, the run ends when the claim ends or is lost.
 */
static int
ask(ZklLocalClaim *claim, const Attempt *attempt)
{
	int			slot;

	if (zkl_job_runs_mine() >= ZKL_JOBRUNS_PER_BACKEND)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)),
				errmsg("too many runs of jobs in one session"),
				errdetail("The session may have at most %d runs at a time.",
						  ZKL_JOBRUNS_PER_BACKEND));
	slot = zkl_job_runs_take(attempt->request->path,
							 &attempt->record, &attempt->last,
							 zkl_now() - attempt->read_at > READ_IS_OLD);
	if (slot == ZKL_RUN_NONE)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)),
				errmsg("too many runs of jobs on this server"),
				errdetail("There are %d places for runs, and at most half of them for one role.",
						  zkl_job_runs_number()));

	/*
	 * The claim was lost before it had the slot, and the slot has been ended.
	 */
	if (!zkl_claim_set_run(claim->shared, slot))
		zkl_local_claim_report_lost(ERROR, claim);
	return slot;
}

/*
 * Wait until the worker has a reply from ZooKeeper.  The timeout of the call
 * does not end this wait: it limits the wait for the lock, which this backend
 * has.
 */
static ZklJobReply
wait_for_answer(int slot, const Attempt *attempt)
{
	static uint32 wait_event = 0;
	int64		asked_at = zkl_now();
	ZklJobReply reply;

	while ((reply = zkl_job_runs_answer(slot, attempt->record.run)).answer == ZKL_JOB_ANSWER_NONE)
	{
		int64		until = zkl_session_info_silent_from(asked_at, asked_at);

		if (attempt->request->only_tries)
			until = Min(until, zkl_session_info_away_from(asked_at));
		if (zkl_now() >= until)
			zkl_report_unreachable(attempt->request->path);
		zkl_process_sleep(until, "ZklockJob", &wait_event);
	}
	return reply;
}

static void
report_ahead(const Attempt *attempt, int64 zookeeper_time)
{
	/*
	 * timestamptz_to_str() returns the same buffer each time, so copy the
	 * first.
	 */
	char	   *tick = pstrdup(timestamptz_to_str(attempt->tick->tick - ZKL_POSTGRES_EPOCH));

	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("tick of job \"%s\" is in the future",
				   zkl_display_path(attempt->request->path)),
			errdetail("The tick is %s, and ZooKeeper's time is %s.", tick,
					  timestamptz_to_str(zookeeper_time - ZKL_POSTGRES_EPOCH)),
			errhint("Check the clock of this server, and those of the ZooKeeper servers."));
}

static void
report_full(const char *path)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)),
			errmsg("too many jobs"),
			errdetail("There is no record of job \"%s\" yet, and the cluster has %d records of others already.",
					  zkl_display_path(path), zkl_max_jobs),
			errhint("Remove records of jobs that are no longer run with \"zk_job_forget\", or raise \"zklock.max_jobs\"."));
}
