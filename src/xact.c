/*-------------------------------------------------------------------------
 *
 * xact.c
 *	  What transactions and savepoints do to claims, and the commit guard.
 *
 * src/xact.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/builtins.h"

#include "claims.h"
#include "counts.h"
#include "faultpoint.h"
#include "onlost.h"
#include "report.h"
#include "xact.h"
#include "zklock.h"

/* A claim that this transaction has released, lost or in doubt. */
static struct
{
	ZklStanding standing;
	bool		told;
	char		path[ZKL_PATH_SIZE];
	ZklLoss		loss;
	int64		lost_at;
}			released;

/*
 * When all claims of this backend were last seen to be good, and none had a
 * lease time.  Epochs begin with 1.
 */
static struct
{
	uint64		epochs;			/* of all sessions */
	uint64		losses;
}			good;

/* Of a statement that did nothing but acquire a lock: see zkl_xact_note_alone. */
static struct
{
	TimestampTz statement;		/* when it began */
	NameData	function;
}			alone;

typedef struct Guard
{
	bool		writes;
	bool		all_good;
} Guard;

static void on_xact(XactEvent event, void *arg);
static void on_subxact(SubXactEvent event, SubTransactionId my_id,
					   SubTransactionId parent_id, void *arg);
static void warn_if_alone(void);
static void guard_commit(void);
static void guard_released(bool writes);
static void guard_claim(ZklLocalClaim *claim, void *arg);
static void refuse_prepare(void);

void
zkl_xact_register(void)
{
	static bool done = false;

	if (done)
		UnregisterXactCallback(on_xact, NULL);
	else
		RegisterSubXactCallback(on_subxact, NULL);
	RegisterXactCallback(on_xact, NULL);
	done = true;
}

void
zkl_xact_note_release(const ZklLocalClaim *claim, ZklStanding standing,
					  bool told)
{
	if (standing <= released.standing)
		return;
	released.standing = standing;
	released.told = told;
	strlcpy(released.path, claim->path, sizeof(released.path));
	released.loss = zkl_shared_loss(claim->shared, &released.lost_at);
}

bool
zkl_xact_released_lost(void)
{
	return released.standing == ZKL_STANDING_LOST;
}

void
zkl_xact_report_released_instead(ErrorData *error)
{
	zkl_report_loss_instead(error, released.path, released.loss,
							released.lost_at);
}

void
zkl_xact_note_lease_time(void)
{
	good.epochs = 0;
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
			errdetail("Outside of one, the lock is released at the end of the statement."),
			errhint("Begin a transaction block first, or acquire the lock with session scope."));
}

static void
on_xact(XactEvent event, void *arg)
{
	if (!zkl_claims_any() && released.standing == ZKL_STANDING_GOOD)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			ZKL_FAULT_POINT("commit-begun");
			zkl_on_lost_commit_begins();
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
			zkl_counts_end_xact();
			released.standing = ZKL_STANDING_GOOD;
			zkl_on_lost_xact_ended();
			break;
	}
}

static void
on_subxact(SubXactEvent event, SubTransactionId my_id,
		   SubTransactionId parent_id, void *arg)
{
	if (!zkl_claims_any())
		return;
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			zkl_counts_release_savepoint(GetCurrentTransactionNestLevel());
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			ZKL_FAULT_POINT("savepoint-aborted");
			zkl_counts_abort_savepoint(GetCurrentTransactionNestLevel());
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
	Guard		guard = {TransactionIdIsValid(GetTopTransactionIdIfAny()), true};
	bool		safe;
	uint64		epochs;
	uint64		losses;

	guard_released(guard.writes);

	safe = zkl_sessions_are_safe(zkl_now() + ZKL_MS(zkl_commit_margin), &epochs);
	losses = pg_atomic_read_u64(&zkl_shared->losses);

	/*
	 * The quick way: the sessions are safe, and since every claim was seen to
	 * be good no ticket at all was lost, and no claim got a lease time.
	 */
	if (safe && epochs == good.epochs && losses == good.losses)
		return;

	zkl_claims_visit(guard_claim, &guard);
	if (guard.all_good)
	{
		good.epochs = epochs;
		good.losses = losses;
	}
}

/* What was written under a claim before its release needed it, too. */
static void
guard_released(bool writes)
{
	switch (released.standing)
	{
		case ZKL_STANDING_GOOD:
			break;
		case ZKL_STANDING_DOUBT:
			if (writes)
				zkl_report_doubt(released.path);
			break;
		case ZKL_STANDING_LOST:
			if (writes || !released.told)
				zkl_report_loss(writes ? ERROR : WARNING, released.path,
								released.loss, released.lost_at);
			break;
	}
}

/* A claim with session scope only does not concern who only reads. */
static void
guard_claim(ZklLocalClaim *claim, void *arg)
{
	Guard	   *guard = arg;
	bool		must_hold = guard->writes ||
	claim->parts[ZKL_EXCLUSIVE].xact_count > 0 ||
	claim->parts[ZKL_SHARED].xact_count > 0;

	/* Who only reads is warned of what has happened, not of what may. */
	int64		margin = must_hold ? ZKL_MS(zkl_commit_margin) : 0;

	switch (zkl_shared_standing(claim->shared, margin))
	{
		case ZKL_STANDING_GOOD:
			/* One that may end at any time has to be looked at each time. */
			if (claim->shared->lease_until != 0)
				break;
			return;
		case ZKL_STANDING_DOUBT:
			if (must_hold)
				zkl_report_doubt(claim->path);
			break;
		case ZKL_STANDING_LOST:
			zkl_report_lost(must_hold ? ERROR : WARNING, claim);
			break;
	}
	guard->all_good = false;
}

static void
refuse_prepare(void)
{
	if (zkl_claims_any())
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("cannot PREPARE a transaction that holds zklock locks"));
	guard_released(TransactionIdIsValid(GetTopTransactionIdIfAny()));
}
