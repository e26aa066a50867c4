/*-------------------------------------------------------------------------
 *
 * localclaim.c
 *	  One backend's claims: the locks that it holds or wants.
 *
 * A backend often releases the lock that it acquired last, and then acquires
 * it again.  So the claim that was added last is found without hashing.  And
 * the memory of the claim that was removed last is used first: if the path is
 * the same, nothing is hashed or copied.
 *
 * Only prepare() allocates memory for a claim.  Adding and removing must
 * not raise an error: when a claim is added, its shared claim already exists,
 * and claims are removed while a transaction ends.
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
#include "utils/memutils.h"

#include "backend/display.h"
#include "backend/lock/localclaim.h"
#include "backend/report.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/detached.h"

#define MAX_RELEASE_WAIT_MS	5000
#define RELEASE_POLL		ZKL_MS(1)	/* at first */

#define FIRST_BUCKETS	16		/* a power of two, like all later numbers */

static MemoryContext context = NULL;	/* for the claims, in use or free */

static dlist_head *buckets = NULL;
static int	nbuckets = 0;
static int	nclaims = 0;

/* The claim that was added last, if it is still in a bucket; else NULL. */
static ZklLocalClaim *latest = NULL;

/* The claim that was removed last is the first in the list. */
static dlist_head free_claims = DLIST_STATIC_INIT(free_claims);

static uint32 release_wait_event = 0;

/*
 * The deadline of all waits for releases in a transaction, or in a call; 0:
 * none has begun.
 */
static int64 release_deadline = 0;

/*
 * SIGINT cancels the statement of any backend.  If SIGUSR2 is free,
 * zkl_on_lost_listen() takes it instead, because its handler can do what
 * zklock.on_lost says.
 */
void		(*zkl_local_claim_begin_hook) (void) = NULL;
int			zkl_local_claim_loss_signal = SIGINT;

static dlist_head *bucket_of(uint32 hash);
static const char *way_out(const ZklLocalClaim *claim);
static ZklClaimant describe_claimant(void);
static ZklLocalClaim *prepare(const ZklLockRequest *request);
static void make_room(void);
static void add(ZklLocalClaim *claim);
static void set_up(void);
static void end_all(int code, Datum arg);
static void wait_until_released(const char *path);

ZklLocalClaim *
zkl_local_claim_find(const char *path)
{
	uint32		hash;
	dlist_iter	iter;

	if (nclaims == 0)
		return NULL;
	if (latest != NULL && strcmp(latest->path, path) == 0)
		return latest;
	hash = zkl_lock_table_hash(path);
	dlist_foreach(iter, bucket_of(hash))
	{
		ZklLocalClaim *claim = dlist_container(ZklLocalClaim, table_link,
											   iter.cur);

		if (claim->hash == hash && strcmp(claim->path, path) == 0)
			return claim;
	}
	return NULL;
}

static dlist_head *
bucket_of(uint32 hash)
{
	return &buckets[hash & (nbuckets - 1)];
}

bool
zkl_local_claim_is_repeated(const ZklLocalClaim *claim, const ZklLockRequest *request)
{
	return claim->call.execution != 0 &&
		claim->call.execution == request->call.execution &&
		claim->call.expression == request->call.expression &&
		claim->call.function != request->call.function;
}

ZklLocalClaim *
zkl_local_claim_next(ZklLocalClaim *claim)
{
	dlist_head *bucket = buckets;

	if (claim != NULL)
	{
		bucket = bucket_of(claim->hash);
		if (dlist_has_next(bucket, &claim->table_link))
			return dlist_container(ZklLocalClaim, table_link,
								   dlist_next_node(bucket, &claim->table_link));
		bucket++;
	}
	for (; bucket < buckets + nbuckets; bucket++)
	{
		if (!dlist_is_empty(bucket))
			return dlist_head_element(ZklLocalClaim, table_link, bucket);
	}
	return NULL;
}

int
zkl_local_claim_number(void)
{
	return nclaims;
}

ZklPartName
zkl_local_claim_part(ZklMode mode)
{
	return mode == ZKL_MODE_READ || mode == ZKL_MODE_LEASE ?
		ZKL_SHARED : ZKL_EXCLUSIVE;
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
	claim->shared = zkl_local_claim_begin_second(request);
	add(claim);
	return claim;
}

