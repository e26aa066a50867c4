/*-------------------------------------------------------------------------
 *
 * claimfuncs.c
 *	  The functions about detached claims, and the one behind the view zk_claims.
 *
 * A claim's name is the name of the server, the number of this run of the
 * server, and the number of the claim, with slashes between.
 *
 * src/backend/sql/claimfuncs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "backend/display.h"
#include "backend/lock/claimsprocess.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/permission.h"
#include "backend/lock/reliance.h"
#include "backend/lock/xact.h"
#include "backend/report.h"
#include "backend/row.h"
#include "backend/sql/sqlargs.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/detached.h"
#include "shared/process.h"
#include "shared/sessioninfo.h"

PG_FUNCTION_INFO_V1(zklock_claim_request);
PG_FUNCTION_INFO_V1(zklock_claim_wait);
PG_FUNCTION_INFO_V1(zklock_xact_claim_use);
PG_FUNCTION_INFO_V1(zklock_claim_renew);
PG_FUNCTION_INFO_V1(zklock_claim_release);
PG_FUNCTION_INFO_V1(zklock_claims);

/* The claim that is the first argument of a function. */
typedef struct Argument
{
	char	   *name;
	uint64		number;
	ZklDetachedInfo info;
} Argument;

/* A function of 1.0: the functions about claims also demand the privilege for it. */
typedef struct Older
{
	const char *name;
	int			nargs;
} Older;

static const Older acquire = {"zk_lock_acquire", 3};
static const Older xact_acquire = {"zk_xact_lock_acquire", 3};
static const Older release = {"zk_lock_release", 1};

static void check_older(FunctionCallInfo fcinfo, const Older *older);
static uint64 request(const char *path, int64 hold_limit);
static const char *name_of(uint64 number);
static const char *numbers_of(uint32 instance, uint64 number);
static Argument claim_argument(FunctionCallInfo fcinfo, const Older *older);
static void parse_number(Argument *claim);
static void look(Argument *claim);
static bool wait_for(Argument *claim, const ZklLockRequest *request);
static void end_wait(int code, Datum number);
static bool is_granted(const Argument *claim);
static int64 use(Argument *claim);
static void report_bound(void);
ZKL_NORETURN static void report_malformed(const Argument *claim);
ZKL_NORETURN static void report_absent(const Argument *claim, const char *detail);
static void report_ended(const Argument *claim);
static void put_claim(ReturnSetInfo *set, const ZklDetachedInfo *info);

Datum
zklock_claim_request(PG_FUNCTION_ARGS)
{
	const char *path;
	int64		hold_limit;

	zkl_report_unless_usable();
	check_older(fcinfo, &acquire);
	path = zkl_sqlargs_path(fcinfo);
	zkl_permission_check_claim(path);
	hold_limit = zkl_sqlargs_claim_time(fcinfo, 1);
	PG_RETURN_TEXT_P(cstring_to_text(name_of(request(path, hold_limit))));
}

/* If another claims process has started just now, begin again with that one. */
static uint64
request(const char *path, int64 hold_limit)
{
	ZklBeginning beginning;
	uint64		number;

	do
	{
		char		owner_text[ZKL_OWNER_TEXT_SIZE];
		int			owner = zkl_claims_process_find();
		ZklClaimant claimant;

		zkl_znode_text_of_claim(owner, owner_text);
		claimant = zkl_claim_claimant(owner_text, 0);
		claimant.pid = owner;
		CHECK_FOR_INTERRUPTS();
		beginning = zkl_detached_request(path, hold_limit, &claimant, &number);
	} while (beginning == ZKL_BEGIN_OWNERLESS);

	/* Each report raises an error. */
	if (beginning == ZKL_BEGIN_FULL)
		zkl_report_full();
	if (beginning == ZKL_BEGIN_OTHER_KIND)
		zkl_report_other_kind(path);
	if (beginning == ZKL_BEGIN_BOUND)
		report_bound();
	ZKL_FAULT_POINT("claim-requested");
	return number;
}

Datum
zklock_claim_wait(PG_FUNCTION_ARGS)
{
	Argument	claim = claim_argument(fcinfo, &acquire);
	ZklLockRequest request = {0};
	bool		granted;

	zkl_sqlargs_timeout(fcinfo, 1, &request);
	if (!zkl_detached_begin_wait(claim.number))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("another session waits for claim \"%s\"", claim.name));

	PG_ENSURE_ERROR_CLEANUP(end_wait, UInt64GetDatum(claim.number));
	{
		granted = wait_for(&claim, &request);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_wait, UInt64GetDatum(claim.number));
	end_wait(0, UInt64GetDatum(claim.number));
	PG_RETURN_BOOL(granted);
}

