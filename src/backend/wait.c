/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  How a backend waits for its server's ticket.
 *
 * src/backend/wait.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "backend/report.h"
#include "backend/wait.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"

/*
 * How long a try waits until the server before it has answered or given up:
 * this many times as long as its own request took, but not less than the
 * constant below.  It seldom waits so long: only if that server has stopped, or
 * cannot reach ZooKeeper.  No znode says whether leases linger, so for leases
 * each failed try waits so long.
 */
#define ASK_TIMES		4
#define ASK_LOCK		ZKL_MS(1000)
#define ASK_LEASES		ZKL_MS(10)

static bool time_is_over(ZklWait *wait, ZklAnswer answer);
static bool has_asked_enough(ZklWait *wait);
static bool is_silent(const ZklWait *wait, int64 now);
static void sleep_until_next(const ZklWait *wait);
static bool session_is_in_touch(int session, int64 now);

void
zkl_wait_begin(ZklWait *wait, const ZklWish *wish)
{
	wait->wish = wish;

	/*
	 * lock_timeout counts from here.  For a mutex or a read-write lock that
	 * includes the wait for the local lock.
	 */
	wait->begun_at = zkl_now();
	wait->lock_timeout_at = LockTimeout > 0 ?
		wait->begun_at + ZKL_MS(LockTimeout) : ZKL_FOREVER;
	wait->asks_until = 0;
	wait->silent_since = 0;
	wait->impatient = false;
	wait->about = NULL;
}

ZklAnswer
zkl_wait_ask(ZklWait *wait, ZklClaim *claim)
{
	/* With the text for its znode, the ticket is requested at once. */
	if (wait->about == NULL)
		wait->about = claim->about;
	return zkl_grant_request(claim, wait->wish->only_tries, wait->about);
}

