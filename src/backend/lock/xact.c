/*-------------------------------------------------------------------------
 *
 * xact.c
 *	  What transactions and savepoints do to claims, and the commit guard.
 *
 * These refuse a commit, and say so:
 *
 *		function						when									SQLSTATE
 *		zkl_on_lost_report_released		a lock had been lost, or was in doubt,	ZK001, ZK002
 *										when it was released, and the
 *										transaction has written
 *		guard_claim						a lock is lost or in doubt, and the		ZK001, ZK002
 *										transaction has written, or the lock
 *										is a transaction-level one
 *		zkl_reliance_check				the leadership that the transaction		ZK001
 *										was told of is lost or in doubt
 *		zkl_reliance_check_required		the transaction has written, and a		25006, or FATAL
 *										leadership of commit_requires is not	57P01, as
 *										certain									not_leading says
 *										... or leader_of does not name it		55000
 *		zkl_use_begin, zkl_use_check	the transaction has written, and the	ZK001, ZK002
 *										lock of commit_under is not certainly
 *										held by a session, with the token
 *										... or this session may not depend on	42501
 *										that hold
 *		refuse_prepare					PREPARE TRANSACTION with a lock, also	0A000
 *										a good one, or a leadership that the
 *										transaction was told of, or with
 *										commit_under
 *
 * PREPARE TRANSACTION is also refused without a required leadership.  COMMIT
 * PREPARED and ROLLBACK PREPARED are checked before they begin
 * (zkl_xact_begin_prepared()), as a transaction that has written is.  A
 * transaction that only removes the temporary tables of a process that exits
 * is not checked (only_cleans_up()).
 *
 * ZK001 is for a lock that is lost or in doubt, ZK002 for one whose lease time
 * is over, or nearly.
 *
 * A lock also counts as in doubt if it is good for less than
 * zklock.commit_margin.  The last look is guard_commit()'s, or the condition
 * at the end of look_at_all().
 *
 * The commit guard is a transaction callback.  An extension such as
 * postgres_fdw commits on other servers in a callback of its own, at the same
 * stage.  If that callback were called first, the other server would commit
 * although the guard refuses.
 *
 * PostgreSQL calls the callback first that was registered last.  postgres_fdw
 * registers its callback at its first use in the backend.  So the guard is
 * registered anew when a claim begins, and on every way out of a statement:
 * ExecutorRun, ExecutorFinish and ProcessUtility, nested ones included,
 * whether they succeed or fail.  (Where nothing can come in between, once is
 * enough; see hooks.c and on_claim_begins().)  Then it is first, because
 *
 *	- foreign tables are written in these three functions only.  Planning and
 *	  ExecutorStart may connect, but what writes over that connection goes
 *	  through them afterwards.
 *	- so does everything that CommitTransaction() runs before the callbacks: a
 *	  deferred trigger or a held cursor runs statements of its own, and
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
 * Where zklock.commit_requires names leaderships, the guard looks at these for
 * every transaction that has written, whatever wrote it: the callback is there
 * from the start of each process.  What PostgreSQL does between the guard and
 * the commit record is bounded by nothing: the callbacks of other extensions,
 * a backend that stands still, or a slow disk.  So:
 *
 *	- The guard requires that the leadership is certain for
 *	  zklock.commit_margin more.  A record that is written within that comes
 *	  before any other server leads.
 *	- A leadership that is given up waits for the transaction's pass
 *	  (passes.h).
 *	- on_xact() looks again after the commit, when the record is on disk, and a
 *	  synchronous standby has it.  If the server does not certainly still have
 *	  the same leadership, the commit is reported and counted, and the
 *	  connection ends before the client is told that it has committed.
 *
 * src/backend/lock/xact.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "backend/lock/cancel.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/localclaim.h"
#include "backend/lock/onlost.h"
#include "backend/lock/reliance.h"
#include "backend/lock/use.h"
#include "backend/lock/xact.h"
#include "backend/report.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/passes.h"
#include "shared/serverstat.h"

/*
 * The count of losses when all claims of this backend were last seen to be
 * good, and none had a lease time.  Losses begin with 1.  good_required: at
 * that moment this server led all leaderships that zklock.commit_requires
 * named, in its value with the serial number good_serial.
 */
