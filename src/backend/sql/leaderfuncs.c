/*-------------------------------------------------------------------------
 *
 * leaderfuncs.c
 *	  The functions about this server's leadership.
 *
 * src/backend/sql/leaderfuncs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "backend/display.h"
#include "backend/lock/history.h"
#include "backend/lock/reliance.h"
#include "backend/lock/sqlargs.h"
#include "backend/lock/xact.h"
#include "backend/report.h"
#include "settings.h"
#include "shared/leadership.h"
#include "shared/passes.h"

PG_FUNCTION_INFO_V1(zklock_is_leader);
PG_FUNCTION_INFO_V1(zklock_leader_resign);
PG_FUNCTION_INFO_V1(zklock_leader_forget);

Datum
zklock_is_leader(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);
	int64		token = 0;
	int64		until;

	zkl_report_unless_usable();

	/* With the margin of the commit guard, which would refuse the commit. */
	if (zkl_leadership_standing(path, ZKL_MS(zkl_commit_margin),
								&token, &until) != ZKL_STATUS_GOOD)
		PG_RETURN_BOOL(false);
	if (zkl_reliance_note(path, token))
		zkl_xact_keep_guard_first();
	PG_RETURN_BOOL(true);
}

Datum
zklock_leader_resign(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);
	int64		pause = zkl_sqlargs_duration(fcinfo, 1, "pause");
	int64		relied_until = 0;
	ZklResignation result;

	zkl_report_unless_loaded();
	result = zkl_leadership_resign(path, zkl_now() + pause, &relied_until);

	/*
	 * The leader process waits for the same.  A caller that moves work to
	 * another server wants to know that the commits here are over.
	 */
	while (zkl_now() < relied_until && zkl_passes_any(path))
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(ZKL_PASSES_POLL);
	}
	if (result == ZKL_RESIGN_NO_CANDIDATE)
		ereport(WARNING,
				errmsg("this server does not stand for the leadership of \"%s\"",
					   zkl_display_path(path)));
	PG_RETURN_BOOL(result == ZKL_RESIGN_LED);
}

/* Also on a server that does not stand for the leadership. */
Datum
zklock_leader_forget(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);

	zkl_report_unless_loaded();
	PG_RETURN_BOOL(zkl_history_forget(path));
}
