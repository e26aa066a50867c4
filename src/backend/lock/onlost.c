/*-------------------------------------------------------------------------
 *
 * onlost.c
 *	  What a backend does when one of its claims is lost.
 *
 * src/backend/lock/onlost.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"

#include "backend/lock/cancel.h"
#include "backend/lock/localclaim.h"
#include "backend/lock/onlost.h"
#include "backend/report.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "settings.h"

/*
 * A claim that was lost or in doubt when this transaction released it; if
 * there were several, the first one with the worst status.  "told": the user
 * has seen a WARNING about it.
 */
static struct
{
	ZklClaimStatus status;
	bool		told;
	char		path[ZKL_PATH_SIZE];
	ZklLoss		loss;
	int64		lost_at;
}			released;

/*
 * Variables that the signal handler reads and sets.  "deaf": the transaction
 * is committing, so the handler does nothing but note the loss.  "loss_noted"
 * and "noted_in": a loss was noted, in this statement of the client.
 * "insists": the handler is called for a noted loss, and is to act.
 * "settled_level": the nesting level of a savepoint that is being released or
 * rolled back within a statement, and whose claims have ended.
 * "failed_in": the client's statement whose error was reported last.  Its
 * transaction seems to be idle from then on until its abort begins.
 */
static volatile sig_atomic_t deaf = false;
static volatile sig_atomic_t loss_noted = false;
static volatile TimestampTz noted_in = 0;
static volatile sig_atomic_t insists = false;
static volatile sig_atomic_t settled_level = 0;
static volatile sig_atomic_t terminating = false;
static volatile TimestampTz failed_in = 0;
static volatile int64 told_until = 0;	/* the handler knows all losses up to
										 * this moment */

static void on_loss(SIGNAL_ARGS);
static void handle_loss(SIGNAL_ARGS);
static ZklOnLost reaction(void);
static bool released_lost(void);
static bool is_idle(void);
static bool is_between(void);
static bool is_aborting(void);
static void note_loss(void);
static void handle_noted(void);
static void explain_likely(void);
static void explain(void);
static bool name_lock(ErrorData *error);

/*
 * If SIGUSR2 is ignored, zklock may use it.  Some processes, such as a
 * walsender, use it for something else; for these, a cancel by SIGINT is
 * enough.
 */
void
zkl_on_lost_listen(void)
{
	struct sigaction present;

	if (sigaction(SIGUSR2, NULL, &present) != 0 ||
		present.sa_handler != SIG_IGN)
	{
		zkl_cancel_guess = explain_likely;
		return;
	}
	pqsignal(SIGUSR2, on_loss);
	zkl_local_claim_loss_signal = SIGUSR2;
}

/*
 * With SIGINT, PostgreSQL's own handler runs, and cancels the statement
 * regardless of zklock.on_lost.
 */
static ZklOnLost
reaction(void)
{
	return zkl_local_claim_loss_signal == SIGINT ? ZKL_ON_LOST_CANCEL : zkl_on_lost;
}

/*
 * A signal handler.  It only sets flags, or calls PostgreSQL's own handlers,
 * which do the same; CHECK_FOR_INTERRUPTS() then raises the error.  If a loss
 * only cancels, an idle backend outside of a transaction does nothing: its
 * next use of the lock reports the loss.
 */
static void
on_loss(SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (deaf)
		note_loss();
	else if (!zkl_deadlock_on_signal(told_until, ZKL_SIGNAL_ARGUMENTS))
		handle_loss(ZKL_SIGNAL_ARGUMENTS);
	errno = save_errno;
}

static void
note_loss(void)
{
	loss_noted = true;
	noted_in = GetCurrentStatementStartTimestamp();
}

