/*-------------------------------------------------------------------------
 *
 * loss.c
 *	  What a backend does when one of its claims is lost.
 *
 * src/backend/loss.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"

#include "backend/claims.h"
#include "backend/deadlock.h"
#include "backend/loss.h"
#include "backend/report.h"
#include "compat.h"
#include "settings.h"

/*
 * A claim that was lost or in doubt when this transaction released it; if
 * there are several, the first of the worst.  "told": the user has seen a
 * WARNING about it.
 */
static struct
{
	ZklClaimStatus standing;
	bool		told;
	char		path[ZKL_PATH_SIZE];
	ZklLoss		loss;
	int64		lost_at;
}			released;

/*
 * What the signal handler reads and sets.  "deaf": the transaction commits,
 * so the handler only notes that a signal came.
 */
static volatile sig_atomic_t deaf = false;
static volatile sig_atomic_t came_while_deaf = false;
static volatile sig_atomic_t terminating = false;
static volatile TimestampTz cancelled_statement = 0;	/* when it began */
static volatile int64 told_until = 0;	/* it has handled the losses so far */

static void on_loss(SIGNAL_ARGS);
static void handle_loss(SIGNAL_ARGS);
static ZklOnLost reaction(void);
static bool released_lost(void);
static bool is_idle(void);
static void explain(ErrorData *error);
static void tell_if_lost(ZklLocalClaim *claim, void *arg);

/*
 * If SIGUSR2 is ignored, it is free to use.  Some processes use it for
 * something else, such as a walsender; for what they run, a cancel is enough.
 */
void
zkl_loss_listen(void)
{
	struct sigaction present;

	if (sigaction(SIGUSR2, NULL, &present) != 0 ||
		present.sa_handler != SIG_IGN)
		return;
	pqsignal(SIGUSR2, on_loss);
	zkl_claims_loss_signal = SIGUSR2;
}

/*
 * With SIGINT, PostgreSQL's own handler runs, and cancels the statement
 * whatever zklock.on_lost says.
 */
static ZklOnLost
reaction(void)
{
	return zkl_claims_loss_signal == SIGINT ? ZKL_ON_LOST_CANCEL : zkl_on_lost;
}

/*
 * A signal handler.  It sets flags, or calls PostgreSQL's own handlers, which
 * do no more; CHECK_FOR_INTERRUPTS() then raises the error.  When a loss only
 * cancels, an idle backend outside of a transaction does nothing: its next
 * use of the lock reports the loss.
 */
static void
on_loss(SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (deaf)
		came_while_deaf = true;
	else if (!zkl_deadlock_on_signal(told_until, ZKL_SIGNAL_ARGUMENTS))
		handle_loss(ZKL_SIGNAL_ARGUMENTS);
	errno = save_errno;
}

static void
handle_loss(SIGNAL_ARGS)
{
	told_until = zkl_now();
	if (zkl_claim_table_number() == 0 || reaction() == ZKL_ON_LOST_NOTICE)
		;						/* it has come too late, or may be late */
	else if (reaction() == ZKL_ON_LOST_TERMINATE ||
			 (is_idle() && IsTransactionBlock() &&
			  !IsAbortedTransactionBlockState()))
	{
		/*
		 * A transaction that is idle has nothing to cancel, and cannot
		 * succeed any more.  So the backend ends, as by a recovery conflict.
		 */
		terminating = true;
		die(ZKL_SIGNAL_ARGUMENTS);
	}
	else if (!is_idle())
	{
		cancelled_statement = GetCurrentStatementStartTimestamp();
		StatementCancelHandler(ZKL_SIGNAL_ARGUMENTS);
	}
}

/*
 * Does the backend wait for its client?  PostgreSQL clears debug_query_string
 * before it does.  Background processes do not wait for a client.
 */
static bool
is_idle(void)
{
	return MyBackendType == B_BACKEND && debug_query_string == NULL;
}

void
zkl_loss_commit_begins(void)
{
	deaf = true;
}

void
zkl_loss_xact_ended(void)
{
	deaf = false;

	/*
	 * The loss may be that of a session-level claim, which outlives the
	 * transaction.  So the handler decides again, with the transaction over.
	 */
	if (came_while_deaf)
	{
		came_while_deaf = false;
		raise(zkl_claims_loss_signal);
	}
}

