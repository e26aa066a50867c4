/*-------------------------------------------------------------------------
 *
 * semaphore.c
 *	  How a backend gets leases of a semaphore.
 *
 * If this server has enough leases and no backend of it waits, a backend takes
 * them at once.  Otherwise it queues for the semaphore's inner mutex, a lock
 * like others below the semaphore's path, and holds it until all its leases
 * are there.  So leases are granted in order, and no two clients wait for each
 * other with some leases in hand.
 *
 * How many leases there are, the call says, or a limit that is stored in
 * ZooKeeper, in a znode beside the directories of the semaphore's leases, as
 * Curator's SharedCount writes it.  A backend reads and writes the limit here;
 * the worker reads it before each list that grants leases (ticketfeed.c).  The
 * limit may change at any time.  If a new limit does not suit a claim, the
 * claim's backend begins anew.
 *
 * A try needs no place in that queue.  It requests its leases at once, and
 * withdraws the request if there is no room; leases.c says why that is safe.
 *
 * src/backend/lock/semaphore.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/builtins.h"

#include "backend/display.h"
#include "backend/lock/acquire.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/permission.h"
#include "backend/lock/semaphore.h"
#include "backend/lock/wait.h"
#include "backend/report.h"
#include "backend/znodes.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"

/* There must be room for what zklock adds to a semaphore's path. */
#define PATH_MAX_LENGTH	(ZKL_PATH_SIZE - 24)

/* The pause between a query to a server and the first look for its answer. */
#define FIRST_PAUSE		ZKL_MS(1)

/* How many bytes of an invalid limit an error message shows. */
#define SHOWN_BYTES		16

/*
 * The greatest number of leases in one call: more would only keep other
 * backends waiting.
 */
#define MAX_QUANTITY	1000

static void check_request(const ZklLocalClaim *claim, const ZklLockRequest *request);
static bool acquire_first(ZklLocalClaim *claim, const ZklLockRequest *request,
						  void *arg);
static bool acquire_more(ZklLocalClaim *claim, const ZklLockRequest *request);
static void end_second(int code, Datum arg);
static void add_leases(ZklLocalClaim *claim, ZklClaim *second,
					   const ZklLockRequest *request);
static bool acquire_leases(ZklClaim *claim, const ZklLockRequest *request);
static bool begin_anew(ZklClaim *claim, const ZklLockRequest *request);
static ZklAnswer acquire_by_trying(ZklClaim *claim, const ZklLockRequest *request);
static ZklAnswer acquire_in_turn(ZklClaim *claim, const ZklLockRequest *request);
static bool survey_before(const ZklWait *wait);
static bool survey_after(ZklClaim *claim, const ZklLockRequest *request);
static bool survey_in_time(ZklClaim *claim, const ZklLockRequest *request);
static ZklPatience patience_of(const ZklLockRequest *request);
static int64 survey_until(const ZklLockRequest *request);
static ZklAnswer survey(ZklWait *wait);
static bool any_other_use(const ZklListing *survey, const ZklLockRequest *request);
static bool is_other_limit(const ZklListing *survey, const ZklLockRequest *request);
static bool is_other_use(const ZklListingNode *node, bool other_limit);
static bool query_others(const ZklListing *survey, const ZklWait *wait, int64 until);
static void report_other_use(const ZklListing *survey, const ZklLockRequest *request,
							 bool is_lease);
static void check_path(const char *path);
static bool check_limit(const ZklListing *survey, const ZklLockRequest *request);
static const ZklListingNode *find_limit(const ZklListing *survey);
static int	read_limit(const char *path, const ZklListingNode *node);
static void report_spoilt_limit(const char *path, const ZklListingNode *node);

bool
zkl_semaphore_acquire(const ZklLockRequest *request)
{
	ZklLocalClaim *claim = zkl_hold_counts_update_to_acquire(request);

	if (claim != NULL && zkl_local_claim_is_repeated(claim, request))
		return true;
	check_request(claim, request);
	zkl_hold_counts_check_room(request->quantity);
	return claim == NULL ? zkl_local_claim_begin_for(request, acquire_first, NULL) :
		acquire_more(claim, request);
}

