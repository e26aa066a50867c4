/*-------------------------------------------------------------------------
 *
 * report.c
 *	  The errors: one function for each condition.
 *
 * src/backend/report.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/report.h"
#include "protocol/path.h"
#include "protocol/serverrecord.h"
#include "settings.h"

/*
 * A reason why ZooKeeper does not allow what a backend wants.  A message may
 * have a %s for what it is about.
 */
typedef struct Reason
{
	int			sqlstate;
	const char *message;
	const char *detail;			/* NULL if none */
	const char *hint;			/* NULL if none */
} Reason;

#define COULD_NOT_ACQUIRE	gettext_noop("could not acquire %s")
#define PERMISSION_DENIED	gettext_noop("permission denied by ZooKeeper for %s")
#define QUOTA_USED_UP \
	gettext_noop("A quota in ZooKeeper is used up."), \
	gettext_noop("The server log names the znode.  Raise the quota on one of its parents, or delete znodes below it.")
#define DIRECTORY_HINT \
	gettext_noop("The directories of the locks below this one are among its znodes. ZooKeeper removes those that are empty.")
#define SEE_LOG				gettext_noop("More details may be available in the server log.")

static const Reason failure_reasons[] = {
	[ZKL_FAILURE_PERMISSION] = {
		ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, PERMISSION_DENIED, NULL,
		gettext_noop("The access control lists of the lock's directory and its parents must allow zklock to create, read, write and delete.")
	},
	[ZKL_FAILURE_ACL] = {
		ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, COULD_NOT_ACQUIRE,
		gettext_noop("ZooKeeper does not accept the access control list in \"zklock.acl\"."),
		gettext_noop("\"creator\" needs a ZooKeeper session that is authenticated, as by \"zklock.auth_file\".")
	},
	[ZKL_FAILURE_STUCK] = {
		ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, PERMISSION_DENIED,
		gettext_noop("A znode that this server created for it earlier could not be deleted, and stays until the ZooKeeper session ends."),
		gettext_noop("The access control list of the lock's directory must allow zklock to delete.")
	},
	[ZKL_FAILURE_SEQUENCE] = {
		ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, COULD_NOT_ACQUIRE,
		gettext_noop("The sequence numbers of its directory in ZooKeeper are used up."),
		gettext_noop("Delete the directory in ZooKeeper while no client uses the lock; zklock creates it again.")
	},
	[ZKL_FAILURE_TOKENS] = {
		ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, COULD_NOT_ACQUIRE,
		gettext_noop("The tokens of this ZooKeeper ensemble are used up, because it has elected a leader more than 32,767 times."),
		gettext_noop("Move all servers to a new ensemble at the same time, where tokens begin again.")
	},
	[ZKL_FAILURE_SESSION_FULL] = {
		ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, COULD_NOT_ACQUIRE,
		gettext_noop("The ZooKeeper session of this server holds as many locks as it safely can."),
		gettext_noop("Hold fewer locks at a time, or give them shorter paths.")
	},
	[ZKL_FAILURE_QUOTA] = {
		ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, COULD_NOT_ACQUIRE, QUOTA_USED_UP
	},
	[ZKL_FAILURE_TOO_LONG] = {
		ERRCODE_PROGRAM_LIMIT_EXCEEDED, COULD_NOT_ACQUIRE,
		gettext_noop("ZooKeeper's reply with the znodes of its directory takes longer than half the session timeout."),
		DIRECTORY_HINT
	},
	[ZKL_FAILURE_EPHEMERAL_PARENT] = {
		ERRCODE_INVALID_PARAMETER_VALUE, COULD_NOT_ACQUIRE,
		gettext_noop("A parent of its directory is an ephemeral znode, which cannot have children."),
		NULL
	},
	[ZKL_FAILURE_DIRECTORY] = {
		ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, COULD_NOT_ACQUIRE,
		gettext_noop("Its directory was removed again and again while it was in use."),
		NULL
	},
	[ZKL_FAILURE_REFUSED] = {
		ERRCODE_CONNECTION_FAILURE, COULD_NOT_ACQUIRE,
		gettext_noop("ZooKeeper refused a request."), SEE_LOG
	}
};

