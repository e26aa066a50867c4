/*-------------------------------------------------------------------------
 *
 * waitreport.c
 *	  Messages about a wait: those of log_lock_waits, and the client that
 *	  blocks a claim.
 *
 * PostgreSQL itself logs the wait for a local lock.  The lines here have the
 * same form, so that programs that read the log understand them.  The waiting
 * user cannot see the log, and so gets a NOTICE.
 *
 * src/backend/lock/waitreport.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "backend/display.h"
#include "backend/lock/waitreport.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "settings.h"
#include "shared/claim.h"

/* The wait goes on meanwhile, but notices a grant only after that. */
#define MAX_READ_TIME_MS	1000

static const char *describe(const ZklWaitReport *report);
static const char *detail_of(const ZklClaim *claim, bool answered);
static void add_context(void *arg);
static char *process_in(const char *about);

/*
 * log_lock_waits for the part of a wait that is about ZooKeeper
 */

void
zkl_wait_report_begin(ZklWaitReport *report, const char *path, ZklMode mode,
					  int quantity, bool patient)
{
	report->path = path;
	report->mode = mode;
	report->quantity = quantity;
	report->begun_at = zkl_now();
	report->due_at = patient && log_lock_waits ?
		report->begun_at + ZKL_MS(DeadlockTimeout) : ZKL_FOREVER;
	report->logged = false;
}

void
zkl_wait_report_still(ZklWaitReport *report, const ZklClaim *claim, bool answered)
{
	int64		waited = zkl_now() - report->begun_at;
	const char *detail;

	if (report->begun_at + waited < report->due_at)
		return;
	report->due_at = ZKL_FOREVER;
	report->logged = true;
	detail = detail_of(claim, answered);
	ereport(LOG,
			errmsg("process %d still waiting for %s in ZooKeeper after %ld.%03d ms",
				   MyProcPid, describe(report), (long) (waited / 1000),
				   (int) (waited % 1000)),
			detail ? errdetail_log("%s", detail) : 0);
	ereport(NOTICE,
			errmsg("still waiting for %s", describe(report)),
			detail ? errdetail_internal("%s", detail) : 0);

	/* The wait for the read may have consumed the wake-up of this wait. */
	SetLatch(MyLatch);
}

void
zkl_wait_report_acquired(const ZklWaitReport *report)
{
	int64		waited = zkl_now() - report->begun_at;

	if (report->logged)
		ereport(LOG,
				errmsg("process %d acquired %s in ZooKeeper after %ld.%03d ms",
					   MyProcPid, describe(report), (long) (waited / 1000),
					   (int) (waited % 1000)));
}

/* The mode, as PostgreSQL calls it for the local lock, and the path. */
static const char *
describe(const ZklWaitReport *report)
{
	const char *path = zkl_display_path(report->path);

	if (report->mode == ZKL_MODE_LEASE)
		return psprintf(ngettext("%d lease on semaphore \"%s\"",
								 "%d leases on semaphore \"%s\"",
								 report->quantity), report->quantity, path);
	return psprintf(_("%s on lock \"%s\""), report->mode == ZKL_MODE_READ ?
					"ShareLock" : "ExclusiveLock", path);
}

/*
 * End the request before ZooKeeper's silence would be an error, because only
 * the wait itself may raise that.
 */
static const char *
detail_of(const ZklClaim *claim, bool answered)
{
	if (!answered)
		return _("ZooKeeper has not replied yet.");
	return zkl_wait_report_obstacle(claim, zkl_now() +
									ZKL_MS(Min(MAX_READ_TIME_MS, zkl_connection_timeout / 2)));
}

/*
 * The client that keeps a claim from its lock
 */

void
zkl_wait_report_push_context(ErrorContextCallback *context, ZklClaim *claim)
{
	context->callback = add_context;
	context->arg = claim;
	context->previous = error_context_stack;
	error_context_stack = context;
}

/*
 * A claim on leases does not wait for a certain client, so its line has only
 * the path.
 */
static void
add_context(void *arg)
{
	const ZklClaim *claim = arg;
	const char *path = zkl_display_path(claim->entry->path);
	ZklObstacle obstacle = zkl_claim_status_obstacle(claim);
	const char *process = process_in(obstacle.about);

	if (claim->mode == ZKL_MODE_LEASE)
		errcontext("while waiting for leases of semaphore \"%s\"", path);
	else if (process == NULL)
		errcontext("while waiting for lock \"%s\"", path);
	else if (obstacle.holds)
		errcontext("while waiting for lock \"%s\", which %s holds",
				   path, process);
	else
		errcontext("while waiting for lock \"%s\" behind %s",
				   path, process);
}

/*
 * The text may be another client's, and may say anything.  NULL if it names
 * no process.
 */
static char *
process_in(const char *about)
{
	const char *server = zkl_znode_text_field(about, "server");
	const char *pid = zkl_znode_text_field(about, "pid");

	if (server == NULL || pid == NULL || atoi(pid) <= 0)
		return NULL;
	return psprintf(_("process %d on server \"%s\""), atoi(pid),
					zkl_znode_text_show(server));
}

const char *
zkl_wait_report_obstacle(const ZklClaim *claim, int64 until)
{
	ZklObstacle obstacle = zkl_claim_status_obstacle(claim);
	char	   *process = process_in(obstacle.about);

	/*
	 * The ticket waits for another ticket that waits.  The client for which
	 * all of them wait may have gone since the ticket's last list; then name
	 * the client just before the claim.
	 */
	if (!obstacle.holds && obstacle.front[0] != '\0' && until > 0)
	{
		const char *about = zkl_znodes_read(claim->entry->path, obstacle.front,
											until);
		char	   *holder = about ? process_in(about) : NULL;

		obstacle.holds = about != NULL;
		if (about != NULL)
			process = holder;
	}

	if (process != NULL)
	{
		process[0] = pg_toupper((unsigned char) process[0]);
		return obstacle.holds ? psprintf(_("%s holds the lock."), process) :
			psprintf(_("%s is before it in the queue."), process);
	}
	if (obstacle.holds && obstacle.front[0] != '\0')
		return psprintf(_("Znode \"%s\" holds the lock."),
						zkl_znode_text_show(obstacle.front));
	return NULL;
}
