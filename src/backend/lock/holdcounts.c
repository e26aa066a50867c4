/*-------------------------------------------------------------------------
 *
 * holdcounts.c
 *	  How many acquires a claim counts, at which level, and when they end.
 *
 * Transaction-level acquires are kept as records on a stack.  There is one
 * record for a part of a claim and a nesting level, with the deepest level on
 * top.  A savepoint that is rolled back removes its records; one that is
 * released leaves them to its parent.
 *
 * src/backend/lock/holdcounts.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "backend/display.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/onlost.h"
#include "backend/lock/permission.h"
#include "backend/lock/reliance.h"
#include "backend/report.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"

typedef struct XactRecord
{
	ZklLocalClaim *claim;
	ZklPartName part;
	int			nest_level;
	int			count;
	bool		has_run;		/* one of its acquires is for the run of a job */
	int			previous;		/* the next lower record of the same part; -1
								 * if none */
} XactRecord;

/* Claims of which either part has session-level acquires. */
static dlist_head session_claims = DLIST_STATIC_INIT(session_claims);

/*
 * The stack.  Records refer to each other by index, and so do parts to
 * records, because the array moves when it grows.
 */
static XactRecord *records = NULL;
static int	nrecords = 0;
static int	max_records = 0;

/*
 * How many leases this backend holds, not counting the first one of each
 * semaphore, which counts as a claim already.
 */
static int	further_leases = 0;

/* Session-level runs of jobs that have not ended. */
static int	session_runs = 0;

static void count_session(ZklLocalClaim *claim, ZklPartName part, int count);
static void note_leases(const ZklLocalClaim *claim, int before, int after);
static void count_xact(ZklLocalClaim *claim, ZklPartName part, int count);
static void make_room(void);
static int	take_all_session(ZklLocalClaim *claim);
static void uncount_xact(ZklLocalClaim *claim, ZklPartName part, int count);
static void settle_part(ZklLocalClaim *claim, ZklPartName part, int count);
static void show_counts(ZklLocalClaim *claim);
static ZklLocalClaim *first_session(void);
static void end_session_run(ZklLocalClaim *claim);
static void note_xact_of_runs(bool committed);
static void sweep(void);
static bool session_locks_are_gone(void);
static void drop_session_scope(ZklLocalClaim *claim);
static void warn_not_held(const ZklLocalClaim *claim, const char *path,
						  ZklMode mode, int quantity);
static const char *held_as(const ZklLocalClaim *claim);
static bool note_release(ZklLocalClaim *claim);
static ZklLocalClaim *find_held(const char *path);
static ZklLocalClaim *certainly_held(const char *path, ZklLocalClaim *claim);

/*
 * First do what may fail: acquire the advisory lock, and get memory for a
 * record.  Then change the counts.  So after an error no acquire is counted.
 */
void
zkl_hold_counts_add(ZklLocalClaim *claim, const ZklLockRequest *request)
{
	ZklPartName name = zkl_local_claim_part(request->mode);
	int			before = zkl_local_claim_count(claim, name);
	int			count = request->mode == ZKL_MODE_LEASE ? request->quantity : 1;

	if (request->scope == ZKL_SCOPE_XACT)
		count_xact(claim, name, count);
	else
		count_session(claim, name, count);
	note_leases(claim, before, before + count);
	show_counts(claim);
	claim->call = request->call;
}

static void
count_session(ZklLocalClaim *claim, ZklPartName name, int count)
{
	ZklPart    *part = &claim->parts[name];

	if (claim->shared->is_use)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("could not acquire session-level lock \"%s\"",
					   zkl_display_path(claim->path)),
				errdetail("The transaction uses a claim on it."));
	if (part->session_count == 0)
	{
		/*
		 * This can fail only for a part without an advisory lock: an advisory
		 * lock that the backend holds merely moves to session level.
		 */
		if (!zkl_local_claim_lock(claim, name, ZKL_SCOPE_SESSION))
			ereport(ERROR,
					errcode(zkl_report_count(ERRCODE_LOCK_NOT_AVAILABLE)),
					errmsg("could not acquire session-level lock \"%s\"",
						   zkl_display_path(claim->path)),
					errdetail("pg_advisory_unlock_all() dropped the lock in this server, and another session waits for the end of this transaction."));
		if (zkl_local_claim_session_count(claim) == 0)
			dlist_push_tail(&session_claims, &claim->session_link);
	}
	part->session_count += count;
}

