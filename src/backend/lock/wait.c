/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  How a backend waits for its server's ticket.
 *
 * src/backend/lock/wait.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/snapmgr.h"

#include "backend/display.h"
#include "backend/lock/wait.h"
#include "backend/lock/waitreport.h"
#include "backend/report.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/grant.h"
#include "shared/lockstat.h"
#include "shared/process.h"

/*
 * How long a try waits until the owner before it has answered or given the
 * ticket up: this many times as long as its own request took, but not less
 * than the constant below.  The try seldom waits that long: only if the
 * owner's server has stopped, or cannot reach ZooKeeper.  But no znode says
 * whether leases linger, so each try for leases that fails waits that long.
 *
 * If a request was delayed, or its backend was suspended meanwhile, its
 * duration says little about the other server.  So the multiple is at most
 * zklock.connection_timeout.
 */
#define ASK_TIMES		4
#define ASK_LOCK		ZKL_MS(1000)
#define ASK_LEASES		ZKL_MS(10)

/*
 * How long the report of a wait may read from ZooKeeper.  The wait goes on
 * meanwhile, but notices a grant only after that.
 */
#define MAX_READ_TIME_MS	1000

/* The reason for the wait, as pg_stat_activity shows it. */
typedef enum Reason
{
	REASON_TICKET,				/* other clients hold the lock, or go first */
	REASON_REPLY,				/* ZooKeeper has not replied */
	REASON_DOUBT				/* ZooKeeper has not confirmed the session */
} Reason;

static bool look(ZklWait *wait, ZklClaim *mutex, ZklAnswer *answer);
static void begin_asking(ZklWait *wait);
static const char *path_of_user(const ZklLockRequest *request);
static Reason reason_of(ZklAnswer answer);
static bool time_is_over(ZklWait *wait, ZklAnswer answer);
static bool has_asked_enough(ZklWait *wait, int64 least);
static void sleep_until_next(const ZklWait *wait, Reason reason,
							 int64 look_at);
static void log_wait(ZklWait *wait, bool answered);
static void log_acquired(const ZklWait *wait);
static const char *describe(const ZklLockRequest *request);
static const char *detail_of(const ZklClaim *claim, bool answered);

void
zkl_wait_begin(ZklWait *wait, const ZklLockRequest *request, ZklClaim *claim)
{
	wait->request = request;
	wait->claim = claim;
	wait->begun_at = zkl_now();
	wait->asks_until = 0;
	wait->paused = 0;
	wait->silent_since = 0;
	wait->impatient = false;
	wait->requests = false;
}

/*
 * The first look has not requested the ticket from the worker.  That suffices
 * if the server owns the ticket, and saves work for the worker.
 */