static uint64 good_losses = 0;
static bool good_required = false;
static uint64 good_serial = 0;

uint64		zkl_xact_execution = 0;
int			zkl_xact_utilities = 0;

/* Has this transaction run a statement?  Has the client sent ROLLBACK? */
static bool has_run_statement = false;
static bool is_rolled_back = false;

/*
 * Has put_guard_first() run in this backend?  Then the callback for savepoints
 * and the handler for losses are set up.
 */
static bool is_listening = false;

/* Has this transaction a pass?  See passes.h. */
static bool has_pass = false;

/* A statement that did nothing but acquire a lock: see zkl_xact_note_alone. */
static struct
{
	TimestampTz statement;		/* when it began */
	NameData	function;
}			alone;

/* Since its first LISTEN or UNLISTEN, the transaction has run nothing else. */
#define ZKL_XACT_LISTENS	0x08

/* Facts about the statements of the transaction "xact", which may be over. */
static struct
{
	LocalTransactionId xact;
	int			facts;
}			noted = {InvalidLocalTransactionId, 0};

typedef struct Guard
{
	bool		writes;
	bool		all_good;
	bool		again;			/* warnings were given at the first look */
	int64		until;			/* what the transaction needs is good up to
								 * this moment */
} Guard;

/*
 * The last look of the guard, which has let the transaction pass.  at: the
 * moment of the look.  losses: the count of losses before it.  until: the
 * moment up to which the transaction counts on its locks (PG_INT64_MAX: it
 * needs none).  writes: the transaction counts as having written even without
 * a transaction ID.  required: the guard has looked at what
 * zklock.commit_requires names.
 */
static struct
{
	int64		at;
	uint64		losses;
	int64		until;
	bool		writes;
	bool		required;
}			passed = {.until = PG_INT64_MAX};

static bool has_stake(void);
static void note_holder(void);
static void begin_pass(uint64 bits);
static void on_claim_begins(void);
static void put_guard_first(void);
static void on_xact(XactEvent event, void *arg);
static void on_subxact(SubXactEvent event, SubTransactionId my_id,
					   SubTransactionId parent_id, void *arg);
static void warn_if_alone(void);
static bool says_how_run_ends(bool committed);
static bool is_noted(int facts);
static bool only_cleans_up(void);
static void work_beforehand(void);
static void guard_commit(bool writes);
static void look_at_all(Guard *guard);
static bool has_written(void);
static bool has_notified(void);
static void guard_claim(const ZklLocalClaim *claim, Guard *guard);
static const char *find_uncertain(void);
static void end_unacknowledged(void);
static void refuse_prepare(void);
static bool is_unacknowledged(void);
static void end_claims(bool committed);

/*
 * Does the transaction depend on a claim or a leadership?  If not, the guard
 * and the end of the transaction have nothing to do.
 */
static bool
has_stake(void)
{
	return zkl_reliance_is_required() || zkl_use_is_required() || zkl_use_any() ||
		zkl_local_claim_number() > 0 ||
		zkl_on_lost_any_released() || zkl_reliance_any() ||
		zkl_reliance_bits() != 0 || has_pass;
}

/*
 * This runs in the postmaster, so all processes have the callback from the
 * start: a process may write without a statement.
 */
void
zkl_xact_init(void)
{
	zkl_local_claim_begin_hook = on_claim_begins;
	RegisterXactCallback(on_xact, NULL);
}

/*
 * From now on, until the transaction ends, this server gives up no leadership
 * that every commit requires, and no lock with one of these bits, as long as
 * the transaction can count on it.
 */
static void
begin_pass(uint64 bits)
{
	if (zkl_reliance_is_required())
		bits |= zkl_reliance_required_bits();
	if (bits == 0)
		return;
	has_pass = true;
	zkl_passes_begin(bits);
}

/* A statement begins, which may be the first one that writes. */
static void
note_holder(void)
{
	if (zkl_use_is_required() && zkl_use_has_no_token() && !has_written())
		zkl_use_note_holder();
}

/*
 * The first statement that writes fails early, which saves the user work.
 * Only the commit guard keeps the promise.
 */
void
zkl_xact_require(void)
{
	if (zkl_use_is_required())
		zkl_use_require();
	if (zkl_reliance_is_required())
		(void) zkl_reliance_check_required(ZKL_MS(zkl_commit_margin));
}

