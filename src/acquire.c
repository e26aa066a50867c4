/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Acquire and release, as the SQL functions want it.
 *
 * First PostgreSQL's own lock decides within the server, then the server's
 * ticket between servers.  One moment ends both waits.
 *
 * src/acquire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/guc.h"

#include "acquire.h"
#include "compat.h"
#include "report.h"
#include "xact.h"
#include "zklock.h"

/* How long a wait has lasted, and how long without a sign of ZooKeeper. */
typedef struct Wait
{
	const ZklWish *wish;
	int64		lock_timeout_at;	/* when lock_timeout ends it */
	int64		silent_since;	/* 0: ZooKeeper has answered */
} Wait;

static void check_environment(void);
static bool acquire_first(ZklLocalClaim *claim, const ZklWish *wish);
static void acquire_again(ZklLocalClaim *claim, const ZklWish *wish);
static bool lock_locally(ZklLocalClaim *claim, const ZklWish *wish);
static ZklAnswer wait_for_ticket(ZklLocalClaim *claim, Wait *wait);
static bool time_is_over(Wait *wait, bool answered);
static bool is_silent(const Wait *wait, int64 now);
static void sleep_until_next(const Wait *wait);
static bool session_is_in_touch(int64 now);
static const char *describe_backend(void);
static void append_field(StringInfo text, const char *name,
						 const char *value);
static bool note_release(ZklLocalClaim *claim);

