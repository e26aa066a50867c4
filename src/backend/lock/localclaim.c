/*-------------------------------------------------------------------------
 *
 * localclaim.c
 *	  One backend's claims: the locks that it holds or wants.
 *
 * src/backend/lock/localclaim.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "backend/display.h"
#include "backend/lock/localclaim.h"
#include "backend/report.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/detached.h"

#define MAX_RELEASE_WAIT_MS	5000
#define RELEASE_POLL_MS		1

static uint32 release_wait_event = 0;

/* Of all waits for releases of a transaction, or of a call; 0: none began. */
static int64 release_deadline = 0;

/*
 * SIGINT cancels the statement of any backend.  If SIGUSR2 is free,
 * zkl_on_lost_listen() takes it instead, because its handler can do what
 * zklock.on_lost says.
 */
void		(*zkl_local_claim_begin_hook) (void) = NULL;
int			zkl_local_claim_loss_signal = SIGINT;

static ZklClaim *second_claim = NULL;

static const char *way_out(const ZklLocalClaim *claim);
static ZklClaim *begin_shared(const ZklLockRequest *request);
static ZklClaimant describe_claimant(void);
static ZklLocalClaim *prepare(const ZklLockRequest *request);
static void add(ZklLocalClaim *claim, const ZklLockRequest *request);
static void set_up(void);
static void end_all(int code, Datum arg);
static void end_one(ZklLocalClaim *claim, void *arg);
static void forget(ZklLocalClaim *claim);
static void wait_until_released(const char *path);
static void unlock_if_lost(ZklLocalClaim *claim, void *arg);

ZklPartName
zkl_local_claim_part(ZklMode mode)
{
	return mode == ZKL_MODE_READ || mode == ZKL_MODE_LEASE ?
		ZKL_SHARED : ZKL_EXCLUSIVE;
}

/*
 * ShareLock does not conflict with itself, so readers and holders of leases
 * share the local lock.  ExclusiveLock conflicts with both.
 */
LOCKMODE
zkl_local_claim_lock_mode(ZklPartName part)
{
	return part == ZKL_SHARED ? ShareLock : ExclusiveLock;
}

int
zkl_local_claim_session_count(const ZklLocalClaim *claim)
{
	return claim->parts[ZKL_EXCLUSIVE].session_count +
		claim->parts[ZKL_SHARED].session_count;
}

int
zkl_local_claim_count(const ZklLocalClaim *claim, ZklPartName part)
{
	return claim->parts[part].session_count + claim->parts[part].xact_count;
}

const char *
zkl_local_claim_release_function(const ZklLocalClaim *claim)
{
	bool		exclusive = claim->parts[ZKL_EXCLUSIVE].session_count > 0;

	if (zkl_local_claim_session_count(claim) == 0)
		return NULL;
	switch (claim->kind)
	{
		case ZKL_KIND_MUTEX:
			break;
		case ZKL_KIND_READ_WRITE:
			return exclusive ? "zk_write_lock_release" :
				"zk_read_lock_release";
		case ZKL_KIND_SEMAPHORE:
			return "zk_semaphore_release";
	}
	return "zk_lock_release";
}

/*
 * A session-level claim stays lost until the user releases it, so the report
 * names the function that does.
 */
static const char *
way_out(const ZklLocalClaim *claim)
{
	return claim->shared->is_use ? ZKL_REPORT_CLAIM :
		zkl_local_claim_release_function(claim);
}

void
zkl_local_claim_report_lost(int level, const ZklLocalClaim *claim)
{
	int64		lost_at;
	ZklLoss		loss = zkl_claim_status_loss(claim->shared, &lost_at);

	zkl_report_loss(level, claim->path, loss, lost_at, way_out(claim));
}

void
zkl_local_claim_report_lost_instead(ErrorData *error, const ZklLocalClaim *claim)
{
	int64		lost_at;
	ZklLoss		loss = zkl_claim_status_loss(claim->shared, &lost_at);

	zkl_report_loss_instead(error, claim->path, loss, lost_at, way_out(claim));
}

