/*-------------------------------------------------------------------------
 *
 * znodes.c
 *	  What a backend makes the worker do once: read znodes, or change one.
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
#include "protocol/serverrecord.h"
#include "protocol/waitrecord.h"
#include "settings.h"
#include "shared/mailbox.h"
#include "shared/process.h"

static int	my_slot = -1;		/* a backend has at most one command at a time */

static bool ask_about_child(ZklCommandKind kind, const char *path,
							const char *child);
static char *ask(const ZklCommand *command, int64 until, bool *exists);
static char *ask_for_outcome(const ZklCommand *command, int64 until,
							 ZklCommandOutcome *result);
static void set_up(void);
static void end_at_exit(int code, Datum arg);
static void end(void);
static bool take_slot(const ZklCommand *command, int64 asked_at, int64 until);
static void report_no_slot(void);
static bool wait_until_done(const char *path, int64 asked_at, int64 until);
static void copy_argument(char *to, Size size, const char *from);

ZklListing *
zkl_znodes_survey(const char *path, ZklZnodesDepth depth, int64 until)
{
	ZklCommand	command = {0};
	bool		exists;
	char	   *answer;

	command.kind = depth == ZKL_ZNODES_DETAILS ? ZKL_COMMAND_SURVEY :
		ZKL_COMMAND_LIST;
	copy_argument(command.path, sizeof(command.path), path);
	answer = ask(&command, until, &exists);
	return answer ? zkl_listing_unpack(answer) : NULL;
}

ZklListing *
zkl_znodes_survey_if_allowed(const char *path)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_SURVEY};
	ZklCommandOutcome outcome;
	char	   *answer;

	copy_argument(command.path, sizeof(command.path), path);
	answer = ask_for_outcome(&command, PG_INT64_MAX, &outcome);
	if (outcome == ZKL_COMMAND_DENIED)
		return NULL;
	if (outcome != ZKL_COMMAND_OK)
		zkl_report_command(path, outcome);
	return zkl_listing_unpack(answer);
}

const char *
zkl_znodes_read(const char *path, const char *child, int64 until)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_READ};
	bool		exists;
	char	   *answer;
	const ZklListing *survey;

	copy_argument(command.path, sizeof(command.path), path);
	copy_argument(command.child, sizeof(command.child), child);
	answer = ask(&command, until, &exists);
	survey = answer ? zkl_listing_unpack(answer) : NULL;
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
zkl_znodes_write_limit(const char *path, int limit)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_LIMIT,.child = ZKL_LIMIT};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), path);
	zkl_recipe_write_limit(limit, command.data);
	(void) ask(&command, PG_INT64_MAX, &exists);
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
 * Run a command about one znode below the directory.  False if there is no
 * such znode.
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
	ZklCommand	command = {.kind = ZKL_COMMAND_READ,.path = ZKL_JOBRECORD_DIRECTORY};
	bool		exists;
	const ZklListing *survey;
	const ZklListingNode *node;

	zkl_job_record_name(path, command.child);
	survey = zkl_listing_unpack(ask(&command, PG_INT64_MAX, &exists));
	node = survey->nodes;
	memset(znode, 0, sizeof(*znode));
	znode->exists = survey->nnodes > 0;
	if (!znode->exists)
		return;

	/*
	 * The record exists, but ZooKeeper's access control does not let this
	 * server read it.
	 */
	if (node->data == NULL)
		zkl_report_failure(path, ZKL_FAILURE_PERMISSION);
	znode->czxid = node->czxid;
	znode->version = node->version;
	znode->length = Min(node->data_length, (int) sizeof(znode->text));
	memcpy(znode->text, node->data, znode->length);
}

ZklListing *
zkl_znodes_jobs(void)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_JOBS};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), ZKL_JOBRECORD_DIRECTORY);
	return zkl_listing_unpack(ask(&command, PG_INT64_MAX, &exists));
}

ZklListing *
zkl_znodes_waits(void)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_WAITS};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), ZKL_WAITRECORD_DIRECTORY);
	return zkl_listing_unpack(ask(&command, PG_INT64_MAX, &exists));
}

ZklListing *
zkl_znodes_servers(void)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_SERVERS};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), ZKL_SERVERRECORD_DIRECTORY);
	return zkl_listing_unpack(ask(&command, PG_INT64_MAX, &exists));
}

ZklListing *
zkl_znodes_walk(const char *below)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_WALK};
	bool		exists;

	copy_argument(command.path, sizeof(command.path), below);
	return zkl_listing_unpack(ask(&command, PG_INT64_MAX, &exists));
}

bool
zkl_znodes_forget(const char *path)
{
	char		record[ZKL_JOBRECORD_NAME_SIZE];

	zkl_job_record_name(path, record);
	return zkl_znodes_delete(ZKL_JOBRECORD_DIRECTORY, record);
}

/* A foreign client may have given its znode any name, so check the length. */
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

/*
 * Run the command.  Returns the result, in the current memory context; NULL
 * if there is none.
 */
static char *
ask(const ZklCommand *command, int64 until, bool *exists)
{
	ZklCommandOutcome outcome;
	char	   *answer = ask_for_outcome(command, until, &outcome);

	if (outcome != ZKL_COMMAND_OK && outcome != ZKL_COMMAND_ABSENT)
		zkl_report_command(command->path[0] != '\0' ? command->path : "/", outcome);
	*exists = outcome == ZKL_COMMAND_OK;
	return answer;
}

static char *
ask_for_outcome(const ZklCommand *command, int64 until,
				ZklCommandOutcome *result)
{
	int64		asked_at = zkl_now();
	const char *path = command->path[0] != '\0' ? command->path : "/";
	volatile ZklCommandOutcome outcome = ZKL_COMMAND_ABSENT;
	char	   *answer = NULL;

	set_up();
	Assert(my_slot < 0);
	PG_TRY();
	{
		bool		taken = take_slot(command, asked_at, until);

		ZKL_FAULT_POINT("command-asked");
		if (taken && wait_until_done(path, asked_at, until))
		{
			ZKL_FAULT_POINT("command-done");
			outcome = zkl_mailbox_result(my_slot, &answer);
		}
	}

	/*
	 * Also after an error.  The worker may still carry the command out, but
	 * then its result is for an older generation of the slot, and is dropped.
	 */
	PG_FINALLY();
	{
		end();
	}
	PG_END_TRY();
	*result = outcome;
	return answer;
}

/*
 * PG_FINALLY does not run in a backend that is terminated, so its exit must
 * free the slot.
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

/* Get a slot.  False if the time is over. */
static bool
take_slot(const ZklCommand *command, int64 asked_at, int64 until)
{
	int64		patient_until = asked_at + ZKL_MS(zkl_connection_timeout);

	while ((my_slot = zkl_mailbox_ask(command)) < 0)
	{
		/*
		 * All slots are in use, or this role has its share.  If ZooKeeper is
		 * silent, that is the cause, so report that instead.
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
		zkl_mailbox_wait_for_slot(zkl_ms_until(Min(until, patient_until)));
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
 * Wait for the result.  A long survey may take its time, as long as ZooKeeper
 * replies to anything, even if only to signs of life.  False if the time is
 * over.
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
		zkl_process_sleep(Min(until, patient_until), "ZklockCommand", &wait_event);
	}
	return true;
}
