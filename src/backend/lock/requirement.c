/*-------------------------------------------------------------------------
 *
 * requirement.c
 *	  The leaderships that every commit requires: zklock.commit_requires.
 *
 * src/backend/lock/requirement.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xlog.h"
#include "miscadmin.h"

#include "backend/display.h"
#include "backend/lock/requirement.h"
#include "backend/report.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "shared/leadership.h"
#include "shared/passes.h"

/*
 * The required paths, as the setting had them at this serial number; their tokens; and
 * the count of losses at which all were last seen to be led with these tokens.
 * Losses begin with 1.
 */
static struct
{
	uint64		serial;
	int			npaths;
	uint64		bits;
	uint64		losses;
	char		paths[ZKL_LEADERS_MAX][ZKL_PATH_SIZE];
	int64		tokens[ZKL_LEADERS_MAX];
}		   *required = NULL;

static void read_setting(void);
static const char *look(int64 margin, ZklClaimStatus *standing, int64 *until);
ZKL_NORETURN static void refuse(const char *path, ZklClaimStatus standing);

/*
 * Autovacuum must go on, or the server would stop for want of transaction IDs; what it
 * changes is of no meaning to users.  pg_upgrade and a single user work without any
 * other process.  In recovery, PostgreSQL itself refuses.  A parallel worker writes
 * nothing that its leader does not commit.
 */
bool
zkl_requirement_applies_here(void)
{
	return IsUnderPostmaster && !IsBinaryUpgrade && !zkl_am_autovacuum() &&
		!IsParallelWorker() && !RecoveryInProgress();
}

/* A value that was not checked may have too many paths; so none of them is led. */
static void
read_setting(void)
{
	const char *at = zkl_commit_requires;
	char		path[ZKL_SETTINGS_LEADER_SIZE];

	if (required == NULL)
		required = MemoryContextAllocZero(TopMemoryContext, sizeof(*required));
	if (required->serial == zkl_commit_requires_serial)
		return;
	required->npaths = 0;
	required->bits = 0;
	required->losses = 0;
	while (required->npaths < ZKL_LEADERS_MAX && zkl_settings_next_leader(&at, path))
	{
		strlcpy(required->paths[required->npaths++], path, ZKL_PATH_SIZE);
		required->bits |= zkl_passes_bit(path);
	}
	required->serial = zkl_commit_requires_serial;
}

uint64
zkl_requirement_bits(void)
{
	read_setting();
	return required->bits;
}

int64
zkl_requirement_check(int64 margin)
{
	ZklClaimStatus standing;
	int64		until;
	const char *path = look(margin, &standing, &until);

	if (path != NULL)
		refuse(path, standing);
	return until;
}

bool
zkl_requirement_is_met(int64 margin)
{
	ZklClaimStatus standing;
	int64		until;

	return look(margin, &standing, &until) == NULL;
}

/*
 * Returns a path that this server does not lead, or not for long enough; or NULL, and
 * the moment up to which it leads all.
 *
 * The usual way compares one number: every end of a leadership, and every loss of a
 * ZooKeeper session, raises the count of losses.  The moment is read first, because a
 * session that is safe again has counted its losses before.
 */
static const char *
look(int64 margin, ZklClaimStatus *standing, int64 *until)
{
	uint64		losses;

	*until = zkl_session_info_all_until();
	losses = pg_atomic_read_u64(&zkl_lock_table->losses);
	read_setting();
	if (required->losses == losses && zkl_now() + margin < *until)
		return NULL;
	required->losses = 0;
	*until = PG_INT64_MAX;
	for (int i = 0; i < required->npaths; i++)
	{
		int64		certain = 0;

		*standing = zkl_leadership_standing(required->paths[i], margin,
											&required->tokens[i], &certain);
		if (*standing != ZKL_STATUS_GOOD)
			return required->paths[i];
		*until = Min(*until, certain);
	}
	required->losses = losses;
	return NULL;
}

const char *
zkl_requirement_find_uncertain(void)
{
	for (int i = 0; i < required->npaths; i++)
	{
		if (!zkl_leadership_is_held(required->paths[i], required->tokens[i]))
			return required->paths[i];
	}
	return NULL;
}

static void
refuse(const char *path, ZklClaimStatus standing)
{
	char		why[ZKL_WHY_SIZE];

	if (!zkl_settings_lists_leader(zkl_leader_of, path))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("this server does not stand for the leadership of \"%s\"",
					   zkl_display_path(path)),
				errdetail("\"zklock.commit_requires\" names it, but \"zklock.leader_of\" does not."),
				errhint("Add the path to \"zklock.leader_of\"."));
	if (standing == ZKL_STATUS_DOUBT)
		strlcpy(why, _("ZooKeeper has not recently confirmed that this server leads."), sizeof(why));
	else if (!zkl_leadership_is_refused(path, why))
		strlcpy(why, _("\"zklock.commit_requires\" names this leadership."), sizeof(why));
	ereport(zkl_not_leading == ZKL_NOT_LEADING_TERMINATE ? FATAL : ERROR,
			errcode(zkl_not_leading == ZKL_NOT_LEADING_TERMINATE ?
					ERRCODE_ADMIN_SHUTDOWN : ERRCODE_READ_ONLY_SQL_TRANSACTION),
			errmsg("cannot write, because this server does not lead \"%s\"",
				   zkl_display_path(path)),
			errdetail_internal("%s", zkl_znode_text_show(why)),
			errhint("Retry the transaction on the server that leads."));
	pg_unreachable();
}
