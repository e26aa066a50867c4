/*-------------------------------------------------------------------------
 *
 * semaphore.c
 *	  How a backend gets leases of a semaphore.
 *
 * If this server has enough leases and no backend of it waits, a backend takes
 * them at once.  Otherwise it queues for the semaphore's inner mutex, a lock
 * like others below the semaphore's path, and holds it until all its leases
 * are there.  So leases are granted in order, and no two clients wait for each
 * other with some leases in hand.
 *
 * A try needs no place in that queue.  It requests its leases at once, and
 * withdraws the request if there is no room; leases.c says why that is safe.
 *
 * src/backend/semaphore.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/acquire.h"
#include "backend/display.h"
#include "backend/enter.h"
#include "backend/holds.h"
#include "backend/report.h"
#include "backend/semaphore.h"
#include "backend/wait.h"
#include "backend/znodes.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"

/* More leases would only keep other backends waiting. */
#define MAX_QUANTITY	1000

/* There must be room for what is added to a semaphore's path. */
#define PATH_MAX_LENGTH	(ZKL_PATH_SIZE - 24)

static void check_wish(const ZklLocalClaim *claim, const ZklWish *wish);
static bool acquire_first(ZklLocalClaim *claim, const ZklWish *wish,
						  void *arg);
static bool acquire_more(ZklLocalClaim *claim, const ZklWish *wish);
static void add_leases(ZklLocalClaim *claim, ZklClaim *second,
					   const ZklWish *wish);
static bool acquire_leases(ZklClaim *claim, const ZklWish *wish);
static ZklAnswer acquire_by_trying(ZklClaim *claim, const ZklWish *wish);
static ZklAnswer acquire_in_turn(ZklClaim *claim, const ZklWish *wish);
static void survey_before(ZklClaim *claim, const ZklWait *wait);
static bool survey_after(ZklClaim *claim, const ZklWish *wish);
static int64 survey_until(const ZklWait *wait);
static bool survey(const ZklWish *wish, int64 until);
static void check_survey(const ZklSnapshot *survey, const ZklWish *wish);
static bool is_foreign_text(const ZklSnapshot *survey);

bool
zkl_semaphore_acquire(const ZklWish *wish)
{
	ZklLocalClaim *claim = zkl_enter_to_acquire(wish);

	check_wish(claim, wish);
	zkl_holds_check_room(wish->quantity);
	return claim == NULL ? zkl_claims_begin_for(wish, acquire_first, NULL) :
		acquire_more(claim, wish);
}

static void
check_wish(const ZklLocalClaim *claim, const ZklWish *wish)
{
	if (wish->quantity > wish->limit)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("cannot acquire %d leases of a semaphore with %d",
					   wish->quantity, wish->limit));
	if (wish->quantity > MAX_QUANTITY)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("too many leases: %d", wish->quantity),
				errdetail("At most %d can be acquired together.", MAX_QUANTITY));
	if (strlen(wish->path) > PATH_MAX_LENGTH)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid lock path: \"%s\"", zkl_display_path(wish->path)),
				errdetail("The path of a semaphore must not be longer than %d bytes.",
						  PATH_MAX_LENGTH));
	if (claim == NULL)
		return;

	if (claim->limit != wish->limit)
		zkl_report_other_limit(wish->path, claim->limit, wish->limit);

	/*
	 * With a timeout the wait ends by itself.  Without one, no other session
	 * could ever end it: the missing leases are this session's own.
	 */
	if (wish->until == ZKL_FOREVER &&
		zkl_claims_count(claim, ZKL_SHARED) + wish->quantity > wish->limit)
		ereport(ERROR,
				errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				errmsg("deadlock detected"),
				errdetail("This session holds %d of the %d leases of semaphore \"%s\", and would wait for itself.",
						  zkl_claims_count(claim, ZKL_SHARED), wish->limit,
						  zkl_display_path(wish->path)));
}

/*
 * The first leases of this backend.  It waits for no local lock, because
 * claims on leases do not exclude each other.
 */
static bool
acquire_first(ZklLocalClaim *claim, const ZklWish *wish, void *arg)
{
	if (!acquire_leases(claim->shared, wish))
		return false;

	/*
	 * The worker may have changed the generation during the wait, so the tag
	 * gets it now.  Then zkl_holds_add() acquires the local lock.
	 */
	zkl_claims_set_generation(claim, claim->shared->generation);
	zkl_holds_add(claim, ZKL_SHARED, wish->scope, wish->quantity);
	return true;
}

