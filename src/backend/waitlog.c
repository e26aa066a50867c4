/*-------------------------------------------------------------------------
 *
 * waitlog.c
 *	  log_lock_waits for the part of a wait that is about ZooKeeper.
 *
 * PostgreSQL itself logs the wait for a local lock.  The lines here have the
 * same form, so that programs which read the log understand them.
 *
 * src/backend/waitlog.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "backend/display.h"
#include "backend/obstacle.h"
#include "backend/waitlog.h"
#include "settings.h"

/* The wait goes on meanwhile, but notices a grant only afterwards. */
#define MAX_READ_TIME_MS	1000

static const char *describe(const ZklWish *wish);
static const char *detail_of(const ZklClaim *claim, bool answered);

void
zkl_wait_log_begin(ZklWaitLog *log, bool patient)
{
	log->begun_at = zkl_now();
	log->due_at = patient && log_lock_waits ?
		log->begun_at + ZKL_MS(DeadlockTimeout) : ZKL_FOREVER;
	log->logged = false;
}

void
zkl_wait_log_still(ZklWaitLog *log, const ZklWish *wish, const ZklClaim *claim,
				   bool answered)
{
	int64		waited = zkl_now() - log->begun_at;
	const char *detail;

	if (log->begun_at + waited < log->due_at)
		return;
	log->due_at = ZKL_FOREVER;
	log->logged = true;
	detail = detail_of(claim, answered);
	ereport(LOG,
			errmsg("process %d still waiting for %s in ZooKeeper after %ld.%03d ms",
				   MyProcPid, describe(wish), (long) (waited / 1000),
				   (int) (waited % 1000)),
			detail ? errdetail_log("%s", detail) : 0);

	/* The wait for the read may have used up the wake-up of this wait. */
	SetLatch(MyLatch);
}

void
zkl_wait_log_acquired(const ZklWaitLog *log, const ZklWish *wish)
{
	int64		waited = zkl_now() - log->begun_at;

	if (log->logged)
		ereport(LOG,
				errmsg("process %d acquired %s in ZooKeeper after %ld.%03d ms",
					   MyProcPid, describe(wish), (long) (waited / 1000),
					   (int) (waited % 1000)));
}

/* The mode as PostgreSQL calls it for the local lock, and the path. */
static const char *
describe(const ZklWish *wish)
{
	const char *path = zkl_display_path(wish->path);

	if (wish->mode == ZKL_MODE_LEASE)
		return psprintf(ngettext("%d lease on semaphore \"%s\"",
								 "%d leases on semaphore \"%s\"",
								 wish->quantity), wish->quantity, path);
	return psprintf(_("%s on lock \"%s\""), wish->mode == ZKL_MODE_READ ?
					"ShareLock" : "ExclusiveLock", path);
}

/*
 * The request ends before the silence of ZooKeeper would be an error: that is
 * for the wait to raise.
 */
static const char *
detail_of(const ZklClaim *claim, bool answered)
{
	if (!answered)
		return _("ZooKeeper has not replied yet.");
	return zkl_obstacle_sentence(claim, zkl_now() +
								 ZKL_MS(Min(MAX_READ_TIME_MS, zkl_connection_timeout / 2)));
}
