/*-------------------------------------------------------------------------
 *
 * use.c
 *	  The use of a lock that another session holds (zklock.commit_under).
 *
 * src/backend/lock/use.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/acl.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/lock/reliance.h"
#include "backend/lock/use.h"
#include "backend/report.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "faultpoint.h"
#include "shared/claim.h"

bool		zkl_use_here = false;

/* The use of this transaction, if it has begun. */
static ZklClaim *use = NULL;

/*
 * The value of zklock.commit_under at this serial number.  If the value names
 * no token, "token" is the holder's: it is read when a statement begins and
 * the transaction has not written yet; 0: the lock was not held.  An old token
 * does no harm, because a later hold has another token.
 */
static struct
{
	uint64		serial;
	const char *fault;			/* why a stored value is not valid */
	char		path[ZKL_PATH_SIZE];
	bool		has_token;
	int64		token;
	ZklHoldSearch search;		/* for the path */
	bool		counted;		/* a transaction has counted its use */
	LocalTransactionId checked; /* the transaction that was checked */
}			under;

static Oid	login_role(void);
static void read_setting(void);
static const ZklHoldSearch *search_for(int64 token);
static bool may_depend_on(const ZklHold *hold);
static void check(const ZklHold *hold);
ZKL_NORETURN static void report_not_held(void);
static void end_at_exit(int code, Datum arg);

bool
zkl_use_is_required_here(void)
{
	zkl_use_here = zkl_reliance_is_required_here() && !IsLogicalWorker();
	return zkl_use_here;
}

/* A process without a role counts as a superuser's (zkl_claim_claimant). */
static Oid
login_role(void)
{
	return OidIsValid(MyProc->roleId) ? MyProc->roleId : BOOTSTRAP_SUPERUSERID;
}

static void
read_setting(void)
{
	if (under.serial == zkl_commit_under_serial)
		return;
	memset(&under, 0, sizeof(under));
	under.fault = zkl_settings_read_under(zkl_commit_under, &under.token, under.path);
	under.has_token = under.token != 0;
	under.search.path = under.path;
	under.search.hash = zkl_lock_table_hash(under.path);
	under.checked = InvalidLocalTransactionId;
	under.serial = zkl_commit_under_serial;
}

static const ZklHoldSearch *
search_for(int64 token)
{
	under.search.token = token;
	under.search.margin = ZKL_MS(zkl_commit_margin);
	under.search.superuser = superuser_arg(login_role());
	return &under.search;
}

bool
zkl_use_has_no_token(void)
{
	read_setting();
	return !under.has_token;
}

/*
 * Among several readers' claims, take the first one that will do, in the order
 * of their tokens.  Otherwise a read lock of another role could make the
 * commits of this session fail.  Another token is another hold, which the
 * transaction has yet to check.
 */
void
zkl_use_note_holder(void)
{
	ZklHoldSearch search = *search_for(0);
	ZklHold		hold;
	int64		first = 0;

	for (;;)
	{
		zkl_claim_look_at_hold(&search, &hold);
		if (first == 0)
			first = hold.token;
		if (hold.token == 0 ||
			(hold.status != ZKL_STATUS_LOST && may_depend_on(&hold)))
			break;
		search.after = hold.token;
	}

	/* If no reader will do, the error is about the first one. */
	if (hold.token == 0)
		hold.token = first;
	if (hold.token != under.token)
		under.checked = InvalidLocalTransactionId;
	under.token = hold.token;
}

void
zkl_use_require(void)
{
	ZklHold		hold;

	read_setting();
	if (under.checked == zkl_my_local_xid())
		return;
	if (under.fault != NULL)
		zkl_settings_report_invalid(ERROR, "zklock.commit_under",
									zkl_commit_under, under.fault);
	zkl_display_prepare();		/* for errors, which may come late */
	zkl_permission_check_path(under.path);
	zkl_claim_look_at_hold(search_for(under.token), &hold);
	if (under.token == 0)
		hold.token = 0;
	check(&hold);
	under.checked = zkl_my_local_xid();
}

/*
 * A role that may not use the holder's lock must not keep it by a commit that
 * takes long.  The lock of a superuser's session is a superuser's, whatever
 * role that session has set.
 */
static bool
may_depend_on(const ZklHold *hold)
{
	return has_privs_of_role(login_role(), hold->role) &&
		(!hold->superuser || under.search.superuser);
}

/*
 * A superuser's commit must not depend on a ticket that other roles may take
 * away.
 */