Datum
zklock_xact_claim_use(PG_FUNCTION_ARGS)
{
	Argument	claim = claim_argument(fcinfo, &xact_acquire);

	zkl_hold_counts_update();
	if (!is_granted(&claim))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("claim \"%s\" has not been granted yet", claim.name),
				errhint("Call zk_claim_wait() first."));
	PG_RETURN_INT64(use(&claim));
}

Datum
zklock_claim_renew(PG_FUNCTION_ARGS)
{
	Argument	claim = claim_argument(fcinfo, &acquire);
	int64		hold_limit = zkl_sqlargs_claim_time(fcinfo, 1);

	PG_RETURN_BOOL(zkl_detached_renew(claim.number, hold_limit));
}

Datum
zklock_claim_release(PG_FUNCTION_ARGS)
{
	Argument	claim = claim_argument(fcinfo, &release);
	bool		released = zkl_detached_release(claim.number);

	ZKL_FAULT_POINT("claim-released");
	PG_RETURN_BOOL(released);
}

static void
check_older(FunctionCallInfo fcinfo, const Older *older)
{
	static const Oid types[] = {TEXTOID, INTERVALOID, INTERVALOID};

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, older->name,
							   older->nargs, types);
}

/*
 * Names
 */

/* The second part is the server's number, which changes with each start. */
static const char *
name_of(uint64 number)
{
	return psprintf("%s%s", zkl_display_path(zkl_settings_node_name()),
					numbers_of((uint32) zkl_session_info->instance, number));
}

static const char *
numbers_of(uint32 instance, uint64 number)
{
	return psprintf("/%u/" UINT64_FORMAT, instance, number);
}

/*
 * The claim, which exists or has ended.  The role that requested it may do
 * anything with it, in whatever session.
 */
static Argument
claim_argument(FunctionCallInfo fcinfo, const Older *older)
{
	Argument	claim = {0};

	zkl_report_unless_usable();
	check_older(fcinfo, older);
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("claim must not be null"));
	claim.name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	parse_number(&claim);
	look(&claim);
	if (claim.info.slot.number == 0)
		return claim;			/* it ended so long ago that no more is known */
	if (!has_privs_of_role(GetUserId(), claim.info.slot.role))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for claim \"%s\"", claim.name),
				errdetail("Another role has requested it."));
	zkl_permission_check_path(claim.info.slot.path);
	return claim;
}

/*
 * A claim has one name, so a text with the right numbers and another server's
 * name is refused.  A server's name may have slashes.
 */
static void
parse_number(Argument *claim)
{
	const char *at = strrchr(claim->name, '/');
	uint32		of_instance;
	bool		is_mine;

	while (at != NULL && at > claim->name && *--at != '/')
		;
	if (at == NULL ||
		sscanf(at, "/%u/" UINT64_FORMAT, &of_instance, &claim->number) != 2 ||
		strcmp(at, numbers_of(of_instance, claim->number)) != 0)
		report_malformed(claim);
	is_mine = of_instance == (uint32) zkl_session_info->instance;
	if (is_mine && strcmp(claim->name, name_of(claim->number)) != 0)
		report_malformed(claim);
	if (!is_mine)
		report_absent(claim, psprintf("It is a claim of server \"%.*s\", or of this server before its last start.",
									  (int) (at - claim->name), claim->name));
}

static void
look(Argument *claim)
{
	if (!zkl_detached_look(claim->number, &claim->info))
		report_absent(claim, NULL);
}

/*
 * Waiting and using
 */

/* The latch is set when the claim is granted or ends, so each look comes after a reset. */
static bool
wait_for(Argument *claim, const ZklLockRequest *request)
{
	static uint32 wait_event = 0;
	ZklAwaited	awaited = {.path = pstrdup(claim->info.slot.path),.mode = ZKL_MODE_LOCK,
	.owner_text = zkl_znode_text_of_backend(),.detached = claim->number};

	for (;;)
	{
		int64		wake_at = Min(request->until, request->lock_timeout_at);

		look(claim);
		if (is_granted(claim) && !claim->info.in_doubt)
			return true;
		if (zkl_now() >= request->until)
			return false;
		if (zkl_now() >= request->lock_timeout_at)
			zkl_report_lock_timeout(NULL);
		if (claim->info.in_doubt)
			wake_at = Min(wake_at, zkl_now() + ZKL_LOOK_INTERVAL);
		else
			wake_at = Min(wake_at, zkl_deadlock_look(&awaited));
		ZKL_FAULT_POINT("claim-waiting");
		zkl_process_sleep(wake_at, "ZklockClaim", &wait_event);
	}
}

/* Do this however the wait has ended, FATAL included. */
static void
end_wait(int code, Datum number)
{
	zkl_deadlock_end(code, number);
	zkl_detached_end_wait(code, number);
}

