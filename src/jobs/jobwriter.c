/*-------------------------------------------------------------------------
 *
 * jobwriter.c
 *	  The worker writes the records of jobs: how runs begin and end.
 *
 * Each slot of jobruns.h has a TASK.  A task has one ask at a time, and each
 * answer decides what the next ask is.
 *
 * A run begins with a write that is conditional on the record which its
 * backend has read.  Before that, the worker must know ZooKeeper's time, and
 * for a new record the number of all records.  Both are usually known from
 * replies to requests of the last seconds.
 *
 * ZooKeeper processes the requests of one session in order.  So a read after
 * a write whose outcome is unknown sees that write, if it was done at all.
 *
 * src/jobs/jobwriter.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "faultpoint.h"
#include "jobs/jobruns.h"
#include "jobs/jobwriter.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/request/ask.h"
#include "worker/request/sessionlog.h"

/* For this long, a fact about ZooKeeper counts as fresh. */
#define FRESH_FOR		ZKL_MS(10 * 1000)

/* This many records may be created before they are counted again. */
#define MAX_UNCOUNTED	10

/*
 * A create may fail because a record exists, and the read after it may find
 * none, because zk_job_forget has removed the record in between.  If a record
 * seems to appear and vanish more often, ZooKeeper's servers differ.
 */
#define MAX_ROUNDS		10

#define RECORD_PATH_SIZE	(ZKL_ROOT_SIZE + sizeof(ZKL_PATH_JOBS) + ZKL_PATH_NAME_SIZE + 1)

typedef enum Step
{
	STEP_COUNT,					/* how many records there are */
	STEP_TIME,					/* ZooKeeper's time */
	STEP_DIRECTORY,				/* ZooKeeper's time, by creating the missing
								 * directory */
	STEP_WRITE,
	STEP_READ
} Step;

typedef struct Task
{
	ZklJobRun	run;			/* a copy of the slot */
	ZklAsker	asker;
	bool		looked;			/* it has read the record again */
	bool		counted;		/* its step COUNT is done */
	int			rounds;			/* how often a record appeared and vanished */
} Task;

static Task *tasks = NULL;
static int	ntasks;
static char directory[ZKL_ROOT_SIZE + sizeof(ZKL_PATH_JOBS)];

/*
 * A moment of ZooKeeper's time, the number of records, and when each was
 * noted.
 */
static int64 time_then;
static int64 time_noted_at = 0; /* 0 if never */
static int	nrecords;
static int	nuncounted;			/* records made since the last count */
static int64 nrecords_noted_at = 0;

static void send_all(ZklJobRunState state);
static void take_over(Task *task, const ZklJobRun *run);
static void on_answer(ZklAsker *asker, int what, int64 number,
					  const ZklSessionEvent *event);
static bool must_read(const Task *task);
static void next_of_start(Task *task);
static void ask(Task *task, Step step);
static void record_path(const Task *task, char *path);
static bool must_count(const Task *task);
static bool is_fresh(int64 noted_at);
static void note_time(int64 time_ms);
static int64 time_now(void);
static void on_start_written(Task *task, const ZklSessionEvent *event);
static void on_start_read(Task *task, const ZklSessionEvent *event);
static void on_end_written(Task *task, const ZklSessionEvent *event);
static void log_refused_end(const Task *task);
static void on_end_read(Task *task, const ZklSessionEvent *event);
static bool read_record(const ZklSessionEvent *event, ZklJobZnode *znode,
						ZklJobRecord *record);
static void answer(Task *task, ZklJobAnswer answer, const ZklJobZnode *znode);
static void answer_written(Task *task, const ZklJobZnode *znode);
static bool has_overtaken(const Task *task, const ZklJobZnode *znode);
static void answer_refusal(Task *task, const ZklSessionEvent *event);
static void answer_difference(Task *task);
static void finish(Task *task);

void
zkl_job_writer_start(const char *prefix)
{
	snprintf(directory, sizeof(directory), "%s" ZKL_PATH_JOBS,
			 prefix);
	ntasks = zkl_job_runs_number();
	tasks = MemoryContextAllocZero(TopMemoryContext, ntasks * sizeof(Task));
	for (int i = 0; i < ntasks; i++)
	{
		tasks[i].asker.owner = &tasks[i];
		tasks[i].asker.answered = on_answer;
		tasks[i].asker.urgent = true;
	}
}

void
zkl_job_writer_forget_time(void)
{
	time_noted_at = 0;
}

/*
 * A backend that got the job's lock within this server must not overtake the
 * end of the previous run: otherwise it would take the previous run for one
 * that died.  So the ends of runs go first, and a run begins only when no
 * other run of the job is ending.
 */