/*
 * A command that destroys something before it commits has its pass, and its
 * margin, from here on.  If it takes longer than the margin, its commit is
 * refused, though what it has destroyed is gone.  Outside of a transaction
 * block, its use begins here, too.  In a block, the command either fails or
 * destroys nothing before the commit, and a use would last as long as the
 * client likes.
 */
void
zkl_xact_require_at_once(bool in_block)
{
	if (zkl_use_is_required() && !in_block)
		zkl_use_begin();
	if (zkl_reliance_is_required())
		begin_pass(0);
	zkl_xact_require();			/* if the use has begun, this looks only at
								 * the leadership */
}

void
zkl_xact_keep_guard_first(void)
{
	if (has_stake())
		put_guard_first();
}

/*
 * No transaction ends while ExecutorRun runs, and the end of ExecutorRun puts
 * the guard first.  A procedure, however, may begin a claim without a
 * statement, and commit in the middle of CALL.
 */
static void
on_claim_begins(void)
{
	if (zkl_xact_execution == 0 || !is_listening)
		put_guard_first();
}

static void
put_guard_first(void)
{
	/* PostgreSQL puts a new callback in front of its list. */
	UnregisterXactCallback(on_xact, NULL);
	RegisterXactCallback(on_xact, NULL);
	if (is_listening)
		return;
	zkl_on_lost_listen();
	RegisterSubXactCallback(on_subxact, NULL);
	is_listening = true;
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
zkl_xact_note(int facts)
{
	if (noted.xact != zkl_my_local_xid())
		noted.facts = 0;
	noted.xact = zkl_my_local_xid();
	noted.facts |= facts;
}

static bool
is_noted(int facts)
{
	return (noted.facts & facts) != 0 && noted.xact == zkl_my_local_xid();
}

void
zkl_xact_note_statement(bool listens)
{
	has_run_statement = true;
	note_holder();
	if (!listens)
		noted.facts &= ~ZKL_XACT_LISTENS;
	else if (!has_notified())
		zkl_xact_note(ZKL_XACT_LISTENS);
}

void
zkl_xact_note_rollback(void)
{
	is_rolled_back = true;
}

/*
 * The statement commits or rolls back what another transaction has prepared.
 * The commit guard of the statement's own transaction comes too late to refuse
 * that, but still warns of a loss.  Only session-level claims can exist here.
 *
 * In a transaction block PostgreSQL refuses the statement.  The transaction
 * may go on from a savepoint then, so its losses must still cancel statements.
 */
void
zkl_xact_begin_prepared(void)
{
	if (!has_stake() || IsTransactionBlock())
		return;
	zkl_on_lost_commit_begins();
	begin_pass(zkl_reliance_bits());
	note_holder();
	guard_commit(true);
	ZKL_FAULT_POINT("prepared-guarded");
}

static void
on_xact(XactEvent event, void *arg)
{
	zkl_cancel_listen();
	if (!has_stake())
	{
		has_run_statement = is_rolled_back = false;
		return;
	}
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			if (only_cleans_up())
				break;
			ZKL_FAULT_POINT("commit-begun");
			work_beforehand();

			/*
			 * From here on a loss does not cancel the statement: the cancel
			 * could come after the guard has let the commit pass.
			 */
			zkl_on_lost_commit_begins();
			begin_pass(zkl_reliance_bits());
			guard_commit(false);
			warn_if_alone();
			ZKL_FAULT_POINT("guard-passed");
			break;
		case XACT_EVENT_PRE_PREPARE:
			refuse_prepare();
			if (!zkl_reliance_is_required())
				break;

			/* A prepared transaction is a promise that it can commit. */
			begin_pass(zkl_reliance_bits());
			guard_commit(true);
			ZKL_FAULT_POINT("prepare-guarded");
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PREPARE:
			zkl_xact_report_if_late();
			pg_fallthrough;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			ZKL_FAULT_POINT("xact-ended");

			/* Do this first: a resignation or the next holder waits. */
			zkl_use_end();
			if (has_pass)
				zkl_passes_end();
			has_pass = false;
			zkl_reliance_forget();

			end_claims(event != XACT_EVENT_ABORT &&
					   event != XACT_EVENT_PARALLEL_ABORT &&
					   !is_unacknowledged());
			passed.until = PG_INT64_MAX;
			passed.required = false;
			zkl_on_lost_xact_ended(zkl_xact_utilities > 0);
			break;
	}
}

