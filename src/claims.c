/*-------------------------------------------------------------------------
 *
 * claims.c
 *	  One backend's claims: what it holds or wants, how often, for how long.
 *
 * Acquires with transaction scope are kept as records on a stack, one a claim
 * and nesting level, the deepest level on top.  A savepoint that is rolled
 * back takes its records away; one that is released leaves them to its
 * parent.
 *
 * src/claims.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "claims.h"
#include "compat.h"
#include "report.h"
#include "xact.h"
#include "zklock.h"

#define MAX_RELEASE_WAIT_MS	5000

typedef struct XactRecord
{
	ZklLocalClaim *claim;
	int			nest_level;
	int			count;
	int			previous;		/* the same claim's record below, or -1 */
} XactRecord;

static uint32 release_wait_event = 0;

static HTAB *claims = NULL;
static dlist_head session_claims = DLIST_STATIC_INIT(session_claims);

static XactRecord *records = NULL;
static int	nrecords = 0;
static int	max_records = 0;

static void set_up(void);
static void end_all(int code, Datum arg);
static void count_xact(ZklLocalClaim *claim);
static XactRecord *new_record(void);
static bool book_local_lock(ZklLocalClaim *claim, ZklScope scope);
static void uncount_xact(ZklLocalClaim *claim, int count);
static void end_shared(ZklLocalClaim *claim);
static void drop_session_scope(ZklLocalClaim *claim);
static void unlock_if_lost(ZklLocalClaim *claim, void *arg);
static void unlock_lost_claims(void);

ZklLocalClaim *
zkl_claims_find(const char *path)
{
	if (claims == NULL)
		return NULL;
	return hash_search(claims, path, HASH_FIND, NULL);
}

ZklLocalClaim *
zkl_claims_begin(const char *path)
{
	ZklLocalClaim *claim;
	ZklClaim   *shared;

	if (claims == NULL)
		set_up();

	/* What can fail for want of memory comes first. */
	claim = hash_search(claims, path, HASH_ENTER, NULL);
	shared = zkl_shared_begin(path);
	if (shared == NULL)
	{
		hash_search(claims, path, HASH_REMOVE, NULL);
		zkl_report_full();
	}
	claim->shared = shared;
	claim->locked = false;
	claim->session_count = 0;
	claim->xact_count = 0;
	claim->xact_record = -1;
	return claim;
}

static void
set_up(void)
{
	HASHCTL		info = {0};
	HTAB	   *table;

	info.keysize = ZKL_PATH_SIZE;
	info.entrysize = sizeof(ZklLocalClaim);
	table = hash_create("zklock claims", 16, &info, HASH_ELEM | HASH_STRINGS);

	/* Later would be while a transaction ends, where nothing may fail. */
	(void) zkl_wait_event("ZklockRelease", &release_wait_event);

	/* First the hooks, then what they clean up. */
	on_shmem_exit(end_all, (Datum) 0);
	zkl_xact_register();
	claims = table;
}

/*
 * The backend ends, however it does.  Its transaction has been rolled back by
 * now, and PostgreSQL has dropped the local locks or is about to.
 */
static void
end_all(int code, Datum arg)
{
	HASH_SEQ_STATUS scan;
	ZklLocalClaim *claim;

	if (claims == NULL)
		return;
	hash_seq_init(&scan, claims);
	while ((claim = hash_seq_search(&scan)) != NULL)
		zkl_shared_end(claim->shared);
	claims = NULL;
}

/*
 * Counting
 */

/* Nothing has changed if this raises an error. */
void
zkl_claims_count(ZklLocalClaim *claim, ZklScope scope)
{
	if (scope == ZKL_SCOPE_XACT)
	{
		count_xact(claim);
		return;
	}
	if (claim->session_count == 0)
	{
		if (!book_local_lock(claim, ZKL_SCOPE_SESSION))
			ereport(ERROR,
					errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("could not acquire lock \"%s\" with session scope",
						   zkl_show_path(claim->path)),
					errdetail("Its lock in this server was dropped by pg_advisory_unlock_all(), and another session waits for the end of this transaction."));
		dlist_push_tail(&session_claims, &claim->session_link);
	}
	claim->session_count++;
	claim->shared->session_count = claim->session_count;
}