static const Reason command_reasons[] = {
	[ZKL_COMMAND_QUOTA] = {
		ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, gettext_noop("could not access %s in ZooKeeper"),
		QUOTA_USED_UP
	},
	[ZKL_COMMAND_REFUSED] = {
		ERRCODE_CONNECTION_FAILURE, gettext_noop("could not access %s in ZooKeeper"),
		gettext_noop("ZooKeeper refused a request."), SEE_LOG
	},
	[ZKL_COMMAND_DIFFERS] = {
		ERRCODE_DATA_CORRUPTED, gettext_noop("ZooKeeper's servers do not agree about %s"),
		gettext_noop("ZooKeeper refused a write because the znode has changed since it was read, but a server of the ensemble still shows the znode as it was."),
		gettext_noop("The server log names that ZooKeeper server, and says how to repair it.")
	},
	[ZKL_COMMAND_TOO_LARGE] = {
		ERRCODE_PROGRAM_LIMIT_EXCEEDED, gettext_noop("directory of %s is too large"), NULL,
		DIRECTORY_HINT
	}
};

/* The errors that zk_stat_errors() counts. */
const int	zkl_report_counted[ZKL_SERVER_STAT_ERRORS] = {
	ERRCODE_CONNECTION_FAILURE,
	ERRCODE_INVALID_PARAMETER_VALUE,
	ERRCODE_READ_ONLY_SQL_TRANSACTION,
	ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
	ERRCODE_INSUFFICIENT_RESOURCES,
	ERRCODE_OUT_OF_MEMORY,
	ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
	ERRCODE_PROGRAM_LIMIT_EXCEEDED,
	ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
	ERRCODE_LOCK_NOT_AVAILABLE,
	ERRCODE_ADMIN_SHUTDOWN,
	ERRCODE_DATA_CORRUPTED,
	ERRCODE_ZKL_LOCK_LOST,
	ERRCODE_ZKL_LEASE_OVER,
	ERRCODE_ZKL_OTHER_KIND
};

static void write_late_commit(int level, const char *path, int64 until,
							  int64 now);
static void check_worker(void);
static void copy_last_error(char *error, char *server);
static void check_refusal(const char *path);
static const char *name(const char *path);
static int	detail_of_silence(void);
ZKL_NORETURN static void report_silence(const char *message, const char *path);
ZKL_NORETURN static void report_reason(const Reason *reason, const char *path);

int
zkl_report_count(int sqlstate)
{
	/* zk_fence works on a server that does not preload zklock. */
	if (zkl_server_stat == NULL)
		return sqlstate;
	for (int i = 0; i < ZKL_SERVER_STAT_ERRORS; i++)
	{
		if (zkl_report_counted[i] == sqlstate)
			pg_atomic_fetch_add_u64(&zkl_server_stat->errors[i], 1);
	}
	return sqlstate;
}

void
zkl_report_unless_loaded(void)
{
	if (zkl_lock_table == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("zklock must be loaded via \"shared_preload_libraries\""));

	/* Errors show paths, and an error that comes late may read no catalogs. */
	zkl_display_prepare();
}

/*
 * A parallel worker has no claims, whatever its leader holds.  The leader is
 * refused as well, so that no result depends on which process computes a row.
 */
void
zkl_report_unless_usable(void)
{
	zkl_report_unless_loaded();
	if (IsInParallelMode())
		ereport(ERROR,
				errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("cannot access zklock locks during a parallel operation"),
				errhint("Mark every function that calls a function of zklock as PARALLEL UNSAFE."));
}

void
zkl_report_loss(int level, const char *path, ZklLoss loss, int64 lost_at,
				const char *release)
{
	ErrorData	error = {.elevel = level};

	zkl_report_loss_instead(&error, path, loss, lost_at, release);
	ereport(level, zkl_report_text(&error));
}