ZklAnswer
zkl_wait_for_ticket(ZklWait *wait, ZklClaim *claim, ZklClaim *mutex)
{
	wait->claim = claim;
	wait->session = claim->entry->session;
	for (;;)
	{
		ZklAnswer	answer;

		/*
		 * Without the inner mutex, this backend must not request leases:
		 * another client may have the mutex, and be the next to get them.
		 */
		if (mutex != NULL &&
			zkl_claim_status(mutex, 0) == ZKL_STATUS_LOST)
			return ZKL_ANSWER_STALE;
		answer = zkl_grant_request(claim,
								   wait->wish->only_tries || wait->impatient,
								   wait->about);

		/*
		 * The owner has left this try without an answer, so the try takes the
		 * lock for held.
		 */
		if (answer == ZKL_ANSWER_ASKING && has_asked_enough(wait))
			answer = ZKL_ANSWER_QUEUED;
		switch (answer)
		{
			case ZKL_ANSWER_HELD:
				ZKL_FAULT_POINT("granted");
				return answer;
			case ZKL_ANSWER_STALE:
				return answer;
			case ZKL_ANSWER_FAILED:

				/* This report and the next two raise errors. */
				zkl_report_failure(wait->wish->path, claim->failure);
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

		/*
		 * The first round has not asked the worker.  It is enough if the
		 * server owns the ticket; otherwise ask the worker now.
		 */
		if (wait->about == NULL)
		{
			wait->about = claim->about;
			continue;
		}
		if (time_is_over(wait, answer) ||
			(wait->impatient && answer == ZKL_ANSWER_QUEUED))
			return answer;
		ZKL_FAULT_POINT("request-queued");
		sleep_until_next(wait);
	}
}

/*
 * Each look notes that the claim needs to be woken, so the worker sets this
 * backend's latch when the znodes are gone.
 */
bool
zkl_wait_until_settled(ZklWait *wait, ZklClaim *claim)
{
	wait->claim = claim;
	wait->session = claim->entry->session;
	while (!zkl_claim_status_is_settled(claim))
	{
		if (time_is_over(wait, ZKL_ANSWER_NONE))
			return false;
		sleep_until_next(wait);
	}
	return true;
}

ZklClaimStatus
zkl_wait_for_certainty(ZklWait *wait, ZklClaim *claim)
{
	wait->claim = claim;
	wait->session = claim->entry->session;
	for (;;)
	{
		ZklClaimStatus standing = zkl_claim_status(claim, 0);

		if (standing != ZKL_STATUS_DOUBT)
			return standing;

		/*
		 * Called for its errors only.  The backend holds the lock, so the end
		 * of the time must not be taken for "not acquired".
		 */
		(void) time_is_over(wait, ZKL_ANSWER_NONE);
		sleep_until_next(wait);
	}
}

/*
 * Is it time to return that the lock was not acquired?  As a rule only after
 * ZooKeeper has replied that the lock is taken.  Without a reply, the end of
 * the time is an error, unless ZooKeeper still answers heartbeats: then the
 * timeout was just shorter than the request.  A try always needs the reply.
 */
static bool
time_is_over(ZklWait *wait, ZklAnswer answer)
{
	const ZklWish *wish = wait->wish;
	bool		asking = wish->only_tries && answer == ZKL_ANSWER_ASKING;
	bool		answered = answer == ZKL_ANSWER_QUEUED ||
	answer == ZKL_ANSWER_ASKING;
	int64		now = zkl_now();
	bool		over = now >= wish->until;
	bool		in_touch = session_is_in_touch(wait->session, now);

	/*
	 * A reply counts only while the server is connected: what ZooKeeper said
	 * before may be out of date.
	 */
	if (answered && in_touch)
		wait->silent_since = 0;
	else if (wait->silent_since == 0)
		wait->silent_since = now;

	/*
	 * ZooKeeper has said that the lock is taken, and a try has waited long
	 * enough for the owner's answer.
	 */
	if (over && in_touch && answered && !asking)
		return true;

	/* No reply yet, but ZooKeeper is there. */
	if (over && in_touch && !wish->only_tries && !is_silent(wait, now))
		return true;

	/*
	 * The time is over without a reply, or ZooKeeper has been silent for too
	 * long, whatever time is left.
	 */
	if ((over && !wish->only_tries) || (over && !in_touch) ||
		(wait->silent_since != 0 &&
		 now >= zkl_session_info_silent_from(wait->session, wait->begun_at, wait->silent_since)))
		zkl_report_unreachable(wish->path, wait->session);
	if (now >= wait->lock_timeout_at)
	{
		zkl_lock_stat_failed(wait->claim, ERRCODE_LOCK_NOT_AVAILABLE);
		zkl_report_lock_timeout();
	}
	return false;
}

/* Has the owner before this try left it without an answer for long enough? */
static bool
has_asked_enough(ZklWait *wait)
{
	int64		now = zkl_now();
	int64		least = wait->wish->mode == ZKL_MODE_LEASE ? ASK_LEASES : ASK_LOCK;

	if (wait->asks_until == 0)
		wait->asks_until = now +
			Max(least, ASK_TIMES * (now - wait->begun_at));
	return now >= wait->asks_until;
}

/*
 * The request has no answer yet.  Is ZooKeeper silent, or was the time just
 * too short?
 */
static bool
is_silent(const ZklWait *wait, int64 now)
{
	ZklSessionInfo *session = &zkl_lock_table->session[wait->session];

	return (int64) pg_atomic_read_u64(&session->heard_at) < wait->silent_since &&
		now - wait->silent_since >
		ZKL_MS(pg_atomic_read_u32(&session->period_ms));
}

/* Sleep until this backend is woken, or until its wait may have to end. */
static void
sleep_until_next(const ZklWait *wait)
{
	static uint32 wait_event = 0;
	int64		now = zkl_now();
	int64		until = wait->lock_timeout_at;

	if (!wait->wish->only_tries)
		until = Min(until, wait->wish->until);
	if (wait->asks_until > now)
		until = Min(until, wait->asks_until);
	if (wait->silent_since != 0)
		until = Min(until, zkl_session_info_silent_from(wait->session,
														wait->begun_at,
														wait->silent_since));
	else
		until = Min(until, (int64) pg_atomic_read_u64(&zkl_lock_table->session[wait->session].safe_until));

	/*
	 * The latch is reset before the caller looks again, so no wake-up is
	 * missed.  The sleep also ends with "safe until", because silence is
	 * measured from then on.
	 */
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(Max(0, (until - now + 999) / 1000), 60 * 1000),
					 zkl_wait_event("ZklockTicket", &wait_event));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Is the server connected to ZooKeeper, and its session certainly alive? */
static bool
session_is_in_touch(int session, int64 now)
{
	return pg_atomic_read_u32(&zkl_lock_table->session[session].connected) != 0 &&
		zkl_session_info_is_safe(session, now);
}