/*
 * Does the client learn nothing of the commit?  PostgreSQL tells it nothing if
 * the session is terminated while the commit waits for a synchronous standby,
 * and end_unacknowledged() tells it nothing either.  Another server that leads
 * then may lack what the transaction wrote, so a run of a job must not count as
 * done.
 *
 * A background worker has no client.  If it is terminated where there are
 * synchronous standbys, assume that its commit was waiting for one.
 */
static bool
is_unacknowledged(void)
{
	if (!ProcDiePending || whereToSendOutput != DestNone)
		return false;
	return MyBackendType == B_BACKEND ||
		(SyncRepRequested() && SyncRepStandbyNames != NULL &&
		 SyncRepStandbyNames[0] != '\0');
}

/* "committed": the transaction has committed, and its client may be told so. */
static void
end_claims(bool committed)
{
	bool		tells = says_how_run_ends(committed);

	has_run_statement = is_rolled_back = false;
	zkl_hold_counts_end_xact(committed, tells);
}

/*
 * A transaction that has run no statement does not say how the work of a run
 * has ended: clients send BEGIN, COMMIT and ROLLBACK to be safe, and poolers
 * do so to reset a session.  But an error counts, also an error of the
 * parser.  The transaction aborts by an error unless the client has sent
 * ROLLBACK, or a procedure rolls back and goes on.
 *
 * The hooks see all statements but a function call by the fast path, for which
 * PostgreSQL takes a snapshot.  After an error in a savepoint, on_subxact()
 * has noted it.
 */
static bool
says_how_run_ends(bool committed)
{
	return has_run_statement || FirstSnapshotSet ||
		(!committed && !is_rolled_back && zkl_xact_utilities == 0);
}

static void
on_subxact(SubXactEvent event, SubTransactionId my_id,
		   SubTransactionId parent_id, void *arg)
{
	bool		in_statement = zkl_xact_execution != 0 || zkl_xact_utilities > 0;

	zkl_cancel_listen();
	if (event == SUBXACT_EVENT_START_SUB)
		zkl_on_lost_savepoint_begins(in_statement);
	if (zkl_local_claim_number() == 0)
		return;
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			ZKL_FAULT_POINT("savepoint-committed");
			zkl_hold_counts_release_savepoint(GetCurrentTransactionNestLevel());
			zkl_on_lost_savepoint_settled(in_statement);
			ZKL_FAULT_POINT("savepoint-settled");
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			has_run_statement = true;
			ZKL_FAULT_POINT("savepoint-aborted");
			zkl_hold_counts_abort_savepoint(GetCurrentTransactionNestLevel());
			zkl_on_lost_savepoint_settled(in_statement);
			break;
	}
}

/*
 * Does this process exit, and remove its temporary tables?  PostgreSQL does so
 * in a transaction of its own, after it has aborted the user's.  No client is
 * told of that commit, so it needs no lock and no leadership.  If it were
 * refused, the tables would stay, and the log would have an error for each
 * ordinary end of a session.
 *
 * Other code that runs when a process exits is not exempt: what a statement
 * writes is noted, and without temporary objects there is nothing to remove.
 */
static bool
only_cleans_up(void)
{
	Oid			namespace;
	Oid			of_toast;

	GetTempNamespaceState(&namespace, &of_toast);
	return proc_exit_inprogress && OidIsValid(namespace) && !is_noted(ZKL_XACT_WRITES);
}

/*
 * PostgreSQL still has some work to do between the guard and the commit
 * record.  Do now what may take long, so that the guard comes after it.
 * PostgreSQL then finds nothing left to do.
 *
 * PostgreSQL empties and drops temporary tables as ON COMMIT says, if a flag
 * says that this transaction has used any.  A use from here on sets the flag
 * again.
 *
 * All commits that notify go one after the other: each takes PostgreSQL's lock
 * of notifying commits, and has it while it waits for a synchronous standby.
 * A transaction that postgres_fdw commits on another server as well must not
 * take the lock before the other server has committed: the commit there may
 * notify, too, and wait for the lock, while this transaction waits for that
 * commit.  PostgreSQL would not find that deadlock.
 */
