/*-------------------------------------------------------------------------
 *
 * advisorylock.c
 *	  PostgreSQL's own lock behind a claim: the wait for the other backends of this server.
 *
 * Waiting always happens at transaction level, under the current resource
 * owner, even for a session-level lock.  If the wait is cancelled at the
 * moment of the grant, PostgreSQL records the lock where the backend waited
 * for it.  What is recorded there goes away with the transaction, whatever
 * else fails.
 *
 * Some errors that end a wait are not errors for zklock, so this file catches
 * them.  That needs no subtransaction, because nothing has happened except the
 * wait itself: it is enough to call LockErrorCleanup(), as PostgreSQL does
 * when it aborts a transaction.  A subtransaction would do harm: on a hot
 * standby, a conflict with recovery ends only the statement in a transaction,
 * but the whole connection in a subtransaction.
 *
 * src/backend/lock/advisorylock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

#include "backend/display.h"
#include "backend/lock/advisorylock.h"
#include "backend/lock/cancel.h"
#include "backend/lock/waitreport.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/claim.h"
#include "shared/lockstat.h"

/* PostgreSQL itself uses 1 and 2 in an advisory lock's last field. */
#define FIRST_GENERATION_FIELD	3
#define GENERATION_FIELDS		(PG_UINT16_MAX - FIRST_GENERATION_FIELD + 1)

/*
 * The present wait of this backend.  Signal handlers read and set these.
 *
 * Only the flag that cancels a statement can end a wait for a lock, so zklock
 * sets that flag, too.  But it does so from a timeout and a signal of its own.
 * So SIGINT always means a cancel or a timeout of PostgreSQL, and the handler
 * notes it: even if both come together, the user's cancel is not lost.
 */
static ZklClaim *volatile waiting = NULL;
static volatile sig_atomic_t ended = false; /* zklock has ended the wait */
static volatile sig_atomic_t time_is_over = false;	/* the wait ended because
													 * its time is over */
static volatile sig_atomic_t interrupted = false;	/* PostgreSQL has
													 * cancelled the statement */
static bool told = false;		/* the user was told that the wait goes on */
static struct sigaction handler_of_sigint;
static struct sigaction handler_of_nudge;

static void wait_here(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope);
static ZklAdvisoryWait wait_and_judge(ZklClaim *claim, const LOCKTAG *tag,
									  LOCKMODE mode, ZklScope scope,
									  int limit_ms);
static void forget_wait(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope,
						bool booked);
static ZklAdvisoryWait judge_error(ZklClaim *claim, ErrorData *error);
static bool is_cancelled(void);
static void begin_listening(ZklClaim *claim);
static void end_listening(void);
static TimeoutId time_limit(void);
static void chain(int signal, void (*handler) (int, siginfo_t *, void *),
				  struct sigaction *before);
static void hand_on(const struct sigaction *handler, int signal,
					siginfo_t *info, void *context);
static void on_sigint(int signal, siginfo_t *info, void *context);
static void on_nudge(int signal, siginfo_t *info, void *context);
static void on_time_over(void);
static void end_wait(void);
static int	milliseconds_until(int64 until);

/*
 * Two paths with the same hash would exclude each other.  So the hash has a
 * secret key: otherwise a role could look for a path of its own with the hash
 * of another role's path.  It could also guess paths, and find their hashes
 * in pg_locks.
 */
void
zkl_advisory_lock_tag(LOCKTAG *tag, uint64 hash)
{
	/* Database 0: the locks belong to the whole server. */
	memset(tag, 0, sizeof(*tag));
	tag->locktag_field2 = (uint32) (hash >> 32);
	tag->locktag_field3 = (uint32) hash;
	tag->locktag_type = LOCKTAG_ADVISORY;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
	zkl_advisory_lock_set_generation(tag, 0);
}

void
zkl_advisory_lock_set_generation(LOCKTAG *tag, uint32 generation)
{
	tag->locktag_field4 = FIRST_GENERATION_FIELD +
		generation % GENERATION_FIELDS;
}

/*
 * Acquire the lock at its level.  Under the owner of a savepoint, the lock
 * would go away when that savepoint is rolled back.
 *
 * After an error, the owner is set by the code that catches the error:
 * wait_and_judge(), or PostgreSQL's abort of a transaction or savepoint.
 */
bool
zkl_advisory_lock_acquire(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope,
						  bool dont_wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	if (scope == ZKL_SCOPE_XACT)
		CurrentResourceOwner = TopTransactionResourceOwner;
	result = LockAcquire(tag, mode, scope == ZKL_SCOPE_SESSION, dont_wait);
	CurrentResourceOwner = owner;
	return result != LOCKACQUIRE_NOT_AVAIL;
}