ZklLocalClaim *
zkl_local_claim_begin_held(const ZklLockRequest *request)
{
	ZklLocalClaim *claim = prepare(request);
	ZklPartName part = zkl_local_claim_part(request->mode);
	ZklClaimant claimant;

	/*
	 * Where backends queue, skip this try: each backend makes another one
	 * before it waits, and that one tells when the queue has ended.
	 */
	if (claim->crowded)
		return NULL;
	claim->crowded = true;

	/*
	 * What may raise an error comes before the advisory lock, which would
	 * stay otherwise.
	 */
	claimant = describe_claimant();
	if (!zkl_local_claim_lock(claim, part, request->scope))
		return NULL;
	ZKL_FAULT_POINT("advisory-lock-tried");
	claim->shared = zkl_claim_begin_held(claim->path, claim->hash,
										 request->mode,
										 claim->generation, &claimant);
	if (claim->shared == NULL)
	{
		zkl_local_claim_unlock(claim, part);
		return NULL;
	}
	add(claim);
	claim->crowded = false;
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
	add(claim);
	return claim;
}

/*
 * What may fail comes before there is a shared claim, because only the claims
 * in the buckets lead to shared claims.
 *
 * Finds memory for a claim on the path, and fills it in.  If the memory was
 * last used for the same path, the tag, its generation and "crowded" are as
 * they were.  The claim stays in the list of free ones until it is added, so
 * it is not lost if the caller fails.
 */
static ZklLocalClaim *
prepare(const ZklLockRequest *request)
{
	ZklLocalClaim *claim;
	uint64		shown;

	set_up();

	/*
	 * The commit guard is registered before the claim exists, so no commit
	 * misses the claim.
	 */
	zkl_local_claim_begin_hook();
	if (nclaims >= nbuckets)
		make_room();
	if (dlist_is_empty(&free_claims))
	{
		claim = MemoryContextAllocZero(context, sizeof(ZklLocalClaim));
		dlist_push_head(&free_claims, &claim->table_link);
	}
	claim = dlist_head_element(ZklLocalClaim, table_link, &free_claims);

	/* No path is empty, so a claim that was never used does not match. */
	if (strcmp(claim->path, request->path) != 0)
	{
		strlcpy(claim->path, request->path, sizeof(claim->path));
		claim->hash = zkl_lock_table_both_hashes(request->path, &shown);
		zkl_advisory_lock_tag(&claim->tag, shown);
		claim->generation = 0;
		claim->crowded = false;
	}
	claim->kind = zkl_recipe_kind(request->mode);
	claim->limit = request->limit;
	claim->run_level = 0;
	claim->run_failed = false;
	claim->told_revoked = false;
	claim->told_lost = false;
	memset(claim->parts, 0, sizeof(claim->parts));
	for (int part = 0; part < ZKL_PARTS; part++)
		claim->parts[part].xact_record = -1;
	return claim;
}

/* Double the buckets, so that each has at most one claim on average. */
static void
make_room(void)
{
	int			nold = nbuckets;
	dlist_head *old = buckets;
	int			nnew = Max(2 * nold, FIRST_BUCKETS);
	dlist_head *new = MemoryContextAllocHuge(TopMemoryContext,
											 nnew * sizeof(dlist_head));

	for (int i = 0; i < nnew; i++)
		dlist_init(&new[i]);
	buckets = new;
	nbuckets = nnew;
	for (int i = 0; i < nold; i++)
	{
		while (!dlist_is_empty(&old[i]))
		{
			dlist_node *node = dlist_pop_head_node(&old[i]);
			ZklLocalClaim *claim = dlist_container(ZklLocalClaim, table_link,
												   node);

			dlist_push_tail(bucket_of(claim->hash), node);
		}
	}
	if (old != NULL)
		pfree(old);
}

/*
 * The shared claim has begun.  Nothing here fails or serves an interrupt, so
 * end_all() never sees a claim that is filled in by half.
 */