/*
 * The moment at which a statement began identifies it, whatever the clock has
 * done since.  If the signal is SIGINT, a loss of which the user was not told
 * is taken for the reason.
 */
bool
zkl_loss_has_cancelled(void)
{
	if (zkl_claims_loss_signal == SIGINT)
		return zkl_claims_find_lost() != NULL;
	return cancelled_statement != 0 &&
		cancelled_statement == GetCurrentStatementStartTimestamp();
}

/*
 * A cancel by the user or by statement_timeout keeps its own error.  And if
 * the lost claim is gone, there is no loss to name.
 */
void
zkl_loss_explain(MemoryContext context)
{
	ErrorData  *error;

	if (geterrcode() != ERRCODE_QUERY_CANCELED || !zkl_loss_has_cancelled() ||
		(zkl_claims_find_lost() == NULL && !released_lost()))
		return;

	/*
	 * FlushErrorState() frees the memory of errors, so the copy goes
	 * elsewhere.
	 */
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	explain(error);
	ReThrowError(error);
}

/*
 * This is the last chance to name the loss: for errors that end the backend,
 * and for those outside of any statement.
 */
void
zkl_loss_explain_instead(ErrorData *error)
{
	if ((error->elevel == ERROR && zkl_loss_has_cancelled() &&
		 error->sqlerrcode == ERRCODE_QUERY_CANCELED) ||
		(error->elevel == FATAL && terminating &&
		 error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN))
		explain(error);
}

/*
 * Put the loss into the error.  The user then knows of it, so it does not
 * explain a later cancel, too.
 */
static void
explain(ErrorData *error)
{
	ZklLocalClaim *lost = zkl_claims_find_lost();

	cancelled_statement = 0;
	if (lost != NULL)
	{
		lost->told_lost = true;
		zkl_claims_report_lost_instead(error, lost);
	}
	else if (released_lost())
		zkl_report_loss_instead(error, released.path, released.loss,
								released.lost_at, NULL);
}

/* Outside of a transaction block the commit tells it at once. */
void
zkl_loss_tell(void)
{
	static uint64 seen_losses = 0;
	uint64		losses;

	if (reaction() != ZKL_ON_LOST_NOTICE || zkl_claim_table_number() == 0 ||
		!IsTransactionBlock())
		return;

	/* Read before the visit, so a loss that comes later is not missed. */
	losses = pg_atomic_read_u64(&zkl_lock_table->losses);
	if (losses == seen_losses)
		return;
	zkl_claim_table_visit(tell_if_lost, NULL);
	seen_losses = losses;
}

static void
tell_if_lost(ZklLocalClaim *claim, void *arg)
{
	if (claim->told_lost ||
		zkl_claim_status(claim->shared, 0) != ZKL_STATUS_LOST)
		return;
	claim->told_lost = true;
	zkl_claims_report_lost(WARNING, claim);
}

/*
 * Claims that were released
 */

void
zkl_loss_note_release(const ZklLocalClaim *claim, ZklClaimStatus standing,
					  bool told)
{
	/*
	 * The states grow worse from GOOD to LOST.  The worst decides whether the
	 * transaction may commit.
	 */
	if (standing <= released.standing)
		return;
	released.standing = standing;
	released.told = told;
	strlcpy(released.path, claim->path, sizeof(released.path));
	released.loss = zkl_claim_status_loss(claim->shared, &released.lost_at);
}

bool
zkl_loss_any_released(void)
{
	return released.standing != ZKL_STATUS_GOOD;
}

void
zkl_loss_forget_released(void)
{
	released.standing = ZKL_STATUS_GOOD;
}

static bool
released_lost(void)
{
	return released.standing == ZKL_STATUS_LOST;
}

/*
 * What was written without protection must not be committed, whether the user
 * knows of the loss or not.  A transaction that only reads is told once, and
 * only of a certain loss.
 */
void
zkl_loss_report_released(bool writes)
{
	if (released.standing == ZKL_STATUS_LOST && (writes || !released.told))
		zkl_report_loss(writes ? ERROR : WARNING, released.path,
						released.loss, released.lost_at, NULL);
	else if (released.standing != ZKL_STATUS_GOOD && writes)
		zkl_report_doubt(released.path);
}
