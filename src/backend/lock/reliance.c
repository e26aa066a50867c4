/*-------------------------------------------------------------------------
 *
 * reliance.c
 *	  The leaderships on which this transaction relies: it was told of some of
 *	  them, and every commit requires the others (zklock.commit_requires).
 *
 * A server that was deposed may lead again by now.  Since another server has
 * led meanwhile, a transaction that relied on the first leadership must not
 * commit.  The token distinguishes the two leaderships.
 *
 * src/backend/lock/reliance.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xlog.h"
#include "miscadmin.h"

#include "backend/display.h"
#include "backend/lock/reliance.h"
#include "backend/report.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "shared/leadership.h"
#include "shared/passes.h"

typedef struct Leadership
{
	char		path[ZKL_PATH_SIZE];
	int64		token;
} Leadership;

/* The leaderships of which this transaction was told. */
static Leadership relied[ZKL_LEADERS_MAX];
static int	nrelied = 0;

/* The passes that this transaction needs because it uses detached claims. */
static uint64 used = 0;

/*
 * The leaderships that zklock.commit_requires named at this serial number, and
 * the count of losses when this server was last seen to lead them all with
 * these tokens.  Losses begin with 1.
 */
static struct
{
	uint64		serial;
	const char *fault;			/* why the value is not valid, or NULL */
	int			npaths;
	uint64		bits;
	uint64		losses;
	Leadership	paths[ZKL_LEADERS_MAX];
}			required;

static int64 check(int i, int64 margin);
static void report_ended(const char *path);
static void read_setting(void);
static const char *look(int64 margin, ZklClaimStatus *status, int64 *until);
ZKL_NORETURN static void refuse(const char *path, ZklClaimStatus status);

bool
zkl_reliance_note(const char *path, int64 token)
{
	for (int i = 0; i < nrelied; i++)
	{
		if (strcmp(relied[i].path, path) != 0)
			continue;

		/* The server has led anew since, so the commit would fail. */
		if (relied[i].token != token)
			report_ended(path);
		return false;
	}
	if (nrelied == ZKL_LEADERS_MAX)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_PROGRAM_LIMIT_EXCEEDED)),
				errmsg("a transaction cannot rely on more than %d leaderships",
					   ZKL_LEADERS_MAX));
	strlcpy(relied[nrelied].path, path, ZKL_PATH_SIZE);
	relied[nrelied].token = token;
	nrelied++;
	return true;
}

bool
zkl_reliance_any(void)
{
	return nrelied > 0;
}

bool
zkl_reliance_token(const char *path, int64 *token)
{
	for (int i = 0; i < nrelied; i++)
	{
		if (strcmp(relied[i].path, path) == 0)
		{
			check(i, 0);
			*token = relied[i].token;
			return true;
		}
	}
	return false;
}

void
zkl_reliance_note_use(const char *path)
{
	used |= zkl_passes_bit(path);
}

uint64
zkl_reliance_bits(void)
{
	uint64		bits = used;

	for (int i = 0; i < nrelied; i++)
		bits |= zkl_passes_bit(relied[i].path);
	return bits;
}

int64
zkl_reliance_check(int64 margin)
{
	int64		until = PG_INT64_MAX;

	for (int i = 0; i < nrelied; i++)
		until = Min(until, check(i, margin));
	return until;
}

/* Returns the moment up to which the leadership is certain. */
static int64
check(int i, int64 margin)
{
	int64		token = 0;
	int64		until = 0;
	ZklClaimStatus status = zkl_leadership_status(relied[i].path, margin,
												  &token, &until);

	if (token != relied[i].token)
		report_ended(relied[i].path);
	if (status == ZKL_STATUS_DOUBT)
		zkl_report_doubt(relied[i].path);
	return until;
}

static void
report_ended(const char *path)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_ZKL_LOCK_LOST)),
			errmsg("this server's leadership of \"%s\" has ended",
				   zkl_display_path(path)),
			errdetail("The transaction relied on it."),
			errhint("Retry the transaction on the server that leads.  The view zk_leaders shows whether one does."));
}

void
zkl_reliance_forget(void)
{
	nrelied = 0;
	used = 0;
}

/*
 * What every commit requires
 */

/*
 * Autovacuum must go on, or the server would stop for want of transaction IDs;
 * what it changes is of no meaning to users.  pg_upgrade and a single user
 * work without any other process.  In recovery, PostgreSQL itself refuses.  A
 * parallel worker writes nothing that its leader does not commit.
 */
bool
zkl_reliance_is_required_here(void)
{
	return IsUnderPostmaster && !IsBinaryUpgrade && !zkl_am_autovacuum() &&
		!IsParallelWorker() && !RecoveryInProgress();
}

