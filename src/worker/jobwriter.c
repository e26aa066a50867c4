/*-------------------------------------------------------------------------
 *
 * jobwriter.c
 *	  The worker writes the records of jobs: how runs begin and end.
 *
 * Each slot of jobruns.h has a TASK.  It sends one request at a time, and the
 * reply decides about the next one.
 *
 * A run begins with a write that is conditional on the record which its
 * backend has read.  Before that, the worker must know ZooKeeper's time, and
 * for a new record the number of all records.  Both are usually known from
 * replies to requests of the last seconds.
 *
 * ZooKeeper handles the requests of one session in their order.  Therefore a
 * read that follows a write whose answer is unknown sees that write, if it was
 * done at all.
 *
 * src/worker/jobwriter.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "faultpoint.h"
#include "settings.h"
#include "shared/jobruns.h"
#include "shared/locktable.h"
#include "worker/jobwriter.h"
#include "worker/sessionnews.h"

/* So long is a fact about ZooKeeper fresh. */
#define FRESH_FOR		ZKL_MS(10 * 1000)

/* So many records may be made without a look at their number. */
#define MAX_UNCOUNTED	10

/*
 * A record that was in the way of a new one may be gone for the read that
 * follows, because zk_job_forget has removed it.  If that seems to happen more
 * often, ZooKeeper's servers differ.
 */
#define MAX_ROUNDS		10

#define RECORD_PATH_SIZE	(ZKL_ROOT_SIZE + sizeof(ZKL_JOBRECORD_DIRECTORY) + ZKL_JOBRECORD_NAME_SIZE + 1)

typedef enum Step
{
	STEP_NONE,					/* no request is under way */
	STEP_COUNT,					/* how many records there are */
	STEP_TIME,					/* ZooKeeper's time */
	STEP_WRITE,
	STEP_READ
} Step;

typedef struct Task
{
	ZklJobRun	run;			/* a copy of the slot */
	uint32		attempt;		/* tags requests */
	Step		step;
	bool		looked;			/* it has read the record again */
	bool		counted;		/* it has had its step COUNT */
	int			rounds;			/* how often a record was there and gone */
	bool		no_directory;	/* the directories must be made first */
} Task;

static Task *tasks = NULL;
static int	ntasks;
static char directory[ZKL_ROOT_SIZE + sizeof(ZKL_JOBRECORD_DIRECTORY)];

/* A moment of ZooKeeper's time, the number of records, and when they were so. */
static int64 time_then;
static int64 time_noted_at = 0; /* 0: never */
static int	nrecords;
static int	nuncounted;			/* records made since then */
static int64 nrecords_noted_at = 0;

static void send_all(ZklJobRunState state);
static void take_over(Task *task, const ZklJobRun *run);
static void next_request(Task *task);
static bool must_read(const Task *task);
static void next_of_start(Task *task);
static void ask(Task *task, Step step);
static void record_path(const Task *task, char *path);
static bool must_count(const Task *task);
static bool is_fresh(int64 noted_at);
static void note_time(int64 time_ms);
static int64 time_now(void);
static void take_reply(Task *task, Step step, const ZklSessionEvent *event);
static void on_start_written(Task *task, const ZklSessionEvent *event);
static void on_start_read(Task *task, const ZklSessionEvent *event);
static void on_end_written(Task *task, const ZklSessionEvent *event);
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
	snprintf(directory, sizeof(directory), "%s" ZKL_JOBRECORD_DIRECTORY,
			 prefix);
	ntasks = zkl_job_runs_number();
	tasks = MemoryContextAllocZero(TopMemoryContext, ntasks * sizeof(Task));
}

void
zkl_job_writer_restarted(void)
{
	time_noted_at = 0;			/* the reply may have been read late */
	for (int i = 0; i < ntasks; i++)
	{
		tasks[i].attempt++;
		tasks[i].step = STEP_NONE;
	}
}

/*
 * A backend that got the job's lock within this server must not overtake the
 * end of the run before: it would take that run for one that died.  So the ends
 * of runs go first, and a run begins only when no other of the job is ending.
 */
void
zkl_job_writer_send(void)
{
	if (!zkl_job_runs_any() || !zkl_session_is_usable())
		return;
	zkl_session_begin_sending();
	send_all(ZKL_JOBRUN_ENDED);
	send_all(ZKL_JOBRUN_STARTING);
	zkl_session_end_sending();
}

/*
 * A slot whose serial has changed has something new to say: then its task
 * begins anew.
 */
static void
send_all(ZklJobRunState state)
{
	ZklJobRun	run;

	for (int i = 0; i < ntasks; i++)
	{
		if (!zkl_job_runs_get(i, zkl_session_info_number(), &run) ||
			run.state != state)
			continue;
		if (tasks[i].run.serial != run.serial)
			take_over(&tasks[i], &run);
		/* One request a task: the reply decides about the next one. */
		if (tasks[i].step == STEP_NONE &&
			(state == ZKL_JOBRUN_ENDED || !zkl_job_runs_is_ending(run.path)))
			next_request(&tasks[i]);
	}
}

