/*-------------------------------------------------------------------------
 *
 * xact.c
 *	  What transactions and savepoints do to claims, and the commit guard.
 *
 * The commit guard is a transaction callback.  An extension such as postgres_fdw
 * commits on other servers in a callback of its own, at the same stage.  If that
 * were called first, the other server would commit although the guard refuses.
 *
 * PostgreSQL calls the callback first that was registered last.  postgres_fdw
 * registers its callback at its first use in the backend.  So the guard is
 * registered anew when a claim begins, and on every way out of a statement:
 * ExecutorRun, ExecutorFinish and ProcessUtility, nested ones included, whether
 * they succeed or fail.  (Where nothing can come in between, once is enough; see
 * hooks.c and on_claim_begins().)  Then it is first, because
 *
 *	- foreign tables are written in these three functions only.  Planning and
 *	  ExecutorStart may connect, but what writes over that connection goes
 *	  through them afterwards.
 *	- so does everything that CommitTransaction() runs before the callbacks:
 *	  a deferred trigger or a held cursor runs statements of its own, and
 *	  PortalDrop() finishes the execution of an open cursor.
 *	- COMMIT in a procedure, a function call by the fast path and a background
 *	  worker run their statements through the same functions, by way of SPI, of
 *	  the executor of SQL functions, or of portals.
 *	- a claim may begin without any statement: PL/pgSQL evaluates an expression
 *	  by itself.
 *
 * What is left is code in C that writes elsewhere without a statement, and
 * registers its callback there for the first time in the backend, such as the
 * target of a fast-path call or a deferred trigger.
 *
 * src/backend/xact.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "utils/builtins.h"

#include "backend/claims.h"
#include "backend/deadlock.h"
#include "backend/holds.h"
#include "backend/loss.h"
#include "backend/reliance.h"
#include "backend/report.h"
#include "backend/xact.h"
#include "faultpoint.h"
#include "settings.h"

/*
 * The count of losses when all claims of this backend were last seen to be good,
 * and none had a lease time.  Losses begin with 1.
 */
static uint64 good_losses = 0;

/* Have the callbacks ever been registered?  How many ExecutorRuns are under way? */
static bool is_registered = false;
static int	runs = 0;

/* Of a statement that did nothing but acquire a lock: see zkl_xact_note_alone. */
static struct
{
	TimestampTz statement;		/* when it began */
	NameData	function;
}			alone;

/*
 * The last transaction that ran a statement which may write, and the last that
 * ran DISCARD ALL.
 */
static LocalTransactionId writing_xact = InvalidLocalTransactionId;
static LocalTransactionId discarding_xact = InvalidLocalTransactionId;

typedef struct Guard
{
	bool		writes;
	bool		all_good;
	bool		again;			/* warnings were given at the first look */
} Guard;

/* A look at all claims that takes longer is taken again. */
#define MAX_GUARD_MS	10

static bool has_stake(void);
static void on_claim_begins(void);
static void put_guard_first(void);
static void on_xact(XactEvent event, void *arg);
static void on_subxact(SubXactEvent event, SubTransactionId my_id,
					   SubTransactionId parent_id, void *arg);
static void warn_if_alone(void);
static void guard_commit(void);
static bool has_written(void);
static bool has_notified(void);
static void guard_claim(ZklLocalClaim *claim, void *arg);
static void refuse_prepare(void);

/*
 * Does the transaction depend on a claim or a leadership?  If not, neither the
 * guard nor the end of the transaction has anything to do.
 */
static bool
has_stake(void)
{
	return zkl_claim_table_number() > 0 || zkl_loss_any_released() || zkl_reliance_any();
}

void
zkl_xact_init(void)
{
	zkl_claims_begin_hook = on_claim_begins;
}

void
zkl_xact_begin_run(void)
{
	runs++;
}

void
zkl_xact_end_run(void)
{
	runs--;
}

void
zkl_xact_keep_guard_first(void)
{
	if (has_stake())
		put_guard_first();
}

/*
 * No transaction ends while ExecutorRun runs, and the way out of that puts the
 * guard first.  A procedure, however, may begin a claim without a statement, and
 * commit in the middle of CALL.
 */
static void
on_claim_begins(void)
{
	if (runs == 0 || !is_registered)
		put_guard_first();
}

static void
put_guard_first(void)
{
	/* PostgreSQL puts a new callback in front of its list. */
	if (is_registered)
		UnregisterXactCallback(on_xact, NULL);
	else
	{
		zkl_loss_listen();
		RegisterSubXactCallback(on_subxact, NULL);
	}
	RegisterXactCallback(on_xact, NULL);
	is_registered = true;
}

void
zkl_xact_note_lease_time(void)
{
	good_losses = 0;
}

void
zkl_xact_note_alone(const char *function)
{
	/* In a pipeline, another statement has come before. */
	if (MyXactFlags & XACT_FLAGS_PIPELINING)
		return;
	alone.statement = GetCurrentStatementStartTimestamp();
	namestrcpy(&alone.function, function);
}

/* In a pipeline, another statement may have begun since. */
static void
warn_if_alone(void)
{
	if (alone.statement == 0 ||
		alone.statement != GetCurrentStatementStartTimestamp() ||
		IsTransactionBlock())
		return;
	alone.statement = 0;
	ereport(WARNING,
			errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
			errmsg("\"%s\" should be called in a transaction block",
				   NameStr(alone.function)),
			errdetail("Outside of a transaction block, the lock is released at the end of the statement."),
			errhint("Begin a transaction block first, or acquire a session-level lock."));
}