static void
check_request(const ZklLocalClaim *claim, const ZklLockRequest *request)
{
	/*
	 * A stored limit may be raised during the wait, so no number of leases is
	 * too great for it.
	 */
	if (request->limit != 0 && request->quantity > request->limit)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("cannot acquire %d leases of a semaphore with %d",
					   request->quantity, request->limit));
	if (request->quantity > MAX_QUANTITY)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("too many leases: %d", request->quantity),
				errdetail("At most %d can be acquired together.", MAX_QUANTITY));
	check_path(request->path);
	if (claim == NULL || request->limit == 0)
		return;

	if (claim->limit != 0 && claim->limit != request->limit)
		zkl_report_other_limit(request->path, claim->limit, request->limit);

	/*
	 * With a timeout the wait ends by itself.  Without one, no other session
	 * could ever end it: the missing leases are this session's own.
	 */
	if (request->until == ZKL_FOREVER &&
		zkl_local_claim_count(claim, ZKL_SHARED) + request->quantity > request->limit)
		ereport(ERROR,
				errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				errmsg("deadlock detected"),
				errdetail("This session holds %d of the %d leases of semaphore \"%s\", and would wait for itself.",
						  zkl_local_claim_count(claim, ZKL_SHARED), request->limit,
						  zkl_display_path(request->path)));
}

/*
 * The first leases of this backend.  It waits for no advisory lock, because
 * claims on leases do not exclude each other.
 */
static bool
acquire_first(ZklLocalClaim *claim, const ZklLockRequest *request, void *arg)
{
	if (!acquire_leases(claim->shared, request))
		return false;

	/*
	 * The worker may have changed the generation during the wait, so the tag
	 * gets it now.  Then zkl_hold_counts_add() acquires the advisory lock.
	 */
	zkl_local_claim_set_generation(claim, claim->shared->generation);
	zkl_hold_counts_add(claim, request);
	return true;
}

/*
 * A second claim waits.  It is merged with the first when it has all its
 * leases.
 */
static bool
acquire_more(ZklLocalClaim *claim, const ZklLockRequest *request)
{
	ZklClaim   *second;
	bool		acquired;

	/*
	 * Leases cannot be added to a claim that is lost, so do not wait for
	 * them.
	 */
	if (zkl_claim_status(claim->shared, 0) == ZKL_STATUS_LOST)
		zkl_local_claim_report_lost(ERROR, claim);

	second = zkl_local_claim_begin_second(request);
	PG_ENSURE_ERROR_CLEANUP(end_second, PointerGetDatum(second));
	{
		acquired = acquire_leases(second, request);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_second, PointerGetDatum(second));

	if (acquired)
		add_leases(claim, second, request);
	else
		zkl_claim_end(second);
	return acquired;
}

static void
end_second(int code, Datum arg)
{
	zkl_claim_end((ZklClaim *) DatumGetPointer(arg));
}