/* Raises an error if the claim has ended. */
static bool
is_granted(const Argument *claim)
{
	if (claim->info.claim.state == ZKL_CLAIM_LOST)
		report_ended(claim);
	return claim->info.claim.state == ZKL_CLAIM_HELD;
}

/*
 * From here on the lock is this transaction's as well, whatever becomes of the
 * claim.  What may fail comes before there is a claim of this backend.
 */
static int64
use(Argument *claim)
{
	const char *path = claim->info.slot.path;
	ZklLockRequest request = {.path = path,.mode = ZKL_MODE_LOCK,.scope = ZKL_SCOPE_XACT};
	ZklLocalClaim *local = zkl_local_claim_find(path);

	if (local != NULL && zkl_claim_status(local->shared, 0) == ZKL_STATUS_LOST)
		zkl_local_claim_report_lost(ERROR, local);
	if (claim->info.in_doubt)
		zkl_report_doubt(path);
	if (local != NULL && local->shared->token != claim->info.claim.token)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("this session has acquired lock \"%s\" itself",
					   zkl_display_path(path)));
	if (local == NULL)
	{
		zkl_hold_counts_check_room(1);
		local = zkl_local_claim_use(&request, claim->number);
	}
	if (local == NULL)
	{
		look(claim);
		(void) is_granted(claim);	/* an error if it has ended meanwhile */
		zkl_report_full();
	}
	zkl_hold_counts_add(local, &request);
	zkl_xact_note_lease_time();
	zkl_reliance_note_use(path);
	ZKL_FAULT_POINT("claim-used");
	return local->shared->token;
}

/*
 * Errors
 */

static void
report_bound(void)
{
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)),
			errmsg("too many claims for one role"),
			errdetail("A role may have as many claims and lingering tickets on this server as it leaves free for others."),
			errhint("Release some of them, give them shorter paths, or raise \"%s\".",
					zkl_lock_table_limiting_setting()));
}

static void
report_malformed(const Argument *claim)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			errmsg("invalid name of a claim: \"%s\"", claim->name),
			errhint("Use the name that zk_claim_request() has returned."));
}

/* "detail" says where the claim may be instead; NULL: it does not exist. */
static void
report_absent(const Argument *claim, const char *detail)
{
	ereport(ERROR,
			errcode(ERRCODE_UNDEFINED_OBJECT),
			detail == NULL ? errmsg("claim \"%s\" does not exist", claim->name) :
			errmsg("there is no claim \"%s\" on this server", claim->name),
			detail == NULL ? 0 : errdetail_internal("%s", detail),
			detail == NULL ? 0 :
			errhint("Call the function on the server that has requested the claim."));
}

static void
report_ended(const Argument *claim)
{
	const ZklDetached *info = &claim->info.slot;

	if (info->failure != ZKL_FAILURE_NONE)
		zkl_report_failure(info->path, info->failure);
	if (info->loss != ZKL_LOSS_NONE)
		zkl_report_loss(ERROR, info->path, info->loss, info->lost_at,
						ZKL_REPORT_CLAIM);
	ereport(ERROR,
			errcode(zkl_report_count(ERRCODE_ZKL_LOCK_LOST)),
			errmsg("claim \"%s\" has ended", claim->name),
			errhint("Request another claim."));
}

/*
 * The view
 */

Datum
zklock_claims(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklDetachedInfo info;
	int			place = 0;

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_locks", 0, NULL);
	while (zkl_detached_next(&place, &info))
	{
		CHECK_FOR_INTERRUPTS();
		if (zkl_permission_shows(info.slot.path))
			put_claim(set, &info);
	}
	return (Datum) 0;
}

/* As in zk_locks, the details are null unless this user may see them. */
static void
put_claim(ReturnSetInfo *set, const ZklDetachedInfo *info)
{
	ZklRow		row = {0};
	const PGPROC *waiter = info->slot.waiter;
	bool		waits = info->claim.state == ZKL_CLAIM_WAITING;
	bool		may_see = zkl_permission_may_see(info->slot.role);

	zkl_row_add_text(&row, name_of(info->slot.number));
	zkl_row_add_text(&row, zkl_display_path(info->slot.path));
	zkl_row_add_text(&row, waits ? "waiting" : info->in_doubt ? "in doubt" : "held");
	(void) zkl_znode_text_add(&row, info->claim.owner_text);
	zkl_row_add_moment_if(&row, may_see, info->claim.since);
	zkl_row_add_moment_if(&row, may_see && !(waits && waiter != NULL),
						  waits ? info->slot.asked_until : info->claim.hold_until);
	zkl_row_add_if(&row, may_see && !waits, Int64GetDatum(info->claim.token));
	zkl_row_add_if(&row, may_see && waiter != NULL, Int32GetDatum(waiter ? waiter->pid : 0));
	zkl_row_put(set, &row);
}
