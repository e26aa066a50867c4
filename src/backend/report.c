/*-------------------------------------------------------------------------
 *
 * report.c
 *	  The errors: one function a condition.
 *
 * src/backend/report.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/report.h"
#include "settings.h"

typedef struct LossReport
{
	int			sqlstate;
	char	   *message;
	char	   *detail;
	char	   *hint;			/* NULL: none */
} LossReport;

static LossReport describe_loss(const char *path, ZklLoss loss, int64 lost_at,
								const char *release);
static void check_worker(int session);
static void check_refusal(const char *path, int session);

void
zkl_report_unless_loaded(void)
{
	if (zkl_lock_table == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("zklock must be loaded via \"shared_preload_libraries\""));
}

void
zkl_report_loss(int level, const char *path, ZklLoss loss, int64 lost_at,
				const char *release)
{
	LossReport	report = describe_loss(path, loss, lost_at, release);

	ereport(level,
			errcode(report.sqlstate),
			errmsg_internal("%s", report.message),
			errdetail_internal("%s", report.detail),
			level < ERROR || report.hint == NULL ? 0 :
			errhint("%s", report.hint));
}

void
zkl_report_loss_instead(ErrorData *error, const char *path, ZklLoss loss,
						int64 lost_at, const char *release)
{
	LossReport	report = describe_loss(path, loss, lost_at, release);

	error->sqlerrcode = report.sqlstate;
	error->message = report.message;
	error->detail = report.detail;
	error->hint = report.hint;
	if (error->elevel == FATAL)
		error->hint = pstrdup(_("The connection was terminated by \"zklock.on_lost\".  Reconnect and retry the transaction."));
}

/*
 * A session-level claim stays lost until it is released, so a transaction that
 * writes cannot succeed before that.  "release" is the function to call; NULL
 * if the claim ends with the transaction.  If the hold limit has passed, the
 * same transaction would probably take too long again.
 */
static LossReport
describe_loss(const char *path, ZklLoss loss, int64 lost_at,
			  const char *release)
{
	const char *shown = zkl_display_path(path);
	const char *when = timestamptz_to_str(zkl_display_time(lost_at));
	LossReport	report = {ERRCODE_ZKL_LOCK_LOST, NULL, NULL, NULL};

	if (release != NULL)
		report.hint = psprintf(_("Release the lock with \"%s\" and acquire it again, then retry the transaction."), release);
	else if (loss != ZKL_LOSS_LEASE_TIME)
		report.hint = pstrdup(_("Retry the transaction."));

	switch (loss)
	{
		case ZKL_LOSS_LEASE_TIME:
			report.sqlstate = ERRCODE_ZKL_LEASE_OVER;
			report.message = psprintf(_("lease time of lock \"%s\" is over"), shown);
			report.detail = psprintf(lost_at <= zkl_now() ? _("It ended at %s.") :
									 _("It ends at %s, which is less than \"zklock.commit_margin\" from now."), when);
			break;
		case ZKL_LOSS_DELETED:
			report.message = psprintf(_("lock \"%s\" was lost"), shown);
			report.detail = psprintf(_("Another client has deleted its znode, as this server noticed at %s."), when);
			break;
		case ZKL_LOSS_NONE:
		case ZKL_LOSS_EXPIRED:
			report.message = psprintf(_("lock \"%s\" was lost"), shown);
			report.detail = psprintf(_("The ZooKeeper session that held it has expired, as this server noticed at %s."), when);
			break;
	}
	return report;
}

void
zkl_report_doubt(const char *path)
{
	ereport(ERROR,
			errcode(ERRCODE_ZKL_LOCK_LOST),
			errmsg("lock \"%s\" is in doubt", zkl_display_path(path)),
			errdetail("ZooKeeper has not recently confirmed the session that holds it."),
			errhint("Retry the transaction."));
}

/* If the session has no worker, ZooKeeper is not to blame. */
static void
check_worker(int session)
{
	if (pg_atomic_read_u32(&zkl_lock_table->session[session].worker_pid) == 0)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("zklock worker is not running"),
				errhint("More details may be available in the server log."));
}

/* ZooKeeper can be reached, but will not have this server. */
static void
check_refusal(const char *path, int session)
{
	if (zkl_session_info_is_refused(session))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				errmsg("could not access lock \"%s\": this server is not authenticated with ZooKeeper",
					   zkl_display_path(path)),
				errdetail("ZooKeeper has refused its credentials, or they could not be read, or TLS has failed."),
				errhint("More details may be available in the server log."));
}

void
zkl_report_unreachable(const char *path, int session)
{
	check_worker(session);
	check_refusal(path, session);
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("could not acquire lock \"%s\": ZooKeeper cannot be reached",
				   zkl_display_path(path)),
			errdetail("The servers are \"%s\".", zkl_hosts));
}