static void
add_leases(ZklLocalClaim *claim, ZklClaim *second, const ZklLockRequest *request)
{
	/*
	 * If the merge fails, the first or the second claim was lost; report that
	 * loss.
	 */
	if (!zkl_claim_merge(claim->shared, second))
	{
		int64		lost_at;
		ZklLoss		loss = zkl_claim_status_loss(second, &lost_at);

		zkl_claim_end(second);
		if (zkl_claim_status(claim->shared, 0) == ZKL_STATUS_LOST)
			zkl_local_claim_report_lost(ERROR, claim);
		zkl_report_loss(ERROR, claim->path, loss, lost_at, NULL);
	}
	PG_TRY();
	{
		ZKL_FAULT_POINT("semaphore-merged");
		zkl_hold_counts_add(claim, request);
	}
	PG_CATCH();
	{
		/*
		 * The leases are in the first claim, and not counted.  No release
		 * would give them back before the claim ends.
		 */
		zkl_claim_release_leases(claim->shared, request->quantity);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/*
 * Get the leases for a claim that has begun.  True if it holds them, and the
 * path is no other kind of lock.
 */
static bool
acquire_leases(ZklClaim *claim, const ZklLockRequest *request)
{
	ZklAnswer	answer;

	if (zkl_grant_at_once(claim))
		return true;

	while ((answer = request->only_tries ? acquire_by_trying(claim, request) :
			acquire_in_turn(claim, request)) == ZKL_ANSWER_STALE &&
		   begin_anew(claim, request))
		;
	if (answer != ZKL_ANSWER_HELD || !survey_after(claim, request))
	{
		zkl_lock_stat_failed(claim, ERRCODE_LOCK_NOT_AVAILABLE);
		return false;
	}
	ZKL_FAULT_POINT("semaphore-acquired");
	return true;
}

/*
 * The backend has lost the inner mutex while it waited; or, as far as this
 * server has heard, the stored limit does not suit the claim.  In the second
 * case the survey raises an error, unless the limit has changed again.  Only
 * after the survey, retire the leases that other claims use.  Returns false if
 * the time is over: the claim does not wait while its limit does not suit, so
 * nothing else checks the time.
 */
static bool
begin_anew(ZklClaim *claim, const ZklLockRequest *request)
{
	if (!survey_in_time(claim, request))
		return false;
	zkl_grant_begin_anew(claim);
	return true;
}

/* Request the leases without the inner mutex. */
static ZklAnswer
acquire_by_trying(ZklClaim *claim, const ZklLockRequest *request)
{
	ZklWait		wait;

	zkl_wait_begin(&wait, request, claim);
	if (!survey_before(&wait))
		return ZKL_ANSWER_QUEUED;
	return zkl_wait_for_ticket(&wait, NULL);
}

/* Wait for the inner mutex, and with it for the leases. */
static ZklAnswer
acquire_in_turn(ZklClaim *claim, const ZklLockRequest *request)
{
	ZklLockRequest inner = *request;
	ZklWait		wait;
	ZklLocalClaim *mutex;
	bool		may_request;
	volatile ZklAnswer answer = ZKL_ANSWER_QUEUED;

	/*
	 * At transaction level, the advisory lock of the inner mutex goes away
	 * with the transaction, whatever fails.
	 */
	inner.path = psprintf("%s/" ZKL_LOCKS, request->path);
	inner.semaphore = request->path;
	inner.mode = ZKL_MODE_LOCK;
	inner.scope = ZKL_SCOPE_XACT;
	zkl_wait_begin(&wait, request, claim);
	zkl_permission_check_claim(inner.path);

	/*
	 * A backend has at most one claim on a path.  If there is one already,
	 * the user has locked the inner mutex by its name.
	 */
	if (zkl_local_claim_find(inner.path) != NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("cannot acquire semaphore \"%s\" while holding lock \"%s\"",
					   zkl_display_path(request->path), zkl_display_path(inner.path)));
	mutex = zkl_local_claim_begin(&inner);
	PG_TRY();
	{
		if (zkl_acquire_claim(mutex, &inner))
		{
			ZKL_FAULT_POINT("semaphore-mutex-held");
			may_request = survey_before(&wait);
			ZKL_FAULT_POINT("semaphore-surveyed");
			if (may_request)
				answer = zkl_wait_for_ticket(&wait, mutex->shared);
			ZKL_FAULT_POINT("semaphore-granted");
		}
	}
	PG_FINALLY();
	{
		zkl_local_claim_end(mutex);
	}
	PG_END_TRY();
	pfree(unconstify(char *, inner.path));
	return answer;
}

/*
 * The first claim of a server on a semaphore looks whether the path is in use
 * as another kind of lock, or with another number of leases.  So it makes no
 * leases that would be in the way of that lock.
 *
 * False if other servers have not given up the znodes of another kind when the
 * time is over.  If ZooKeeper has not replied by then, the wait that follows
 * reports so.
 */
static bool
survey_before(const ZklWait *wait)
{
	ZklWait		own = *wait;

	/*
	 * A znode that this server has just released must not count as another
	 * kind of lock.
	 */
	return own.claim->entry->surveyed || !zkl_wait_until_settled(&own) ||
		survey(&own) != ZKL_ANSWER_QUEUED;
}

/*
 * The claim looks again when it has its leases, because another server may
 * have made the path another kind of lock in between.  Both servers create
 * first and look afterwards.  So at least one of them finds the other's znode
 * and gives up.  From then on, any other client finds a lease of this server,
 * as long as it has one.
 *
 * False if the time is over.
 */
static bool
survey_after(ZklClaim *claim, const ZklLockRequest *request)
{
	if (claim->entry->surveyed)
		return true;
	if (!survey_in_time(claim, request))
		return false;
	zkl_claim_mark_surveyed(claim);
	return true;
}

/*
 * Survey where no other wait follows.  So if the time is over without a reply,
 * and ZooKeeper is silent, raise the error here.
 */
static bool
survey_in_time(ZklClaim *claim, const ZklLockRequest *request)
{
	ZklWait		wait;
	ZklAnswer	answer;

	zkl_wait_begin(&wait, request, claim);
	answer = survey(&wait);
	if (answer == ZKL_ANSWER_NONE)
		zkl_wait_fail_unanswered(&wait);
	return answer == ZKL_ANSWER_HELD;
}

static ZklPatience
patience_of(const ZklLockRequest *request)
{
	return request->only_tries ? ZKL_PATIENCE_TRY : ZKL_PATIENCE_WAIT;
}

/*
 * Until when to wait for a survey.  A try waits for ZooKeeper, whatever its
 * timeout.
 */
static int64
survey_until(const ZklLockRequest *request)
{
	return request->only_tries ? request->lock_timeout_at :
		Min(request->until, request->lock_timeout_at);
}

/*
 * Raise an error if the path is in use as another kind of lock or with another
 * number of leases.  Otherwise write the number of leases into the data of the
 * semaphore's directory, where kazoo looks for it; or nothing, if it is a limit
 * that may change.
 *
 * A znode does not mean use: another server may be about to delete it, or may
 * keep it because the lock comes back.  So query the znodes, and wait until
 * they are gone or say that the lock is in use.  A znode whose server does not
 * answer within two session timeouts counts as use.
 *
 * HELD: the path may be used.  The time is over: QUEUED if other servers'
 * znodes are still there, NONE if ZooKeeper has not replied.
 */
static ZklAnswer
survey(ZklWait *wait)
{
	const ZklLockRequest *request = wait->request;
	int64		until = survey_until(request);
	int64		pause = FIRST_PAUSE;
	ZklListing *seen;
	int			stored;
	int			limit;

	for (;;)
	{
		zkl_wait_drop_snapshot(request);
		seen = zkl_znodes_list(ZKL_COMMAND_LIST, request->path, until,
							   patience_of(request));
		if (seen == NULL)
			return ZKL_ANSWER_NONE;
		if (!any_other_use(seen, request))
			break;
		seen = zkl_znodes_list(ZKL_COMMAND_SURVEY, request->path, until,
							   patience_of(request));
		if (seen == NULL)
			return ZKL_ANSWER_NONE;
		if (!query_others(seen, wait, until))
			break;
		if (!zkl_wait_for_answer(wait, pause))
			return ZKL_ANSWER_QUEUED;
		pause = Min(2 * pause, ZKL_LOOK_INTERVAL);
	}

	/* Other clients' data of the directory must not be overwritten. */
	stored = zkl_listing_limit(seen);
	limit = check_limit(seen, request) ? 0 : request->limit;
	if (seen->exists && stored != limit && (stored != 0 || seen->data_length == 0))
		(void) zkl_znodes_write(request->path, "",
								limit == 0 ? "" : psprintf("%d", limit), until,
								patience_of(request));
	return ZKL_ANSWER_HELD;
}

static bool
any_other_use(const ZklListing *survey, const ZklLockRequest *request)
{
	bool		other_limit = is_other_limit(survey, request);

	for (int i = 0; i < survey->nnodes; i++)
	{
		if (is_other_use(&survey->nodes[i], other_limit))
			return true;
	}
	return false;
}

/*
 * The number of leases matters only while there are leases: before that, any
 * client may set another number.
 */
static bool
is_other_limit(const ZklListing *survey, const ZklLockRequest *request)
{
	int			limit = zkl_listing_limit(survey);

	return limit != 0 && limit != request->limit && !check_limit(survey, request);
}

/*
 * Clients whose znodes are in the directory itself want a mutex or a
 * read-write lock.
 */
static bool
is_other_use(const ZklListingNode *node, bool other_limit)
{
	ZklContender contender;

	return node->where == ZKL_WHERE_LEASES ? other_limit :
		node->where == ZKL_WHERE_LOCK && zkl_recipe_parse(node->name, &contender);
}

/*
 * Query the znodes of another use.  Raises an error if one of them is in use,
 * or if its client does not answer.  This server's own leases are for claims
 * with this number of leases, or about to be deleted.  False if there is no
 * other use.
 */
static bool
query_others(const ZklListing *survey, const ZklWait *wait, int64 until)
{
	const ZklLockRequest *request = wait->request;
	bool		unanswered = zkl_wait_is_unanswered(wait);
	bool		other_limit = is_other_limit(survey, request);
	int64		session = zkl_lock_table_session_id();
	bool		any = false;

	for (int i = 0; i < survey->nnodes; i++)
	{
		const ZklListingNode *node = &survey->nodes[i];
		bool		is_lease = node->where == ZKL_WHERE_LEASES;
		bool		is_own = node->owner == session;
		bool		only_tries;

		if (!is_other_use(node, other_limit) || (is_lease && is_own))
			continue;
		if (is_own || !zkl_recipe_is_zklock(node->name, &only_tries) ||
			node->data == NULL || unanswered ||
			zkl_recipe_has_mark(node->data, node->data_length, ZKL_IN_USE) ||
			!zkl_znodes_query(request->path, is_lease ?
							  psprintf(ZKL_LEASES "/%s", node->name) : node->name,
							  until, patience_of(request)))
			report_other_use(survey, request, is_lease);
		any = true;
	}
	return any;
}

static void
report_other_use(const ZklListing *survey, const ZklLockRequest *request,
				 bool is_lease)
{
	if (is_lease)
		zkl_report_other_limit(request->path, zkl_listing_limit(survey), request->limit);
	zkl_report_other_kind(request->path);
}

/*
 * The limit that is stored in ZooKeeper
 */

int
zkl_semaphore_limit(const char *path)
{
	return read_limit(path, find_limit(zkl_znodes_list(ZKL_COMMAND_LIST, path, ZKL_FOREVER, ZKL_PATIENCE_LOOK)));
}

void
zkl_semaphore_set_limit(const char *path, int limit)
{
	check_path(path);
	zkl_permission_check_claim(path);
	if (limit == ZKL_LIMIT_NONE)
	{
		(void) zkl_znodes_end(ZKL_COMMAND_DELETE, path, ZKL_LIMIT);
		return;
	}
	while (!zkl_znodes_write_limit(path, limit))
		CHECK_FOR_INTERRUPTS();
}

static void
check_path(const char *path)
{
	if (strlen(path) > PATH_MAX_LENGTH)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid lock path: \"%s\"", zkl_display_path(path)),
				errdetail("The path of a semaphore must not be longer than %d bytes.",
						  PATH_MAX_LENGTH));
}