void
zkl_job_writer_send(void)
{
	if (!zkl_job_runs_any() || !zkl_session_is_usable())
		return;
	zkl_session_cork(true);
	send_all(ZKL_JOBRUN_ENDED);
	send_all(ZKL_JOBRUN_STARTING);
	zkl_session_cork(false);
}

/*
 * If the serial of the slot has changed, it has a new request, and its task
 * begins again.
 */
static void
send_all(ZklJobRunState state)
{
	ZklJobRun	run;

	for (int i = 0; i < ntasks; i++)
	{
		if (!zkl_job_runs_get(i, &run) ||
			run.state != state)
			continue;
		if (tasks[i].run.serial != run.serial)
			take_over(&tasks[i], &run);
		if (tasks[i].asker.outstanding > 0)
			continue;
		/* An end can be written at once, unless it must be read first. */
		if (state == ZKL_JOBRUN_ENDED)
			ask(&tasks[i], must_read(&tasks[i]) ? STEP_READ : STEP_WRITE);
		else if (!zkl_job_runs_is_ending(run.path))
			next_of_start(&tasks[i]);
	}
}

/* Begin the task of a new request. */
static void
take_over(Task *task, const ZklJobRun *run)
{
	task->run = *run;
	zkl_ask_cancel(&task->asker);
	task->looked = task->counted = false;
	task->rounds = 0;
}

/*
 * Requests
 */

/*
 * A write whose outcome is unknown is sent again as it was, before the delete
 * of the ticket.  But if the session has expired, the lock was free
 * meanwhile.  Then the record may have been deleted and created again, with
 * the same version.
 */
static bool
must_read(const Task *task)
{
	return task->run.unsure ||
		task->run.epoch != pg_atomic_read_u64(&zkl_session_info->epoch);
}

/*
 * Some facts must be known before a start.
 *
 * If the backend waited for the lock after it had read the record, the record
 * may have been deleted and created again, with the same version.  This
 * server holds the lock now, so after another look no other run changes the
 * record.
 */
static void
next_of_start(Task *task)
{
	if (task->run.look && task->run.last.exists && !task->looked)
		ask(task, STEP_READ);
	else if (!task->run.last.exists && must_count(task))
		ask(task, STEP_COUNT);
	else if (!task->run.last.exists && nrecords >= zkl_max_jobs)
		answer(task, ZKL_JOB_ANSWER_FULL, NULL);
	else if (!is_fresh(time_noted_at))
		ask(task, STEP_TIME);
	else if (zkl_job_record_is_ahead(task->run.record.tick, time_now()))
		answer(task, ZKL_JOB_ANSWER_AHEAD, NULL);
	else
		ask(task, STEP_WRITE);
}

/*
 * A count of the last seconds is enough, unless it is close to the limit:
 * other servers may have created or removed some records since.
 */
static bool
must_count(const Task *task)
{
	return !task->counted &&
		(!is_fresh(nrecords_noted_at) || nrecords >= zkl_max_jobs / 2 ||
		 nuncounted >= MAX_UNCOUNTED);
}

/* Was this fact noted within the last seconds? */
static bool
is_fresh(int64 noted_at)
{
	return noted_at != 0 && zkl_now() - noted_at <= FRESH_FOR;
}

static void
ask(Task *task, Step step)
{
	ZklAsker   *asker = &task->asker;
	ZklJobRun  *run = &task->run;
	char		path[RECORD_PATH_SIZE];
	char		line[ZKL_JOBRECORD_SIZE];

	record_path(task, path);
	zkl_job_record_format(&run->record, line);
	switch (step)
	{
		case STEP_COUNT:
			zkl_ask_stat(asker, step, 0, directory);
			break;
		case STEP_TIME:

			/*
			 * A write to the directory itself shows the time: its Stat has
			 * the moment of the write.
			 */
			zkl_ask_write(asker, step, directory, "", -1);
			break;
		case STEP_DIRECTORY:
			zkl_ask_create(asker, step, directory, "", ZKL_CREATE_CONTAINER);
			break;
		case STEP_WRITE:
			if (run->state == ZKL_JOBRUN_STARTING && !run->last.exists)
				zkl_ask_create(asker, step, path, line, ZKL_CREATE_PERSISTENT);
			else
				zkl_ask_write(asker, step, path, line, run->last.version);
			break;
		case STEP_READ:
			zkl_ask_data(asker, step, 0, path, ZKL_JOBRECORD_SIZE);
			break;
	}
	if (step == STEP_WRITE && run->state == ZKL_JOBRUN_STARTING)
		ZKL_FAULT_POINT("run-start-asked");
	else if (step == STEP_WRITE)
		ZKL_FAULT_POINT("run-end-asked");
	zkl_ask_send_urgent(asker);
	if (step == STEP_WRITE && run->state == ZKL_JOBRUN_STARTING)
		ZKL_FAULT_POINT("run-start-sent");
	else if (step == STEP_WRITE)
		ZKL_FAULT_POINT("run-end-sent");
}