static void
count_xact(ZklLocalClaim *claim)
{
	int			nest_level = GetCurrentTransactionNestLevel();

	if (claim->xact_record < 0 ||
		records[claim->xact_record].nest_level != nest_level)
	{
		XactRecord *record = new_record();

		record->claim = claim;
		record->nest_level = nest_level;
		record->count = 0;
		record->previous = claim->xact_record;
		claim->xact_record = nrecords++;
	}
	records[claim->xact_record].count++;
	claim->xact_count++;
	claim->shared->xact_count = claim->xact_count;
}

static XactRecord *
new_record(void)
{
	if (records == NULL)
	{
		max_records = 64;
		records = MemoryContextAlloc(TopMemoryContext,
									 max_records * sizeof(XactRecord));
	}
	else if (nrecords == max_records)
	{
		records = repalloc_huge(records, 2 * max_records * sizeof(XactRecord));
		max_records *= 2;
	}
	return &records[nrecords];
}

/*
 * Hold the local lock at this level.  After pg_advisory_unlock_all() it may
 * be somebody else's by now, who then waits for our claim to end.
 */
static bool
book_local_lock(ZklLocalClaim *claim, ZklScope scope)
{
	if (claim->locked)
		zkl_local_lock_move(&claim->tag, claim->lock_scope, scope);
	else
		claim->locked = zkl_local_lock_try(&claim->tag, scope);
	if (claim->locked)
		claim->lock_scope = scope;
	return claim->locked;
}

void
zkl_claims_uncount_session(ZklLocalClaim *claim)
{
	Assert(claim->session_count > 0);
	if (claim->session_count == 1 && claim->xact_count > 0)
		(void) book_local_lock(claim, ZKL_SCOPE_XACT);

	claim->session_count--;
	claim->shared->session_count = claim->session_count;
	if (claim->session_count > 0)
		return;

	dlist_delete(&claim->session_link);
	if (claim->xact_count == 0)
		zkl_claims_end(claim);
}

static void
uncount_xact(ZklLocalClaim *claim, int count)
{
	claim->xact_count -= count;
	claim->shared->xact_count = claim->xact_count;
	if (claim->xact_count == 0 && claim->session_count == 0)
		zkl_claims_end(claim);
}

/*
 * The end of a claim
 */

/* First the claim, then the local lock: who gets that finds all in order. */
void
zkl_claims_end(ZklLocalClaim *claim)
{
	end_shared(claim);
	if (claim->locked)
		zkl_local_lock_release(&claim->tag, claim->lock_scope);
	hash_search(claims, claim->path, HASH_REMOVE, NULL);
}

/*
 * With zklock.synchronous_release, wait until the znode is gone.  This may run
 * while a transaction commits, where nothing can be raised and no interrupt
 * be served, so it does not take long: only while ZooKeeper can be reached,
 * and nobody wants us to stop.
 */
static void
end_shared(ZklLocalClaim *claim)
{
	int64		until = zkl_now() + ZKL_MS(Min(zkl_connection_timeout,
											   MAX_RELEASE_WAIT_MS));

	if (!zkl_synchronous_release)
	{
		zkl_shared_end(claim->shared);
		return;
	}
	if (!zkl_shared_end_and_stay(claim->shared))
		return;

	while (!zkl_shared_is_released(claim->shared) && zkl_now() < until &&
		   pg_atomic_read_u32(&zkl_shared->session[0].connected) != 0 &&
		   !pg_atomic_read_u32(&zkl_shared->shutting_down) &&
		   !ProcDiePending && !QueryCancelPending)
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(0, (until - zkl_now()) / 1000 + 1),
						 zkl_wait_event("ZklockRelease", &release_wait_event));
		ResetLatch(MyLatch);
	}
	zkl_shared_leave(claim->shared);

	/* Whatever else set the latch shall be seen. */
	SetLatch(MyLatch);
}