/*
 * The first lease of a semaphore counts as its claim, so add up only further
 * leases.
 */
static void
note_leases(const ZklLocalClaim *claim, int before, int after)
{
	if (claim->kind == ZKL_KIND_SEMAPHORE)
		further_leases += Max(after - 1, 0) - Max(before - 1, 0);
}

/*
 * Check this before a claim begins, so that a backend over its limit takes
 * nothing from the lock table.
 */
void
zkl_hold_counts_check_room(int wanted)
{
	int			held = zkl_local_claim_number() + further_leases;

	if (wanted > zkl_max_locks_per_backend - held)
		ereport(ERROR,
				errcode(zkl_report_count(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)),
				errmsg("too many locks for one session"),
				errdetail("The session holds %d locks and leases and requests %d more; the limit is %d.",
						  held, wanted, zkl_max_locks_per_backend),
				errhint("Release some of them, or have a superuser raise \"zklock.max_locks_per_backend\"."));
	make_room();
}

/*
 * Count on the record of the present nesting level.  Deeper levels have
 * ended, and have removed their records or left them to their parents.  So
 * the latest record of the part is of this level or of a lower one.
 */
static void
count_xact(ZklLocalClaim *claim, ZklPartName name, int count)
{
	ZklPart    *part = &claim->parts[name];
	int			nest_level = GetCurrentTransactionNestLevel();

	/*
	 * The acquire counts even without the advisory lock.  If another backend
	 * took the advisory lock after pg_advisory_unlock_all(), that backend
	 * waits until this claim ends.
	 */
	if (!part->locked && !claim->shared->is_use)
		(void) zkl_local_claim_lock(claim, name, ZKL_SCOPE_XACT);
	if (part->xact_record < 0 ||
		records[part->xact_record].nest_level != nest_level)
	{
		XactRecord *record;

		make_room();
		record = &records[nrecords];
		record->claim = claim;
		record->part = name;
		record->nest_level = nest_level;
		record->count = 0;
		record->has_run = false;
		record->previous = part->xact_record;
		part->xact_record = nrecords++;
	}
	records[part->xact_record].count += count;
	part->xact_count += count;
}

/*
 * Make room for one more record on the stack.  The stack itself changes only
 * when the caller counts the record, so running out of memory does no harm.
 */
static void
make_room(void)
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
}

/*
 * The claim is on a mutex, so it is held exclusively.  A session-level run
 * ends when the acquire that was counted last is released; acquires from
 * before the run may remain.
 */
void
zkl_hold_counts_begin_run(ZklLocalClaim *claim, ZklScope scope)
{
	ZklPart    *part = &claim->parts[ZKL_EXCLUSIVE];

	if (scope == ZKL_SCOPE_XACT)
		records[part->xact_record].has_run = true;
	else
	{
		if (claim->run_level == 0)
			session_runs++;
		claim->run_level = part->session_count;
		claim->run_failed = false;
	}
}

/*
 * End the run: the worker writes its end into the record.  The claim may have
 * been lost without being marked yet; then no release makes the run done.
 */
static void
end_session_run(ZklLocalClaim *claim)
{
	bool		lost = zkl_claim_status(claim->shared, 0) == ZKL_STATUS_LOST;

	zkl_claim_end_run(claim->shared, !claim->run_failed && !lost);
	claim->run_level = 0;
	session_runs--;
}

/*
 * A session-level run is done if it is released, and if the last transaction
 * before the release was committed.  A transaction counts only if it tells
 * how the work ended ("tells").  The transaction that releases the lock has
 * not ended yet.
 */
static void
note_xact_of_runs(bool committed)
{
	dlist_iter	iter;

	if (session_runs == 0)
		return;

	/*
	 * This also marks claims without a run, but the beginning of a run resets
	 * the mark.
	 */
	dlist_foreach(iter, &session_claims)
		dlist_container(ZklLocalClaim, session_link,
						iter.cur)->run_failed = !committed;
}

void
zkl_hold_counts_take_session(ZklLocalClaim *claim, ZklPartName name, int count)
{
	ZklPart    *part = &claim->parts[name];

	Assert(part->session_count >= count);

	/*
	 * The transaction still holds the lock, so move the advisory lock to
	 * transaction level.  At session level it would outlive the transaction.
	 */
	if (part->session_count == count && part->xact_count > 0)
		(void) zkl_local_claim_lock(claim, name, ZKL_SCOPE_XACT);

	part->session_count -= count;

	/*
	 * Do this before settle_part(), which may end the claim: the end of the
	 * claim ends its run as failed, and frees the list's node.
	 */
	if (claim->run_level > zkl_local_claim_session_count(claim))
		end_session_run(claim);
	if (zkl_local_claim_session_count(claim) == 0)
		dlist_delete(&claim->session_link);
	settle_part(claim, name, count);
}