static void
record_path(const Task *task, char *path)
{
	char		name[ZKL_PATH_NAME_SIZE];

	zkl_path_name(task->run.path, name);
	snprintf(path, RECORD_PATH_SIZE, "%s/%s", directory, name);
}

/*
 * Note ZooKeeper's time.  The znode was created before the reply came, so
 * ZooKeeper's time is now that of the creation, or a little later.
 */
void
zkl_job_writer_note_reply(const ZklSessionEvent *event)
{
	if (event->reply.outcome == ZKL_OUTCOME_OK &&
		(event->reply.request == ZKL_REQUEST_CREATE ||
		 event->reply.request == ZKL_REQUEST_CREATE_BOTH))
		note_time(event->ctime_ms);
}

/* From now on, time_now() counts from this moment. */
static void
note_time(int64 time_ms)
{
	time_then = ZKL_MS(time_ms);
	time_noted_at = zkl_now();
}

/*
 * ZooKeeper's time, as far as this server knows it.  Ticks are compared with
 * it, because the clocks of servers may differ.
 */
static int64
time_now(void)
{
	return time_then + (zkl_now() - time_noted_at);
}

/*
 * Replies
 */

/*
 * If the reply was lost with the connection, the task begins again.  If the
 * lost reply was to the start of a run, the worker repeats the write, whose
 * outcome shows whether the first one was done.
 */
static void
on_answer(ZklAsker *asker, int what, int64 number,
		  const ZklSessionEvent *event)
{
	Task	   *task = asker->owner;
	bool		starting = task->run.state == ZKL_JOBRUN_STARTING;
	ZklOutcome	outcome = event->reply.outcome;

	if (outcome == ZKL_OUTCOME_UNKNOWN)
		return;
	switch ((Step) what)
	{
		case STEP_COUNT:
			if (outcome == ZKL_OUTCOME_REFUSED)
			{
				answer_refusal(task, event);
				break;
			}
			/* If the directory is missing, there are no records. */
			nrecords = outcome == ZKL_OUTCOME_OK ? event->numchildren : 0;
			nrecords_noted_at = zkl_now();
			nuncounted = 0;
			task->counted = true;
			break;
		case STEP_TIME:
		case STEP_DIRECTORY:
			if (outcome == ZKL_OUTCOME_REFUSED)
				answer_refusal(task, event);
			else if (outcome == ZKL_OUTCOME_OK)
				note_time(event->mtime_ms);
			else if (what == STEP_TIME && outcome == ZKL_OUTCOME_ABSENT)
				ask(task, STEP_DIRECTORY);
			break;
		case STEP_WRITE:
			if (starting)
				on_start_written(task, event);
			else
				on_end_written(task, event);
			break;
		case STEP_READ:
			if (starting)
				on_start_read(task, event);
			else
				on_end_read(task, event);
			break;
	}
}

/* Handle the reply to the write that begins the run. */
static void
on_start_written(Task *task, const ZklSessionEvent *event)
{
	ZklJobZnode znode = {.exists = true};

	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			ZKL_FAULT_POINT("run-start-answered");

			/*
			 * Version and czxid now belong to this run's record.  The end is
			 * written on condition of them.
			 */
			znode.version = event->reply.version;
			znode.czxid = event->reply.czxid;
			if (!task->run.last.exists)
			{
				nrecords++;
				nuncounted++;
			}
			answer_written(task, &znode);
			break;
		case ZKL_OUTCOME_ABSENT:

			/*
			 * The record that the backend has read is gone, so the backend
			 * must decide again.  If there was no record, the directory has
			 * gone again before the record was made, and the task begins
			 * again.
			 */
			if (task->run.last.exists)
			{
				znode.exists = false;
				answer(task, ZKL_JOB_ANSWER_CHANGED, &znode);
			}
			break;
		case ZKL_OUTCOME_CHANGED:

			/*
			 * Either another run was faster, or an earlier write of this task
			 * was done and its reply lost.  The record tells which of the two
			 * is the case.
			 */
			ask(task, STEP_READ);
			break;
		case ZKL_OUTCOME_UNKNOWN:
		case ZKL_OUTCOME_UNDONE:
			break;
		case ZKL_OUTCOME_REFUSED:
			answer_refusal(task, event);
			break;
	}
}

/*
 * The record may be another run's; or this run's own, if the first reply was
 * lost; or, after a look, the record that the backend has read, and then the
 * write comes next.  After a refused write, it cannot be the record that the
 * backend has read: a refusal has a place in the order of ZooKeeper's writes,
 * so the server that passes it on has applied all writes before it, and the
 * record's change is among them.  But if there was no record and still is
 * none, one may have come and gone.
 */