/*
 * Compare the limit of a lock request with the stored limit.  Raises ZK003 if
 * the request names another number.  If it names none, raises 22023 if no
 * limit is stored, and 28000 if the stored limit may not be read.  True:
 * there is a stored limit.  A request that names a number needs no stored
 * limit, so it ignores data that are no limit: the znode may be the directory
 * of another lock.
 */
static bool
check_limit(const ZklListing *survey, const ZklLockRequest *request)
{
	const ZklListingNode *node = find_limit(survey);
	int			limit;

	limit = request->limit == 0 ? read_limit(request->path, node) :
		node != NULL && node->data != NULL ?
		zkl_recipe_read_limit(node->data, node->data_length) : ZKL_LIMIT_NONE;

	if (limit == ZKL_LIMIT_NONE && request->limit == 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("semaphore \"%s\" has no limit", zkl_display_path(request->path)),
				errhint("Store a limit with zk_semaphore_set_limit(), or pass the number of leases."));
	if (limit != ZKL_LIMIT_NONE && request->limit != 0 && limit != request->limit)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_ZKL_OTHER_KIND)),
				errmsg("semaphore \"%s\" has a limit of %d leases, not %d",
					   zkl_display_path(request->path), limit, request->limit),
				errhint("Acquire leases without a number of leases, or change the limit with zk_semaphore_set_limit()."));
	return limit != ZKL_LIMIT_NONE;
}