static void
add(ZklLocalClaim *claim)
{
	dlist_delete(&claim->table_link);
	dlist_push_tail(bucket_of(claim->hash), &claim->table_link);
	nclaims++;
	latest = claim;
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
ZklClaim *
zkl_local_claim_begin_second(const ZklLockRequest *request)
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
			break;				/* only for a detached claim */
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
	context = SlabContextCreate(TopMemoryContext, "zklock claims",
								SLAB_DEFAULT_BLOCK_SIZE, sizeof(ZklLocalClaim));
	on_shmem_exit(end_all, (Datum) 0);
	done = true;
}

/*
 * The backend exits.  Its transaction has been rolled back by now, and
 * PostgreSQL has dropped the advisory locks or is about to.
 *
 * The end of a claim ends its run as failed.  Only a release says that a run
 * is done: PostgreSQL ends a backend in the same way when the client's program
 * has failed as when it has succeeded.
 */
static void
end_all(int code, Datum arg)
{
	ZKL_FAULT_POINT("exit-begun");
	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
	{
		zkl_claim_end(claim->shared);
		ZKL_FAULT_POINT("exit-between");
	}
	nclaims = nbuckets = 0;
	latest = NULL;
}

void
zkl_local_claim_set_generation(ZklLocalClaim *claim, uint32 generation)
{
	claim->generation = generation;
	zkl_advisory_lock_set_generation(&claim->tag, generation);
}

/*
 * ShareLock does not conflict with itself, so readers and holders of leases
 * share the advisory lock.  ExclusiveLock conflicts with both.
 */
static LOCKMODE
lock_mode(ZklPartName part)
{
	return part == ZKL_SHARED ? ShareLock : ExclusiveLock;
}

/*
 * A part of a claim that is held may have no advisory lock for two reasons.
 * Either the part belongs to a semaphore, whose backends all share the lock.
 * Or pg_advisory_unlock_all() has released the lock; then another backend may
 * have it by now, and waits until this backend's claim ends.
 */
bool
zkl_local_claim_lock(ZklLocalClaim *claim, ZklPartName name, ZklScope scope)
{
	ZklPart    *part = &claim->parts[name];
	LOCKMODE	mode = lock_mode(name);

	if (part->locked)
		zkl_advisory_lock_move(&claim->tag, mode, part->lock_scope, scope);
	else
	{
		/*
		 * A backend that holds ExclusiveLock never waits, even if other
		 * backends wait for the lock: PostgreSQL grants it to a holder before
		 * the waiters that the holder blocks.  And another backend may have a
		 * semaphore's ExclusiveLock for a moment, because it takes the
		 * semaphore for a mutex, until it notices its mistake.
		 */
		bool		may_wait = claim->kind == ZKL_KIND_SEMAPHORE ||
		(name == ZKL_SHARED && claim->parts[ZKL_EXCLUSIVE].locked);

		part->locked = zkl_advisory_lock_acquire(&claim->tag, mode, scope, !may_wait);
	}
	part->lock_scope = scope;
	return part->locked;
}

ZklAdvisoryWait
zkl_local_claim_wait_for_lock(ZklLocalClaim *claim, ZklPartName name, ZklScope scope,
							  int64 until)
{
	ZklPart    *part = &claim->parts[name];
	ZklAdvisoryWait result = zkl_advisory_lock_wait(claim->shared, &claim->tag,
													lock_mode(name), scope, until);

	part->locked = result == ZKL_ADVISORY_LOCKED;
	part->lock_scope = scope;
	return result;
}

bool
zkl_local_claim_has_lock(const ZklLocalClaim *claim, ZklPartName part)
{
	return zkl_lock_held_by_me(&claim->tag, lock_mode(part));
}

/*
 * PostgreSQL warns about the release of a lock that is not held.  So if
 * PostgreSQL has released the advisory lock, or is about to, the caller clears
 * "locked" first.
 */
void
zkl_local_claim_unlock(ZklLocalClaim *claim, ZklPartName name)
{
	ZklPart    *part = &claim->parts[name];

	if (part->locked)
		zkl_advisory_lock_release(&claim->tag, lock_mode(name), part->lock_scope);
	part->locked = false;
}

/*
 * The end of a claim
 */

/*
 * End the claim first, and then release the advisory lock.  So the backend that
 * gets the advisory lock next finds the entry free.
 */
