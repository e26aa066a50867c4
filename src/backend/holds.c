/*-------------------------------------------------------------------------
 *
 * holds.c
 *	  How many acquires a claim counts, at which level, and when they end.
 *
 * Transaction-level acquires are kept as records on a stack.  There is one
 * record for a part of a claim and a nesting level, with the deepest level on
 * top.  A savepoint that is rolled back removes its records; one that is
 * released leaves them to its parent.
 *
 * src/backend/holds.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "backend/holds.h"
#include "backend/display.h"
#include "backend/loss.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"

typedef struct XactRecord
{
	ZklLocalClaim *claim;
	ZklPartName part;
	int			nest_level;
	int			count;
	bool		has_run;		/* one of the acquires is for a job's run */
	int			previous;		/* the next lower record of the same part, or
								 * -1 */
} XactRecord;

/* Claims with session-level acquires, of either part. */
static dlist_head session_claims = DLIST_STATIC_INIT(session_claims);

/*
 * The stack.  Records refer to each other and to parts by index, because the
 * array moves when it grows.
 */
static XactRecord *records = NULL;
static int	nrecords = 0;
static int	max_records = 0;

/*
 * How many leases this backend holds, less one for each semaphore, which
 * counts as a claim already.
 */
static int	further_leases = 0;

/* Session-level runs of jobs that may go on. */
static int	session_runs = 0;

static void note_leases(const ZklLocalClaim *claim, int before, int after);
static void count_xact(ZklLocalClaim *claim, ZklPartName part, int count);
static void make_room(void);
static bool book_local_lock(ZklLocalClaim *claim, ZklPartName part,
							ZklScope scope);
static void uncount_xact(ZklLocalClaim *claim, ZklPartName part, int count);
static void settle_part(ZklLocalClaim *claim, ZklPartName part, int count);
static void show_counts(ZklLocalClaim *claim);
static void end_session_run(ZklLocalClaim *claim);
static void note_xact_of_runs(bool committed);
static bool session_locks_are_gone(void);
static void drop_session_scope(ZklLocalClaim *claim);

/*
 * What may fail comes first, the local lock and the memory for a record; then
 * the counts change.  So after an error no acquire is counted.
 */
void
zkl_holds_add(ZklLocalClaim *claim, ZklPartName name, ZklScope scope,
			  int count)
{
	ZklPart    *part = &claim->parts[name];
	int			before = zkl_claims_count(claim, name);

	if (scope == ZKL_SCOPE_XACT)
	{
		/*
		 * The acquire counts also without the local lock.  If another backend
		 * took that lock after pg_advisory_unlock_all(), it still waits until
		 * this claim ends.
		 */
		if (!part->locked)
			(void) book_local_lock(claim, name, ZKL_SCOPE_XACT);
		count_xact(claim, name, count);
		note_leases(claim, before, before + count);
		show_counts(claim);
		return;
	}
	if (part->session_count == 0)
	{
		/*
		 * Only a part without a local lock can fail here: a local lock that
		 * the backend holds just moves to session level.
		 */
		if (!book_local_lock(claim, name, ZKL_SCOPE_SESSION))
			ereport(ERROR,
					errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("could not acquire session-level lock \"%s\"",
						   zkl_display_path(claim->path)),
					errdetail("pg_advisory_unlock_all() dropped the lock in this server, and another session waits for the end of this transaction."));
		if (zkl_claims_session_count(claim) == 0)
			dlist_push_tail(&session_claims, &claim->session_link);
	}
	part->session_count += count;
	note_leases(claim, before, before + count);
	show_counts(claim);
}

/*
 * The first lease of a semaphore counts as its claim, so only further leases
 * are added up.
 */
static void
note_leases(const ZklLocalClaim *claim, int before, int after)
{
	if (claim->kind == ZKL_KIND_SEMAPHORE)
		further_leases += Max(after - 1, 0) - Max(before - 1, 0);
}

/*
 * Checked before a claim begins, so a backend over its limit takes nothing
 * from the lock table.
 */
void
zkl_holds_check_room(int wanted)
{
	int			held = zkl_claim_table_number() + further_leases;

	if (wanted > zkl_max_locks_per_backend - held)
		ereport(ERROR,
				errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				errmsg("too many locks for one session"),
				errdetail("The session holds %d locks and leases and requests %d more; the limit is %d.",
						  held, wanted, zkl_max_locks_per_backend),
				errhint("Release some of them, or have a superuser raise \"zklock.max_locks_per_backend\"."));
	make_room();
}

/*
 * Count on the record of the present nesting level.  Deeper levels have
 * ended, and taken their records off the stack or given them to their
 * parents.  So the latest record of the part is of this level or of a lower
 * one.
 */