int
zkl_report_text(const ErrorData *error)
{
	errcode(error->sqlerrcode);
	errmsg_internal("%s", error->message);
	errdetail_internal("%s", error->detail);
	return error->elevel < ERROR || error->hint == NULL ? 0 :
		errhint("%s", error->hint);
}

/*
 * A session-level claim stays lost until it is released, so a transaction that
 * writes cannot succeed before that.  "release" is the SQL function to call;
 * NULL if the claim ends with the transaction.  If the hold limit has passed,
 * the same transaction would probably take too long again.
 */
void
zkl_report_loss_instead(ErrorData *error, const char *path, ZklLoss loss,
						int64 lost_at, const char *release)
{
	const char *shown = zkl_display_path(path);
	const char *when = timestamptz_to_str(zkl_display_time(lost_at));

	error->hint = NULL;
	if (error->elevel == FATAL)
		error->hint = pstrdup(_("The connection was terminated by \"zklock.on_lost\".  Reconnect and retry the transaction."));
	else if (release != NULL && strcmp(release, ZKL_REPORT_CLAIM) == 0)
		error->hint = pstrdup(_("Request another claim, and retry the transaction with that."));
	else if (release != NULL && strcmp(release, ZKL_REPORT_HOLDER) == 0)
		error->hint = pstrdup(_("Let a session of this server acquire the lock again, and retry the transaction under that one."));
	else if (release != NULL)
		error->hint = psprintf(_("Release the lock with \"%s\" and acquire it again, then retry the transaction."), release);
	else if (loss != ZKL_LOSS_HOLD_LIMIT)
		error->hint = pstrdup(_("Retry the transaction."));

	error->sqlerrcode = ERRCODE_ZKL_LOCK_LOST;
	if (loss == ZKL_LOSS_HOLD_LIMIT)
		error->sqlerrcode = ERRCODE_ZKL_LEASE_OVER;
	if (error->elevel >= ERROR)
		zkl_report_count(error->sqlerrcode);
	switch (loss)
	{
		case ZKL_LOSS_HOLD_LIMIT:
			error->message = psprintf(_("lease time of lock \"%s\" is over"), shown);
			error->detail = psprintf(lost_at <= zkl_now() ? _("It ended at %s.") :
									 _("It ends at %s, which is less than \"zklock.commit_margin\" from now."), when);
			break;
		case ZKL_LOSS_DELETED:
			error->message = psprintf(_("lock \"%s\" was lost"), shown);
			error->detail = psprintf(_("Another client has deleted its znode, as this server noticed at %s."), when);
			break;
		case ZKL_LOSS_NONE:
		case ZKL_LOSS_EXPIRED:
			error->message = psprintf(_("lock \"%s\" was lost"), shown);
			error->detail = psprintf(_("The ZooKeeper session that held it has expired, as this server noticed at %s."), when);
			break;
	}
}

/*
 * If the client's encoding lacks a character of a message, sending it raises
 * an error, and an error after the commit would end the server.  So catch
 * that error.  PostgreSQL holds off interrupts while it commits, and the
 * error has released that hold.
 */
void
zkl_report_late_commit(const char *path, int64 until, int64 now)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;

	PG_TRY();
	{
		write_late_commit(LOG_SERVER_ONLY, path, until, now);
		write_late_commit(WARNING_CLIENT_ONLY, path, until, now);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		InterruptHoldoffCount = holdoff;
	}
	PG_END_TRY();
}

static void
write_late_commit(int level, const char *path, int64 until, int64 now)
{
	ereport(level,
			errcode(ERRCODE_ZKL_LATE_COMMIT),
			errmsg("transaction committed %.3f ms after lock \"%s\" was last certain",
				   (now - until) / 1000.0, zkl_display_path(path)),
			errdetail("The lock was certain until %s.  Another client may have acquired it before the transaction committed.",
					  timestamptz_to_str(zkl_display_time(until))),
			errhint("Check what was written under the lock.  If commits often take so long, raise \"zklock.commit_margin\"."));
}

