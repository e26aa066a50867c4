/*-------------------------------------------------------------------------
 *
 * commandrunner.c
 *	  The worker's side of the commands of backends.
 *
 * There is one run (see commandrun.h) for each slot of the mailbox.  The runs
 * send their requests in turn, as the window allows.  When the last request of
 * a run is answered, the run is finished.  If an answer was lost with the
 * connection, or if the data to replace have changed, the whole run begins
 * anew.
 *
 * src/worker/commandrunner.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "faultpoint.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/commandrun.h"
#include "worker/commandrunner.h"
#include "worker/rolewindow.h"

/*
 * Two for each command.  Not more may be on their way, because a ticket's request
 * waits for all that was sent before it, and any role may read long queues in a
 * loop.  They may be on their way however busy the tickets are.
 */
#define WINDOW			32

static ZklCommandRun runs[ZKL_COMMANDS];
static int	next_run = 0;		/* the run whose turn it is to send */
static int	in_flight = 0;		/* requests on their way, those of runs that
								 * were stopped too */

static void take_commands(void);
static bool may_send(void);
static bool send_next(ZklCommandRun *run);
static void finish(ZklCommandRun *run);
static void stop(ZklCommandRun *run);

void
zkl_command_runner_start(const char *directory_prefix)
{
	zkl_command_run_set_prefix(directory_prefix);
	for (int i = 0; i < ZKL_COMMANDS; i++)
		runs[i].context = AllocSetContextCreate(TopMemoryContext,
												"zklock command",
												ALLOCSET_START_SMALL_SIZES);

	/*
	 * The replies to an earlier worker are lost, so its commands begin anew.
	 */
	zkl_mailbox_adopt();
}

void
zkl_command_runner_restarted(void)
{
	in_flight = 0;
	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		if (!runs[i].active)
			continue;
		/* What was sent may have been done, although its answer is lost. */
		runs[i].again |= runs[i].nsent > 0;
		zkl_command_run_begin(&runs[i]);
	}
}

/*
 * The runs take turns, one request each, so that a long survey does not keep
 * other runs waiting.
 */
void
zkl_command_runner_send(void)
{
	int			idle = 0;

	take_commands();

	/*
	 * A backend may have given its slot back meanwhile, because it was
	 * cancelled, say.  What is still to be sent for it would be in vain.
	 */
	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		if (runs[i].active && !zkl_mailbox_is_wanted(i, runs[i].generation))
			stop(&runs[i]);
	}
	/* Until a whole round of runs has nothing to send. */
	while (idle < ZKL_COMMANDS && may_send())
	{
		idle = send_next(&runs[next_run]) ? 0 : idle + 1;
		next_run = (next_run + 1) % ZKL_COMMANDS;
	}
}

int
zkl_command_runner_outstanding(void)
{
	return in_flight;
}

/* A run for an earlier generation of the slot is stopped. */
static void
take_commands(void)
{
	int			slot;
	uint32		generation;
	Oid			role;
	bool		again;
	ZklCommand	command;

	while (zkl_mailbox_take(&slot, &generation, &role, &command, &again))
	{
		ZklCommandRun *run = &runs[slot];

		ZKL_FAULT_POINT("command-taken");
		stop(run);
		run->active = true;
		run->generation = generation;
		run->role = role;
		/* The deletes of an earlier worker may have been done. */
		run->again = again;
		run->command = command;
		run->refused_version = -1;
		zkl_command_run_begin(run);
	}
}

/*
 * Requests
 */

static bool
may_send(void)
{
	int			window = zkl_role_window_is_shared(zkl_now()) ?
	zkl_role_window_size() : WINDOW;

	return zkl_session_is_usable() && in_flight < window;
}

/* False if there is nothing to send. */
static bool
send_next(ZklCommandRun *run)
{
	if (!run->active || run->nsent == run->nitems)
		return false;

	/* Each request gets exactly one answer, which takes it off again. */
	in_flight++;
	zkl_role_window_note(run->role, zkl_now());
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
	zkl_command_run_send(run);
	return true;
}

/*
 * Answers
 */

void
zkl_command_runner_handle(const ZklSessionEvent *event)
{
	ZklCommandRun *run = event->tag;

	/*
	 * The answer may be for a run that was stopped, or for an earlier
	 * attempt. It still frees its place in the window.
	 */
	in_flight--;
	if (!run->active || event->attempt != run->attempt)
		return;
	/* Each command may be done twice; mailbox.h says why. */
	if (event->reply.outcome == ZKL_OUTCOME_UNKNOWN ||
		event->reply.outcome == ZKL_OUTCOME_CHANGED)
	{
		run->again = true;
		if (event->reply.outcome == ZKL_OUTCOME_CHANGED)
			zkl_command_run_note_refusal(run);
		zkl_command_run_begin(run);
		return;
	}

	/* The backend sees that its command makes progress, and waits on. */
	zkl_mailbox_note_heard(run - runs, run->generation);
	run->nanswered++;

	/*
	 * This may add items, so only then it is clear whether all are answered.
	 */
	zkl_command_run_note(run, event);
	if (run->nanswered == run->nitems)
		finish(run);
}

/* Hand the result to the backend. */
static void
finish(ZklCommandRun *run)
{
	StringInfoData packed = {0};

	zkl_command_run_pack(run, &packed);
	ZKL_FAULT_POINT("command-answered");
	zkl_mailbox_finish(run - runs, run->generation, run->outcome, packed.data,
					   packed.len);
	stop(run);
}

/*
 * The run ends, and late answers find another attempt.  Its slot of the
 * mailbox is not touched.
 */
static void
stop(ZklCommandRun *run)
{
	run->active = false;
	run->attempt++;
	MemoryContextReset(run->context);
}