static void
handle_loss(SIGNAL_ARGS)
{
	told_until = zkl_now();
	if (zkl_local_claim_number() == 0 || reaction() == ZKL_ON_LOST_NOTICE)
		;						/* the signal has come too late, or may be
								 * late */
	else if (reaction() == ZKL_ON_LOST_TERMINATE ||
			 (is_idle() && IsTransactionBlock() && !is_aborting() &&
			  !IsAbortedTransactionBlockState() &&
			  failed_in != GetCurrentStatementStartTimestamp()))
	{
		/*
		 * An idle transaction has no statement to cancel, and can no longer
		 * succeed.  So the backend ends, as in a recovery conflict.
		 */
		terminating = true;
		die(ZKL_SIGNAL_ARGUMENTS);
	}
	else if (is_between() ||
			 (is_idle() && GetCurrentTransactionNestLevel() > 1))
	{
		/* A savepoint that has failed may yet be rolled back. */
		note_loss();
	}
	else if (!is_idle())
		zkl_cancel_statement(explain, ZKL_SIGNAL_ARGUMENTS);
}

/*
 * Does the backend wait for its client?  PostgreSQL clears debug_query_string
 * before it waits.  A background process, such as one that applies changes for
 * logical replication, has no client.  In a transaction, its work can be
 * cancelled; outside of one, a cancel would end the process.
 */
static bool
is_idle(void)
{
	return MyBackendType == B_BACKEND ? debug_query_string == NULL :
		!IsTransactionState();
}

/*
 * Does a backend with a client begin, commit or abort a transaction or
 * savepoint?  A cancel now would hit what comes next, which may not need the
 * lock, or would make a statement that has committed report an error.  But
 * once the claims of a savepoint have ended, a cancel is right: only its
 * parent's claims can be lost then, and no later call delivers a loss that is
 * merely noted.
 */
static bool
is_between(void)
{
	return !insists && !is_idle() && !IsTransactionState() &&
		settled_level != GetCurrentTransactionNestLevel();
}

/*
 * Is the transaction just being aborted?  It has failed already, and will be
 * idle outside of a transaction, or in an aborted one.  But if only a
 * savepoint is being aborted, the transaction may go on.
 */
static bool
is_aborting(void)
{
	return !IsTransactionState() && GetCurrentTransactionNestLevel() <= 1;
}

void
zkl_on_lost_commit_begins(void)
{
	deaf = true;
}

/*
 * A loss that came during the commit may concern a session-level claim, which
 * outlives the transaction.  A command that goes on is cancelled.  Otherwise,
 * the statement has committed, and must not report an error.
 */
void
zkl_on_lost_xact_ended(bool goes_on)
{
	released.status = ZKL_STATUS_GOOD;
	deaf = false;
	if (loss_noted && (goes_on || reaction() == ZKL_ON_LOST_TERMINATE))
		handle_noted();
	if (noted_in != GetCurrentStatementStartTimestamp())
		loss_noted = false;		/* noted in the transaction block */
}

/*
 * If a loss came between two statements of one message, or of a transaction
 * block, it cancels the second one.  But a command such as ROLLBACK does not
 * check for interrupts, and PostgreSQL would discard the cancel after it.
 */
void
zkl_on_lost_statement_begins(bool can_be_cancelled)
{
	settled_level = 0;
	if (!loss_noted || deaf)
		return;
	if (noted_in != GetCurrentStatementStartTimestamp() && !IsTransactionBlock())
		loss_noted = false;
	else if (can_be_cancelled)
	{
		handle_noted();
		CHECK_FOR_INTERRUPTS();
	}
}

void
zkl_on_lost_savepoint_begins(bool in_statement)
{
	settled_level = 0;
	if (in_statement && loss_noted && !deaf)
		handle_noted();
}

/*
 * A signal that comes after the first line cancels the statement by itself.
 * This only sets flags: an error here would interrupt PostgreSQL's own work on
 * the savepoint.
 */
void
zkl_on_lost_savepoint_settled(bool in_statement)
{
	settled_level = in_statement ? GetCurrentTransactionNestLevel() : 0;
	if (in_statement && loss_noted && !deaf)
		handle_noted();
}