static void
on_start_read(Task *task, const ZklSessionEvent *event)
{
	const ZklJobZnode *last = &task->run.last;
	bool		looks = task->run.look && !task->looked;
	ZklJobZnode znode;
	ZklJobRecord record;

	task->looked = true;
	if (event->reply.outcome == ZKL_OUTCOME_REFUSED)
		answer_refusal(task, event);
	else if (read_record(event, &znode, &record) &&
			 strcmp(record.run, task->run.record.run) == 0)
		answer_written(task, &znode);
	else if (znode.exists != last->exists || znode.czxid != last->czxid ||
			 znode.version != last->version)
		answer(task, ZKL_JOB_ANSWER_CHANGED, &znode);
	else if (!looks && (znode.exists || ++task->rounds > MAX_ROUNDS))
		answer_difference(task);
}

/* If the record has changed or is gone, the run has no record any more. */
static void
on_end_written(Task *task, const ZklSessionEvent *event)
{
	if (event->reply.outcome == ZKL_OUTCOME_OK)
		ZKL_FAULT_POINT("run-end-answered");

	/*
	 * A retry would not help.  The next run will find this run still
	 * "started", and take it for one that died.
	 */
	if (event->reply.outcome == ZKL_OUTCOME_REFUSED)
		log_refused_end(task);
	finish(task);
}

static void
log_refused_end(const Task *task)
{
	ereport(LOG,
			errmsg("could not write the end of a run to the record of job \"%s\"",
				   task->run.path));
}

/*
 * The record belongs to this run only if it has the run's ID and says that
 * the run goes on.  Then the write follows, on condition of this version.
 */
static void
on_end_read(Task *task, const ZklSessionEvent *event)
{
	ZklJobZnode znode;
	ZklJobRecord record;

	if (event->reply.outcome == ZKL_OUTCOME_REFUSED)
	{
		log_refused_end(task);
		finish(task);
		return;
	}
	if (!read_record(event, &znode, &record) ||
		strcmp(record.run, task->run.record.run) != 0 ||
		record.state != ZKL_JOB_STARTED)
	{
		finish(task);
		return;
	}

	/* The backend ended before it could learn that another run was faster. */
	if (has_overtaken(task, &znode))
		zkl_job_record_close(&task->run.record, ZKL_MS(event->mtime_ms));
	task->run.last = znode;
	ask(task, STEP_WRITE);
}

/* Parse the record.  False: there is no readable record. */
static bool
read_record(const ZklSessionEvent *event, ZklJobZnode *znode,
			ZklJobRecord *record)
{
	memset(znode, 0, sizeof(*znode));
	znode->exists = event->reply.outcome == ZKL_OUTCOME_OK;
	if (!znode->exists)
		return false;
	znode->czxid = event->reply.czxid;
	znode->version = event->reply.version;

	/*
	 * Every record of zklock fits.  Longer data are cut off, and cannot be
	 * parsed.
	 */
	znode->length = Min(event->data_length, (int) sizeof(znode->data));
	memcpy(znode->data, event->data, znode->length);
	return zkl_job_record_parse(znode->data, znode->length, record);
}

/*
 * Tell the backend the outcome of its request.  If the slot already has
 * another request, this does nothing.
 */
static void
answer(Task *task, ZklJobAnswer answer, const ZklJobZnode *znode)
{
	zkl_job_runs_set_answer(task - tasks, task->run.serial, answer, znode,
							time_now());
}

static void
answer_written(Task *task, const ZklJobZnode *znode)
{
	answer(task, has_overtaken(task, znode) ?
		   ZKL_JOB_ANSWER_OVERTAKEN : ZKL_JOB_ANSWER_WRITTEN, znode);
}

/*
 * The versions of a new znode begin again.  So if the record was deleted and
 * created again since the backend read it, this write may have replaced the
 * record of a run that the backend has not seen.
 */
static bool
has_overtaken(const Task *task, const ZklJobZnode *znode)
{
	const ZklJobZnode *last = &task->run.last;

	return last->exists && last->czxid != znode->czxid;
}

static void
answer_refusal(Task *task, const ZklSessionEvent *event)
{
	answer(task,
		   event->reply.failure == ZKL_FAILURE_PERMISSION ? ZKL_JOB_ANSWER_DENIED :
		   event->reply.failure == ZKL_FAILURE_QUOTA ? ZKL_JOB_ANSWER_QUOTA :
		   ZKL_JOB_ANSWER_REFUSED, NULL);
}

/* A retry would not help while the session is with this server. */
static void
answer_difference(Task *task)
{
	char		path[RECORD_PATH_SIZE];

	record_path(task, path);
	zkl_session_log_difference(path);
	answer(task, ZKL_JOB_ANSWER_DIFFERS, NULL);
}

/* Free the slot: the record cannot say more. */
static void
finish(Task *task)
{
	zkl_job_runs_finish(task - tasks, task->run.serial);
}
