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
#include "settings.h"
#include "shared/process.h"

static int	my_slot = -1;		/* a backend has at most one command at a time */

static ZklCommand make_command(ZklCommandKind kind, const char *path,
							   const char *child);
static bool ask(const ZklCommand *command, int64 until);
static ZklListing *list(ZklCommandKind kind, const char *path,
						const char *child, int64 until, ZklPatience patience);
static ZklCommandOutcome run(const ZklCommand *command, int64 until, char **answer);
static void check_outcome(const ZklCommand *command, ZklCommandOutcome outcome);
static const char *shown_path(const ZklCommand *command);
static void end(int code, Datum arg);
static bool take_slot(const ZklCommand *command, int64 asked_at, int64 until);
static void report_no_slot(void);
static bool wait_until_done(const ZklCommand *command, int64 asked_at, int64 until);
static void copy_argument(char *to, Size size, const char *from);

ZklListing *
zkl_znodes_list(ZklCommandKind kind, const char *path, int64 until,
				ZklPatience patience)
{
	return list(kind, path, "", until, patience);
}

ZklListing *
zkl_znodes_survey_if_allowed(const char *path)
{
	ZklCommand	command = make_command(ZKL_COMMAND_SURVEY, path, "");
	char	   *answer;
	ZklCommandOutcome outcome = run(&command, PG_INT64_MAX, &answer);

	if (outcome == ZKL_COMMAND_DENIED)
		return NULL;
	check_outcome(&command, outcome);
	return zkl_listing_unpack(answer);
}

const ZklListingNode *
zkl_znodes_node(const char *path, const char *child, int64 until,
				ZklPatience patience)
{
	const ZklListing *survey = list(ZKL_COMMAND_READ, path, child, until, patience);

	return survey != NULL && survey->nnodes > 0 ? &survey->nodes[0] : NULL;
}

const char *
zkl_znodes_read(const char *path, const char *child, int64 until)
{
	const ZklListingNode *node = zkl_znodes_node(path, child, until, ZKL_PATIENCE_WAIT);

	return node != NULL ? node->data : NULL;
}

bool
zkl_znodes_write(const char *path, const char *child, const char *data,
				 int64 until, ZklPatience patience)
{
	ZklCommand	command = make_command(ZKL_COMMAND_WRITE, path, child);

	command.patience = patience;
	copy_argument(command.data, sizeof(command.data), data);
	return ask(&command, until);
}

bool
zkl_znodes_write_limit(const char *path, int limit)
{
	ZklCommand	command = make_command(ZKL_COMMAND_LIMIT, path, ZKL_LIMIT);

	zkl_recipe_write_limit(limit, command.data);
	return ask(&command, PG_INT64_MAX);
}

bool
zkl_znodes_end(ZklCommandKind kind, const char *path, const char *child)
{
	ZklCommand	command = make_command(kind, path, child);

	return ask(&command, PG_INT64_MAX);
}

bool
zkl_znodes_query(const char *path, const char *child, int64 until,
				 ZklPatience patience)
{
	ZklCommand	command = make_command(ZKL_COMMAND_QUERY, path, child);
	char	   *answer;
	ZklCommandOutcome outcome;

	command.patience = patience;
	outcome = run(&command, until, &answer);
	if (outcome == ZKL_COMMAND_DENIED)
		return false;
	check_outcome(&command, outcome);
	return true;
}

static ZklCommand
make_command(ZklCommandKind kind, const char *path, const char *child)
{
	ZklCommand	command = {.kind = kind};

	copy_argument(command.path, sizeof(command.path), path);
	copy_argument(command.child, sizeof(command.child), child);
	return command;
}

/* A foreign client may have given its znode any name, so check the length. */
static void
copy_argument(char *to, Size size, const char *from)
{
	if (strlcpy(to, from, size) >= size)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_PROGRAM_LIMIT_EXCEEDED)),
				errmsg("name of a znode is too long"),
				errdetail("The name has %zu bytes; the limit is %zu.",
						  strlen(from), size - 1));
}

/* Run a command that has no result.  False if there is no such znode. */
static bool
ask(const ZklCommand *command, int64 until)
{
	char	   *answer;
	ZklCommandOutcome outcome = run(command, until, &answer);

	check_outcome(command, outcome);
	return outcome == ZKL_COMMAND_OK;
}

/* Run a command that reads; NULL if it has no result. */
static ZklListing *
list(ZklCommandKind kind, const char *path, const char *child, int64 until,
	 ZklPatience patience)
{
	ZklCommand	command = make_command(kind, path, child);
	char	   *answer;

	command.patience = patience;
	check_outcome(&command, run(&command, until, &answer));
	return answer ? zkl_listing_unpack(answer) : NULL;
}

static void
check_outcome(const ZklCommand *command, ZklCommandOutcome outcome)
{
	if (outcome != ZKL_COMMAND_OK && outcome != ZKL_COMMAND_ABSENT)
		zkl_report_command(shown_path(command), outcome);
}

static const char *
shown_path(const ZklCommand *command)
{
	return command->path[0] != '\0' ? command->path : "/";
}

/*
 * Run the command.  "answer" becomes its result, in the current memory
 * context; NULL if there is none.
 */
static ZklCommandOutcome
run(const ZklCommand *command, int64 until, char **answer)
{
	int64		asked_at = zkl_now();
	volatile ZklCommandOutcome outcome = ZKL_COMMAND_ABSENT;

	*answer = NULL;
	Assert(my_slot < 0);

	/*
	 * Give the slot back on every way out, FATAL included.  The worker may
	 * still carry the command out, but then its result is for an older serial
	 * of the slot, and is dropped.
	 */
	PG_ENSURE_ERROR_CLEANUP(end, (Datum) 0);
	{
		bool		taken = take_slot(command, asked_at, until);

		ZKL_FAULT_POINT("command-asked");
		if (taken && wait_until_done(command, asked_at, until))
		{
			ZKL_FAULT_POINT("command-done");
			outcome = zkl_mailbox_result(my_slot, answer);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(end, (Datum) 0);
	end(0, (Datum) 0);
	return outcome;
}

/* Give the slot back, if this backend has one. */
static void
end(int code, Datum arg)
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
		 * silent, report that instead, because it is the cause.
		 */
		if (zkl_now() >= patient_until)
		{
			if (zkl_now() >= zkl_session_info_silent_from(asked_at, asked_at))
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
			errcode(zkl_report_count(ERRCODE_INSUFFICIENT_RESOURCES)),
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
wait_until_done(const ZklCommand *command, int64 asked_at, int64 until)
{
	static uint32 wait_event = 0;

	while (!zkl_mailbox_is_done(my_slot))
	{
		int64		since = Max(asked_at, zkl_mailbox_heard_at(my_slot));
		int64		patient_until =
		zkl_session_info_silent_from(asked_at, since);

		if (command->patience == ZKL_PATIENCE_TRY)
			patient_until = Min(patient_until, zkl_session_info_away_from(since));
		if (zkl_now() >= patient_until)
			zkl_report_silence(shown_path(command));
		if (zkl_now() >= until)
			return false;
		zkl_process_sleep(Min(until, patient_until), "ZklockCommand", &wait_event);
	}
	return true;
}
