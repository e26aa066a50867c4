/*-------------------------------------------------------------------------
 *
 * zklock-run.c
 *	  Runs a command under a lock, a lease of a semaphore, or a tick of a job.
 *
 * src/bin/zklock-run.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdbool.h>

#include "bin/command.h"
#include "bin/messages.h"
#include "bin/options.h"
#include "bin/server.h"
#include "bin/signals.h"

int
main(int argc, char **argv)
{
	ZklOptions	options;
	const char *reason;
	bool		lost = false;
	int			status;

	zkl_options_parse(argc, argv, &options);
	zkl_server_connect(&options);
	zkl_signals_catch();

	if (!zkl_server_acquire(&options))
		return options.not_acquired;

	/*
	 * The wait for the answers may have taken too long.  A command that would
	 * have to end at once is not started.
	 */
	if ((reason = zkl_command_reason_to_end(&options)) != NULL)
	{
		zkl_messages_lost(options.path, reason);
		return STATUS_LOST;		/* before the command was started */
	}
	zkl_command_start(&options);
	status = zkl_command_watch(&options, &lost);

	/*
	 * The lock may have been lost since the last answer.  Only a confirmation
	 * after the command's end shows that the whole run had the lock.
	 */
	if (!lost && !zkl_server_confirm(&options))
	{
		lost = true;
		zkl_messages_lost(options.path, "The server did not confirm it when the command had ended.");
	}
	if (!lost && options.once)
		zkl_server_end_run(status == 0);
	if (!lost)
		zkl_server_release();
	zkl_server_close();
	return lost ? STATUS_LOST : status;
}
