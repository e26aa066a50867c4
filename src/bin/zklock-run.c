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
	zkl_command_find(&options);
	zkl_server_connect(&options);
	zkl_signals_catch();

	if (!zkl_server_acquire(&options))
		return options.not_acquired;

	/*
	 * Waiting for the answers may have taken too long.  If the command would
	 * have to end at once, do not start it.
	 */
	if ((reason = zkl_command_reason_to_end(&options)) != NULL)
	{
		zkl_messages_lost(options.path, reason);
		return STATUS_LOST;		/* before the command was started */
	}
	zkl_command_start(&options);
	status = zkl_command_watch(&options, &lost);

	/*
	 * The lock may have been lost since the last reply.  Only a confirmation
	 * after the command's end shows that the lock was held during the whole
	 * run.
	 */
	if (!lost && !zkl_server_confirm(&options, 0))
	{
		lost = true;
		zkl_messages_lost(options.path, "The server did not confirm it when the command had ended.");
	}
	if (!lost && !zkl_server_release(&options, !options.once || status == 0) && options.once && status == 0)
	{
		lost = true;
		zkl_messages_lost(options.path, "The server did not confirm that the run is done.");
	}
	zkl_server_close();
	return lost ? STATUS_LOST : status;
}