static void
work_beforehand(void)
{
	if (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE)
	{
		PreCommit_on_commit_actions();
		MyXactFlags &= ~XACT_FLAGS_ACCESSEDTEMPNAMESPACE;
	}
	if (!is_noted(ZKL_XACT_DISCARDS | ZKL_XACT_LISTENS | ZKL_XACT_REMOTE) &&
		has_notified())
		LockSharedObject(DatabaseRelationId, InvalidOid, 0, AccessExclusiveLock);
}

/*
 * Refuse the commit of a transaction whose lock was lost.  This is the last
 * moment at which it can still be refused.  "writes": it has certainly written.
 */
static void
guard_commit(bool writes)
{
	Guard		guard = {.all_good = true};
	uint64		losses;

	/*
	 * The transaction may have written before it released a claim, and so
	 * have relied on that claim.
	 */
	if (zkl_on_lost_any_released())
		zkl_on_lost_report_released(writes || has_written());

	/*
	 * The use comes before what the quick way looks at: if no claim has been
	 * lost since the last look, neither was the use.
	 */
	if (zkl_use_is_required())
	{
		guard.writes = writes || has_written();
		if (guard.writes)
			zkl_use_begin();
		else
			zkl_use_note_reader();
	}

	/*
	 * Read the moment first, and then the count: before a session is safe
	 * again, its losses have been counted.
	 */
	passed.until = zkl_session_info_safe_until();
	losses = passed.losses = pg_atomic_read_u64(&zkl_lock_table->losses);
	passed.at = zkl_now();
	passed.writes = writes || is_noted(ZKL_XACT_WRITES);
	passed.required = zkl_reliance_is_required();

	/*
	 * The quick way: the session is safe, and since all claims and
	 * leaderships were last seen to be good, none was lost, no claim got a
	 * hold limit, and no other leadership is required.
	 */
	if (passed.at + ZKL_MS(zkl_commit_margin) < passed.until &&
		losses == good_losses &&
		(!passed.required ||
		 (good_required && good_serial == zkl_commit_requires_serial)))
		return;

	/*
	 * A transaction that only reads needs no leadership, but notes whether
	 * the server has it.
	 */
	guard.writes = writes || has_written();
	if (passed.required && !guard.writes)
		passed.required = zkl_reliance_has_required(ZKL_MS(zkl_commit_margin));
	look_at_all(&guard);
	passed.until = guard.until;
	passed.at = zkl_now();
	if (guard.all_good)
	{
		good_losses = losses;
		good_required = passed.required;
		good_serial = zkl_commit_requires_serial;
	}
}

/*
 * All claims must be good at one moment, which is the end of the look.  A
 * claim that was seen to be good may have been lost while the guard looked at
 * others.  So look again if a claim of this backend was lost meanwhile, or if
 * the look took so long that one may have been.
 */
static void
look_at_all(Guard *guard)
{
	int64		margin = ZKL_MS(zkl_commit_margin);
	int64		begun_at;
	uint64		losses;

	do
	{
		CHECK_FOR_INTERRUPTS();
		begun_at = zkl_now();
		losses = pg_atomic_read_u64(&zkl_lock_table->losses);
		guard->until = PG_INT64_MAX;
		for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
			 claim = zkl_local_claim_next(claim))
			guard_claim(claim, guard);
		/* COMMIT PREPARED has a use, but its own transaction has not written. */
		if (guard->writes)
			guard->until = Min(guard->until, zkl_use_check(margin));
		guard->until = Min(guard->until, zkl_reliance_check(margin));
		if (passed.required && guard->writes)
			guard->until = Min(guard->until, zkl_reliance_check_required(margin));
		guard->again = true;
		ZKL_FAULT_POINT("guard-looked");
	} while (guard->until - margin <= zkl_now() ||
			 (losses != pg_atomic_read_u64(&zkl_lock_table->losses) &&
			  zkl_lock_table_has_lost(MyProcPid, begun_at)));
}

/*
 * Would other transactions see the commit?  A transaction that has changed
 * this database has a transaction ID.  One that has run a statement that may
 * write, perhaps on another server, counts as having written, whatever the
 * statement did.
 */
