/*-------------------------------------------------------------------------
 *
 * znodes.c
 *	  What a backend has the worker do once: read znodes, or change one.
 *
 * src/backend/znodes.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"

#include "backend/report.h"
#include "backend/znodes.h"
#include "compat.h"
#include "faultpoint.h"
#include "protocol/waitrecord.h"
#include "settings.h"
#include "shared/mailbox.h"

static int	my_slot = -1;		/* a backend asks for one thing at a time */

static bool ask_about_child(ZklCommandKind kind, const char *path,
							const char *child);
static ZklCommand job_command(ZklCommandKind kind, const char *path);
static char *ask(const ZklCommand *command, int64 until, bool *exists);
static void set_up(void);
static void end_at_exit(int code, Datum arg);
static void end(void);
static bool take_slot(const ZklCommand *command, int64 asked_at, int64 until);
static void report_no_slot(void);
static bool wait_until_done(const char *path, int64 asked_at, int64 until);
static long milliseconds_until(int64 moment);
static void copy_argument(char *to, Size size, const char *from);

ZklSnapshot *
zkl_znodes_survey(const char *path, ZklZnodesDepth depth, int64 until)
{
	ZklCommand	command = {0};
	bool		exists;
	char	   *answer;

	command.kind = depth == ZKL_ZNODES_DETAILS ? ZKL_COMMAND_SURVEY :
		ZKL_COMMAND_LIST;
	copy_argument(command.path, sizeof(command.path), path);
	answer = ask(&command, until, &exists);
	return answer ? zkl_snapshot_unpack(answer) : NULL;
}

const char *
zkl_znodes_read(const char *path, const char *child, int64 until)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_READ};
	bool		exists;
	char	   *answer;
	const ZklSnapshot *survey;

	copy_argument(command.path, sizeof(command.path), path);
	copy_argument(command.child, sizeof(command.child), child);
	answer = ask(&command, until, &exists);
	survey = answer ? zkl_snapshot_unpack(answer) : NULL;
	return survey != NULL && survey->nnodes > 0 ? survey->nodes[0].data : NULL;
}

bool
zkl_znodes_write(const char *path, const char *child, const char *data,
				 int64 until)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_WRITE};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), path);
	copy_argument(command.child, sizeof(command.child), child);
	copy_argument(command.data, sizeof(command.data), data);
	(void) ask(&command, until, &exists);
	return exists;
}

bool
zkl_znodes_delete(const char *path, const char *child)
{
	return ask_about_child(ZKL_COMMAND_DELETE, path, child);
}

bool
zkl_znodes_revoke(const char *path, const char *child)
{
	return ask_about_child(ZKL_COMMAND_REVOKE, path, child);
}

/*
 * A command about one znode below the directory.  False if there is no such
 * znode.
 */
static bool
ask_about_child(ZklCommandKind kind, const char *path, const char *child)
{
	ZklCommand	command = {.kind = kind};
	bool		exists;

	Assert(child[0] != '\0');
	copy_argument(command.path, sizeof(command.path), path);
	copy_argument(command.child, sizeof(command.child), child);
	(void) ask(&command, PG_INT64_MAX, &exists);
	return exists;
}

void
zkl_znodes_job(const char *path, ZklJobZnode *znode)
{
	ZklCommand	command = job_command(ZKL_COMMAND_JOB, path);
	bool		exists;
	const ZklSnapshot *survey = zkl_snapshot_unpack(ask(&command, PG_INT64_MAX,
														&exists));
	const ZklSnapshotNode *node = survey->nodes;

	memset(znode, 0, sizeof(*znode));
	znode->exists = survey->nnodes > 0;
	if (!znode->exists)
		return;

	/*
	 * The record is there, but ZooKeeper's access control does not let this
	 * server read it.
	 */
	if (node->data == NULL)
		zkl_report_failure(path, ZKL_FAILURE_PERMISSION);
	znode->czxid = node->czxid;
	znode->version = node->version;
	znode->length = Min(node->data_length, (int) sizeof(znode->text));
	memcpy(znode->text, node->data, znode->length);
}

ZklSnapshot *
zkl_znodes_jobs(void)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_JOBS};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), ZKL_JOBRECORD_DIRECTORY);
	return zkl_snapshot_unpack(ask(&command, PG_INT64_MAX, &exists));
}

ZklSnapshot *
zkl_znodes_waits(void)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_WAITS};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), ZKL_WAITRECORD_DIRECTORY);
	return zkl_snapshot_unpack(ask(&command, PG_INT64_MAX, &exists));
}