static void
check(const ZklHold *hold)
{
	if (hold->token == 0 && hold->is_semaphore)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("cannot commit under semaphore \"%s\"", zkl_display_path(under.path)),
				errdetail("\"zklock.commit_under\" names it, and no transaction commits under a lease."));
	if (hold->token == 0)
		report_not_held();
	if (!may_depend_on(hold))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied to commit under lock \"%s\"", zkl_display_path(under.path)),
				errdetail("Another role holds it, whose privileges this session's role does not have."));
	if (hold->excludes)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied to commit under lock \"%s\"", zkl_display_path(under.path)),
				errdetail("Its holder is no superuser, so other roles may take the lock away from this one."));
	if (hold->status == ZKL_STATUS_DOUBT)
		zkl_report_doubt(under.path);
	if (hold->status == ZKL_STATUS_LOST)
		zkl_report_loss(ERROR, under.path, hold->loss, hold->lost_at, ZKL_REPORT_HOLDER);
}

static void
report_not_held(void)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_ZKL_LOCK_LOST)),
			errmsg("lock \"%s\" is not held", zkl_display_path(under.path)),
			under.token == 0 ?
			errdetail("\"zklock.commit_under\" names it, and no session of this server held it when the transaction began to write.") :
			!under.has_token ?
			errdetail("\"zklock.commit_under\" names it, and the session that held it when the transaction began to write holds it no longer.") :
			errdetail("\"zklock.commit_under\" names it, and no session of this server holds it with token %lld.",
					  (long long) under.token),
			errhint("Let a session of this server acquire the lock, and retry the transaction under that one."));
	pg_unreachable();
}

/*
 * Everything that may raise an error comes before the use begins.  The
 * callback is for a process that exits without ending its transaction: the
 * place of the use then belongs to the next process.
 *
 * A transaction that begins with its use, such as a CREATE DATABASE, looks at
 * the hold twice, and needs both looks.  Only zkl_use_require() compares the
 * roles, and refuses a setting for which nobody held the lock; and after it,
 * the lock may be lost or released.  So zkl_claim_use_hold() looks again, under
 * the lock of the partition under which it links the claim.
 */
void
zkl_use_begin(void)
{
	static ZklClaimant claimant;
	ZklHold		hold;

	/* If the setting has changed, the use may be of another lock. */
	if (use != NULL)
	{
		read_setting();
		if (use->token == under.token && strcmp(use->entry->path, under.path) == 0)
		{
			(void) zkl_use_check(ZKL_MS(zkl_commit_margin));
			return;
		}
		zkl_use_end();
	}
	zkl_use_require();
	if (claimant.pid == 0)
	{
		on_shmem_exit(end_at_exit, (Datum) 0);
		claimant.proc_number = zkl_my_proc_number();
		claimant.pid = MyProcPid;
	}
	claimant.owner_text = zkl_znode_text_of_backend();
	claimant.superuser = under.search.superuser;
	use = zkl_claim_use_hold(search_for(under.token), &claimant, &hold);
	if (use == NULL)
	{
		check(&hold);
		report_not_held();
	}
	under.counted = true;
	ZKL_FAULT_POINT("use-begun");
}

bool
zkl_use_any(void)
{
	return use != NULL;
}

int64
zkl_use_check(int64 margin)
{
	int64		until = PG_INT64_MAX;
	int64		lost_at;

	if (use == NULL)
		return until;
	switch (zkl_claim_status_until(use, margin, &until))
	{
		case ZKL_STATUS_GOOD:
			break;
		case ZKL_STATUS_DOUBT:
			zkl_report_doubt(use->entry->path);
		case ZKL_STATUS_LOST:
			zkl_report_loss(ERROR, use->entry->path, zkl_claim_status_loss(use, &lost_at),
							lost_at, ZKL_REPORT_HOLDER);
	}
	return until;
}

void
zkl_use_note_reader(void)
{
	ZklHold		hold;

	read_setting();
	if (under.counted || under.token == 0 || under.fault != NULL)
		return;
	zkl_claim_look_at_hold(search_for(under.token), &hold);
	if (hold.token == 0 || !zkl_permission_allows(under.path) || !may_depend_on(&hold))
		return;
	(void) zkl_claim_use_hold(search_for(under.token), NULL, &hold);
	under.counted = true;
}

const char *
zkl_use_find_uncertain(void)
{
	return use != NULL && zkl_claim_status(use, 0) != ZKL_STATUS_GOOD ?
		use->entry->path : NULL;
}

void
zkl_use_end(void)
{
	ZklClaim   *ending = use;

	use = NULL;
	if (ending != NULL)
		zkl_claim_end(ending);
}

static void
end_at_exit(int code, Datum arg)
{
	zkl_use_end();
}
