/*-------------------------------------------------------------------------
 *
 * command.c
 *	  The command that zklock-run runs.
 *
 * The command must have ended before another client can own the lock, so the
 * program must foresee the loss.  It repeatedly queries its backend for the
 * moment up to which the lock is safe.  If an answer does not come, the
 * command gets SIGTERM while the lock is still safe, and SIGKILL when it is no
 * longer safe.  If the lock is lost before that moment, because a client
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "bin/command.h"
#include "bin/messages.h"
#include "bin/server.h"
#include "bin/signals.h"

/* How often to look whether processes that are not children have ended. */
#define LOOK_INTERVAL		0.1

/* How long one wait for the command may be, in seconds. */
#define LONGEST_WAIT		1.0

static pid_t command;			/* 0 if it has not started, or has ended */
static bool own_group;			/* the command has a process group of its own */

/* Report why the command cannot be executed, and return the exit status. */
static int
complain_of_command(const ZklOptions *options, int error)
{
	zkl_messages_error("could not execute \"%s\": %s", options->command[0], strerror(error));
	return error == ENOENT || error == ENOTDIR ? STATUS_NO_COMMAND : STATUS_CANNOT_EXEC;
}

/* Why this file cannot be executed, or 0. */
static int
look_at(const char *file)
{
	struct stat status;

	if (stat(file, &status) != 0)
		return errno;
	if (!S_ISREG(status.st_mode))
		return EACCES;
	return access(file, X_OK) == 0 ? 0 : errno;
}

/*
 * Search PATH as execvp() does.  If a file was found but refused, report the
 * refusal rather than a missing file.
 */
static int
look_along(const char *path, const char *name)
{
	int			error = ENOENT;

	for (;;)
	{
		size_t		length = strcspn(path, ":");
		char	   *file = zkl_messages_format("%.*s%s%s", (int) length, path, length > 0 ? "/" : "", name);
		int			found = look_at(file);

		free(file);
		if (found == 0 || found == EACCES)
			error = found;
		if (found == 0 || path[length] == '\0')
			return error;
		path += length + 1;
	}
}

void
zkl_command_find(const ZklOptions *options)
{
	const char *name = options->command[0];
	const char *path = getenv("PATH");
	int			error = 0;		/* if PATH is not set, execvp() uses a default */

	if (name[0] == '\0' || strchr(name, '/') != NULL)
		error = look_at(name);
	else if (path != NULL)
		error = look_along(path, name);
	if (error != 0)
		exit(complain_of_command(options, error));
}

/* Does this program run in the foreground of a terminal? */
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

	/*
	 * If this program is killed, nothing watches the lock, so the command
	 * must end, too.
	 */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif

	/* This program may have been killed before prctl() took effect. */
	if (getppid() != parent)
		_exit(STATUS_OS_ERROR);
	zkl_signals_restore();
	execvp(options->command[0], options->command);
	_exit(complain_of_command(options, errno));
}

/*
 * With a process group of its own, a signal reaches all processes that the
 * command has started.  But a background group could not use the terminal.
 * So in the foreground of a terminal, the command stays in this program's
 * group.
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
		setpgid(command, command);	/* parent and child both do this,
									 * whichever is first */
}

/*
 * Signal the command.  If it has a group of its own, the signal also reaches
 * the processes that it has started.
 *
 * A command that has changed its user, as sudo does, cannot be signalled, and
 * would go on running beside the next holder of the lock.  Report that at
 * once, even if writing the message has to wait for a reader: this program
 * could do nothing else in time.
 */
static bool
signal_command(pid_t pid, int number)
{
	static bool said = false;

	if (kill(own_group ? -pid : pid, number) == 0)
		return true;
	if (errno == EPERM && !said)
	{
		zkl_messages_error("could not send a signal to the command: %s", strerror(errno));
		zkl_messages_hint("The command runs as another user, so it cannot be ended when the lock is lost. "
						  "Put sudo before zklock-run, not after it.");
		said = true;
	}
	return false;
}

/*
 * Has the command ended?  When the lock is lost, all processes of the
 * command's group must have ended; those that remain even after SIGKILL are
 * zombies.
 */