static void
count_xact(ZklLocalClaim *claim, ZklPartName name, int count)
{
	ZklPart    *part = &claim->parts[name];
	int			nest_level = GetCurrentTransactionNestLevel();

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
 * Room for one more record on the stack.  Until the caller counts the record,
 * the stack is as before, so running out of memory does no harm.
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
 * The claim is a mutex's, so it is held exclusively.  A session-level run
 * ends when the acquire that was counted last is released; acquires from
 * before the run may stay.
 */
void
zkl_holds_begin_run(ZklLocalClaim *claim, ZklScope scope)
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
 * Leave the end of the run for the worker, which writes it into the record.
 */
static void
end_session_run(ZklLocalClaim *claim)
{
	zkl_shared_claim_end_run(claim->shared, !claim->run_failed);
	claim->run_level = 0;
	session_runs--;
}

/*
 * A session-level run is done if the last transaction before its end was
 * committed.  The transaction that releases the lock has not ended yet.
 */
static void
note_xact_of_runs(bool committed)
{
	dlist_iter	iter;

	if (session_runs == 0)
		return;

	/*
	 * Claims without a run are marked, too.  The beginning of a run resets
	 * the mark.
	 */
	dlist_foreach(iter, &session_claims)
		dlist_container(ZklLocalClaim, session_link,
						iter.cur)->run_failed = !committed;
}

/*
 * Hold the local lock at this level.  If the part has it, it changes its
 * level; a backend that writes gets ShareLock in addition, without a wait.  A
 * part without a local lock is that of a semaphore, whose backends all share
 * it, or pg_advisory_unlock_all() has released the lock.  In that case
 * another backend may have it by now; that backend waits until this one's
 * claim ends.
 */
static bool
book_local_lock(ZklLocalClaim *claim, ZklPartName name, ZklScope scope)
{
	ZklPart    *part = &claim->parts[name];
	LOCKMODE	mode = zkl_claims_lock_mode(name);

	if (part->locked)
		zkl_local_lock_move(&claim->tag, mode, part->lock_scope, scope);
	else if ((name == ZKL_SHARED && claim->parts[ZKL_EXCLUSIVE].locked) ||
			 claim->kind == ZKL_KIND_SEMAPHORE)
	{
		/*
		 * Another backend may take a semaphore for a mutex, and have its
		 * ExclusiveLock, until it sees that.
		 */
		zkl_local_lock_add_share(&claim->tag, scope);
		part->locked = true;
	}
	else
		part->locked = zkl_local_lock_try(&claim->tag, mode, scope);
	if (part->locked)
		part->lock_scope = scope;
	return part->locked;
}

void
zkl_holds_take_session(ZklLocalClaim *claim, ZklPartName name, int count)
{
	ZklPart    *part = &claim->parts[name];

	Assert(part->session_count >= count);

	/*
	 * The transaction still holds the lock, so the local lock moves to
	 * transaction level.  At session level it would outlive the transaction.
	 */
	if (part->session_count == count && part->xact_count > 0)
		(void) book_local_lock(claim, name, ZKL_SCOPE_XACT);

	part->session_count -= count;

	/*
	 * settle_part() may end the claim, which ends a run as failed and frees
	 * the list's node.  So the run and the list come first.
	 */
	if (claim->run_level > zkl_claims_session_count(claim))
		end_session_run(claim);
	if (zkl_claims_session_count(claim) == 0)
		dlist_delete(&claim->session_link);
	settle_part(claim, name, count);
}

/*
 * What is held exclusively is released last: otherwise a writer would be
 * downgraded first.  The claim may end.
 */
int
zkl_holds_take_all_session(ZklLocalClaim *claim)
{
	int			shared = claim->parts[ZKL_SHARED].session_count;
	int			exclusive = claim->parts[ZKL_EXCLUSIVE].session_count;

	if (shared > 0)
		zkl_holds_take_session(claim, ZKL_SHARED, shared);
	if (exclusive > 0)
		zkl_holds_take_session(claim, ZKL_EXCLUSIVE, exclusive);
	return shared + exclusive;
}

static void
uncount_xact(ZklLocalClaim *claim, ZklPartName name, int count)
{
	claim->parts[name].xact_count -= count;
	settle_part(claim, name, count);
}

/*
 * Acquires of a part were taken off.  End the claim, downgrade it, or just
 * show the new counts.
 */
static void
settle_part(ZklLocalClaim *claim, ZklPartName name, int count)
{
	ZklPartName other = name == ZKL_SHARED ? ZKL_EXCLUSIVE : ZKL_SHARED;
	int			left = zkl_claims_count(claim, name);

	note_leases(claim, left + count, left);

	/*
	 * A lease goes back as soon as it is released.  Another lock goes back
	 * with the last release.
	 */
	if (left > 0)
	{
		if (claim->kind == ZKL_KIND_SEMAPHORE)
			zkl_shared_claim_release_leases(claim->shared, count);
	}
	else if (zkl_claims_count(claim, other) == 0)
	{
		zkl_claims_release(claim);
		return;
	}
	else
	{
		/*
		 * When a backend stops writing but still reads, other backends may
		 * read.
		 */
		if (name == ZKL_EXCLUSIVE)
			zkl_shared_claim_downgrade(claim->shared);
		zkl_claims_unlock(claim, name);
	}
	show_counts(claim);
}

/* For zk_locks, and for the worker: see lockentry.h. */
static void
show_counts(ZklLocalClaim *claim)
{
	claim->shared->session_count = zkl_claims_session_count(claim);
	claim->shared->xact_count = claim->parts[ZKL_EXCLUSIVE].xact_count +
		claim->parts[ZKL_SHARED].xact_count;
}

ZklLocalClaim *
zkl_holds_first_session(void)
{
	if (dlist_is_empty(&session_claims))
		return NULL;
	return dlist_head_element(ZklLocalClaim, session_link, &session_claims);
}

/*
 * Each SQL function about claims begins with this (enter.c), and each
 * transaction of a backend that has claims ends with it (xact.c).
 */
void
zkl_holds_sweep(void)
{
	zkl_claims_renew_deadline();
	zkl_claims_unlock_lost();
	if (session_locks_are_gone())
		zkl_holds_discard_session();
}

/*
 * The session-level local locks are released all together, so it is enough to
 * look at one that this backend has according to its counts.
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
				return !zkl_lock_held_by_me(&claim->tag,
											zkl_claims_lock_mode(part));
		}
	}
	return false;
}

void
zkl_holds_discard_session(void)
{
	ZklLocalClaim *claim;

	while ((claim = zkl_holds_first_session()) != NULL)
		drop_session_scope(claim);
}

/*
 * PostgreSQL has released the session-level local locks already, so they are
 * not released again here.  If the claim was lost, the user is not told now;
 * the commit guard still refuses what the transaction wrote.
 */
static void
drop_session_scope(ZklLocalClaim *claim)
{
	zkl_loss_note_release(claim, zkl_claim_status(claim->shared, 0), false);
	for (int part = 0; part < ZKL_PARTS; part++)
	{
		if (claim->parts[part].lock_scope == ZKL_SCOPE_SESSION)
			claim->parts[part].locked = false;
	}
	(void) zkl_holds_take_all_session(claim);
}

/*
 * End the transaction-level acquires, latest first.  PostgreSQL releases the
 * transaction-level local locks right after this, so a backend that gets one
 * finds the claim ended.
 */
void
zkl_holds_end_xact(bool committed)
{
	zkl_claims_renew_deadline();
	while (nrecords > 0)
	{
		XactRecord *record = &records[--nrecords];
		ZklLocalClaim *claim = record->claim;
		ZklPart    *part = &claim->parts[record->part];

		/*
		 * The end of the claim would end the run as failed, so the run goes
		 * first.
		 */
		if (record->has_run)
		{
			zkl_shared_claim_end_run(claim->shared, committed);
			ZKL_FAULT_POINT("run-end-queued");
		}
		part->xact_record = record->previous;

		/*
		 * The last record of a part: its local lock is PostgreSQL's to
		 * release.
		 */
		if (part->lock_scope == ZKL_SCOPE_XACT &&
			part->xact_count == record->count)
			part->locked = false;
		uncount_xact(claim, record->part, record->count);
		ZKL_FAULT_POINT("xact-claim-ended");
	}
	note_xact_of_runs(committed);
	zkl_holds_sweep();
}

/*
 * The local locks belong to the top transaction.  PostgreSQL keeps them when
 * a savepoint is rolled back, so settle_part() releases those of claims that
 * end here.
 */
void
zkl_holds_abort_savepoint(int nest_level)
{
	zkl_claims_renew_deadline();
	while (nrecords > 0 && records[nrecords - 1].nest_level >= nest_level)
	{
		XactRecord *record = &records[--nrecords];

		if (record->has_run)
			zkl_shared_claim_end_run(record->claim->shared, false);
		record->claim->parts[record->part].xact_record = record->previous;
		uncount_xact(record->claim, record->part, record->count);
	}
}

/*
 * A record joins that of the parent, if the parent has one for the same part;
 * otherwise it becomes the parent's.  A part has at most one record of the
 * level that ends, so its previous record is below "first", and does not
 * move.
 */
void
zkl_holds_release_savepoint(int nest_level)
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

		/* The record moves down over those that have joined others. */
		record.nest_level = nest_level - 1;
		record.claim->parts[record.part].xact_record = kept;
		records[kept++] = record;
	}
	nrecords = kept;
}