void
zkl_local_claim_end(ZklLocalClaim *claim)
{
	zkl_claim_end(claim->shared);
	ZKL_FAULT_POINT("release-marked");
	for (int part = 0; part < ZKL_PARTS; part++)
		zkl_local_claim_unlock(claim, part);
	dlist_delete(&claim->table_link);
	dlist_push_head(&free_claims, &claim->table_link);
	nclaims--;
	if (latest == claim)
		latest = NULL;
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
 * With zklock.synchronous_release, wait until the znode is gone.  This may run
 * while a transaction commits, where no error may be raised and no interrupt
 * served.  So all releases of a transaction, or of a call, share one deadline,
 * and the wait ends as soon as ZooKeeper cannot be reached or an interrupt is
 * pending.  The claim has ended, so nothing sets this backend's latch; the
 * worker needs a millisecond or more.  If it needs much longer, look less
 * often.
 */
static void
wait_until_released(const char *path)
{
	int64		poll = RELEASE_POLL;

	if (release_deadline == 0)
		release_deadline = zkl_now() + ZKL_MS(Min(zkl_connection_timeout,
												  MAX_RELEASE_WAIT_MS));

	while (zkl_claim_status_is_releasing(path) && zkl_now() < release_deadline &&
		   pg_atomic_read_u32(&zkl_session_info->connected) != 0 &&
		   !pg_atomic_read_u32(&zkl_lock_table->shutting_down) &&
		   !ProcDiePending && !QueryCancelPending)
	{
		ZKL_FAULT_POINT("release-waiting");
		if (WaitLatch(NULL, WL_TIMEOUT | WL_POSTMASTER_DEATH, poll / ZKL_MS(1),
					  zkl_wait_event("ZklockRelease", &release_wait_event)) &
			WL_POSTMASTER_DEATH)
			break;
		poll = Min(2 * poll, ZKL_LOOK_INTERVAL);
	}
}

/*
 * All claims
 */

/*
 * No backend must wait behind a claim that was lost.  The claim itself stays
 * until its acquires end, so that their release or the commit guard reports
 * the loss.
 */
static void
unlock_if_lost(ZklLocalClaim *claim)
{
	if (zkl_claim_status(claim->shared, 0) != ZKL_STATUS_LOST)
		return;
	for (int part = 0; part < ZKL_PARTS; part++)
	{
		/* pg_advisory_unlock_all() may have released the lock already. */
		if (claim->parts[part].locked && zkl_local_claim_has_lock(claim, part))
			zkl_local_claim_unlock(claim, part);
		claim->parts[part].locked = false;
	}
}

void
zkl_local_claim_unlock_lost(void)
{
	/*
	 * Without a new loss, this reads one atomic and no claim.  Read the count
	 * before the claims, so that the next call sees a loss that comes
	 * meanwhile.
	 */
	static uint64 seen_losses = 0;
	uint64		losses = pg_atomic_read_u64(&zkl_lock_table->losses);

	if (losses == seen_losses)
		return;
	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
		unlock_if_lost(claim);
	seen_losses = losses;
}

/*
 * The worker signals a backend only about a claim that counts an acquire
 * (lose_claim in entrystate.c), so only such a claim explains a cancel.
 */
ZklLocalClaim *
zkl_local_claim_find_lost(void)
{
	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
	{
		if (!claim->told_lost &&
			claim->shared->session_count + claim->shared->xact_count > 0 &&
			zkl_claim_status(claim->shared, 0) == ZKL_STATUS_LOST)
			return claim;
	}
	return NULL;
}

/*
 * A holder sees one NOTICE for each claim, however often other clients
 * request the release.
 */
void
zkl_local_claim_tell_revoked(void)
{
	static uint64 seen_revocations = 0;
	uint64		revocations = pg_atomic_read_u64(&zkl_lock_table->revocations);

	if (revocations == seen_revocations)
		return;

	/*
	 * Set this before the claims are read: a revocation that comes meanwhile
	 * makes the next call look again.
	 */
	seen_revocations = revocations;
	for (ZklLocalClaim *claim = zkl_local_claim_next(NULL); claim != NULL;
		 claim = zkl_local_claim_next(claim))
	{
		if (claim->told_revoked || !zkl_claim_status_is_revoked(claim->shared))
			continue;
		claim->told_revoked = true;
		ereport(NOTICE,
				errmsg("release of lock \"%s\" has been requested", zkl_display_path(claim->path)),
				errhint("Release it as soon as possible."));
	}
}
