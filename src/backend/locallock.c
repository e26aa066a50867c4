/*-------------------------------------------------------------------------
 *
 * locallock.c
 *	  PostgreSQL's own lock behind a claim: the order within this server.
 *
 * Waiting always happens at transaction level, under the current resource
 * owner, even for a session-level lock.  If the wait is cancelled at the
 * moment of the grant, PostgreSQL records the lock where the backend waited
 * for it.  What is recorded there goes away with the transaction, whatever
 * else fails.
 *
 * Some errors that end a wait are no errors here, so they are caught.  That
 * takes no subtransaction, because nothing has happened but the wait itself.
 * What PostgreSQL does about a wait when it aborts a transaction is
 * LockErrorCleanup().  A subtransaction would do harm: on a hot standby, a
 * conflict with recovery ends a statement in a transaction, but the connection
 * in a subtransaction.
 *
 * src/backend/locallock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "backend/locallock.h"
#include "backend/obstacle.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"
#include "shared/sharedclaim.h"

/* PostgreSQL itself uses 1 and 2 in an advisory lock's last field. */
#define FIRST_GENERATION_FIELD	3
#define GENERATION_FIELDS		(PG_UINT16_MAX - FIRST_GENERATION_FIELD + 1)

/*
 * The longest wait for a cancel that was sent.  It is that long only if the
 * signal is ignored, or has come together with another reason to end the wait.
 */
#define MAX_ABSORB_WAIT			ZKL_MS(100)

/* Has zklock cancelled the present statement, not just the wait?  Set by wait. */
static bool (*statement_is_cancelled) (void);

static bool acquire(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope,
					bool dont_wait);
static void wait_here(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope);
static ZklLocalWait wait_and_judge(ZklClaim *claim, const LOCKTAG *tag,
								   LOCKMODE mode, ZklScope scope,
								   int limit_ms);
static void forget_wait(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope,
						bool booked);
static ZklLocalWait judge_error(ZklClaim *claim, ErrorData *error,
								bool limited);
static bool statement_time_is_over(void);
static void absorb_cancel(void);
static int	milliseconds_until(int64 until);

/*
 * Two paths with one hash would exclude each other.  Without the seed, a role
 * could look for a path of its own that has the hash of another role's path.  It
 * could also guess paths, and find their hashes in pg_locks.
 */
void
zkl_local_lock_tag(LOCKTAG *tag, const char *path)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) path,
										   strlen(path), zkl_lock_table->seed);

	/* Database 0: locks are the whole server's. */
	memset(tag, 0, sizeof(*tag));
	tag->locktag_field2 = (uint32) (hash >> 32);
	tag->locktag_field3 = (uint32) hash;
	tag->locktag_type = LOCKTAG_ADVISORY;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
	zkl_local_lock_set_generation(tag, 0);
}

void
zkl_local_lock_set_generation(LOCKTAG *tag, uint32 generation)
{
	tag->locktag_field4 = FIRST_GENERATION_FIELD +
		generation % GENERATION_FIELDS;
}

bool
zkl_local_lock_try(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope)
{
	return acquire(tag, mode, scope, true);
}

/*
 * PostgreSQL lets the holder of a lock go before the waiters that it blocks.
 */
void
zkl_local_lock_add_share(const LOCKTAG *tag, ZklScope scope)
{
	(void) acquire(tag, ShareLock, scope, false);
}

ZklLocalWait
zkl_local_lock_wait(ZklClaim *claim, const LOCKTAG *tag, LOCKMODE mode,
					ZklScope scope, int64 until, bool (*is_cancelled) (void))
{
	int			limit_ms = milliseconds_until(until);

	statement_is_cancelled = is_cancelled;
	if (until != ZKL_FOREVER && limit_ms == 0)
		return ZKL_LOCAL_TIME_OVER;

	/* A shorter lock_timeout raises its own error, instead of "false". */
	if (LockTimeout > 0 && LockTimeout <= limit_ms)
		limit_ms = 0;

	/*
	 * From here on the worker cancels the wait when it begins a new
	 * generation.  If it has done so already, it sends no cancel, so do not
	 * wait at all.
	 */
	if (!zkl_shared_claim_begin_local_wait(claim))
		return ZKL_LOCAL_NEW_GENERATION;
	return wait_and_judge(claim, tag, mode, scope, limit_ms);
}

void
zkl_local_lock_move(const LOCKTAG *tag, LOCKMODE mode, ZklScope from,
					ZklScope to)
{
	/* The lock is held already, so this only counts it, without any wait. */
	if (from != to && acquire(tag, mode, to, true))
		zkl_local_lock_release(tag, mode, from);
}

/*
 * PostgreSQL finds the lock only under the resource owner that acquire()
 * used.
 */
void
zkl_local_lock_release(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (scope == ZKL_SCOPE_XACT)
		CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelease(tag, mode, scope == ZKL_SCOPE_SESSION);
	CurrentResourceOwner = owner;
}