/*
 * Visiting
 */

bool
zkl_claims_any(void)
{
	return claims != NULL && hash_get_num_entries(claims) > 0;
}

ZklLocalClaim *
zkl_claims_first_session(void)
{
	if (dlist_is_empty(&session_claims))
		return NULL;
	return dlist_head_element(ZklLocalClaim, session_link, &session_claims);
}

void
zkl_claims_visit(ZklClaimVisitor visitor, void *arg)
{
	HASH_SEQ_STATUS scan;
	ZklLocalClaim *claim;

	if (claims == NULL)
		return;
	hash_seq_init(&scan, claims);
	while ((claim = hash_seq_search(&scan)) != NULL)
		visitor(claim, arg);
}

/*
 * The local locks of session scope are dropped all together, so it is enough
 * to look at one that we think we have.
 */
void
zkl_claims_sweep(void)
{
	ZklLocalClaim *claim;
	dlist_iter	iter;

	unlock_lost_claims();
	dlist_foreach(iter, &session_claims)
	{
		claim = dlist_container(ZklLocalClaim, session_link, iter.cur);
		if (!claim->locked)
			continue;
		if (zkl_lock_held_by_me(&claim->tag, ExclusiveLock))
			return;
		break;
	}
	if (iter.cur == &session_claims.head)
		return;
	while ((claim = zkl_claims_first_session()) != NULL)
		drop_session_scope(claim);
}

static void
drop_session_scope(ZklLocalClaim *claim)
{
	claim->locked = false;
	claim->session_count = 1;
	zkl_xact_note_release(claim, zkl_shared_standing(claim->shared, 0));
	zkl_claims_uncount_session(claim);
}

/* Nobody shall wait behind a claim that was lost. */
static void
unlock_if_lost(ZklLocalClaim *claim, void *arg)
{
	if (claim->locked &&
		zkl_shared_standing(claim->shared, 0) == ZKL_STANDING_LOST)
	{
		zkl_local_lock_release(&claim->tag, claim->lock_scope);
		claim->locked = false;
	}
}

static void
unlock_lost_claims(void)
{
	static uint64 seen_losses = 0;
	uint64		losses = pg_atomic_read_u64(&zkl_shared->losses);

	if (losses == seen_losses)
		return;
	zkl_claims_visit(unlock_if_lost, NULL);
	seen_losses = losses;
}

/*
 * Ends of transactions and savepoints
 */

/* PostgreSQL drops the local locks of transaction level right after this. */
void
zkl_claims_end_xact(void)
{
	while (nrecords > 0)
	{
		XactRecord *record = &records[--nrecords];
		ZklLocalClaim *claim = record->claim;

		claim->xact_record = record->previous;
		if (claim->lock_scope == ZKL_SCOPE_XACT &&
			claim->xact_count == record->count)
			claim->locked = false;
		uncount_xact(claim, record->count);
	}
	zkl_claims_sweep();
}

void
zkl_claims_abort_savepoint(int nest_level)
{
	while (nrecords > 0 && records[nrecords - 1].nest_level >= nest_level)
	{
		XactRecord *record = &records[--nrecords];

		record->claim->xact_record = record->previous;
		uncount_xact(record->claim, record->count);
	}
}

/* Records join those of the parent, where it has one for the same claim. */
void
zkl_claims_release_savepoint(int nest_level)
{
	int			first = nrecords;
	int			kept;

	while (first > 0 && records[first - 1].nest_level >= nest_level)
		first--;

	kept = first;
	for (int i = first; i < nrecords; i++)
	{
		XactRecord	record = records[i];

		if (record.previous >= 0 &&
			records[record.previous].nest_level == nest_level - 1)
		{
			records[record.previous].count += record.count;
			record.claim->xact_record = record.previous;
			continue;
		}
		record.nest_level = nest_level - 1;
		record.claim->xact_record = kept;
		records[kept++] = record;
	}
	nrecords = kept;
}