ZklAdvisoryWait
zkl_advisory_lock_wait(ZklClaim *claim, const LOCKTAG *tag, LOCKMODE mode,
					   ZklScope scope, int64 until)
{
	int			limit_ms = milliseconds_until(until);
	ZklAdvisoryWait result = ZKL_ADVISORY_NEW_GENERATION;

	if (until != ZKL_FOREVER && limit_ms == 0)
		return ZKL_ADVISORY_TIME_OVER;

	/*
	 * If PostgreSQL's lock_timeout, which counts from here, is not longer,
	 * let PostgreSQL end the wait by its own error.
	 */
	if (LockTimeout > 0 && LockTimeout <= limit_ms)
		limit_ms = 0;

	/*
	 * From here on the worker ends the wait when it begins a new generation.
	 * If it has already begun one, it sends no signal, so do not wait at all.
	 */
	begin_listening(claim);
	if (zkl_claim_begin_local_wait(claim))
		result = wait_and_judge(claim, tag, mode, scope, limit_ms);
	else
		end_listening();
	return result;
}

/* Compare the text before it is translated. */
void
zkl_advisory_lock_tell(const ErrorData *message)
{
	static const char begins[] = "process %d still waiting for";
	const char *sentence;

	if (waiting == NULL || told || message->elevel != LOG ||
		message->message_id == NULL ||
		strncmp(message->message_id, begins, strlen(begins)) != 0)
		return;
	told = true;
	sentence = zkl_wait_report_obstacle(waiting, 0);
	ereport(NOTICE,
			errmsg("still waiting for lock \"%s\"",
				   zkl_display_path(waiting->entry->path)),
			sentence ? errdetail_internal("%s", sentence) : 0);
}

bool
zkl_advisory_lock_ends_wait(void)
{
	return waiting != NULL && ended && !is_cancelled();
}

void
zkl_advisory_lock_move(const LOCKTAG *tag, LOCKMODE mode, ZklScope from,
					   ZklScope to)
{
	/*
	 * The backend holds the lock already, so this only counts it, without a
	 * wait.
	 */
	if (from != to && zkl_advisory_lock_acquire(tag, mode, to, true))
		zkl_advisory_lock_release(tag, mode, from);
}

/*
 * PostgreSQL finds the lock only under the resource owner that
 * zkl_advisory_lock_acquire() used.
 */
void
zkl_advisory_lock_release(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (scope == ZKL_SCOPE_XACT)
		CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelease(tag, mode, scope == ZKL_SCOPE_SESSION);
	CurrentResourceOwner = owner;
}

/* Wait under the current resource owner, then move the lock to its level. */
static void
wait_here(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope)
{
	(void) LockAcquire(tag, mode, false, false);
	ZKL_FAULT_POINT("advisory-lock-granted");

	/*
	 * The timeout may have passed, or a cancel may have come, at the moment
	 * of the grant.
	 */
	CHECK_FOR_INTERRUPTS();
	(void) zkl_advisory_lock_acquire(tag, mode, scope, true);
	LockRelease(tag, mode, false);
}

/* Wait, and find out how the wait ended.  An early end is an error. */
static ZklAdvisoryWait
wait_and_judge(ZklClaim *claim, const LOCKTAG *tag, LOCKMODE mode,
			   ZklScope scope, int limit_ms)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorContextCallback context_of_errors;
	volatile bool booked = false;
	volatile ZklAdvisoryWait result = ZKL_ADVISORY_LOCKED;

	PG_TRY();
	{
		/* PostgreSQL's own messages show the lock only as four numbers. */
		zkl_wait_report_push_context(&context_of_errors, claim);
		if (limit_ms > 0)
			enable_timeout_after(time_limit(), limit_ms);
		wait_here(tag, mode, scope);
		error_context_stack = context_of_errors.previous;
		booked = true;
		zkl_claim_end_local_wait(claim);
		end_listening();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		/* Do this first: the copy may fail, and the handlers must not stay. */
		end_listening();
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		forget_wait(tag, mode, scope, booked);
		zkl_claim_end_local_wait(claim);
		result = judge_error(claim, error);
	}
	PG_END_TRY();
	return result;
}

/*
 * Clean up after the wait, as the abort of a transaction would do.  The lock
 * may have been granted at the moment of the error.  "booked" says that the
 * lock had already been moved from the level at which the backend waited.
 */
static void
forget_wait(const LOCKTAG *tag, LOCKMODE mode, ZklScope scope, bool booked)
{
	LockErrorCleanup();
	if (booked)
		zkl_advisory_lock_release(tag, mode, scope);
	else if (zkl_lock_held_by_me(tag, mode))
		LockRelease(tag, mode, false);
}