void
zkl_xact_note_write(void)
{
	writing_xact = zkl_my_local_xid();
}

void
zkl_xact_note_discard(void)
{
	discarding_xact = zkl_my_local_xid();
}

static void
on_xact(XactEvent event, void *arg)
{
	zkl_deadlock_listen();
	if (!has_stake())
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			ZKL_FAULT_POINT("commit-begun");

			/*
			 * From here on a loss does not cancel the statement: the cancel
			 * could come after the guard has let the commit pass.
			 */
			zkl_loss_commit_begins();
			guard_commit();
			warn_if_alone();
			ZKL_FAULT_POINT("guard-passed");
			break;
		case XACT_EVENT_PRE_PREPARE:
			refuse_prepare();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			ZKL_FAULT_POINT("xact-ended");

			/*
			 * Ending the claims may note lost ones as released.  The
			 * transaction has ended, so that is forgotten afterwards.
			 */
			zkl_holds_end_xact(event != XACT_EVENT_ABORT &&
							   event != XACT_EVENT_PARALLEL_ABORT);
			zkl_reliance_forget();
			zkl_loss_forget_released();
			zkl_loss_xact_ended();
			break;
	}
}

static void
on_subxact(SubXactEvent event, SubTransactionId my_id,
		   SubTransactionId parent_id, void *arg)
{
	zkl_deadlock_listen();
	if (zkl_claim_table_number() == 0)
		return;
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			zkl_holds_release_savepoint(GetCurrentTransactionNestLevel());
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			ZKL_FAULT_POINT("savepoint-aborted");
			zkl_holds_abort_savepoint(GetCurrentTransactionNestLevel());
			break;
	}
}

/*
 * Refuse the commit of a transaction whose lock was lost.  This is the last
 * moment at which it can still be refused.
 */
static void
guard_commit(void)
{
	Guard		guard = {.all_good = true};
	bool		safe;
	uint64		losses;
	int64		begun_at;

	/*
	 * What this transaction wrote before it released a claim relied on that
	 * claim, too.
	 */
	if (zkl_loss_any_released())
		zkl_loss_report_released(has_written());

	/* In this order: a session that is safe again has counted its losses. */
	safe = zkl_session_info_all_safe(zkl_now() + ZKL_MS(zkl_commit_margin));
	losses = pg_atomic_read_u64(&zkl_lock_table->losses);

	/*
	 * The quick way: the sessions are safe, and since all claims were last
	 * seen to be good, no ticket was lost and no claim got a hold limit.
	 */
	if (safe && losses == good_losses)
		return;

	/*
	 * All claims must be good at one moment.  A claim that was seen to be
	 * good may have been lost while the guard waited to look at another.
	 */
	guard.writes = has_written();
	do
	{
		begun_at = zkl_now();
		losses = pg_atomic_read_u64(&zkl_lock_table->losses);
		zkl_claim_table_visit(guard_claim, &guard);
		zkl_reliance_check(ZKL_MS(zkl_commit_margin));
		guard.again = true;
	} while (zkl_now() - begun_at > ZKL_MS(MAX_GUARD_MS) ||
			 losses != pg_atomic_read_u64(&zkl_lock_table->losses));
	if (guard.all_good)
		good_losses = losses;
}

/*
 * Would other transactions see the commit?  A transaction that has changed
 * this database has a transaction ID.  One that has run a statement which may
 * write, perhaps on another server, counts as one that has written, whatever
 * the statement did.
 */
static bool
has_written(void)
{
	if (discarding_xact == zkl_my_local_xid())
		return false;
	return TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		writing_xact == zkl_my_local_xid() || has_notified();
}

/*
 * A transaction that notifies gets its transaction ID only after the guard.
 * PREPARE TRANSACTION is refused for it, and for LISTEN and UNLISTEN.  The
 * function that refuses does nothing but look and raise an error, so it serves
 * as the test.
 */
static bool
has_notified(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool notified = false;

	PG_TRY();
	{
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		notified = true;
	}
	PG_END_TRY();
	return notified;
}

/*
 * A transaction that only reads does not rely on a claim with only
 * session-level acquires.
 */
static void
guard_claim(ZklLocalClaim *claim, void *arg)
{
	Guard	   *guard = arg;
	bool		must_hold = guard->writes ||
	claim->parts[ZKL_EXCLUSIVE].xact_count > 0 ||
	claim->parts[ZKL_SHARED].xact_count > 0;

	/*
	 * A transaction that only reads is warned of a loss that has happened,
	 * not of one that may.
	 */
	int64		margin = must_hold ? ZKL_MS(zkl_commit_margin) : 0;

	switch (zkl_claim_status(claim->shared, margin))
	{
		case ZKL_STATUS_GOOD:

			/*
			 * A claim with a hold limit may end at any time, so look at it at
			 * each commit.
			 */
			if (claim->shared->lease_until != 0)
				break;
			return;
		case ZKL_STATUS_DOUBT:
			if (must_hold)
				zkl_report_doubt(claim->path);
			break;
		case ZKL_STATUS_LOST:
			if (must_hold || !guard->again)
				zkl_claims_report_lost(must_hold ? ERROR : WARNING, claim);
			break;
	}
	guard->all_good = false;
}

static void
refuse_prepare(void)
{
	if (zkl_claim_table_number() > 0 || zkl_reliance_any())
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("cannot PREPARE a transaction that holds zklock locks"));
	if (zkl_loss_any_released())
		zkl_loss_report_released(has_written());
}
