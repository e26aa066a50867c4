/*-------------------------------------------------------------------------
 *
 * sessionguard.c
 *	  A failure of the client library must not bring the server down.
 *
 * The library trusts the peer: a reply that it does not expect makes it
 * abort, or read invalid memory.  When a child is killed by a signal,
 * PostgreSQL must assume that it has damaged shared memory, and restarts all
 * backends.  But the library has not touched shared memory: the worker calls
 * it only while it holds no lock and is in the middle of no change, and the
 * callbacks write only counters there.  So the signal handler jumps out of
 * the library, and the worker exits as after an error.  The next worker
 * continues the session.
 *
 * The worker exits by proc_exit(), which gives its slot in shared memory
 * back.  A worker that called _exit() would still hold its slot, and the
 * postmaster would restart the backends after all.
 *
 * src/zookeeper/sessionguard.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "compat.h"
#include "zookeeper/sessionint.h"

static volatile sig_atomic_t in_library = false;
static volatile sig_atomic_t fault = 0;
static sigjmp_buf way_out;

static void set_up(void);
static void on_fault(int signal, siginfo_t *info, void *context);
static void leave(const char *server);
static void end_at_once(int code, Datum arg);

int
zkl_session_guard_process(zhandle_t *handle, int events, const char *server)
{
	int			rc;

	set_up();

	/*
	 * Do not save the signal mask, which would cost a system call each time.
	 * The signal then stays blocked, so a second fault on the way out ends
	 * the process.
	 */
	if (sigsetjmp(way_out, 0) != 0)
		leave(server);
	in_library = true;
	rc = zookeeper_process(handle, events);
	in_library = false;
	return rc;
}

/*
 * Install the handlers once in a process, by sigaction(): a handler of
 * pqsignal() cannot learn which process has sent the signal.
 */
static void
set_up(void)
{
	static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
	static bool done = false;
	struct sigaction action = {.sa_flags = SA_SIGINFO};

	if (done)
		return;
	action.sa_sigaction = on_fault;
	sigemptyset(&action.sa_mask);
	for (int i = 0; i < lengthof(signals); i++)
		(void) sigaction(signals[i], &action, NULL);
	done = true;
}

/*
 * Outside of the library, a fault has its usual effect: the signal comes again
 * when this handler has returned, and ends the process.  A signal that another
 * process has sent also has its usual effect.  The postmaster may send it
 * after a crash, and then this process must not touch shared memory any more.
 */
static void
on_fault(int signal, siginfo_t *info, void *context)
{
	bool		is_own = info->si_code > 0 || info->si_pid == MyProcPid;

	if (in_library && is_own && !proc_exit_inprogress)
	{
		in_library = false;
		fault = signal;
		siglongjmp(way_out, 1);
	}
	pqsignal(signal, PG_SIG_DFL);
	(void) raise(signal);
}

/* The library's memory may be damaged, so do not call the library any more. */
static void
leave(const char *server)
{
	on_proc_exit(end_at_once, (Datum) 0);
	ereport(LOG,
			errmsg("restarting the zklock worker, because ZooKeeper's client library has failed"),
			errdetail("It was reading what server \"%s\" has sent, and failed with signal %d: %s.",
					  server, (int) fault, pg_strsignal(fault)),
			errhint("See that only ZooKeeper servers answer at the addresses in \"zklock.hosts\"."));
	proc_exit(1);
}

/*
 * By now the slot in shared memory is given back.  The exit handlers of
 * libraries come next.  OpenSSL's handler frees memory, and another fault in
 * there would end the process by a signal.
 */
static void
end_at_once(int code, Datum arg)
{
	_exit(code);
}
