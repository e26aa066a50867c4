/*-------------------------------------------------------------------------
 *
 * signals.c
 *	  The signals that zklock-run receives for the command.
 *
 * src/bin/signals.c
 *
 *-------------------------------------------------------------------------
 */
#include <stddef.h>

#include "bin/signals.h"

/*
 * The signals that are passed on to the command, except for the last three,
 * which stop both the command and this program.  SIGCHLD and SIGPIPE are only
 * noted.
 */
static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};

#define N_PASSED_ON ((int) (sizeof(passed_on) / sizeof(passed_on[0])))

sigset_t	zkl_signals_unblocked;
volatile sig_atomic_t zkl_signals_share_terminal;

static volatile sig_atomic_t arrived[N_PASSED_ON];

bool
zkl_signals_is_stop(int number)
{
	return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

static void
note_signal(int number, siginfo_t *info, void *context)
{
	(void) context;
#ifdef SI_KERNEL

	/*
	 * A signal of the terminal has already reached all processes of the
	 * group.  But the command may ignore a signal that should stop it.
	 */
	if (zkl_signals_share_terminal && info->si_code == SI_KERNEL && !zkl_signals_is_stop(number))
		return;
#endif
	for (int i = 0; i < N_PASSED_ON; i++)
	{
		if (passed_on[i] == number)
			arrived[i] = true;
	}
}

static bool
is_ignored(int number)
{
	struct sigaction current;

	sigaction(number, NULL, &current);
	return current.sa_handler == SIG_IGN;
}

void
zkl_signals_catch(void)
{
	struct sigaction action = {.sa_sigaction = note_signal,.sa_flags = SA_SIGINFO};
	sigset_t	blocked;

	sigemptyset(&action.sa_mask);
	sigemptyset(&blocked);
	for (int i = 0; i < N_PASSED_ON; i++)
	{
		if (is_ignored(passed_on[i]))
			continue;
		sigaction(passed_on[i], &action, NULL);
		sigaddset(&blocked, passed_on[i]);
	}

	/*
	 * SIGPIPE gets a handler instead of being ignored, because the command
	 * would also ignore it.  SIGCHLD ends a wait when the command ends.
	 */
	if (!is_ignored(SIGPIPE))
		sigaction(SIGPIPE, &action, NULL);
	sigaction(SIGCHLD, &action, NULL);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &blocked, &zkl_signals_unblocked);

	/*
	 * The parent process may have blocked SIGCHLD, but this program needs it
	 * for its waits.
	 */
	sigdelset(&zkl_signals_unblocked, SIGCHLD);
}

int
zkl_signals_next(void)
{
	for (int i = 0; i < N_PASSED_ON; i++)
	{
		if (arrived[i])
		{
			arrived[i] = false;
			return passed_on[i];
		}
	}
	return 0;
}

/*
 * A signal that came before the command had started must not be lost in the
 * handler.
 */
void
zkl_signals_restore(void)
{
	for (int i = 0; i < N_PASSED_ON; i++)
	{
		if (!is_ignored(passed_on[i]))
			signal(passed_on[i], SIG_DFL);
	}
	sigprocmask(SIG_SETMASK, &zkl_signals_unblocked, NULL);
}