/*
 * A value that was stored unchecked may have more paths than there is room
 * for, or longer ones.
 */
static void
read_setting(void)
{
	const char *at = zkl_commit_requires;
	char		path[ZKL_SETTINGS_LEADER_SIZE];

	if (required.serial == zkl_commit_requires_serial)
		return;
	required.fault = zkl_settings_leaders_fault(zkl_commit_requires);
	required.npaths = 0;
	required.bits = 0;
	required.losses = 0;
	while (required.fault == NULL && zkl_settings_next_leader(&at, path))
	{
		strlcpy(required.paths[required.npaths++].path, path, ZKL_PATH_SIZE);
		required.bits |= zkl_passes_bit(path);
	}
	required.serial = zkl_commit_requires_serial;
}

uint64
zkl_reliance_required_bits(void)
{
	read_setting();
	return required.bits;
}

int64
zkl_reliance_check_required(int64 margin)
{
	ZklClaimStatus status;
	int64		until;
	const char *path = look(margin, &status, &until);

	if (path != NULL)
		refuse(path, status);
	return until;
}

bool
zkl_reliance_has_required(int64 margin)
{
	ZklClaimStatus status;
	int64		until;

	return look(margin, &status, &until) == NULL;
}

/*
 * Returns a path that this server does not lead, or not for long enough; or
 * the whole setting if that is not valid.  If there is none, returns NULL, and
 * the moment up to which the server leads all.  The usual way compares one
 * number: every end of a leadership, and every loss of a ZooKeeper session,
 * raises the count of losses.  Read the moment first: before a session is safe
 * again, its losses have been counted.
 */
static const char *
look(int64 margin, ZklClaimStatus *status, int64 *until)
{
	uint64		losses;

	*until = zkl_session_info_safe_until();
	losses = pg_atomic_read_u64(&zkl_lock_table->losses);
	read_setting();
	if (required.losses == losses && zkl_now() + margin < *until)
		return NULL;
	required.losses = 0;
	*until = PG_INT64_MAX;
	*status = ZKL_STATUS_LOST;
	if (required.fault != NULL)
		return zkl_commit_requires;
	for (int i = 0; i < required.npaths; i++)
	{
		int64		certain = 0;

		*status = zkl_leadership_status(required.paths[i].path, margin,
										&required.paths[i].token, &certain);
		if (*status != ZKL_STATUS_GOOD)
			return required.paths[i].path;
		*until = Min(*until, certain);
	}
	required.losses = losses;
	return NULL;
}

static void
refuse(const char *path, ZklClaimStatus status)
{
	char		why[ZKL_WHY_SIZE];

	if (required.fault != NULL)
		zkl_settings_report_invalid(ERROR, "zklock.commit_requires",
									zkl_commit_requires, required.fault);
	if (!zkl_settings_lists_leader(zkl_leader_of, path))
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)),
				errmsg("this server does not stand for the leadership of \"%s\"",
					   zkl_display_path(path)),
				errdetail("\"zklock.commit_requires\" names it, but \"zklock.leader_of\" does not."),
				errhint("Add the path to \"zklock.leader_of\"."));
	if (status == ZKL_STATUS_DOUBT)
		strlcpy(why, _("ZooKeeper has not recently confirmed that this server leads."), sizeof(why));
	else if (!zkl_leadership_is_refused(path, why))
		strlcpy(why, _("\"zklock.commit_requires\" names this leadership."), sizeof(why));
	ereport(zkl_not_leading == ZKL_NOT_LEADING_TERMINATE ? FATAL : ERROR,
			errcode(zkl_report_count(zkl_not_leading == ZKL_NOT_LEADING_TERMINATE ?
									 ERRCODE_ADMIN_SHUTDOWN : ERRCODE_READ_ONLY_SQL_TRANSACTION)),
			errmsg("cannot write, because this server does not lead \"%s\"",
				   zkl_display_path(path)),
			errdetail_internal("%s", zkl_znode_text_show(why)),
			errhint("Retry the transaction on the server that leads.  The view zk_leaders shows whether one does."));
	pg_unreachable();
}

/*
 * After the commit
 */

/*
 * A leadership that was resigned does not end while this transaction has its
 * pass, as long as the server could count on it.
 */
const char *
zkl_reliance_find_uncertain(bool of_required)
{
	const Leadership *leaderships = of_required ? required.paths : relied;
	int			n = of_required ? required.npaths : nrelied;

	for (int i = 0; i < n; i++)
	{
		if (!zkl_leadership_is_held(leaderships[i].path, leaderships[i].token))
			return leaderships[i].path;
	}
	return NULL;
}