bool
zkl_znodes_forget(const char *path)
{
	ZklCommand	command = job_command(ZKL_COMMAND_FORGET, path);
	bool		exists;

	(void) ask(&command, PG_INT64_MAX, &exists);
	return exists;
}

/* A command about the record of one job, which has its name from the path. */
static ZklCommand
job_command(ZklCommandKind kind, const char *path)
{
	ZklCommand	command = {.kind = kind};

	copy_argument(command.path, sizeof(command.path), path);
	zkl_job_record_name(path, command.child);
	return command;
}

/* A foreign client may have given its znode any name. */
static void
copy_argument(char *to, Size size, const char *from)
{
	if (strlcpy(to, from, size) >= size)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("name of a znode is too long"),
				errdetail("The name has %zu bytes; the limit is %zu.",
						  strlen(from), size - 1));
}

/* The answer, in the current memory context; NULL where there is none. */
static char *
ask(const ZklCommand *command, int64 until, bool *exists)
{
	int64		asked_at = zkl_now();
	volatile ZklCommandOutcome outcome = ZKL_COMMAND_ABSENT;
	char	   *answer = NULL;

	set_up();
	Assert(my_slot < 0);
	PG_TRY();
	{
		bool		taken = take_slot(command, asked_at, until);

		ZKL_FAULT_POINT("command-asked");
		if (taken && wait_until_done(command->path, asked_at, until))
		{
			ZKL_FAULT_POINT("command-done");
			outcome = zkl_mailbox_result(my_slot, &answer);
		}
	}

	/*
	 * Also after an error.  The worker may still carry the command out, but
	 * its answer is for a slot of an older generation, and is dropped.
	 */
	PG_FINALLY();
	{
		end();
	}
	PG_END_TRY();

	if (outcome != ZKL_COMMAND_OK && outcome != ZKL_COMMAND_ABSENT)
		zkl_report_command(command->path, outcome);
	*exists = outcome == ZKL_COMMAND_OK;
	return answer;
}

/*
 * A backend that is terminated runs no PG_FINALLY, so its exit must free the
 * slot.
 */
static void
set_up(void)
{
	static bool done = false;

	if (!done)
		before_shmem_exit(end_at_exit, (Datum) 0);
	done = true;
}

static void
end_at_exit(int code, Datum arg)
{
	end();
}

/* Give the slot back, if this backend has one. */
static void
end(void)
{
	int			slot = my_slot;

	my_slot = -1;
	if (slot >= 0)
		zkl_mailbox_end(slot);
}

/*
 * Waiting
 */

/* False if the time is over. */
static bool
take_slot(const ZklCommand *command, int64 asked_at, int64 until)
{
	int64		patient_until = asked_at + ZKL_MS(zkl_connection_timeout);

	while ((my_slot = zkl_mailbox_ask(command)) < 0)
	{
		/*
		 * All slots are in use, or this role has its share.  If ZooKeeper is
		 * silent, that is why, and so the better error.
		 */
		if (zkl_now() >= patient_until)
		{
			if (zkl_now() >= zkl_session_info_silent_from(ZKL_COMMAND_SESSION, asked_at,
														  asked_at))
				zkl_report_silence(command->path);
			report_no_slot();
		}
		if (zkl_now() >= until)
			break;
		zkl_mailbox_wait_for_slot(milliseconds_until(Min(until, patient_until)));
	}
	ConditionVariableCancelSleep();
	return my_slot >= 0;
}

static void
report_no_slot(void)
{
	ereport(ERROR,
			errcode(ERRCODE_INSUFFICIENT_RESOURCES),
			errmsg("too many requests to ZooKeeper at a time"),
			errdetail("The server makes %d such requests at a time, and at most half of them for one role.",
					  ZKL_COMMANDS));
}

/*
 * A long survey may take its time, as long as ZooKeeper answers anything, even
 * if only signs of life.  False if the time is over.
 */
static bool
wait_until_done(const char *path, int64 asked_at, int64 until)
{
	static uint32 wait_event = 0;

	while (!zkl_mailbox_is_done(my_slot))
	{
		int64		since = Max(asked_at, zkl_mailbox_heard_at(my_slot));
		int64		patient_until =
		zkl_session_info_silent_from(ZKL_COMMAND_SESSION, asked_at, since);

		if (zkl_now() >= patient_until)
			zkl_report_silence(path);
		if (zkl_now() >= until)
			return false;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 milliseconds_until(Min(until, patient_until)),
						 zkl_wait_event("ZklockCommand", &wait_event));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

static long
milliseconds_until(int64 moment)
{
	int64		ms = (moment - zkl_now() + 999) / 1000;

	return Min(Max(0, ms), 60 * 1000);
}