/*
 * A second claim waits.  It is merged with the first when it has all its
 * leases.
 */
static bool
acquire_more(ZklLocalClaim *claim, const ZklWish *wish)
{
	ZklClaim   *second;
	volatile bool acquired = false;

	/*
	 * Leases cannot be added to a claim that is lost, so do not wait for
	 * them.
	 */
	if (zkl_claim_status(claim->shared, 0) == ZKL_STATUS_LOST)
		zkl_claims_report_lost(ERROR, claim);

	second = zkl_claims_begin_second(wish);
	PG_TRY();
	{
		acquired = acquire_leases(second, wish);
	}
	PG_CATCH();
	{
		zkl_claims_end_second();
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (acquired)
		add_leases(claim, second, wish);
	else
		zkl_claims_end_second();
	return acquired;
}

static void
add_leases(ZklLocalClaim *claim, ZklClaim *second, const ZklWish *wish)
{
	/*
	 * If the merge fails, the first or the second claim has been lost since.
	 * This reports the one that was.
	 */
	if (!zkl_shared_claim_merge(claim->shared, second))
	{
		int64		lost_at;
		ZklLoss		loss = zkl_claim_status_loss(second, &lost_at);

		zkl_claims_end_second();
		if (zkl_claim_status(claim->shared, 0) == ZKL_STATUS_LOST)
			zkl_claims_report_lost(ERROR, claim);
		zkl_report_loss(ERROR, claim->path, loss, lost_at, NULL);
	}
	zkl_claims_forget_second();
	PG_TRY();
	{
		ZKL_FAULT_POINT("semaphore-merged");
		zkl_holds_add(claim, ZKL_SHARED, wish->scope, wish->quantity);
	}
	PG_CATCH();
	{
		/*
		 * The leases are in the first claim, and not counted.  No release
		 * would give them back before the claim ends.
		 */
		zkl_shared_claim_release_leases(claim->shared, wish->quantity);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/*
 * Get the leases for a claim that has begun.  True if it holds them, and the
 * path is no other kind of lock.
 */
static bool
acquire_leases(ZklClaim *claim, const ZklWish *wish)
{
	ZklAnswer	answer;

	if (zkl_grant_at_once(claim))
		return true;

	/* A claim that loses the inner mutex while it waits starts again. */
	do
		answer = wish->only_tries ? acquire_by_trying(claim, wish) :
			acquire_in_turn(claim, wish);
	while (answer == ZKL_ANSWER_STALE);
	if (answer != ZKL_ANSWER_HELD || !survey_after(claim, wish))
	{
		zkl_lock_stat_failed(claim, ERRCODE_LOCK_NOT_AVAILABLE);
		return false;
	}
	ZKL_FAULT_POINT("semaphore-acquired");
	return true;
}

/* Request the leases without the inner mutex. */
static ZklAnswer
acquire_by_trying(ZklClaim *claim, const ZklWish *wish)
{
	ZklWait		wait;

	zkl_wait_begin(&wait, wish);
	survey_before(claim, &wait);
	return zkl_wait_for_ticket(&wait, claim, NULL);
}

/* Wait for the inner mutex, and with it for the leases. */
static ZklAnswer
acquire_in_turn(ZklClaim *claim, const ZklWish *wish)
{
	ZklWish		inner = *wish;
	ZklWait		wait;
	ZklLocalClaim *mutex;
	volatile ZklAnswer answer = ZKL_ANSWER_QUEUED;

	/*
	 * At transaction level, the local lock of the inner mutex goes away with
	 * the transaction, whatever fails.
	 */
	inner.path = psprintf("%s/" ZKL_LOCKS, wish->path);
	inner.mode = ZKL_MODE_LOCK;
	inner.scope = ZKL_SCOPE_XACT;
	zkl_wait_begin(&wait, wish);

	/*
	 * A backend has at most one claim on a path.  This one would be the
	 * user's, who has locked the inner mutex by its name.
	 */
	if (zkl_claim_table_find(inner.path) != NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("cannot acquire semaphore \"%s\" while holding lock \"%s\"",
					   zkl_display_path(wish->path), zkl_display_path(inner.path)));
	mutex = zkl_claims_begin(&inner);
	PG_TRY();
	{
		if (zkl_acquire_claim(mutex, &inner))
		{
			ZKL_FAULT_POINT("semaphore-mutex-held");
			survey_before(claim, &wait);
			ZKL_FAULT_POINT("semaphore-surveyed");
			answer = zkl_wait_for_ticket(&wait, claim, mutex->shared);
			ZKL_FAULT_POINT("semaphore-granted");

			/*
			 * The claim goes on waiting for leases, but its backend must
			 * queue for the mutex again before it requests any.
			 */
			if (answer == ZKL_ANSWER_STALE)
				zkl_grant_stop_asking(claim);
		}
	}
	PG_FINALLY();
	{
		zkl_claims_end(mutex);
	}
	PG_END_TRY();
	pfree(unconstify(char *, inner.path));
	return answer;
}

/*
 * The first claim of a server on a semaphore looks whether the path is in use
 * as another kind of lock, or with another number of leases.  So it makes no
 * leases that would be in the way of that lock.
 *
 * If that takes until the time is over, the wait that follows reports so.
 */
static void
survey_before(ZklClaim *claim, const ZklWait *wait)
{
	const ZklWish *wish = wait->wish;
	ZklWait		own = *wait;

	if (zkl_claim_status_is_surveyed(claim))
		return;

	/*
	 * A znode that this server has just released must not count as another
	 * kind of lock.
	 */
	if (zkl_wait_until_settled(&own, claim))
		(void) survey(wish, survey_until(wait));
}

/*
 * The claim looks again when it has its leases, because another server may
 * have made the path another kind of lock in between.  Both servers create
 * first and look afterwards.  So at least one of them finds the other's znode
 * and gives up.  From then on, any other client finds a lease of this server,
 * as long as it has one.
 *
 * False if the time is over before ZooKeeper has replied.
 */
static bool
survey_after(ZklClaim *claim, const ZklWish *wish)
{
	ZklWait		wait;

	if (zkl_claim_status_is_surveyed(claim))
		return true;
	zkl_wait_begin(&wait, wish);
	if (!survey(wish, survey_until(&wait)))
	{
		zkl_wait_report_unanswered(&wait, claim);
		return false;
	}
	zkl_claim_status_set_surveyed(claim);
	return true;
}

/* A try waits for ZooKeeper. */
static int64
survey_until(const ZklWait *wait)
{
	return wait->wish->only_tries ? wait->lock_timeout_at :
		Min(wait->wish->until, wait->lock_timeout_at);
}

/*
 * Raise an error if the path is in use as another kind of lock or with another
 * number of leases.  Otherwise write the number of leases into the data of the
 * semaphore's directory, where kazoo looks for it.  False if the time is over.
 */
static bool
survey(const ZklWish *wish, int64 until)
{
	ZklSnapshot *seen = zkl_znodes_survey(wish->path, ZKL_ZNODES_NAMES, until);

	if (seen == NULL)
		return false;
	check_survey(seen, wish);
	if (seen->exists && zkl_snapshot_limit(seen) != wish->limit &&
		!is_foreign_text(seen))
		(void) zkl_znodes_write(wish->path, "", psprintf("%d", wish->limit), until);
	return true;
}

/*
 * Names of clients in the directory itself are those of a mutex or a
 * read-write lock.  The number of leases matters only while there are leases:
 * before that, any client may set another one.
 */
static void
check_survey(const ZklSnapshot *survey, const ZklWish *wish)
{
	int			limit = zkl_snapshot_limit(survey);

	for (int i = 0; i < survey->nnodes; i++)
	{
		ZklContender contender;

		if (survey->nodes[i].where == ZKL_WHERE_LOCK &&
			zkl_recipe_parse(survey->nodes[i].name, &contender))
			zkl_report_other_kind(wish->path);
	}
	if (limit != 0 && limit != wish->limit &&
		zkl_snapshot_count(survey, ZKL_WHERE_LEASES) > 0)
		zkl_report_other_limit(wish->path, limit, wish->limit);
}

/* Other clients' data of the directory must not be overwritten. */
static bool
is_foreign_text(const ZklSnapshot *survey)
{
	return survey->data_length > 0 && zkl_snapshot_limit(survey) == 0;
}