/* The znode that holds the limit; NULL: there is none. */
static const ZklListingNode *
find_limit(const ZklListing *survey)
{
	for (int i = 0; i < survey->nnodes; i++)
	{
		if (survey->nodes[i].where == ZKL_WHERE_LOCK &&
			strcmp(survey->nodes[i].name, ZKL_LIMIT) == 0)
			return &survey->nodes[i];
	}
	return NULL;
}

/* The limit in a znode; ZKL_LIMIT_NONE if the znode is missing or empty. */
static int
read_limit(const char *path, const ZklListingNode *node)
{
	int			limit;

	if (node == NULL)
		return ZKL_LIMIT_NONE;
	if (node->data == NULL)
		zkl_report_failure(path, ZKL_FAILURE_PERMISSION);
	limit = zkl_recipe_read_limit(node->data, node->data_length);
	if (limit == ZKL_LIMIT_NONE && node->data_length > 0)
		report_spoilt_limit(path, node);
	return limit;
}

static void
report_spoilt_limit(const char *path, const ZklListingNode *node)
{
	int			length = Min(node->data_length, SHOWN_BYTES);
	char	   *shown = palloc0(2 * SHOWN_BYTES + 1);

	hex_encode(node->data, length, shown);
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid limit of semaphore \"%s\"", zkl_display_path(path)),
			errdetail("Its znode holds \"\\x%s\"%s instead of a number of four bytes.",
					  shown, length < node->data_length ? "..." : ""),
			errhint("Store a limit with zk_semaphore_set_limit()."));
}