static bool
has_ended(pid_t pid, int *wait_status, bool whole_group)
{
	if (command != 0 && waitpid(command, wait_status, WNOHANG) == command)
	{
		command = 0;
		zkl_signals_share_terminal = false;
	}
	return command == 0 && !(whole_group && own_group && (kill(-pid, 0) == 0 || errno == EPERM));
}

/*
 * When to tell the command to end, unless the backend confirms the lock
 * before.
 */
static double
end_at(const ZklOptions *options)
{
	return zkl_server_standing.safe_until - fmin(options->kill_after, zkl_server_standing.grace);
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

/* A stopped process handles a signal only after SIGCONT. */
static void
tell_to_end(pid_t pid, int number)
{
	signal_command(pid, number);
	signal_command(pid, SIGCONT);
}

/*
 * The lock is lost, or about to be.  If the lock was lost without warning,
 * another client may own it already.  While the lock is still safe, no other
 * client owns it.
 */
static void
end_command(const ZklOptions *options, pid_t pid, const char *reason)
{
	/* Send SIGKILL at the latest when another client may own the lock. */
	double		kill_at = fmin(zkl_server_clock() + options->kill_after, zkl_server_standing.safe_until);
	int			wait_status;

	tell_to_end(pid, SIGTERM);
	while (!has_ended(pid, &wait_status, true) && zkl_server_clock() < kill_at)
		zkl_server_wait_until(fmin(kill_at, zkl_server_clock() + LOOK_INTERVAL));
	if (!has_ended(pid, &wait_status, true))
		signal_command(pid, SIGKILL);

	/*
	 * A command that cannot be signalled may run for long, so do not keep its
	 * messages back.
	 */
	zkl_messages_let_out();
	zkl_messages_lost(options->path, reason);
	while (!has_ended(pid, &wait_status, false))
		zkl_server_wait_until(INFINITY);
}

/*
 * The user stops this program, for instance by Ctrl-Z.  A command that is not
 * watched must not go on, so stop it as well, by a signal that it cannot
 * ignore.  It continues when the server has confirmed the lock.
 */
static void
pause_command(const ZklOptions *options, pid_t pid)
{
	if (!signal_command(pid, SIGSTOP))
		return;
	raise(SIGSTOP);

	/*
	 * In the foreground of a terminal, the shell has continued the command as
	 * well.  A stopped command does no harm, so the reply may take long.
	 */
	signal_command(pid, SIGSTOP);
	(void) zkl_server_confirm(options, zkl_server_clock() + zkl_server_standing.session_timeout);
	if (zkl_command_reason_to_end(options) == NULL)
		signal_command(pid, SIGCONT);
}

/* Pass on the signals that have arrived. */
static void
pass_signals_on(const ZklOptions *options, pid_t pid)
{
	int			number;

	while ((number = zkl_signals_next()) != 0)
	{
		if (zkl_signals_is_stop(number))
			pause_command(options, pid);
		else if (number == SIGUSR1 || number == SIGUSR2)
			signal_command(pid, number);
		else
			tell_to_end(pid, number);
	}
}

/* The command's exit status, as a shell reports it. */
static int
shell_status(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int
zkl_command_watch(const ZklOptions *options, bool *lost)
{
	pid_t		pid = command;
	const char *reason;
	int			wait_status = 0;
	double		next;			/* when to ask */

	zkl_messages_hold();
	while (!has_ended(pid, &wait_status, false))
	{
		pass_signals_on(options, pid);
		zkl_server_read_answer();
		if ((reason = zkl_command_reason_to_end(options)) != NULL)
		{
			*lost = true;
			end_command(options, pid, reason);
			break;
		}
		if (!zkl_server_asking && zkl_server_clock() >= zkl_server_asked_at + ZKL_SERVER_ASK_INTERVAL)
		{
			signal_command(pid, 0); /* can it still be signalled? */
			zkl_server_ask(options);
		}

		/*
		 * A wait does not count the time during which the machine is
		 * suspended, so keep each wait short.
		 */
		next = (zkl_server_asking ? zkl_server_clock() : zkl_server_asked_at) + ZKL_SERVER_ASK_INTERVAL;
		zkl_server_wait_until(fmin(fmin(end_at(options), next), zkl_server_clock() + LONGEST_WAIT));
	}
	zkl_messages_let_out();
	return shell_status(wait_status);
}