ZklLocalClaim *
zkl_local_claim_begin(const ZklLockRequest *request)
{
	ZklLocalClaim *claim = prepare(request);

	/*
	 * What may serve an interrupt comes first: FATAL runs end_all(), which
	 * must not find a claim in the table that has no shared one yet.
	 */
	claim->shared = begin_shared(request);
	add(claim, request);
	return claim;
}

ZklLocalClaim *
zkl_local_claim_begin_held(const ZklLockRequest *request)
{
	ZklLocalClaim *claim = prepare(request);
	ZklPartName name = zkl_local_claim_part(request->mode);
	LOCKMODE	mode = zkl_local_claim_lock_mode(name);
	ZklClaimant claimant;

	/*
	 * Where backends queue, this try would come on top of the one that they
	 * make before they wait.  That one tells when they do not queue any more.
	 */
	if (claim->crowded)
		return NULL;
	claim->crowded = true;

	/*
	 * What may raise an error comes before the local lock, which would stay
	 * otherwise.
	 */
	claimant = describe_claimant();
	if (!zkl_local_lock_try(&claim->tag, mode, request->scope))
		return NULL;
	ZKL_FAULT_POINT("local-lock-tried");
	claim->shared = zkl_claim_begin_held(claim->path, claim->hash,
										 request->mode,
										 claim->generation, &claimant);
	if (claim->shared == NULL)
	{
		zkl_local_lock_release(&claim->tag, mode, request->scope);
		return NULL;
	}
	add(claim, request);
	claim->crowded = false;
	claim->parts[name].locked = true;
	claim->parts[name].lock_scope = request->scope;
	return claim;
}

ZklLocalClaim *
zkl_local_claim_use(const ZklLockRequest *request, uint64 number)
{
	ZklLocalClaim *claim = prepare(request);
	ZklClaimant claimant = describe_claimant();

	claim->shared = zkl_detached_use(number, &claimant);
	if (claim->shared == NULL)
		return NULL;
	add(claim, request);
	return claim;
}

/*
 * What may fail comes before there is a shared claim, because only the claims in
 * the table lead to those.
 */
static ZklLocalClaim *
prepare(const ZklLockRequest *request)
{
	set_up();

	/*
	 * The commit guard is registered before the claim exists, so no commit
	 * misses the claim.
	 */
	zkl_local_claim_begin_hook();
	return zkl_claim_table_prepare(request->path);
}

/*
 * The shared claim has begun.  Nothing here fails or serves an interrupt, so
 * end_all() never sees a claim that is filled in by half.
 */
static void
add(ZklLocalClaim *claim, const ZklLockRequest *request)
{
	claim->kind = zkl_recipe_kind(request->mode);
	claim->limit = request->limit;
	claim->run_level = 0;
	claim->run_failed = false;
	claim->told_revoked = false;
	claim->told_lost = false;
	memset(claim->parts, 0, sizeof(claim->parts));
	for (int part = 0; part < ZKL_PARTS; part++)
		claim->parts[part].xact_record = -1;
	zkl_claim_table_add(claim);
}

