/*-------------------------------------------------------------------------
 *
 * faultpoint.c
 *	  Named moments at which a test makes a process stop, fail or die.
 *
 * A test arms a point by a symbolic link in the data directory, from
 * "zklock.fault.NAME" to "stop", "fail" or "die".  The process that reaches
 * the point first removes the link.  So the fault happens once, even if the
 * server starts again, and needs neither a setting nor shared memory.
 *
 * src/faultpoint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "faultpoint.h"

void
zkl_fault_point(const char *name)
{
	int			saved_errno = errno;
	char		link[MAXPGPATH];
	char		action[8] = "";

	snprintf(link, sizeof(link), "zklock.fault.%s", name);
	if (readlink(link, action, sizeof(action) - 1) < 0 || unlink(link) != 0)
	{
		errno = saved_errno;
		return;
	}

	elog(LOG, "fault point \"%s\": process %d shall %s", name, (int) getpid(),
		 action);
	if (strcmp(action, "stop") == 0)
		raise(SIGSTOP);
	else if (strcmp(action, "die") == 0)
		raise(SIGKILL);
	else
		elog(ERROR, "failed at fault point \"%s\"", name);
	errno = saved_errno;
}