/*
 * Release the exclusive part last: otherwise a writer would first be
 * downgraded.  The claim may end.
 */
static int
take_all_session(ZklLocalClaim *claim)
{
	int			shared = claim->parts[ZKL_SHARED].session_count;
	int			exclusive = claim->parts[ZKL_EXCLUSIVE].session_count;

	if (shared > 0)
		zkl_hold_counts_take_session(claim, ZKL_SHARED, shared);
	if (exclusive > 0)
		zkl_hold_counts_take_session(claim, ZKL_EXCLUSIVE, exclusive);
	return shared + exclusive;
}

static void
uncount_xact(ZklLocalClaim *claim, ZklPartName name, int count)
{
	claim->parts[name].xact_count -= count;
	settle_part(claim, name, count);
}

/*
 * Acquires of a part were removed.  End the claim, downgrade it, or only show
 * the new counts.
 */
static void
settle_part(ZklLocalClaim *claim, ZklPartName name, int count)
{
	ZklPartName other = name == ZKL_SHARED ? ZKL_EXCLUSIVE : ZKL_SHARED;
	int			left = zkl_local_claim_count(claim, name);

	note_leases(claim, left + count, left);

	/*
	 * Leases are given back one by one, as they are released.  Other locks
	 * are given back with the last release.
	 */
	if (left > 0)
	{
		if (claim->kind == ZKL_KIND_SEMAPHORE)
			zkl_claim_release_leases(claim->shared, count);
	}
	else if (zkl_local_claim_count(claim, other) == 0)
	{
		zkl_local_claim_release(claim);
		return;
	}
	else
	{
		/*
		 * The backend no longer writes but still reads, so let other backends
		 * read.
		 */
		if (name == ZKL_EXCLUSIVE)
			zkl_claim_downgrade(claim->shared);
		zkl_local_claim_unlock(claim, name);
	}
	show_counts(claim);
}

/*
 * Copy the counts to shared memory, for zk_locks and for the worker: see
 * lockentry.h.
 */
static void
show_counts(ZklLocalClaim *claim)
{
	claim->shared->session_count = zkl_local_claim_session_count(claim);
	claim->shared->xact_count = claim->parts[ZKL_EXCLUSIVE].xact_count +
		claim->parts[ZKL_SHARED].xact_count;
}

/* The first claim with a session-level acquire, or NULL. */
static ZklLocalClaim *
first_session(void)
{
	if (dlist_is_empty(&session_claims))
		return NULL;
	return dlist_head_element(ZklLocalClaim, session_link, &session_claims);
}

void
zkl_hold_counts_update(void)
{
	zkl_report_unless_usable();
	sweep();
	zkl_local_claim_tell_revoked();
}

/*
 * Called by each SQL function about claims, and at the end of each
 * transaction of a backend that has claims.
 */
static void
sweep(void)
{
	zkl_local_claim_renew_deadline();
	zkl_local_claim_unlock_lost();
	if (session_locks_are_gone())
		zkl_hold_counts_discard_session();
}

/*
 * A path is only one kind of lock at a time.  If this backend has a claim of
 * another kind, refuse the acquire before any wait.
 */
ZklLocalClaim *
zkl_hold_counts_update_to_acquire(const ZklLockRequest *request)
{
	ZklLocalClaim *claim;

	zkl_hold_counts_update();
	zkl_permission_check_claim(request->path);
	claim = zkl_local_claim_find(request->path);
	if (claim != NULL && claim->kind != zkl_recipe_kind(request->mode))
		zkl_report_other_kind(request->path);
	return claim;
}

/*
 * Session-level advisory locks are released all at once, so it is enough to
 * check one that this backend should have.
 */
static bool
session_locks_are_gone(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &session_claims)
	{
		ZklLocalClaim *claim = dlist_container(ZklLocalClaim, session_link,
											   iter.cur);

		for (int part = 0; part < ZKL_PARTS; part++)
		{
			if (claim->parts[part].locked &&
				claim->parts[part].lock_scope == ZKL_SCOPE_SESSION)
				return !zkl_local_claim_has_lock(claim, part);
		}
	}
	return false;
}