bool
zkl_local_claim_begin_for(const ZklLockRequest *request, ZklClaimUse use, void *arg)
{
	ZklLocalClaim *claim = zkl_local_claim_begin(request);
	volatile bool counted = false;

	PG_TRY();
	{
		counted = use(claim, request, arg);
	}
	PG_CATCH();
	{
		zkl_local_claim_end(claim);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (!counted)
		zkl_local_claim_end(claim);
	return counted;
}

ZklClaim *
zkl_local_claim_begin_second(const ZklLockRequest *request)
{
	Assert(second_claim == NULL);
	second_claim = begin_shared(request);
	return second_claim;
}

void
zkl_local_claim_end_second(void)
{
	zkl_claim_end(second_claim);
	second_claim = NULL;
}

void
zkl_local_claim_forget_second(void)
{
	second_claim = NULL;
}

static ZklClaimant
describe_claimant(void)
{
	return zkl_claim_claimant(zkl_znode_text_of_backend(),
							  zkl_local_claim_loss_signal);
}

/*
 * Begin a claim in the lock table.  The description of this backend may read
 * catalogs, and so serve an interrupt.  Each report raises an error, so no
 * case falls through.
 */
static ZklClaim *
begin_shared(const ZklLockRequest *request)
{
	ZklClaimant claimant = describe_claimant();
	ZklClaim   *shared;
	int			limit = request->limit;

	switch (zkl_claim_begin(request->path, request->mode, &limit, request->quantity,
							&claimant, &shared))
	{
		case ZKL_BEGUN:
			break;
		case ZKL_BEGIN_FULL:
			zkl_report_full();
		case ZKL_BEGIN_OTHER_KIND:
			zkl_report_other_kind(request->path);
		case ZKL_BEGIN_OTHER_LIMIT:
			zkl_report_other_limit(request->path, limit, request->limit);
		case ZKL_BEGIN_OWNERLESS:
		case ZKL_BEGIN_BOUND:
			break;				/* only of a detached claim */
	}
	return shared;
}

/* For the first claim of this backend. */
static void
set_up(void)
{
	static bool done = false;

	if (done)
		return;

	/*
	 * Allocate the wait event now: a later release runs while a transaction
	 * ends, where nothing may fail.
	 */
	(void) zkl_wait_event("ZklockRelease", &release_wait_event);
	on_shmem_exit(end_all, (Datum) 0);
	done = true;
}

/*
 * The backend ends, however it does.  Its transaction has been rolled back by
 * now, and PostgreSQL has dropped the local locks or is about to.
 */
static void
end_all(int code, Datum arg)
{
	ZKL_FAULT_POINT("exit-begun");
	if (second_claim != NULL)
		zkl_local_claim_end_second();
	zkl_claim_table_visit(end_one, NULL);
	zkl_claim_table_forget();
}

/*
 * The end of the claim ends its run as failed.  Only a release says that a run
 * is done: PostgreSQL ends a backend in the same way when the client's program
 * has failed as when it has succeeded.
 */
static void
end_one(ZklLocalClaim *claim, void *arg)
{
	zkl_claim_end(claim->shared);
	ZKL_FAULT_POINT("exit-between");
}

void
zkl_local_claim_set_generation(ZklLocalClaim *claim, uint32 generation)
{
	claim->generation = generation;
	zkl_local_lock_set_generation(&claim->tag, generation);
}

/*
 * PostgreSQL warns about the release of a lock that is not held.  So if
 * PostgreSQL has released the local lock, or is about to, the caller clears
 * "locked" first.
 */
void
zkl_local_claim_unlock(ZklLocalClaim *claim, ZklPartName name)
{
	ZklPart    *part = &claim->parts[name];

	if (part->locked)
		zkl_local_lock_release(&claim->tag, zkl_local_claim_lock_mode(name),
							   part->lock_scope);
	part->locked = false;
}

/*
 * The end of a claim
 */

/*
 * End the claim first, and then release the local lock.  So the backend that
 * gets the local lock next finds the entry free.
 */
void
zkl_local_claim_end(ZklLocalClaim *claim)
{
	zkl_claim_end(claim->shared);
	forget(claim);
}

void
zkl_local_claim_renew_deadline(void)
{
	release_deadline = 0;
}

void
zkl_local_claim_release(ZklLocalClaim *claim)
{
	ZKL_FAULT_POINT("release-begun");
	zkl_local_claim_end(claim);

	/*
	 * The path stays in the memory of the claim until the next one begins.  A
	 * backend that exits does not wait: no statement of its own follows.
	 */
	if (zkl_synchronous_release && !proc_exit_inprogress)
		wait_until_released(claim->path);
}

/*
 * The shared claim has ended.  Release what is left of the claim in this
 * backend.
 */
static void
forget(ZklLocalClaim *claim)
{
	ZKL_FAULT_POINT("release-marked");
	for (int part = 0; part < ZKL_PARTS; part++)
		zkl_local_claim_unlock(claim, part);
	zkl_claim_table_remove(claim);
}

/*
 * With zklock.synchronous_release, wait until the znode is gone.  This may run
 * while a transaction commits, where no error may be raised and no interrupt
 * served.  So all releases of a transaction, or of a call, share one deadline,
 * and the wait ends as soon as ZooKeeper cannot be reached or an interrupt is
 * pending.  The claim has ended, so nothing sets this backend's latch; the worker
 * needs a millisecond or more.
 */
static void
wait_until_released(const char *path)
{
	ZklSessionInfo *session = &zkl_session_info[zkl_lock_table_session(path)];

	if (release_deadline == 0)
		release_deadline = zkl_now() + ZKL_MS(Min(zkl_connection_timeout,
												  MAX_RELEASE_WAIT_MS));

	while (zkl_claim_status_is_releasing(path) && zkl_now() < release_deadline &&
		   pg_atomic_read_u32(&session->connected) != 0 &&
		   !pg_atomic_read_u32(&zkl_lock_table->shutting_down) &&
		   !ProcDiePending && !QueryCancelPending)
	{
		ZKL_FAULT_POINT("release-waiting");
		if (WaitLatch(NULL, WL_TIMEOUT | WL_POSTMASTER_DEATH, RELEASE_POLL_MS,
					  zkl_wait_event("ZklockRelease", &release_wait_event)) &
			WL_POSTMASTER_DEATH)
			break;
	}
}

/*
 * Visiting
 */

/*
 * No backend must wait behind a claim that was lost.  The claim itself stays
 * until its acquires end, so that their release or the commit guard reports
 * the loss.
 */
static void
unlock_if_lost(ZklLocalClaim *claim, void *arg)
{
	if (zkl_claim_status(claim->shared, 0) != ZKL_STATUS_LOST)
		return;
	for (int part = 0; part < ZKL_PARTS; part++)
	{
		/* pg_advisory_unlock_all() may have done it. */
		if (claim->parts[part].locked &&
			zkl_lock_held_by_me(&claim->tag, zkl_local_claim_lock_mode(part)))
			zkl_local_claim_unlock(claim, part);
		claim->parts[part].locked = false;
	}
}

void
zkl_local_claim_unlock_lost(void)
{
	/*
	 * Without a new loss this reads one atomic, and no claim.  The count is
	 * read before the claims are, so the next call looks again if a loss
	 * comes during the visit.
	 */
	static uint64 seen_losses = 0;
	uint64		losses = pg_atomic_read_u64(&zkl_lock_table->losses);

	if (losses == seen_losses)
		return;
	zkl_claim_table_visit(unlock_if_lost, NULL);
	seen_losses = losses;
}

/*
 * The worker signals a backend only about a claim that counts an acquire
 * (lose_claim in entrystate.c), so only such a claim explains a cancel.
 */
static void
note_if_lost(ZklLocalClaim *claim, void *arg)
{
	if (!claim->told_lost &&
		claim->shared->session_count + claim->shared->xact_count > 0 &&
		zkl_claim_status(claim->shared, 0) == ZKL_STATUS_LOST)
		*(ZklLocalClaim **) arg = claim;
}

ZklLocalClaim *
zkl_local_claim_find_lost(void)
{
	ZklLocalClaim *lost = NULL;

	zkl_claim_table_visit(note_if_lost, &lost);
	return lost;
}

/*
 * A holder sees one NOTICE for each claim, however often other clients
 * request the release.
 */
static void
tell_if_revoked(ZklLocalClaim *claim, void *arg)
{
	if (claim->told_revoked || !zkl_claim_status_is_revoked(claim->shared))
		return;
	claim->told_revoked = true;
	ereport(NOTICE,
			errmsg("release of lock \"%s\" has been requested", zkl_display_path(claim->path)),
			errhint("Release it as soon as possible."));
}

void
zkl_local_claim_tell_revoked(void)
{
	static uint64 seen_revocations = 0;
	uint64		revocations = pg_atomic_read_u64(&zkl_lock_table->revocations);

	if (revocations == seen_revocations)
		return;

	/*
	 * Set before the visit: a revocation that comes during the visit makes
	 * the next call look again.
	 */
	seen_revocations = revocations;
	zkl_claim_table_visit(tell_if_revoked, NULL);
}