bool
zkl_acquire(const ZklWish *wish)
{
	ZklLocalClaim *claim;
	volatile bool acquired = false;

	check_environment();
	zkl_claims_sweep();

	claim = zkl_claims_find(wish->path);
	if (claim != NULL)
	{
		acquire_again(claim, wish);
		return true;
	}

	claim = zkl_claims_begin(wish->path);
	PG_TRY();
	{
		acquired = acquire_first(claim, wish);
		if (acquired)
			zkl_claims_count(claim, wish->scope);
	}
	PG_CATCH();
	{
		zkl_claims_end(claim);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (!acquired)
		zkl_claims_end(claim);
	return acquired;
}

static void
check_environment(void)
{
	zkl_check_loaded();
	if (IsInParallelMode())
		ereport(ERROR,
				errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("cannot acquire zklock locks during a parallel operation"));
}

/*
 * Who gets the local lock of an old generation has waited behind a claim that
 * was lost, and starts again.
 */
static bool
acquire_first(ZklLocalClaim *claim, const ZklWish *wish)
{
	Wait		wait = {wish, ZKL_FOREVER, 0};
	ZklAnswer	answer;

	if (LockTimeout > 0)
		wait.lock_timeout_at = zkl_now() + ZKL_MS(LockTimeout);

	for (;;)
	{
		if (!lock_locally(claim, wish))
			return false;
		answer = wait_for_ticket(claim, &wait);
		if (answer != ZKL_ANSWER_STALE)
			return answer == ZKL_ANSWER_HELD;
		zkl_local_lock_release(&claim->tag, claim->lock_scope);
		claim->locked = false;
	}
}

static bool
lock_locally(ZklLocalClaim *claim, const ZklWish *wish)
{
	zkl_local_lock_tag(&claim->tag, wish->path,
					   zkl_shared_generation(claim->shared));
	claim->lock_scope = wish->scope;
	claim->locked = zkl_local_lock_try(&claim->tag, wish->scope);
	if (!claim->locked && !wish->only_tries)
		claim->locked = zkl_local_lock_wait(&claim->tag, wish->scope,
											wish->until);
	return claim->locked;
}

/* A lock that we hold.  In doubt, wait until the session is known to live. */
static void
acquire_again(ZklLocalClaim *claim, const ZklWish *wish)
{
	Wait		wait = {wish, ZKL_FOREVER, 0};

	if (LockTimeout > 0)
		wait.lock_timeout_at = zkl_now() + ZKL_MS(LockTimeout);

	for (;;)
	{
		switch (zkl_shared_standing(claim->shared, 0))
		{
			case ZKL_STANDING_GOOD:
				zkl_claims_count(claim, wish->scope);
				return;
			case ZKL_STANDING_LOST:
				zkl_report_lost(ERROR, claim->path, claim->shared->loss,
								claim->shared->lost_at);
				break;
			case ZKL_STANDING_DOUBT:
				(void) time_is_over(&wait, false);
				sleep_until_next(&wait);
				break;
		}
	}
}

/*
 * Wait until the server's ticket is owned and the lock is held: HELD.  STALE
 * if the local lock is not the right one any more, and anything else if the
 * time is over.
 */
static ZklAnswer
wait_for_ticket(ZklLocalClaim *claim, Wait *wait)
{
	const char *about = NULL;

	for (;;)
	{
		ZklAnswer	answer = zkl_shared_hold(claim->shared,
											 wait->wish->only_tries, about);

		switch (answer)
		{
			case ZKL_ANSWER_HELD:
			case ZKL_ANSWER_STALE:
				return answer;
			case ZKL_ANSWER_FAILED:
				zkl_report_failure(claim->path, claim->shared->failure);
			case ZKL_ANSWER_SHUTDOWN:
				zkl_report_shutdown();
			case ZKL_ANSWER_QUEUED:
			case ZKL_ANSWER_NONE:
			case ZKL_ANSWER_DOUBT:
				break;
		}
		if (about == NULL)
		{
			about = describe_backend();
			continue;
		}
		if (time_is_over(wait, answer == ZKL_ANSWER_QUEUED))
			return answer;
		sleep_until_next(wait);
	}
}

/*
 * Is it time to say that the lock could not be had?  That may be said only on
 * ZooKeeper's word; without it, the end of the time is an error.
 */
static bool
time_is_over(Wait *wait, bool answered)
{
	const ZklWish *wish = wait->wish;
	int64		now = zkl_now();
	bool		over = now >= wish->until;
	bool		in_touch = session_is_in_touch(now);

	if (answered && in_touch)
		wait->silent_since = 0;
	else if (wait->silent_since == 0)
		wait->silent_since = now;

	if (over && in_touch && answered)
		return true;
	if (over && in_touch && !wish->only_tries && !is_silent(wait, now))
		return true;
	if ((over && !wish->only_tries) || (over && !in_touch) ||
		(wait->silent_since != 0 &&
		 now - wait->silent_since >= ZKL_MS(zkl_connection_timeout)))
		zkl_report_unreachable(wish->path);
	if (now >= wait->lock_timeout_at)
		zkl_report_lock_timeout();
	return false;
}

/*
 * Our request has no answer yet.  Is that because ZooKeeper is silent, or did
 * the time just not suffice?
 */
static bool
is_silent(const Wait *wait, int64 now)
{
	ZklSessionInfo *session = &zkl_shared->session[0];

	return (int64) pg_atomic_read_u64(&session->heard_at) < wait->silent_since &&
		now - wait->silent_since >
		ZKL_MS(pg_atomic_read_u32(&session->period_ms));
}

/* Until somebody wakes us, or something has to be said. */
static void
sleep_until_next(const Wait *wait)
{
	static uint32 wait_event = 0;
	int64		now = zkl_now();
	int64		until = wait->lock_timeout_at;

	if (!wait->wish->only_tries)
		until = Min(until, wait->wish->until);
	if (wait->silent_since != 0)
		until = Min(until, wait->silent_since +
					ZKL_MS(zkl_connection_timeout));
	else
		until = Min(until, (int64) pg_atomic_read_u64(&zkl_shared->session[0].safe_until));

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(Max(0, (until - now + 999) / 1000), 60 * 1000),
					 zkl_wait_event("ZklockTicket", &wait_event));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static bool
session_is_in_touch(int64 now)
{
	return pg_atomic_read_u32(&zkl_shared->session[0].connected) != 0 &&
		zkl_session_is_safe(0, now);
}

/* What the ticket's znode says about who asked for it. */
static const char *
describe_backend(void)
{
	StringInfoData text;
	const char *database = OidIsValid(MyDatabaseId) ?
	get_database_name(MyDatabaseId) : NULL;

	initStringInfo(&text);
	append_field(&text, "server", zkl_my_node_name());
	appendStringInfo(&text, " pid=%d", MyProcPid);
	append_field(&text, "database", database ? database : "");
	append_field(&text, "role", GetUserNameFromId(GetUserId(), true));
	append_field(&text, "application", application_name ? application_name : "");
	return text.data;
}

/* " name=value", with spaces, percent and control characters as %XX */
static void
append_field(StringInfo text, const char *name, const char *value)
{
	if (text->len > 0)
		appendStringInfoChar(text, ' ');
	appendStringInfo(text, "%s=", name);
	for (const char *at = value ? value : ""; *at; at++)
	{
		unsigned char c = (unsigned char) *at;

		if (c <= ' ' || c == '%' || c == 0x7f)
			appendStringInfo(text, "%%%02X", c);
		else
			appendStringInfoChar(text, c);
	}
}

bool
zkl_release(const char *path)
{
	ZklLocalClaim *claim;
	bool		held;

	zkl_check_loaded();
	zkl_claims_sweep();

	claim = zkl_claims_find(path);
	if (claim == NULL || claim->session_count == 0)
	{
		ereport(WARNING,
				errmsg("you do not own lock \"%s\"", zkl_show_path(path)),
				claim == NULL ? 0 :
				errdetail("It is held to the end of the transaction."));
		return false;
	}

	held = note_release(claim);
	zkl_claims_uncount_session(claim);
	return held;
}

int
zkl_release_all(void)
{
	ZklLocalClaim *claim;
	int			released = 0;

	zkl_check_loaded();
	zkl_claims_sweep();
	while ((claim = zkl_claims_first_session()) != NULL)
	{
		released++;
		note_release(claim);
		zkl_claims_uncount_session(claim);
	}
	return released;
}

/*
 * Whoever lets go of a lost lock learns it, and so will the commit guard.
 * Returns whether it was held.
 */
static bool
note_release(ZklLocalClaim *claim)
{
	ZklStanding standing = zkl_shared_standing(claim->shared, 0);

	zkl_xact_note_release(claim, standing);
	if (standing != ZKL_STANDING_LOST)
		return true;
	zkl_report_lost(WARNING, claim->path, claim->shared->loss,
					claim->shared->lost_at);
	return false;
}

bool
zkl_is_held(const char *path)
{
	ZklLocalClaim *claim;

	zkl_check_loaded();
	zkl_claims_sweep();
	claim = zkl_claims_find(path);
	return claim != NULL &&
		zkl_shared_standing(claim->shared, 0) == ZKL_STANDING_GOOD;
}

int64
zkl_token(const char *path)
{
	ZklLocalClaim *claim;

	zkl_check_loaded();
	zkl_claims_sweep();
	claim = zkl_claims_find(path);
	if (claim == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("you do not own lock \"%s\"", zkl_show_path(path)));
	switch (zkl_shared_standing(claim->shared, 0))
	{
		case ZKL_STANDING_GOOD:
			break;
		case ZKL_STANDING_DOUBT:
			zkl_report_doubt(path);
			break;
		case ZKL_STANDING_LOST:
			zkl_report_lost(ERROR, path, claim->shared->loss,
							claim->shared->lost_at);
			break;
	}
	return claim->shared->token;
}