/* Let the handler decide again, if a claim that was lost is still there. */
static void
handle_noted(void)
{
	loss_noted = false;
	if (zkl_local_claim_find_lost() == NULL)
		return;
	insists = true;
	raise(zkl_local_claim_loss_signal);
	insists = false;
}

/*
 * If the signal is SIGINT, assume that a deadlock, or a loss of which the user
 * was not told, is the reason.  But the end of a wait is no cancel.
 */
static void
explain_likely(void)
{
	if (!zkl_advisory_lock_ends_wait() && !zkl_deadlock_explain_likely() &&
		zkl_local_claim_find_lost() != NULL)
		explain();
}

static void
explain(void)
{
	ErrorData	error = {.elevel = ERROR};

	if (name_lock(&error))
		zkl_report_text(&error);
}

void
zkl_on_lost_explain_end(ErrorData *error)
{
	if (error->elevel == ERROR)
		failed_in = GetCurrentStatementStartTimestamp();
	if (error->elevel == FATAL && terminating &&
		error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		(void) name_lock(error);
}

/*
 * Put the loss into the error.  The user then knows of the loss, so it must
 * not explain a later cancel as well.  Returns false if the lost claim is
 * gone, so that there is no lock to name.
 */
static bool
name_lock(ErrorData *error)
{
	ZklLocalClaim *lost = zkl_local_claim_find_lost();

	if (lost != NULL)
	{
		lost->told_lost = true;
		zkl_local_claim_report_lost_instead(error, lost);
	}
	else if (released_lost())
		zkl_report_loss_instead(error, released.path, released.loss,
								released.lost_at, NULL);
	return lost != NULL || released_lost();
}

/*
 * Called after a statement.  Outside of a transaction block, the commit
 * reports the loss right after the statement.
 */
void
zkl_on_lost_tell(void)
{
	static uint64 seen_losses = 0;
	uint64		losses;

	if (reaction() != ZKL_ON_LOST_NOTICE || zkl_local_claim_number() == 0 ||
		!IsTransactionBlock())
		return;

	/* Read the count before the claims, so that a later loss is not missed. */
	losses = pg_atomic_read_u64(&zkl_lock_table->losses);
	if (losses == seen_losses)
		return;
	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
	{
		if (claim->told_lost ||
			zkl_claim_status(claim->shared, 0) != ZKL_STATUS_LOST)
			continue;
		claim->told_lost = true;
		zkl_local_claim_report_lost(WARNING, claim);
	}
	seen_losses = losses;
}

/*
 * Claims that were released while lost or in doubt
 */

void
zkl_on_lost_note_release(const ZklLocalClaim *claim, ZklClaimStatus status,
						 bool told)
{
	/*
	 * The values of the status grow from GOOD to LOST.  The worst one decides
	 * whether the transaction may commit.
	 */
	if (status <= released.status)
		return;
	released.status = status;
	released.told = told;
	strlcpy(released.path, claim->path, sizeof(released.path));
	released.loss = zkl_claim_status_loss(claim->shared, &released.lost_at);
}

bool
zkl_on_lost_any_released(void)
{
	return released.status != ZKL_STATUS_GOOD;
}

static bool
released_lost(void)
{
	return released.status == ZKL_STATUS_LOST;
}

/*
 * What the transaction wrote without protection must not be committed, even
 * if the user knows of the loss.  A transaction that only reads gets one
 * warning, and only about a certain loss.
 */
void
zkl_on_lost_report_released(bool writes)
{
	if (released.status == ZKL_STATUS_LOST && (writes || !released.told))
		zkl_report_loss(writes ? ERROR : WARNING, released.path,
						released.loss, released.lost_at, NULL);
	else if (released.status != ZKL_STATUS_GOOD && writes)
		zkl_report_doubt(released.path);
}