/*
 * Acquire the lock at its level.  Under the owner of a savepoint, the lock
 * would go away when that savepoint is rolled back.
 *
 * After an error, whoever catches it sets the owner: PostgreSQL does, when it
 * aborts a transaction or a savepoint, and so does wait_and_judge().
 */
static bool
acquire(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope, bool dont_wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	if (scope == ZKL_SCOPE_XACT)
		CurrentResourceOwner = TopTransactionResourceOwner;
	result = LockAcquire(tag, mode, scope == ZKL_SCOPE_SESSION, dont_wait);
	CurrentResourceOwner = owner;
	return result != LOCKACQUIRE_NOT_AVAIL;
}

/* Wait under the current resource owner, then move the lock to its level. */
static void
wait_here(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope)
{
	(void) LockAcquire(tag, mode, false, false);
	ZKL_FAULT_POINT("local-lock-granted");

	/* The time may have ended, or a cancel come, at the moment of the grant. */
	CHECK_FOR_INTERRUPTS();
	(void) acquire(tag, mode, scope, true);
	LockRelease(tag, mode, false);
}

/*
 * lock_timeout is the lock manager's only limit to a wait, and a cancel the only
 * way to interrupt it.  Both end it with an error.
 */
static ZklLocalWait
wait_and_judge(ZklClaim *claim, const LOCKTAG *tag, LOCKMODE mode,
			   ZklScope scope, int limit_ms)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorContextCallback context_of_errors;
	int			users_limit = LockTimeout;
	volatile bool booked = false;
	volatile ZklLocalWait result = ZKL_LOCAL_LOCKED;

	PG_TRY();
	{
		/* PostgreSQL's own messages show the lock as four numbers. */
		zkl_obstacle_push_context(&context_of_errors, claim);
		if (limit_ms > 0)
			LockTimeout = limit_ms;
		wait_here(tag, mode, scope);
		LockTimeout = users_limit;
		error_context_stack = context_of_errors.previous;
		booked = true;
		if (zkl_shared_claim_end_local_wait(claim))
			absorb_cancel();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = users_limit;
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		forget_wait(tag, mode, scope, booked);
		result = judge_error(claim, error, limit_ms > 0);
	}
	PG_END_TRY();
	return result;
}

/*
 * Do what the abort of a transaction would do about the wait.  The lock may
 * have been granted just when the error came.  "booked" says that the lock had
 * been moved already from where the backend waited for it.
 */
static void
forget_wait(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope, bool booked)
{
	LockErrorCleanup();
	if (booked)
		zkl_local_lock_release(tag, mode, scope);
	else if (zkl_lock_held_by_me(tag, mode))
		LockRelease(tag, mode, false);
}

/*
 * What ended the wait?  Raises the error again if it was no limit or cancel of
 * zklock's.
 */
static ZklLocalWait
judge_error(ZklClaim *claim, ErrorData *error, bool limited)
{
	bool		nudged = zkl_shared_claim_end_local_wait(claim);

	if (nudged && error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		absorb_cancel();

	/*
	 * A claim that this backend held and lost is a reason of its own for a
	 * cancel.
	 */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && nudged &&
		!statement_is_cancelled() && !statement_time_is_over())
	{
		FreeErrorData(error);
		return ZKL_LOCAL_NEW_GENERATION;
	}
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && limited)
	{
		FreeErrorData(error);
		return ZKL_LOCAL_TIME_OVER;
	}
	zkl_lock_stat_failed(claim, error->sqlerrcode);
	ReThrowError(error);
	return ZKL_LOCAL_TIME_OVER; /* keep compiler quiet */
}

/* statement_timeout cancels, too, and both may have come at once. */
static bool
statement_time_is_over(void)
{
	return StatementTimeout > 0 &&
		TimestampDifferenceExceeds(GetCurrentStatementStartTimestamp(),
								   GetCurrentTimestamp(), StatementTimeout);
}

/*
 * The worker sent a cancel for this wait.  Take it here, so that it does not
 * hit the next statement.
 */
static void
absorb_cancel(void)
{
	static uint32 wait_event = 0;
	int64		until = zkl_now() + MAX_ABSORB_WAIT;

	while (!QueryCancelPending && zkl_now() < until)
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 1, zkl_wait_event("ZklockCancel", &wait_event));
		ResetLatch(MyLatch);
	}
	QueryCancelPending = statement_is_cancelled();

	/* The latch may have been set for another reason, too, so set it again. */
	SetLatch(MyLatch);
}

/* Rounded up, so that the wait does not end before the time is over. */
static int
milliseconds_until(int64 until)
{
	int64		left;

	if (until == ZKL_FOREVER)
		return 0;
	left = (until - zkl_now() + 999) / 1000;
	return (int) Min(Max(left, 0), INT_MAX);
}