void
zkl_hold_counts_discard_session(void)
{
	ZklLocalClaim *claim;

	while ((claim = first_session()) != NULL)
		drop_session_scope(claim);
}

/*
 * PostgreSQL has already released the session-level advisory locks, so do not
 * release them again.  The user is not told about lost claims here; the
 * commit guard still refuses what the transaction wrote.  The runs count as
 * failed: a pooler also sends DISCARD ALL for a client that died in the
 * middle of a run.
 */
static void
drop_session_scope(ZklLocalClaim *claim)
{
	zkl_on_lost_note_release(claim, zkl_claim_status(claim->shared, 0), false);
	for (int part = 0; part < ZKL_PARTS; part++)
	{
		if (claim->parts[part].lock_scope == ZKL_SCOPE_SESSION)
			claim->parts[part].locked = false;
	}
	claim->run_failed = true;
	(void) take_all_session(claim);
}

/*
 * End the transaction-level acquires, the latest first.  PostgreSQL releases
 * the transaction-level advisory locks right after this, so a backend that gets
 * one of them finds the claim ended.
 */
void
zkl_hold_counts_end_xact(bool committed, bool tells)
{
	zkl_local_claim_renew_deadline();
	while (nrecords > 0)
	{
		XactRecord *record = &records[--nrecords];
		ZklLocalClaim *claim = record->claim;
		ZklPart    *part = &claim->parts[record->part];

		/*
		 * End the run first, because the end of the claim would end it as
		 * failed.
		 */
		if (record->has_run)
		{
			zkl_claim_end_run(claim->shared, committed);
			ZKL_FAULT_POINT("run-end-queued");
		}
		part->xact_record = record->previous;

		/*
		 * This was the last record of the part.  PostgreSQL releases its
		 * advisory lock.
		 */
		if (part->lock_scope == ZKL_SCOPE_XACT &&
			part->xact_count == record->count)
			part->locked = false;
		uncount_xact(claim, record->part, record->count);
		ZKL_FAULT_POINT("xact-claim-ended");
	}
	if (tells)
		note_xact_of_runs(committed);
	sweep();
}

/*
 * The advisory locks belong to the top transaction, so PostgreSQL keeps them
 * when a savepoint is rolled back.  settle_part() releases the advisory locks
 * of the claims that end here.
 */
void
zkl_hold_counts_abort_savepoint(int nest_level)
{
	zkl_local_claim_renew_deadline();
	while (nrecords > 0 && records[nrecords - 1].nest_level >= nest_level)
	{
		XactRecord *record = &records[--nrecords];

		if (record->has_run)
			zkl_claim_end_run(record->claim->shared, false);
		record->claim->parts[record->part].xact_record = record->previous;
		uncount_xact(record->claim, record->part, record->count);
	}
}

/*
 * If the parent has a record for the same part, the two are added up;
 * otherwise the record becomes the parent's.  A part has at most one record
 * of the level that ends, so its previous record is below "first", and does
 * not move.
 */
void
zkl_hold_counts_release_savepoint(int nest_level)
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
			records[record.previous].has_run |= record.has_run;
			record.claim->parts[record.part].xact_record = record.previous;
			continue;
		}

		/*
		 * The record moves down over the places of records that were added to
		 * other ones.
		 */
		record.nest_level = nest_level - 1;
		record.claim->parts[record.part].xact_record = kept;
		records[kept++] = record;
	}
	nrecords = kept;
}

/*
 * Release, as the SQL functions do it
 */

bool
zkl_hold_counts_release(const char *path, ZklMode mode, int quantity)
{
	ZklPartName part = zkl_local_claim_part(mode);
	ZklLocalClaim *claim;
	bool		held;

	zkl_hold_counts_update();
	claim = zkl_local_claim_find(path);
	if (claim == NULL || claim->kind != zkl_recipe_kind(mode) ||
		claim->parts[part].session_count < quantity)
	{
		warn_not_held(claim, path, mode, quantity);
		return false;
	}

	/*
	 * Check the claim before the release, which may end it.  The acquire is
	 * released even if the claim was lost.
	 */
	held = note_release(claim);
	zkl_hold_counts_take_session(claim, part, quantity);
	return held;
}

/*
 * Warn that the lock is not held.  "claim" is this session's claim on the
 * path, of any kind; or NULL.
 */