/* The slot has a new request. */
static void
take_over(Task *task, const ZklJobRun *run)
{
	task->run = *run;
	task->attempt++;
	task->step = STEP_NONE;
	task->looked = task->counted = task->no_directory = false;
	task->rounds = 0;
}

/*
 * Requests
 */

/*
 * For a start, some facts must be known first.  An end can be written at once,
 * unless it is unsure what the record says now.
 */
static void
next_request(Task *task)
{
	if (task->run.state == ZKL_JOBRUN_STARTING)
		next_of_start(task);
	else
		ask(task, must_read(task) ? STEP_READ : STEP_WRITE);
}

/*
 * A write whose answer was lost is sent again as it is, before the delete of
 * the ticket.  But if the session has expired, the lock has been free: then
 * the record may have been deleted and made anew, with the same version.
 */
static bool
must_read(const Task *task)
{
	return task->run.unsure ||
		task->run.epoch != pg_atomic_read_u64(&zkl_session_info_mine->epoch);
}

/*
 * If the backend waited for the lock after it had read the record, the record
 * may have been deleted and made anew since, with the same version.  This
 * server holds the lock now, so no other run changes the record after a look.
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
 * A number of the last seconds will do, unless it comes near the limit: other
 * servers may have made records since, or removed some.
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
	ZklSessionAsk tag = {task, task->attempt, step};
	ZklJobRun  *run = &task->run;
	char		path[RECORD_PATH_SIZE];
	char		line[ZKL_JOBRECORD_SIZE];

	/*
	 * If the client refuses the request, its answer is among the events, and
	 * a later turn handles it.
	 */
	task->step = step;
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
	record_path(task, path);
	zkl_job_record_format(&run->record, line);
	switch (step)
	{
		case STEP_NONE:
			break;
		case STEP_COUNT:
			zkl_session_ask_stat(tag, directory);
			break;
		case STEP_TIME:

			/*
			 * A write to the directory itself tells the time: its Stat has
			 * the moment of the write.
			 */
			if (task->no_directory)
				zkl_session_create_directory(tag, directory);
			else
				zkl_session_ask_write(tag, directory, "", -1);
			break;
		case STEP_WRITE:
			if (run->state == ZKL_JOBRUN_STARTING && !run->last.exists)
				zkl_session_create_record(tag, path, line, task->no_directory);
			else
				zkl_session_ask_write(tag, path, line, run->last.version);
			if (run->state == ZKL_JOBRUN_STARTING)
				ZKL_FAULT_POINT("run-start-sent");
			else
				ZKL_FAULT_POINT("run-end-sent");
			break;
		case STEP_READ:
			zkl_session_ask_data(tag, path, ZKL_JOBRECORD_SIZE);
			break;
	}
}

static void
record_path(const Task *task, char *path)
{
	char		name[ZKL_JOBRECORD_NAME_SIZE];

	zkl_job_record_name(task->run.path, name);
	snprintf(path, RECORD_PATH_SIZE, "%s/%s", directory, name);
}

/*
 * ZooKeeper's time.  The znode was made before its reply came, so the time is
 * this one or a little later.
 */
void
zkl_job_writer_note_reply(const ZklSessionEvent *event)
{
	if (event->reply.outcome == ZKL_OUTCOME_OK &&
		(event->reply.request == ZKL_REQUEST_CREATE ||
		 event->reply.request == ZKL_REQUEST_CREATE_BOTH))
		note_time(event->ctime_ms);
}

/* From now on, time_now() counts from this moment on. */
static void
note_time(int64 time_ms)
{
	time_then = ZKL_MS(time_ms);
	time_noted_at = zkl_now();
}

/*
 * ZooKeeper's time, as far as this server knows it.  Ticks are compared with
 * that, because the clocks of servers may differ.
 */
static int64
time_now(void)
{
	return time_then + (zkl_now() - time_noted_at);
}

/*
 * Replies
 */

bool
zkl_job_writer_handle(const ZklSessionEvent *event)
{
	Task	   *task = event->tag;

	/* The tags of commands are runs of commandrunner.c, and lie elsewhere. */
	if (task < tasks || task >= tasks + ntasks)
		return false;
	if (event->attempt == task->attempt)
	{
		Step		step = task->step;

		/* Before the reply is taken, which may begin the next step. */
		task->step = STEP_NONE;
		take_reply(task, step, event);
	}
	return true;
}

/*
 * If the answer was lost with the connection, the task begins anew.  After the
 * start of a run was lost, the write comes again, and finds out.
 */