void
zkl_report_doubt(const char *path)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_ZKL_LOCK_LOST)),
			errmsg("lock \"%s\" is in doubt", zkl_display_path(path)),
			errdetail("ZooKeeper has not recently confirmed the session that holds it."),
			errhint("Retry the transaction."));
}

/* Some directories of zklock itself are not locks. */
static const char *
name(const char *path)
{
	if (strcmp(path, ZKL_PATH_JOBS) == 0)
		return _("the records of jobs");
	if (strcmp(path, ZKL_PATH_WAITS) == 0)
		return _("the records of waits");
	if (strcmp(path, ZKL_SERVERRECORD_DIRECTORY) == 0)
		return _("the records of servers");
	if (strcmp(path, ZKL_PATH_LEADERS) == 0)
		return _("the records of leaderships");
	return psprintf(_("lock \"%s\""), zkl_display_path(path));
}

/*
 * The error that the worker noted last is the reason only while there is no
 * connection.  Later the error may be about a connection of long ago.
 */
static int
detail_of_silence(void)
{
	ZklSessionInfo *info = zkl_session_info;
	char		server[ZKL_SERVER_SIZE];
	char		error[ZKL_ERROR_SIZE];

	copy_last_error(error, server);
	if (pg_atomic_read_u32(&info->connected) != 0)
		return errdetail("The servers are \"%s\".  The last one, %s, has not answered in time.",
						 zkl_hosts, server);
	if (error[0] == '\0')
		return errdetail("The servers are \"%s\".  None of them has answered yet.", zkl_hosts);
	return errdetail("The servers are \"%s\".  The last error was: %s.",
					 zkl_hosts, error);
}

/* If there is no worker, the reason is not ZooKeeper. */
static void
check_worker(void)
{
	if (pg_atomic_read_u32(&zkl_session_info->worker_pid) == 0)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)),
				errmsg("zklock worker is not running"),
				errhint("The server log has the reason.  If the worker has never started, increase \"max_worker_processes\"."));
}

/* ZooKeeper can be reached, but refuses this server. */
static void
check_refusal(const char *path)
{
	char		refusal[ZKL_ERROR_SIZE];

	if (!zkl_session_info_is_refused())
		return;
	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	strlcpy(refusal, zkl_session_info->refusal, sizeof(refusal));
	LWLockRelease(zkl_lock_table_session_lock());
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION)),
			errmsg("could not access %s: this server is not authenticated with ZooKeeper",
				   name(path)),
			errdetail("The last error was: %s.", refusal),
			errhint("More details may be available in the server log."));
}

/* The last error of the session, or "", and its server. */
static void
copy_last_error(char *error, char *server)
{
	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	strlcpy(server, zkl_session_info->server, ZKL_SERVER_SIZE);
	strlcpy(error, zkl_session_info->last_error_at != 0 ? zkl_session_info->last_error : "",
			ZKL_ERROR_SIZE);
	LWLockRelease(zkl_lock_table_session_lock());
}

void
zkl_report_unreachable(const char *path)
{
	report_silence(gettext_noop("could not acquire %s: ZooKeeper cannot be reached"), path);
}

void
zkl_report_silence(const char *path)
{
	report_silence(gettext_noop("could not access %s: ZooKeeper cannot be reached"), path);
}

static void
report_silence(const char *message, const char *path)
{
	check_worker();
	check_refusal(path);
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_CONNECTION_FAILURE)),
			errmsg(message, name(path)),
			detail_of_silence(),
			errhint("Check that ZooKeeper is running, and that \"zklock.hosts\" names its servers."));
}

static void
report_reason(const Reason *reason, const char *path)
{
	ereport(ERROR,
			errcode(zkl_report_count(reason->sqlstate)),
			errmsg(reason->message, name(path)),
			reason->detail ? errdetail_internal("%s", _(reason->detail)) : 0,
			reason->hint ? errhint("%s", _(reason->hint)) : 0);
}