void
zkl_report_failure(const char *path, ZklFailure failure)
{
	const char *shown = zkl_display_path(path);

	switch (failure)
	{
		case ZKL_FAILURE_NONE:
			break;
		case ZKL_FAILURE_PERMISSION:
			ereport(ERROR,
					errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
					errmsg("permission denied by ZooKeeper for lock \"%s\"", shown),
					errhint("The access control lists of the lock's directory and its parents must allow zklock to create, read, write and delete."));
			break;
		case ZKL_FAILURE_ACL:
			ereport(ERROR,
					errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
					errmsg("could not acquire lock \"%s\"", shown),
					errdetail("ZooKeeper does not accept the access control list in \"zklock.acl\"."),
					errhint("\"creator\" needs a ZooKeeper session that is authenticated, as by \"zklock.auth_file\"."));
			break;
		case ZKL_FAILURE_EPHEMERAL_PARENT:
			ereport(ERROR,
					errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("could not acquire lock \"%s\"", shown),
					errdetail("A parent of its directory is an ephemeral znode, which cannot have children."));
			break;
		case ZKL_FAILURE_DIRECTORY:
			ereport(ERROR,
					errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("could not acquire lock \"%s\"", shown),
					errdetail("Its directory was removed again and again while it was in use."));
			break;
		case ZKL_FAILURE_SEQUENCE:
			ereport(ERROR,
					errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					errmsg("could not acquire lock \"%s\"", shown),
					errdetail("The sequence numbers of its directory in ZooKeeper are used up."),
					errhint("Delete the directory in ZooKeeper while no client uses the lock; zklock creates it again."));
			break;
		case ZKL_FAILURE_FOREIGN_NAME:
			ereport(ERROR,
					errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("could not acquire lock \"%s\"", shown),
					errdetail("Another client queues for it with a znode whose name is longer than %d characters.",
							  ZKL_CHILD_SIZE - 1));
			break;
		case ZKL_FAILURE_SESSION_FULL:
			ereport(ERROR,
					errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					errmsg("could not acquire lock \"%s\"", shown),
					errdetail("The ZooKeeper session of this server holds as many locks as it safely can."),
					errhint("Raise \"zklock.sessions\", hold fewer locks at a time, or give them shorter paths."));
			break;
		case ZKL_FAILURE_STUCK:
			ereport(ERROR,
					errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
					errmsg("permission denied by ZooKeeper for lock \"%s\"", shown),
					errdetail("A znode that this server created for it earlier could not be deleted, and stays until the ZooKeeper session ends."),
					errhint("The access control list of the lock's directory must allow zklock to delete."));
			break;
		case ZKL_FAILURE_OTHER_KIND:
			zkl_report_other_kind(path);
		case ZKL_FAILURE_REFUSED:
			ereport(ERROR,
					errcode(ERRCODE_CONNECTION_FAILURE),
					errmsg("could not acquire lock \"%s\"", shown),
					errdetail("ZooKeeper refused a request."),
					errhint("More details may be available in the server log."));
			break;
	}
	elog(ERROR, "unrecognized failure: %d", (int) failure);
}

void
zkl_report_other_kind(const char *path)
{
	ereport(ERROR,
			errcode(ERRCODE_ZKL_OTHER_KIND),
			errmsg("lock \"%s\" is in use as another kind of lock",
				   zkl_display_path(path)),
			errdetail("While a path is in use, it is one kind of lock: a mutex, a read-write lock or a semaphore."),
			errhint("Use another path."));
}

void
zkl_report_other_limit(const char *path, int in_use, int given)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("semaphore \"%s\" is in use with %d leases, not %d",
				   zkl_display_path(path), in_use, given),
			errhint("All sessions and clients that use a semaphore must pass the same number of leases."));
}

void
zkl_report_full(void)
{
	ereport(ERROR,
			errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			errmsg("out of zklock entries"),
			errdetail("All %d entries are in use.", zkl_lock_table->max_entries),
			errhint("You might need to increase \"%s\".",
					zkl_lock_table_limiting_setting()));
}

void
zkl_report_shutdown(void)
{
	ereport(ERROR,
			errcode(ERRCODE_ADMIN_SHUTDOWN),
			errmsg("could not acquire a lock, because zklock is shutting down"));
}

void
zkl_report_lock_timeout(const char *detail)
{
	ereport(ERROR,
			errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			errmsg("canceling statement due to lock timeout"),
			detail ? errdetail_internal("%s", detail) : 0);
}

void
zkl_report_silence(const char *path)
{
	check_worker(ZKL_COMMAND_SESSION);
	check_refusal(path, ZKL_COMMAND_SESSION);
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("could not access lock \"%s\": ZooKeeper cannot be reached",
				   zkl_display_path(path)),
			errdetail("The servers are \"%s\".", zkl_hosts));
}

void
zkl_report_command(const char *path, ZklCommandOutcome outcome)
{
	const char *shown = zkl_display_path(path);

	switch (outcome)
	{
		case ZKL_COMMAND_OK:
		case ZKL_COMMAND_ABSENT:
			break;
		case ZKL_COMMAND_DENIED:
			zkl_report_failure(path, ZKL_FAILURE_PERMISSION);
		case ZKL_COMMAND_REFUSED:
			ereport(ERROR,
					errcode(ERRCODE_CONNECTION_FAILURE),
					errmsg("could not access lock \"%s\" in ZooKeeper", shown),
					errdetail("ZooKeeper refused a request."),
					errhint("More details may be available in the server log."));
			break;
		case ZKL_COMMAND_DIFFERS:
			ereport(ERROR,
					errcode(ERRCODE_DATA_CORRUPTED),
					errmsg("ZooKeeper's servers do not agree about lock \"%s\"", shown),
					errdetail("ZooKeeper refused a write because the znode has changed since it was read, but a server of the ensemble still shows the znode as it was."),
					errhint("The server log names that ZooKeeper server, and says how to repair it."));
			break;
		case ZKL_COMMAND_TOO_LARGE:
			ereport(ERROR,
					errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					errmsg("directory of lock \"%s\" is too large", shown));
			break;
		case ZKL_COMMAND_NO_MEMORY:
			ereport(ERROR,
					errcode(ERRCODE_OUT_OF_MEMORY),
					errmsg("out of shared memory"),
					errdetail("The directory of lock \"%s\" needs a dynamic shared memory segment.", shown),
					errhint("More details may be available in the server log."));
			break;
	}
	elog(ERROR, "unrecognized outcome: %d", (int) outcome);
}