/*
 * Find out what ended the wait.  Raises the error again if it was not zklock.
 *
 * If PostgreSQL has also cancelled the statement, the error is that cancel.
 * If the cancel came after the error, it is still pending, and will raise an
 * error of its own.
 */
static ZklAdvisoryWait
judge_error(ZklClaim *claim, ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && ended &&
		(!is_cancelled() || QueryCancelPending))
	{
		FreeErrorData(error);

		/*
		 * PostgreSQL has postponed its other work at this interrupt, such as
		 * absorbing a barrier.  The statement goes on, so make PostgreSQL
		 * look again.
		 */
		InterruptPending = true;
		return time_is_over ? ZKL_ADVISORY_TIME_OVER : ZKL_ADVISORY_NEW_GENERATION;
	}
	zkl_lock_stat_failed(claim, error->sqlerrcode);
	ReThrowError(error);
	return ZKL_ADVISORY_TIME_OVER;	/* keep compiler quiet */
}

/* Was the statement cancelled, other than by zklock to end this wait? */
static bool
is_cancelled(void)
{
	return interrupted || zkl_cancel_is_noted();
}

/*
 * Signals
 */

/* A cancel that is already pending counts like one that comes now. */
static void
begin_listening(ZklClaim *claim)
{
	waiting = claim;
	ended = time_is_over = interrupted = told = false;
	chain(SIGINT, on_sigint, &handler_of_sigint);
	chain(ZKL_NUDGE_SIGNAL, on_nudge, &handler_of_nudge);
	if (QueryCancelPending)
		interrupted = true;
}

/*
 * Take zklock's cancel back, if no error has done so: otherwise it would
 * cancel what comes next.  If PostgreSQL cancels meanwhile, the handler first
 * notes PostgreSQL's cancel, so this function restores it.
 */
static void
end_listening(void)
{
	if (get_timeout_active(time_limit()))
		disable_timeout(time_limit(), false);
	waiting = NULL;
	if (ended && QueryCancelPending)
	{
		QueryCancelPending = false;
		if (is_cancelled())
			QueryCancelPending = true;
	}
	(void) sigaction(ZKL_NUDGE_SIGNAL, &handler_of_nudge, NULL);
	(void) sigaction(SIGINT, &handler_of_sigint, NULL);
}

/*
 * The timeout for these waits.  lock_timeout cannot be used: if it comes
 * together with a cancel, the lock manager raises the error of lock_timeout.
 */
static TimeoutId
time_limit(void)
{
	static TimeoutId id = MAX_TIMEOUTS;

	if (id == MAX_TIMEOUTS)
		id = RegisterTimeout(USER_TIMEOUT, on_time_over);
	return id;
}

/* Put a handler in front of the present one, with the present one's flags. */
static void
chain(int signal, void (*handler) (int, siginfo_t *, void *),
	  struct sigaction *before)
{
	struct sigaction action;

	(void) sigaction(signal, NULL, before);
	action = *before;
	action.sa_flags |= SA_SIGINFO;
	action.sa_sigaction = handler;
	(void) sigaction(signal, &action, NULL);
}

static void
hand_on(const struct sigaction *handler, int signal, siginfo_t *info,
		void *context)
{
	if (handler->sa_flags & SA_SIGINFO)
		handler->sa_sigaction(signal, info, context);
	else if (handler->sa_handler != SIG_IGN && handler->sa_handler != SIG_DFL)
		handler->sa_handler(signal);
}

/*
 * Call the previous handler.  In some processes, it does something else than
 * cancel.
 */
static void
on_sigint(int signal, siginfo_t *info, void *context)
{
	hand_on(&handler_of_sigint, signal, info, context);
	if (QueryCancelPending)
		interrupted = true;
}

/*
 * The signal may come for another reason, or for a wait that is over.  In
 * PostgreSQL 15 it may also be a cancel because of a conflict with recovery.
 */
static void
on_nudge(int signal, siginfo_t *info, void *context)
{
	bool		was_pending = QueryCancelPending;

	hand_on(&handler_of_nudge, signal, info, context);
	if (QueryCancelPending && !was_pending)
		interrupted = true;
	if (waiting != NULL && waiting->nudged)
		end_wait();
}

static void
on_time_over(void)
{
	time_is_over = true;
	end_wait();
}

/*
 * Called by signal handlers.  If PostgreSQL is already ending the wait, do
 * nothing.
 */
static void
end_wait(void)
{
	int			save_errno = errno;

	if (interrupted || proc_exit_inprogress)
		return;
	ended = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* Round up, so that the wait does not end too early. */
static int
milliseconds_until(int64 until)
{
	int64		left;

	if (until == ZKL_FOREVER)
		return 0;
	left = (until - zkl_now() + 999) / 1000;
	return (int) Min(Max(left, 0), INT_MAX);
}
