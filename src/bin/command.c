/*-------------------------------------------------------------------------
 *
 * command.c
 *	  The command that zklock-run runs.
 *
 * The command must have ended before another client can own the lock, so the
 * program must foresee the loss.  It asks its backend again and again until
 * when the lock is safe.  When an answer fails to come, for whatever reason,
 * the command gets SIGTERM while the lock is still safe, and SIGKILL when it is
 * not any more.  If the lock is lost before that moment, because a client
 * deleted its znode or the backend ended, SIGTERM follows at once.
 *
 * src/bin/command.c
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "bin/command.h"
#include "bin/messages.h"
#include "bin/server.h"
#include "bin/signals.h"

/* How often the backend is asked, and how long before the end SIGTERM comes. */
#define ASK_INTERVAL		(fmax(zkl_server_standing.session_timeout, 1) / 20)
#define MAX_GRACE			(zkl_server_standing.session_timeout / 5)

/* How often to look whether processes that are not children have ended. */
#define LOOK_INTERVAL		0.05

static pid_t command;			/* 0: not started, or ended */
static bool own_group;			/* the command has a process group of its own */

/* Is this program in the foreground of a terminal? */
static bool
is_foreground(void)
{
	int			terminal = open("/dev/tty", O_RDWR | O_NOCTTY);
	bool		foreground;

	if (terminal < 0)
		return false;
	foreground = tcgetpgrp(terminal) == getpgrp();
	close(terminal);
	return foreground;
}

/* In the child. */
static void
run_command(const ZklOptions *options, pid_t parent)
{
	if (own_group)
		setpgid(0, 0);
#ifdef __linux__

	/* Nothing watches the lock once this program was killed. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif

	/* The program may have been killed before the request took effect. */
	if (getppid() != parent)
		_exit(STATUS_OS_ERROR);
	zkl_signals_restore();
	execvp(options->command[0], options->command);
	zkl_messages_error("could not execute \"%s\": %s", options->command[0], strerror(errno));
	_exit(errno == ENOENT ? STATUS_NO_COMMAND : STATUS_CANNOT_EXEC);
}

/*
 * A process group of its own lets a signal reach all that the command has started.
 * But a background group could not use the terminal, so in the foreground the
 * command stays in the group of the terminal.
 */
void
zkl_command_start(const ZklOptions *options)
{
	pid_t		self = getpid();

	own_group = !is_foreground();
	command = fork();
	if (command < 0)
	{
		zkl_messages_error("could not start a process: %s", strerror(errno));
		exit(STATUS_OS_ERROR);
	}
	if (command == 0)
		run_command(options, self);
	zkl_signals_share_terminal = !own_group;
	if (own_group)
		setpgid(command, command);	/* whichever of the two is first */
}

/*
 * With a group of its own, the signal also reaches the processes that the
 * command has started.
 */
static void
signal_command(pid_t pid, int number)
{
	kill(own_group ? -pid : pid, number);
}

/*
 * Has the command ended?  When the lock is lost, all processes of the command's group
 * must have ended, but those that even SIGKILL leaves behind are zombies.
 */
static bool
has_ended(pid_t pid, int *wait_status, bool whole_group)
{
	if (command != 0 && waitpid(command, wait_status, WNOHANG) == command)
	{
		command = 0;
		zkl_signals_share_terminal = false;
	}
	return command == 0 && !(whole_group && own_group && kill(-pid, 0) == 0);
}

/* When the command must be told to end, unless better news comes. */
static double
end_at(const ZklOptions *options)
{
	return zkl_server_standing.safe_until - fmin(options->kill_after, MAX_GRACE);
}

const char *
zkl_command_reason_to_end(const ZklOptions *options)
{
	if (!zkl_server_is_alive())
		return "The connection to the server was lost.";
	if (!zkl_server_standing.held)
		return "The server does not hold it any more, or cannot confirm it.";
	if (zkl_server_clock() >= end_at(options))
		return "The server did not confirm it in time.";
	return NULL;
}

/*
 * The lock is lost, or about to be.  Nothing can stop another client from owning a
 * lock whose loss comes as a surprise, but none owns it yet while it is safe.
 */
static void
end_command(const ZklOptions *options, pid_t pid)
{
	/* SIGKILL comes at the latest when another client may own the lock. */
	double		kill_at = fmin(zkl_server_clock() + options->kill_after, zkl_server_standing.safe_until);
	int			wait_status;

	signal_command(pid, SIGTERM);

	/* A process that is stopped takes SIGTERM only when it continues. */
	signal_command(pid, SIGCONT);
	while (!has_ended(pid, &wait_status, true) && zkl_server_clock() < kill_at)
		zkl_server_wait_until(fmin(kill_at, zkl_server_clock() + LOOK_INTERVAL));
	if (!has_ended(pid, &wait_status, true))
		signal_command(pid, SIGKILL);
	while (!has_ended(pid, &wait_status, false))
		zkl_server_wait_until(INFINITY);
}

/* The command's exit status as a shell has it. */
static int
shell_status(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int
zkl_command_watch(const ZklOptions *options, bool *lost)
{
	pid_t		pid = command;
	const char *reason = NULL;
	int			wait_status = 0;
	int			number;

	zkl_messages_hold();
	while (!has_ended(pid, &wait_status, false))
	{
		while ((number = zkl_signals_next()) != 0)
			signal_command(pid, number);
		zkl_server_read_answer();
		if ((reason = zkl_command_reason_to_end(options)) != NULL)
		{
			*lost = true;
			end_command(options, pid);
			break;
		}
		if (!zkl_server_asking && zkl_server_clock() >= zkl_server_asked_at + ASK_INTERVAL)
			zkl_server_ask(options);

		/*
		 * A suspended machine does not count such a wait, so it is never
		 * long.
		 */
		zkl_server_wait_until(fmin(end_at(options), (zkl_server_asking ? zkl_server_clock() : zkl_server_asked_at) + ASK_INTERVAL));
	}
	zkl_messages_let_out();
	if (*lost)
		zkl_messages_lost(options->path, reason);
	return shell_status(wait_status);
}