ZklAnswer
zkl_wait_for_ticket(ZklWait *wait, ZklClaim *mutex)
{
	ZklClaim   *claim = wait->claim;
	ZklAnswer	answer;
	ZklAwaited	awaited = {.path = claim->entry->path,.mode = claim->mode,.owner_text = claim->owner_text,.claim = claim};

	if (!wait->requests)
	{
		if (look(wait, mutex, &answer))
			return answer;
		begin_asking(wait);
	}
	PG_ENSURE_ERROR_CLEANUP(zkl_deadlock_end, (Datum) 0);
	{
		while (!look(wait, mutex, &answer) &&
			   !time_is_over(wait, answer) &&
			   !(wait->impatient && answer == ZKL_ANSWER_QUEUED))
		{
			int64		until = ZKL_FOREVER;

			/*
			 * A try does not wait for other clients, so it is not part of a
			 * deadlock.  Neither is a backend that waits for ZooKeeper's
			 * reply.
			 */
			if (!wait->request->only_tries && !wait->impatient &&
				answer == ZKL_ANSWER_QUEUED)
				until = zkl_deadlock_look(&awaited);
			ZKL_FAULT_POINT("request-queued");
			log_wait(wait, reason_of(answer) == REASON_TICKET);
			sleep_until_next(wait, reason_of(answer), Min(until, wait->log_at));
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(zkl_deadlock_end, (Datum) 0);
	zkl_deadlock_end(0, (Datum) 0);
	return answer;
}

/*
 * From here on, the wait may be long.  A patient wait is logged after
 * deadlock_timeout.
 */
static void
begin_asking(ZklWait *wait)
{
	wait->requests = true;
	wait->asked_at = zkl_now();
	wait->log_at = !wait->request->only_tries && !wait->impatient && log_lock_waits ?
		wait->asked_at + ZKL_MS(DeadlockTimeout) : ZKL_FOREVER;
	wait->logged = false;
}

/*
 * Is the wait over, with HELD or STALE?  Raises an error if the lock cannot
 * be acquired.
 */
static bool
look(ZklWait *wait, ZklClaim *mutex, ZklAnswer *answer)
{
	/*
	 * Without the inner mutex, this backend must not request leases: another
	 * client may have the mutex, and must get its leases first.
	 */
	*answer = ZKL_ANSWER_STALE;
	if (mutex != NULL && zkl_claim_status(mutex, 0) == ZKL_STATUS_LOST)
		return true;
	*answer = zkl_grant_request(wait->claim,
								wait->request->only_tries || wait->impatient,
								wait->requests);

	/*
	 * The owner has not answered this try, so the try assumes that the lock
	 * is held.
	 */
	if (*answer == ZKL_ANSWER_ASKING &&
		has_asked_enough(wait, wait->request->mode == ZKL_MODE_LEASE ?
						 ASK_LEASES : ASK_LOCK))
		*answer = ZKL_ANSWER_QUEUED;
	switch (*answer)
	{
		case ZKL_ANSWER_HELD:
			ZKL_FAULT_POINT("granted");
			if (wait->requests)
				log_acquired(wait);
			return true;
		case ZKL_ANSWER_STALE:
			return true;
		case ZKL_ANSWER_FAILED:

			/* This report and the next two raise errors. */
			zkl_report_failure(path_of_user(wait->request), wait->claim->failure);
		case ZKL_ANSWER_FULL:
			zkl_report_full();
		case ZKL_ANSWER_SHUTDOWN:
			zkl_report_shutdown();
		case ZKL_ANSWER_QUEUED:
		case ZKL_ANSWER_ASKING:
		case ZKL_ANSWER_NONE:
		case ZKL_ANSWER_DOUBT:
			break;
	}
	return false;
}

bool
zkl_wait_for_answer(ZklWait *wait, int64 pause)
{
	bool		asks = wait->request->only_tries && !has_asked_enough(wait, ASK_LOCK);

	int64		now = zkl_now();

	if (time_is_over(wait, asks ? ZKL_ANSWER_ASKING : ZKL_ANSWER_QUEUED))
		return false;
	sleep_until_next(wait, REASON_TICKET, now + pause);
	wait->paused += Min(zkl_now() - now, pause);
	return true;
}

/*
 * zklock 1.1 does not know the query, and keeps its session.  Only the pauses
 * count: while this backend stands still, sends many queries, or cannot reach
 * ZooKeeper, the other server may be unable to answer.  A server that has
 * died loses its session after a timeout and a tick.
 */
bool
zkl_wait_is_unanswered(const ZklWait *wait)
{
	return !wait->request->only_tries &&
		wait->paused >= 2 * ZKL_MS(zkl_session_timeout);
}

/*
 * Each look notes that the claim must be woken, so the worker sets this
 * backend's latch when the znodes are gone.
 */
bool
zkl_wait_until_settled(ZklWait *wait)
{
	while (!zkl_claim_status_is_settled(wait->claim))
	{
		if (time_is_over(wait, ZKL_ANSWER_NONE))
			return false;
		sleep_until_next(wait, REASON_REPLY, ZKL_FOREVER);
	}
	return true;
}

void
zkl_wait_fail_unanswered(ZklWait *wait)
{
	wait->silent_since = wait->begun_at;
	(void) time_is_over(wait, ZKL_ANSWER_NONE);
}

void
zkl_wait_for_certainty(const ZklLockRequest *request, ZklLocalClaim *claim)
{
	ZklWait		wait;
	ZklClaimStatus status;

	zkl_wait_begin(&wait, request, claim->shared);
	while ((status = zkl_claim_status(wait.claim, 0)) == ZKL_STATUS_DOUBT)
	{
		/*
		 * Called only for its errors.  The backend holds the lock, so the end
		 * of the time must not count as "not acquired".
		 */
		(void) time_is_over(&wait, ZKL_ANSWER_NONE);
		sleep_until_next(&wait, REASON_DOUBT, ZKL_FOREVER);
	}
	if (status == ZKL_STATUS_LOST)
		zkl_local_claim_report_lost(ERROR, claim);
}

/* The user of a semaphore has not named the inner mutex. */
static const char *
path_of_user(const ZklLockRequest *request)
{
	return request->semaphore != NULL ? request->semaphore : request->path;
}

static Reason
reason_of(ZklAnswer answer)
{
	if (answer == ZKL_ANSWER_QUEUED || answer == ZKL_ANSWER_ASKING)
		return REASON_TICKET;
	return answer == ZKL_ANSWER_DOUBT ? REASON_DOUBT : REASON_REPLY;
}

/*
 * Is it time to return that the lock was not acquired?  Usually it is only
 * after ZooKeeper has replied that the lock is taken.  If there is no reply
 * when the time is over, that is an error, unless ZooKeeper still replies to
 * signs of life: then the timeout was merely shorter than the request.  A try
 * always needs the reply.
 */
static bool
time_is_over(ZklWait *wait, ZklAnswer answer)
{
	const ZklLockRequest *request = wait->request;
	bool		asking = request->only_tries && answer == ZKL_ANSWER_ASKING;
	bool		answered = answer == ZKL_ANSWER_QUEUED ||
	answer == ZKL_ANSWER_ASKING;
	int64		now = zkl_now();
	bool		over = now >= request->until;
	bool		in_touch = now < zkl_session_info_in_touch_until();
	bool		away;

	/*
	 * A reply counts only while the server is connected: an earlier reply may
	 * be out of date.
	 */
	if (answered && in_touch)
		wait->silent_since = 0;
	else if (wait->silent_since == 0)
		wait->silent_since = now;
	away = wait->silent_since != 0 &&
		now >= zkl_session_info_away_from(wait->silent_since);

	/*
	 * ZooKeeper has replied that the lock is taken, and a try has waited long
	 * enough for the owner's answer.
	 */
	if (over && in_touch && answered && !asking)
		return true;

	/* There is no reply yet, but ZooKeeper can be reached. */
	if (over && in_touch && !request->only_tries && !zkl_session_info_is_silent(wait->silent_since))
		return true;

	/*
	 * The time is over without a reply; or ZooKeeper has been silent for too
	 * long, even if time is left.
	 */
	if ((over && !request->only_tries) || (over && away) ||
		(wait->silent_since != 0 &&
		 now >= zkl_session_info_silent_from(wait->begun_at, wait->silent_since)))
		zkl_report_unreachable(path_of_user(request));
	if (now >= request->lock_timeout_at)
	{
		zkl_lock_stat_failed(wait->claim, ERRCODE_LOCK_NOT_AVAILABLE);
		zkl_report_lock_timeout(answered ?
								zkl_wait_report_obstacle(wait->claim, 0) : NULL);
	}
	return false;
}

/* Has this try waited long enough for the answer of the owner before it? */
static bool
has_asked_enough(ZklWait *wait, int64 least)
{
	int64		now = zkl_now();

	if (wait->asks_until == 0)
		wait->asks_until = now +
			Max(least, Min(ASK_TIMES * (now - wait->begun_at),
						   ZKL_MS(zkl_connection_timeout)));
	return now >= wait->asks_until;
}

/*
 * The portal's snapshot is this statement's own only if it is also the active
 * one.  If the caller is a function, SPI has a snapshot above it, and may use
 * that after the wait.  In minor versions from before November 2024, such as
 * 15.8, SPI has none if PL/pgSQL does the CALL in a transaction block.
 * "may_drop" protects the caller there.
 */
void
zkl_wait_drop_snapshot(const ZklLockRequest *request)
{
	if (!request->may_drop)
		return;
	if (ActivePortal != NULL && ActivePortal->portalSnapshot != NULL &&
		ActiveSnapshotSet() &&
		GetActiveSnapshot() == ActivePortal->portalSnapshot)
	{
		ActivePortal->portalSnapshot = NULL;
		PopActiveSnapshot();
	}
	InvalidateCatalogSnapshotConditionally();
}

/*
 * Sleep until this backend is woken, until the wait may have to end, or until
 * "look_at".
 */
static void
sleep_until_next(const ZklWait *wait, Reason reason, int64 look_at)
{
	static const char *const names[] = {
		[REASON_TICKET] = "ZklockTicket",
		[REASON_REPLY] = "ZklockReply",
		[REASON_DOUBT] = "ZklockDoubt"
	};
	static uint32 wait_events[lengthof(names)];
	ErrorContextCallback context;
	int64		now = zkl_now();
	int64		until = Min(wait->request->lock_timeout_at, look_at);

	if (!wait->request->only_tries)
		until = Min(until, wait->request->until);
	else if (wait->silent_since != 0)
		until = Min(until, zkl_session_info_away_from(wait->silent_since));
	if (wait->asks_until > now)
		until = Min(until, wait->asks_until);
	if (wait->silent_since != 0)
		until = Min(until, zkl_session_info_silent_from(wait->begun_at,
														wait->silent_since));
	else
		until = Min(until, zkl_session_info_in_touch_until());

	/*
	 * Reset the latch before the caller looks again, so that no wake-up is
	 * missed.  The sleep also ends when the server is no longer in touch with
	 * ZooKeeper, because silence is measured from then on.
	 */
	zkl_wait_report_push_context(&context, wait->claim);
	zkl_wait_drop_snapshot(wait->request);
	zkl_process_sleep(until, names[reason], &wait_events[reason]);
	error_context_stack = context.previous;
}

/*
 * log_lock_waits for the part of a wait that is about ZooKeeper.  PostgreSQL
 * itself logs the wait for an advisory lock.  The lines here have the same form,
 * so that programs that read the log understand them.  The waiting user cannot
 * see the log, and so gets a NOTICE.
 */

/*
 * Log that the wait goes on, if that is due.  "answered": ZooKeeper has
 * replied that other clients go first.  This may send a request to ZooKeeper.
 * It raises an error only if the backend is cancelled.
 */
static void
log_wait(ZklWait *wait, bool answered)
{
	int64		waited = zkl_now() - wait->asked_at;
	const char *detail;

	if (wait->asked_at + waited < wait->log_at)
		return;
	wait->log_at = ZKL_FOREVER;
	wait->logged = true;
	detail = detail_of(wait->claim, answered);
	ereport(LOG,
			errmsg("process %d still waiting for %s in ZooKeeper after %ld.%03d ms",
				   MyProcPid, describe(wait->request), (long) (waited / 1000),
				   (int) (waited % 1000)),
			detail ? errdetail_log("%s", detail) : 0);
	ereport(NOTICE,
			errmsg("still waiting for %s", describe(wait->request)),
			detail ? errdetail_internal("%s", detail) : 0);

	/* The wait for the read may have consumed the wake-up of this wait. */
	SetLatch(MyLatch);
}

/* If the wait was logged, log that the lock was acquired. */
static void
log_acquired(const ZklWait *wait)
{
	int64		waited = zkl_now() - wait->asked_at;

	if (wait->logged)
		ereport(LOG,
				errmsg("process %d acquired %s in ZooKeeper after %ld.%03d ms",
					   MyProcPid, describe(wait->request), (long) (waited / 1000),
					   (int) (waited % 1000)));
}

/* The mode, as PostgreSQL calls it for the advisory lock, and the path. */
static const char *
describe(const ZklLockRequest *request)
{
	const char *path = zkl_display_path(request->path);

	if (request->mode == ZKL_MODE_LEASE)
		return psprintf(ngettext("%d lease on semaphore \"%s\"",
								 "%d leases on semaphore \"%s\"",
								 request->quantity), request->quantity, path);
	return psprintf(_("%s on lock \"%s\""), request->mode == ZKL_MODE_READ ?
					"ShareLock" : "ExclusiveLock", path);
}

/*
 * End the request before ZooKeeper's silence would be an error, because only
 * the wait itself may raise that error.
 */
static const char *
detail_of(const ZklClaim *claim, bool answered)
{
	if (!answered)
		return _("ZooKeeper has not replied yet.");
	return zkl_wait_report_obstacle(claim, zkl_now() +
									ZKL_MS(Min(MAX_READ_TIME_MS, zkl_connection_timeout / 2)));
}