static bool
has_written(void)
{
	if (is_noted(ZKL_XACT_DISCARDS))
		return false;
	return TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		is_noted(ZKL_XACT_WRITES) || has_notified();
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
guard_claim(const ZklLocalClaim *claim, Guard *guard)
{
	bool		must_hold = guard->writes ||
	claim->parts[ZKL_EXCLUSIVE].xact_count > 0 ||
	claim->parts[ZKL_SHARED].xact_count > 0;

	/*
	 * A transaction that only reads is warned of a loss that has happened,
	 * not of one that may.
	 */
	int64		margin = must_hold ? ZKL_MS(zkl_commit_margin) : 0;
	int64		ignored = PG_INT64_MAX;

	switch (zkl_claim_status_until(claim->shared, margin,
								   must_hold ? &guard->until : &ignored))
	{
		case ZKL_STATUS_GOOD:

			/*
			 * A claim with a hold limit may end at any time, so look at it at
			 * each commit.
			 */
			if (claim->shared->hold_until != 0)
				break;
			return;
		case ZKL_STATUS_DOUBT:
			if (must_hold)
				zkl_report_doubt(claim->path);
			break;
		case ZKL_STATUS_LOST:
			if (must_hold || !guard->again)
				zkl_local_claim_report_lost(must_hold ? ERROR : WARNING, claim);
			break;
	}
	guard->all_good = false;
}

/*
 * The transaction has committed.  Did that take longer than the guard could
 * count on the locks, or was a lock lost earlier, because another client has
 * deleted its znode?  A lock that is still good has been good all the time, so
 * what took long did no harm.  Otherwise the commit cannot be refused any
 * more, but neither does it pass in silence.  No error is possible here.
 */
void
zkl_xact_report_if_late(void)
{
	const char *path = NULL;
	const char *required = NULL;
	int64		now;

	if (passed.until == PG_INT64_MAX ||
		!(passed.writes || TransactionIdIsValid(GetTopTransactionIdIfAny())))
		return;
	now = zkl_now();
	if (now < passed.until &&
		passed.losses == pg_atomic_read_u64(&zkl_lock_table->losses))
		return;
	if (passed.required)
		required = path = zkl_reliance_find_uncertain(true);
	if (path == NULL)
		path = find_uncertain();
	if (path == NULL)
		path = zkl_use_find_uncertain();
	if (path == NULL)
		path = zkl_reliance_find_uncertain(false);
	if (path == NULL)
		return;
	pg_atomic_fetch_add_u64(&zkl_server_stat->late_commits, 1);
	/* A lock that was lost earlier was last seen to be good by the guard. */
	zkl_report_late_commit(path, now < passed.until ? passed.at : passed.until,
						   now);
	if (required != NULL)
		end_unacknowledged();
}

/*
 * Another server may lead, and its clients may not see this commit.  So the
 * client of this one must not be told that it has committed.  This does what
 * PostgreSQL does when it stops waiting for a synchronous standby: nothing
 * more is sent, and the next check for interrupts ends the session.  The reply
 * that is already in the buffer stays there.  An error would come too late,
 * and a transaction that has committed cannot be aborted.
 */
static void
end_unacknowledged(void)
{
	ProcDiePending = true;
	InterruptPending = true;
	whereToSendOutput = DestNone;
}

/* A claim that is lost or in doubt. */
static const char *
find_uncertain(void)
{
	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
	{
		ZklClaim   *shared = claim->shared;

		/*
		 * If only the lease time is over, this transaction's pass has kept
		 * the lock.
		 */
		if (shared->is_use && shared->state == ZKL_CLAIM_HELD &&
			!zkl_session_info_is_in_doubt(shared->epoch, zkl_now()))
			continue;
		if (zkl_claim_status(shared, 0) != ZKL_STATUS_GOOD)
			return claim->path;
	}
	return NULL;
}

/* A leadership that every commit requires is no obstacle, because it has no token. */
static void
refuse_prepare(void)
{
	if (zkl_use_is_required())
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("cannot PREPARE a transaction while \"zklock.commit_under\" is set"));
	if (zkl_local_claim_number() > 0 || zkl_reliance_any())
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("cannot PREPARE a transaction that holds zklock locks"));
	if (zkl_on_lost_any_released())
		zkl_on_lost_report_released(has_written());
}