static void
take_reply(Task *task, Step step, const ZklSessionEvent *event)
{
	bool		starting = task->run.state == ZKL_JOBRUN_STARTING;
	ZklOutcome	outcome = event->reply.outcome;

	if (outcome == ZKL_OUTCOME_UNKNOWN)
		return;
	switch (step)
	{
		case STEP_NONE:
			break;
		case STEP_COUNT:
			if (outcome == ZKL_OUTCOME_REFUSED)
			{
				answer_refusal(task, event);
				break;
			}
			/* Without the directory there are no records. */
			nrecords = outcome == ZKL_OUTCOME_OK ? event->numchildren : 0;
			nrecords_noted_at = zkl_now();
			nuncounted = 0;
			task->counted = true;
			break;
		case STEP_TIME:
			if (outcome == ZKL_OUTCOME_REFUSED)
				answer_refusal(task, event);
			else if (outcome == ZKL_OUTCOME_OK)
				note_time(event->mtime_ms);

			/*
			 * The next attempt makes the directory, which tells the time as
			 * well.
			 */
			task->no_directory = outcome == ZKL_OUTCOME_ABSENT;
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

/* What became of the write that begins the run. */
static void
on_start_written(Task *task, const ZklSessionEvent *event)
{
	ZklJobZnode znode = {.exists = true};

	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			ZKL_FAULT_POINT("run-start-answered");

			/*
			 * Version and czxid are now those of this run's record, and its
			 * end is written on condition of them.
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
			 * The record that the backend has read is gone; the backend
			 * decides anew.  A new record lacks its directory: the next
			 * attempt makes that.
			 */
			if (task->run.last.exists)
			{
				znode.exists = false;
				answer(task, ZKL_JOB_ANSWER_CHANGED, &znode);
			}
			task->no_directory = true;
			break;
		case ZKL_OUTCOME_CHANGED:

			/*
			 * Another run was faster, or an earlier write of this task was
			 * done and its answer lost.  The record tells which.
			 */
			ask(task, STEP_READ);
			break;
		case ZKL_OUTCOME_UNKNOWN:
			break;
		case ZKL_OUTCOME_REFUSED:
			answer_refusal(task, event);
			break;
	}
}

/*
 * Another run's record, or this one's, if the first answer was lost; or, after
 * a look, the one that the backend has read.  Then the write comes next.
 *
 * After a refused write, it cannot be the one that the backend has read.
 * ZooKeeper takes a refusal into the order of its writes, so the server that
 * passes it on has all writes before it, and the record's change is among them.
 * But if there was no record and is none, one may have come and gone.
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

/* If the record has changed or is gone, it is not this run's any more. */
static void
on_end_written(Task *task, const ZklSessionEvent *event)
{
	if (event->reply.outcome == ZKL_OUTCOME_OK)
		ZKL_FAULT_POINT("run-end-answered");

	/*
	 * To try again would not help.  The next run finds this one started, and
	 * takes it for one that died.
	 */
	if (event->reply.outcome == ZKL_OUTCOME_REFUSED)
		ereport(LOG,
				errmsg("could not write the end of a run to the record of job \"%s\"",
					   task->run.path));
	finish(task);
}

/*
 * The record is only this run's if it has the run's ID and says that the run
 * goes on.  Then the write follows, on condition of this version.
 */
static void
on_end_read(Task *task, const ZklSessionEvent *event)
{
	ZklJobZnode znode;
	ZklJobRecord record;

	if (event->reply.outcome == ZKL_OUTCOME_REFUSED ||
		!read_record(event, &znode, &record) ||
		strcmp(record.run, task->run.record.run) != 0 ||
		record.state != ZKL_JOB_STARTED)
	{
		finish(task);
		return;
	}

	/* The backend was gone before it could hear that it was overtaken. */
	if (has_overtaken(task, &znode))
		zkl_job_record_close(&task->run.record, ZKL_MS(event->mtime_ms));
	task->run.last = znode;
	ask(task, STEP_WRITE);
}

/* False: there is no record that can be read. */
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
	/* A record of zklock's fits.  Other data are cut off, and do not parse. */
	znode->length = Min(event->data_length, (int) sizeof(znode->text));
	memcpy(znode->text, event->data, znode->length);
	return zkl_job_record_parse(znode->text, znode->length, record);
}

/*
 * Tell the backend what became of its request.  If the slot has another
 * request by now, this does nothing.
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
 * Versions begin anew with a new znode.  If the record was deleted and made
 * anew since the backend read it, this write may have replaced a run's record
 * that the backend has not seen.
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
	answer(task, event->reply.failure == ZKL_FAILURE_PERMISSION ?
		   ZKL_JOB_ANSWER_DENIED : ZKL_JOB_ANSWER_REFUSED, NULL);
}

/* To try again would not help as long as the session is with this server. */
static void
answer_difference(Task *task)
{
	char		path[RECORD_PATH_SIZE];

	record_path(task, path);
	zkl_session_news_difference(path);
	answer(task, ZKL_JOB_ANSWER_DIFFERS, NULL);
}

/* The slot is free again: the record says what it can. */
static void
finish(Task *task)
{
	zkl_job_runs_finish(task - tasks, task->run.serial);
}
