/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Acquire a mutex or a read-write lock: the two waits.
 *
 * First the advisory lock decides between the backends of this server, then the
 * server's ticket decides between servers.  Both waits end at the same moment.
 *
 * src/backend/lock/acquire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock/acquire.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/wait.h"
#include "backend/lock/waitreport.h"
#include "backend/lock/xact.h"
#include "backend/report.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"

static bool acquire_first(ZklLocalClaim *claim, const ZklLockRequest *request,
						  void *arg);
static void report_lock_timeout(ZklClaim *claim);
static void acquire_again(ZklLocalClaim *claim, const ZklLockRequest *request);
static void count(ZklLocalClaim *claim, const ZklLockRequest *request);

bool
zkl_acquire(const ZklLockRequest *request)
{
	ZklLocalClaim *claim = zkl_hold_counts_update_to_acquire(request);

	if (claim != NULL)
	{
		acquire_again(claim, request);
		return true;
	}

	/*
	 * Only a new claim takes room in the lock table.  A further acquire only
	 * raises a count in this backend's memory.
	 */
	zkl_hold_counts_check_room(1);

	/*
	 * In the usual case, the backend requests nothing and waits for nothing.
	 * The room to count the acquire exists already, so nothing can fail once
	 * the claim is held.
	 */
	claim = zkl_local_claim_begin_held(request);
	if (claim != NULL)
		count(claim, request);
	else if (!zkl_local_claim_begin_for(request, acquire_first, NULL))
		return false;
	ZKL_FAULT_POINT("acquired");
	return true;
}

/* The first acquire of a lock by this backend, with a wait. */
static bool
acquire_first(ZklLocalClaim *claim, const ZklLockRequest *request, void *arg)
{
	if (!zkl_acquire_claim(claim, request))
		return false;
	count(claim, request);
	return true;
}

/*
 * If a backend gets the advisory lock of an old generation, it has waited behind
 * a claim that was lost.  It starts again with the new generation.
 */
bool
zkl_acquire_claim(ZklLocalClaim *claim, const ZklLockRequest *request)
{
	ZklWait		wait;
	ZklAnswer	answer;

	zkl_wait_begin(&wait, request, claim->shared);
	ZKL_FAULT_POINT("claim-begun");
	for (;;)
	{
		if (!zkl_acquire_locally(claim, request))
			break;
		ZKL_FAULT_POINT("advisory-locked");
		answer = zkl_wait_for_ticket(&wait, NULL);
		if (answer == ZKL_ANSWER_HELD)
			return true;
		if (answer != ZKL_ANSWER_STALE)
			break;

		/*
		 * The next round overwrites the tag, so release the old advisory lock
		 * before that.
		 */
		zkl_local_claim_unlock(claim, zkl_local_claim_part(request->mode));
	}
	zkl_lock_stat_failed(claim->shared, ERRCODE_LOCK_NOT_AVAILABLE);
	return false;
}

/*
 * Get the advisory lock of the entry's present generation.  A try takes it only
 * if no other backend has it or waits for it.
 */
bool
zkl_acquire_locally(ZklLocalClaim *claim, const ZklLockRequest *request)
{
	ZklPartName part = zkl_local_claim_part(request->mode);
	int64		until = Min(request->until, request->lock_timeout_at);
	ZklAdvisoryWait result;

	/*
	 * When the worker begins a new generation, it ends this wait, because the
	 * holder of the old advisory lock has lost its claim, but may keep that
	 * lock for hours.  The wait then begins again with the new tag.
	 */
	do
	{
		zkl_local_claim_set_generation(claim,
									   zkl_claim_generation(claim->shared));
		claim->crowded = !zkl_local_claim_lock(claim, part, request->scope);
		if (!claim->crowded || request->only_tries)
			return !claim->crowded;
		zkl_wait_drop_snapshot(request);
		result = zkl_local_claim_wait_for_lock(claim, part, request->scope, until);

		/*
		 * PostgreSQL's timers go by the wall clock, which may have been set
		 * forward.
		 */
		if (result == ZKL_ADVISORY_TIME_OVER && zkl_now() < until)
			result = ZKL_ADVISORY_NEW_GENERATION;
		else if (result == ZKL_ADVISORY_TIME_OVER && zkl_now() < request->until)
			report_lock_timeout(claim->shared);
	} while (result == ZKL_ADVISORY_NEW_GENERATION);
	return result == ZKL_ADVISORY_LOCKED;
}

/*
 * PostgreSQL counts lock_timeout from the beginning of each wait for the
 * advisory lock.  zklock counts it from the beginning of the request, and so
 * raises the error itself in all waits but the first.
 */
static void
report_lock_timeout(ZklClaim *claim)
{
	ErrorContextCallback context;

	zkl_lock_stat_failed(claim, ERRCODE_LOCK_NOT_AVAILABLE);
	zkl_wait_report_push_context(&context, claim);
	zkl_report_lock_timeout(NULL);
}

/*
 * Acquire a lock that this backend holds already.  If the claim is in doubt,
 * wait until the session certainly lives.  A backend that holds the lock to
 * write may also acquire it to read.  But a backend that holds it to read
 * must not wait to write: two such backends would each wait for the other to
 * stop reading.
 */
static void
acquire_again(ZklLocalClaim *claim, const ZklLockRequest *request)
{
	ZklPartName part = zkl_local_claim_part(request->mode);

	if (zkl_local_claim_is_repeated(claim, request))
		return;
	if (part == ZKL_EXCLUSIVE && zkl_local_claim_count(claim, part) == 0)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("cannot acquire the write lock \"%s\" while holding its read lock",
					   zkl_display_path(request->path)),
				claim->parts[ZKL_SHARED].session_count > 0 ?
				errhint("Release the read lock first, or acquire the write lock instead of it.") :
				errhint("Acquire the write lock instead of the read lock."));

	/*
	 * The server already owns the ticket, so the backend requests nothing
	 * from the worker.
	 */
	zkl_wait_for_certainty(request, claim);
	count(claim, request);
}

/*
 * Count the acquire.  Each acquire with a hold limit sets the limit again,
 * counted from the grant.  The quick check of the commit guard does not notice
 * that a limit has passed, so zkl_xact_note_lease_time() disables it.
 */
static void
count(ZklLocalClaim *claim, const ZklLockRequest *request)
{
	zkl_hold_counts_add(claim, request);
	ZKL_FAULT_POINT("counted");
	if (request->hold_limit == 0)
		return;
	zkl_xact_note_lease_time();
	zkl_claim_set_hold_limit(claim->shared, zkl_now() + request->hold_limit);
}