void
zkl_report_failure(const char *path, ZklFailure failure)
{
	if (failure == ZKL_FAILURE_OTHER_KIND)
		zkl_report_other_kind(path);
	if (failure == ZKL_FAILURE_FOREIGN_NAME)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_PROGRAM_LIMIT_EXCEEDED)),
				errmsg("could not acquire lock \"%s\"", zkl_display_path(path)),
				errdetail("Another client queues for it with a znode whose name is longer than %d characters.",
						  ZKL_CHILD_SIZE - 1));

	/*
	 * ZKL_FAILURE_LIMIT has no reason here: the backend looks, and reports
	 * what it sees.
	 */
	if ((uint32) failure >= lengthof(failure_reasons) ||
		failure_reasons[failure].message == NULL)
		elog(ERROR, "unrecognized failure: %d", (int) failure);
	report_reason(&failure_reasons[failure], path);
}

void
zkl_report_other_kind(const char *path)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_ZKL_OTHER_KIND)),
			errmsg("lock \"%s\" is in use as another kind of lock",
				   zkl_display_path(path)),
			errdetail("While a path is in use, it is one kind of lock: a mutex, a read-write lock or a semaphore."),
			errhint("Use another path."));
}

void
zkl_report_other_limit(const char *path, int in_use, int given)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_INVALID_PARAMETER_VALUE)),
			errmsg("semaphore \"%s\" is in use with %d leases, not %d",
				   zkl_display_path(path), in_use, given),
			errhint("All sessions and clients that use a semaphore must pass the same number of leases."));
}

void
zkl_report_full(void)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)),
			errmsg("out of zklock entries"),
			errdetail("All %d entries are in use.", zkl_lock_table_max_entries()),
			errhint("You might need to increase \"%s\".",
					zkl_lock_table_limiting_setting()));
}

void
zkl_report_shutdown(void)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_ADMIN_SHUTDOWN)),
			errmsg("could not acquire a lock, because zklock is shutting down"));
}

void
zkl_report_lock_timeout(const char *detail)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_LOCK_NOT_AVAILABLE)),
			errmsg("canceling statement due to lock timeout"),
			detail ? errdetail_internal("%s", detail) : 0);
}

void
zkl_report_not_acquired(const char *path)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_LOCK_NOT_AVAILABLE)),
			path != NULL ?
			errmsg("could not acquire lock \"%s\"", zkl_display_path(path)) :
			errmsg("could not acquire all locks"),
			errdetail("The timeout has passed."));
}

void
zkl_report_command(const char *path, ZklCommandOutcome outcome)
{
	const char *shown = name(path);

	switch (outcome)
	{
		case ZKL_COMMAND_AWAY:
			zkl_report_silence(path);
		case ZKL_COMMAND_DENIED:
			zkl_report_failure(path, ZKL_FAILURE_PERMISSION);
		case ZKL_COMMAND_QUOTA:
		case ZKL_COMMAND_REFUSED:
		case ZKL_COMMAND_DIFFERS:
		case ZKL_COMMAND_TOO_LARGE:
			report_reason(&command_reasons[outcome], path);
		case ZKL_COMMAND_TOO_MANY:
			ereport(ERROR,
					errcode(zkl_report_count(ERRCODE_PROGRAM_LIMIT_EXCEEDED)),
					errmsg("too many znodes below \"%s\"", zkl_display_path(path)),
					errdetail("At most %d are read in one call.", ZKL_WALK_MAX),
					errhint("Call zk_cluster_locks() with the path of a part of them."));
			break;
		case ZKL_COMMAND_NO_MEMORY:
			ereport(ERROR,
					errcode(zkl_report_count(ERRCODE_OUT_OF_MEMORY)),
					errmsg("out of shared memory"),
					errdetail("The directory of %s needs a dynamic shared memory segment.", shown),
					errhint("More details may be available in the server log."));
			break;
		case ZKL_COMMAND_OK:
		case ZKL_COMMAND_ABSENT:
			break;
	}
	elog(ERROR, "unrecognized outcome: %d", (int) outcome);
}