static void
warn_not_held(const ZklLocalClaim *claim, const char *path, ZklMode mode,
			  int quantity)
{
	const char *shown = zkl_display_path(path);
	const char *release = claim ? zkl_local_claim_release_function(claim) : NULL;
	bool		same_kind = claim && claim->kind == zkl_recipe_kind(mode);

	/* The session has fewer leases than the call wants to release. */
	if (same_kind && mode == ZKL_MODE_LEASE && release != NULL)
		ereport(WARNING,
				errmsg("you do not own %d session-level leases of semaphore \"%s\"",
					   quantity, shown));
	else if (claim != NULL &&
			 (release == NULL ||
			  (same_kind && claim->parts[zkl_local_claim_part(mode)].xact_count > 0)))
		ereport(WARNING,
				errmsg("you do not own lock \"%s\"", shown),
				errdetail("This session holds it until the end of the transaction."));
	else
		ereport(WARNING,
				errmsg("you do not own lock \"%s\"", shown),
				claim == NULL ? 0 :
				errdetail("This session holds it %s.", held_as(claim)),
				claim == NULL ? 0 :
				errhint("Use \"%s\" to release it.", release));
}

/* For the detail: how this session holds the lock. */
static const char *
held_as(const ZklLocalClaim *claim)
{
	switch (claim->kind)
	{
		case ZKL_KIND_MUTEX:
			break;
		case ZKL_KIND_READ_WRITE:
			return claim->parts[ZKL_EXCLUSIVE].session_count > 0 ?
				_("for writing") : _("for reading");
		case ZKL_KIND_SEMAPHORE:
			return _("as a semaphore");
	}
	return _("as a mutex");
}

int
zkl_hold_counts_release_all(void)
{
	ZklLocalClaim *claim;
	int			released = 0;

	zkl_hold_counts_update();

	/*
	 * Each round releases all session-level acquires of one claim, so the
	 * list of such claims becomes empty.
	 */
	while ((claim = first_session()) != NULL)
	{
		note_release(claim);
		released += take_all_session(claim);
	}
	return released;
}

/*
 * Note the release of a claim.  If it was lost, tell the user, and let the
 * commit guard know: the transaction may have written without protection.
 * Return whether the claim was held.
 */
static bool
note_release(ZklLocalClaim *claim)
{
	ZklClaimStatus status = zkl_claim_status(claim->shared, 0);

	zkl_on_lost_note_release(claim, status, true);
	if (status != ZKL_STATUS_LOST)
		return true;
	zkl_local_claim_report_lost(WARNING, claim);
	return false;
}

/*
 * What a backend can find out about the locks that it holds
 */

bool
zkl_hold_counts_is_held(const char *path)
{
	ZklLocalClaim *claim;

	zkl_hold_counts_update();
	claim = zkl_local_claim_find(path);
	return claim != NULL &&
		zkl_claim_status(claim->shared, 0) == ZKL_STATUS_GOOD;
}

/*
 * No lock is needed for the token and the hold limit: no other process writes
 * them (lockentry.h).
 */
int64
zkl_hold_counts_token(const char *path)
{
	ZklLocalClaim *claim;
	int64		token;

	zkl_hold_counts_update();
	claim = zkl_local_claim_find(path);
	if (claim == NULL && zkl_reliance_token(path, &token))
		return token;
	return certainly_held(path, claim)->shared->token;
}

bool
zkl_hold_counts_remaining(const char *path, int64 *remaining)
{
	ZklLocalClaim *claim = find_held(path);

	*remaining = claim->shared->hold_until - zkl_now();
	return claim->shared->hold_until != 0;
}

bool
zkl_hold_counts_is_revoked(const char *path)
{
	return zkl_claim_status_is_revoked(find_held(path)->shared);
}

int64
zkl_hold_counts_uses(const char *path)
{
	return zkl_claim_status_uses(find_held(path)->shared);
}

/*
 * The claim of a lock that this backend certainly holds; otherwise raises an
 * error.
 */
static ZklLocalClaim *
find_held(const char *path)
{
	zkl_hold_counts_update();
	return certainly_held(path, zkl_local_claim_find(path));
}

static ZklLocalClaim *
certainly_held(const char *path, ZklLocalClaim *claim)
{
	if (claim == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("you do not own lock \"%s\"", zkl_display_path(path)));
	switch (zkl_claim_status(claim->shared, 0))
	{
		case ZKL_STATUS_GOOD:
			break;
		case ZKL_STATUS_DOUBT:
			zkl_report_doubt(path);
			break;
		case ZKL_STATUS_LOST:
			zkl_local_claim_report_lost(ERROR, claim);
			break;
	}
	return claim;
}
