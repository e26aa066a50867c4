/*-------------------------------------------------------------------------
 *
 * onlost.c
 *	  What a backend does when one of its claims is lost.
 *
 * src/onlost.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"

#include "claims.h"
#include "onlost.h"
#include "report.h"
#include "xact.h"

int			zkl_on_lost = ZKL_ON_LOST_CANCEL;

/* We have asked this backend to end. */
static volatile sig_atomic_t terminating = false;

static void on_loss(SIGNAL_ARGS);
static bool is_idle_in_transaction(void);
static void tell_if_lost(ZklLocalClaim *claim, void *arg);

/*
 * Backends of clients ignore SIGUSR2, so it is free to be used.  Others may use
 * it for something else; they run statements only, so a cancel will do for them.
 */
int
zkl_on_lost_signal(void)
{
	return MyBackendType == B_BACKEND ? SIGUSR2 : SIGINT;
}

void
zkl_on_lost_listen(void)
{
	if (zkl_on_lost_signal() == SIGUSR2)
		pqsignal(SIGUSR2, on_loss);
}

/* A signal handler. */
static void
on_loss(SIGNAL_ARGS)
{
	int			save_errno = errno;

	/* It may have come too late. */
	if (zkl_claims_any())
	{
		if (zkl_on_lost == ZKL_ON_LOST_TERMINATE ||
			(zkl_on_lost == ZKL_ON_LOST_CANCEL && is_idle_in_transaction()))
		{
			terminating = true;
			die(postgres_signal_arg);
		}
		else if (zkl_on_lost == ZKL_ON_LOST_CANCEL)
			StatementCancelHandler(postgres_signal_arg);
	}
	errno = save_errno;
}

/*
 * There is nothing to cancel then, and the transaction cannot succeed any more.
 * So it is ended as by a recovery conflict, with the connection.
 */
static bool
is_idle_in_transaction(void)
{
	return debug_query_string == NULL &&
		IsTransactionBlock() && !IsAbortedTransactionBlockState();
}

void
zkl_on_lost_explain(MemoryContext context)
{
	ZklLocalClaim *lost;
	ErrorData  *error;

	if (geterrcode() != ERRCODE_QUERY_CANCELED ||
		zkl_on_lost == ZKL_ON_LOST_NOTICE)
		return;
	lost = zkl_claims_find_lost();
	if (lost == NULL && !zkl_xact_released_lost_in_statement())
		return;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	if (lost == NULL)
		zkl_xact_report_released_instead(error);
	else
	{
		lost->told_lost = true;
		zkl_report_lost_instead(error, lost->path, lost->shared);
	}
	ReThrowError(error);
}

/* This is the last chance, for what ends a backend and what ends no statement. */
void
zkl_on_lost_explain_instead(ErrorData *error)
{
	ZklLocalClaim *lost;

	if ((error->elevel == ERROR && zkl_on_lost != ZKL_ON_LOST_NOTICE &&
		 error->sqlerrcode == ERRCODE_QUERY_CANCELED) ||
		(error->elevel == FATAL && terminating &&
		 error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN))
	{
		lost = zkl_claims_find_lost();
		if (lost == NULL)
			return;
		lost->told_lost = true;
		zkl_report_lost_instead(error, lost->path, lost->shared);
	}
}

/* Outside of a transaction block the commit tells it at once. */
void
zkl_on_lost_tell(void)
{
	static uint64 seen_losses = 0;
	uint64		losses = pg_atomic_read_u64(&zkl_shared->losses);

	if (zkl_on_lost != ZKL_ON_LOST_NOTICE || losses == seen_losses ||
		!IsTransactionBlock())
		return;
	zkl_claims_visit(tell_if_lost, NULL);
	seen_losses = losses;
}

static void
tell_if_lost(ZklLocalClaim *claim, void *arg)
{
	if (claim->told_lost ||
		zkl_shared_standing(claim->shared, 0) != ZKL_STANDING_LOST)
		return;
	claim->told_lost = true;
	zkl_report_lost(WARNING, claim->path, claim->shared);
}
