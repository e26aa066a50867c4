/*-------------------------------------------------------------------------
 *
 * leaderfuncs.c
 *	  The functions about this server's leadership.
 *
 * src/backend/leaderfuncs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "backend/display.h"
#include "backend/enter.h"
#include "backend/reliance.h"
#include "backend/report.h"
#include "backend/sqlargs.h"
#include "backend/xact.h"
#include "settings.h"
#include "shared/leadership.h"

PG_FUNCTION_INFO_V1(zklock_is_leader);
PG_FUNCTION_INFO_V1(zklock_leader_resign);

Datum
zklock_is_leader(PG_FUNCTION_ARGS)
{
	const char *path = zkl_sqlargs_path(fcinfo);
	int64		token = 0;

	zkl_enter_without_claims();

	/* With the margin of the commit guard, which would refuse the commit. */
	if (zkl_leadership_standing(path, ZKL_MS(zkl_commit_margin),
								&token) != ZKL_STATUS_GOOD)
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
	ZklResignation result;

	zkl_report_unless_loaded();
	result = zkl_leadership_resign(path, zkl_now() + pause);
	if (result == ZKL_RESIGN_NO_CANDIDATE)
		ereport(WARNING,
				errmsg("this server does not stand for the leadership of \"%s\"",
					   zkl_display_path(path)));
	PG_RETURN_BOOL(result == ZKL_RESIGN_LED);
}
