/*-------------------------------------------------------------------------
 *
 * views.c
 *	  The functions behind the views of what this server knows by itself: zk_locks,
 *	  zk_status and zk_sessions; zk_stat_locks and zk_stat.
 *
 * src/backend/sql/views.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/timestamp.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "backend/report.h"
#include "backend/row.h"
#include "settings.h"
#include "shared/lockstat.h"
#include "shared/locktable.h"
#include "shared/serverstat.h"

PG_FUNCTION_INFO_V1(zklock_locks);
PG_FUNCTION_INFO_V1(zklock_status);
PG_FUNCTION_INFO_V1(zklock_sessions);
PG_FUNCTION_INFO_V1(zklock_stat_locks);
PG_FUNCTION_INFO_V1(zklock_stat);
PG_FUNCTION_INFO_V1(zklock_stat_transactions);
PG_FUNCTION_INFO_V1(zklock_stat_errors);
PG_FUNCTION_INFO_V1(zklock_stat_reset);

/* A copy of one row, made while its partition is locked. */
typedef struct LocksRow
{
	char		path[ZKL_PATH_SIZE];
	char		znode[ZKL_ZNODE_SIZE];
	const char *ticket;
	bool		owned;
	ZklKind		kind;
	bool		contended;
	bool		revoked;
	int64		owned_at;
	bool		has_claim;
	ZklClaim	claim;
} LocksRow;

typedef struct LocksCopy
{
	LocksRow   *rows;
	int			nrows;
	int			max_rows;
	bool		all_paths;		/* this session may see them */
} LocksCopy;

static void copy_entry(ZklEntry *entry, void *arg);
static void copy_row(LocksCopy *copy, const ZklEntry *entry,
					 const ZklClaim *claim);
static void put_lock(ReturnSetInfo *set, const LocksRow *row);
static const char *ticket_text(const ZklEntry *entry);
static const char *state_text(const ZklSessionInfo *info, bool connected,
							  bool safe, bool idle, bool has_tickets);
static void put_counts(ReturnSetInfo *set, const ZklLockStat *stat);
static void add_counts(ZklRow *row, const ZklLockCounts *counts);
static void add_answers(ZklRow *row);

/*
 * Locks
 */

Datum
zklock_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	LocksCopy	copy = {.all_paths = zkl_permission_shows_all()};

	/* Make room before a partition is locked; there is rarely too little. */
	copy.max_rows = 64 + 2 * pg_atomic_read_u32(&zkl_lock_table->nentries) / ZKL_PARTITIONS;
	copy.rows = palloc(copy.max_rows * sizeof(LocksRow));
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		copy.nrows = 0;
		zkl_lock_table_browse(i, copy_entry, &copy);
		for (int j = 0; j < copy.nrows; j++)
			put_lock(set, &copy.rows[j]);
	}
	return (Datum) 0;
}

/*
 * One row for each claim, and one for a ticket without claims.  A claim on a
 * semaphore has a row for each lease that it holds.
 */
static void
copy_entry(ZklEntry *entry, void *arg)
{
	LocksCopy  *copy = arg;
	dlist_iter	iter;
	bool		any = false;

	if (!copy->all_paths && !zkl_permission_allows(entry->lock->path))
		return;
	if (zkl_lock_entry_is_lease(entry))
	{
		if (entry->state != ZKL_ENTRY_NONE)
			copy_row(copy, entry, entry->holder);
		return;
	}
	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->nleases == 0)
		{
			copy_row(copy, entry, claim);
			any = true;
		}
	}
	if (!any && entry->state != ZKL_ENTRY_NONE)
		copy_row(copy, entry, NULL);
}

/*
 * Called with the partition locked, so this only copies.  The copy of the
 * claim is for its plain fields: its links are not followed later.
 */
static void
copy_row(LocksCopy *copy, const ZklEntry *entry, const ZklClaim *claim)
{
	LocksRow   *row;

	if (copy->nrows == copy->max_rows)
	{
		copy->max_rows *= 2;
		copy->rows = repalloc_huge(copy->rows,
								   copy->max_rows * sizeof(LocksRow));
	}
	row = &copy->rows[copy->nrows++];
	strlcpy(row->path, entry->lock->path, sizeof(row->path));
	strlcpy(row->znode, entry->place.znode, sizeof(row->znode));
	row->ticket = ticket_text(entry);
	row->owned = entry->state == ZKL_ENTRY_OWNED;
	row->contended = row->owned && entry->contended;
	row->revoked = row->owned && entry->revoked;
	row->owned_at = entry->owned_at;
	row->kind = zkl_recipe_kind(claim ? claim->mode : entry->mode);
	row->has_claim = claim != NULL;
	if (claim != NULL)
		row->claim = *claim;
}

/*
 * One row of zk_locks, made without any lock.  The columns with the details
 * of another user's backend are null, unless this user may see them.
 */
static void
put_lock(ReturnSetInfo *set, const LocksRow *row)
{
	static const char *const claim_states[] = {
		[ZKL_CLAIM_WAITING] = "waiting",
		[ZKL_CLAIM_HELD] = "held",
		[ZKL_CLAIM_LOST] = "lost"
	};
	const ZklClaim *claim = row->has_claim ? &row->claim : NULL;
	bool		in_detail = claim != NULL && zkl_permission_may_see(claim->role);
	ZklRow		columns = {0};

	zkl_row_add_text(&columns, zkl_display_path(row->path));
	zkl_row_add_text(&columns, zkl_recipe_kind_name(row->kind));
	if (claim != NULL)
	{
		zkl_row_add_text(&columns, claim->mode == ZKL_MODE_LOCK ? "exclusive" :
						 zkl_recipe_mode_name(claim->mode));
		zkl_row_add_text(&columns, claim_states[claim->state]);
		zkl_row_add(&columns, Int32GetDatum(claim->pid));
		zkl_row_add(&columns, ObjectIdGetDatum(claim->database));
		zkl_row_add(&columns, ObjectIdGetDatum(claim->role));
	}
	else
		zkl_row_add_nulls(&columns, 5);
	zkl_row_add_moment_if(&columns, in_detail, row->claim.since);
	zkl_row_add_text(&columns, row->ticket);
	zkl_row_add_if(&columns, in_detail, Int32GetDatum(row->claim.session_count));
	zkl_row_add_if(&columns, in_detail, Int32GetDatum(row->claim.xact_count));
	zkl_row_add_if(&columns, in_detail && claim->state != ZKL_CLAIM_WAITING,
				   Int64GetDatum(row->claim.token));
	zkl_row_add(&columns, BoolGetDatum(row->contended));
	zkl_row_add_text(&columns, row->znode[0] != '\0' ? row->znode : NULL);
	/* A ticket may have served claims of any role. */
	zkl_row_add_moment_if(&columns, row->owned && zkl_permission_may_see(InvalidOid),
						  row->owned_at);
	zkl_row_add(&columns, BoolGetDatum(row->revoked));
	zkl_row_add_moment_if(&columns, in_detail && claim->hold_until != 0,
						  row->claim.hold_until);
	zkl_row_put(set, &columns);
}

static const char *
ticket_text(const ZklEntry *entry)
{
	static const char *const texts[] = {
		[ZKL_ENTRY_NONE] = "none",
		[ZKL_ENTRY_WANTED] = "wanted",
		[ZKL_ENTRY_QUEUED] = "queued",
		[ZKL_ENTRY_OWNED] = "owned",
		[ZKL_ENTRY_RELEASING] = "releasing"
	};

	if (entry->state == ZKL_ENTRY_OWNED && entry->holder == NULL &&
		entry->nheld + entry->nwaiting == 0)
		return "lingering";
	return texts[entry->state];
}

/*
 * The server and its session
 */

Datum
zklock_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklRow		row = {0};
	uint64		claims = 0;

	/*
	 * Read without the partitions' locks: the sum need not be of one moment.
	 */
	for (int i = 0; i < ZKL_PARTITIONS; i++)
		claims += zkl_lock_table->nclaims[i];

	zkl_row_add_text(&row, zkl_display_path(zkl_settings_node_name()));
	zkl_row_add(&row, Int32GetDatum(pg_atomic_read_u32(&zkl_lock_table->nentries)));
	zkl_row_add(&row, Int32GetDatum(zkl_lock_table_max_entries()));
	zkl_row_add(&row, Int64GetDatum((int64) claims));
	zkl_row_add_counter(&row, &zkl_lock_table->counters.tickets);
	zkl_row_add_counter(&row, &zkl_lock_table->counters.lost);
	zkl_row_add_counter(&row, &zkl_lock_table->counters.requests);
	zkl_row_add_counter(&row, &zkl_lock_table->counters.connects);
	zkl_row_add_counter(&row, &zkl_lock_table->counters.expirations);
	zkl_row_add_counter(&row, &zkl_lock_table->counters.bypasses);
	zkl_row_put(set, &row);
	return (Datum) 0;
}

Datum
zklock_sessions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklSessionInfo *session = zkl_session_info;
	ZklRow		row = {0};
	ZklSessionInfo info;
	uint32		worker_pid = pg_atomic_read_u32(&session->worker_pid);
	bool		connected = pg_atomic_read_u32(&session->connected) != 0;
	uint64		safe_until = pg_atomic_read_u64(&session->safe_until);
	uint64		bytes = pg_atomic_read_u64(&session->ephemeral_bytes);
	bool		idle = safe_until == ZKL_SAFE_UNTIL_IDLE;
	bool		safe = zkl_now() < (idle ? zkl_session_info_in_touch_until() :
									(int64) safe_until);

	/*
	 * The lock is for the fields that are no atomics, so that the row does
	 * not mix two sessions.
	 */
	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	info = *session;
	LWLockRelease(zkl_lock_table_session_lock());

	/* In version 1.0, a server could have several sessions. */
	zkl_row_add(&row, Int32GetDatum(1));
	zkl_row_add_if(&row, worker_pid != 0, Int32GetDatum(worker_pid));
	zkl_row_add_text(&row, state_text(&info, connected, safe, idle, bytes > 0));

	/*
	 * Only few roles may see the session's ID: a client that knows the ID can
	 * compute the session's password and end the session.
	 */
	zkl_row_add_text(&row, info.id != 0 && zkl_permission_may_see(BOOTSTRAP_SUPERUSERID) ?
					 psprintf("0x%" PRIx64, (uint64) info.id) : NULL);
	zkl_row_add_text(&row, connected ? info.server : NULL);
	zkl_row_add_if(&row, info.id != 0, Int32GetDatum(info.timeout_ms));
	zkl_row_add_moment_if(&row, connected, info.connected_at);
	zkl_row_add_moment_if(&row, safe_until != 0 && !idle, safe_until);
	zkl_row_add(&row, BoolGetDatum(safe));
	zkl_row_add_counter(&row, &session->epoch);
	zkl_row_add(&row, Int64GetDatum((int64) bytes));
	zkl_row_add_text(&row, info.last_error_at != 0 ? info.last_error : NULL);
	zkl_row_add_moment_if(&row, info.last_error_at != 0, info.last_error_at);
	zkl_row_put(set, &row);
	return (Datum) 0;
}

/*
 * A session without a ticket is never in doubt; nor is it usable before
 * ZooKeeper has confirmed it.  An idle session may have tickets that need no
 * proof.  A server counts as refused if ZooKeeper refuses its credentials or
 * its own record.  A refused lock does not count: any role could use a path
 * that another client's access control forbids.
 */
static const char *
state_text(const ZklSessionInfo *info, bool connected, bool safe, bool idle,
		   bool has_tickets)
{
	if (info->id != 0 && has_tickets && !safe && !idle)
		return "in doubt";
	if (zkl_session_info_is_refused() ||
		(connected && pg_atomic_read_u32(&zkl_session_info->record_refused) != 0))
		return "refused";
	if (connected && safe)
		return idle ? "idle" : "connected";
	if (connected)
		return "connecting";
	return info->id != 0 ? "disconnected" : "none";
}

/*
 * Statistics
 */

Datum
zklock_stat_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	int			nrows;
	ZklLockStat *rows = zkl_lock_stat_copy(&nrows);

	for (int i = 0; i < nrows; i++)
	{
		if (zkl_permission_shows(rows[i].path))
			put_counts(set, &rows[i]);
	}
	return (Datum) 0;
}

/*
 * All roles see the counts, but the path is null for a role that may not see
 * it, as is the text of a statement in pg_stat_statements.  A path belongs to
 * a role as long as no other role has used it.
 */
static void
put_counts(ReturnSetInfo *set, const ZklLockStat *stat)
{
	ZklRow		row = {0};

	zkl_row_add_text(&row, zkl_permission_may_see(stat->role) ?
					 zkl_display_path(stat->path) : NULL);
	add_counts(&row, &stat->counts);
	zkl_row_add(&row, TimestampTzGetDatum(stat->since));
	zkl_row_put(set, &row);
}

static void
add_counts(ZklRow *row, const ZklLockCounts *counts)
{
	zkl_row_add(row, Int64GetDatum((int64) counts->acquired));
	zkl_row_add(row, Int64GetDatum((int64) counts->acquired_locally));
	zkl_row_add(row, Int64GetDatum((int64) counts->waited));
	zkl_row_add_ms(row, counts->wait_time);
	zkl_row_add_ms(row, counts->hold_time);
	zkl_row_add(row, Int64GetDatum((int64) counts->timeouts));
	zkl_row_add(row, Int64GetDatum((int64) counts->lost));
	zkl_row_add(row, Int64GetDatum((int64) counts->deadlocks));
	zkl_row_add(row, Int64GetDatum((int64) counts->handed_over));
}

/* One row.  The counts need not be from one moment. */
Datum
zklock_stat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklRow		row = {0};
	ZklLockCounts sum;
	uint64		ndiscarded = zkl_lock_stat_sum(&sum);

	add_counts(&row, &sum);
	zkl_row_add(&row, Int64GetDatum((int64) ndiscarded));
	for (int kind = 0; kind < ZKL_TRAFFIC_KINDS; kind++)
		zkl_row_add_counter(&row, &zkl_server_stat->sent[kind]);
	add_answers(&row);
	zkl_row_add_counter(&row, &zkl_server_stat->reconnects);
	zkl_row_add_counter(&row, &zkl_server_stat->expirations);
	/* The total time in doubt, including a doubt that has not ended yet. */
	zkl_row_add_ms(&row, (int64) pg_atomic_read_u64(&zkl_server_stat->doubt_time) +
				   zkl_server_stat_doubt(zkl_now()));
	zkl_row_add(&row, TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&zkl_server_stat->reset_time)));
	zkl_row_put(set, &row);
	return (Datum) 0;
}

/* The columns that version 1.1 has added to the view zk_stat. */
Datum
zklock_stat_transactions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);
	ZklRow		row = {0};

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_stat", 0, NULL);
	zkl_row_add_counter(&row, &zkl_server_stat->late_commits);
	zkl_row_add_counter(&row, &zkl_server_stat->batches);
	zkl_row_add_counter(&row, &zkl_server_stat->batches_undone);
	zkl_row_put(set, &row);
	return (Datum) 0;
}

/* Rows that count nothing yet are there, too: a monitoring system compares them with later ones. */
Datum
zklock_stat_errors(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = zkl_row_begin_set(fcinfo);

	zkl_permission_check_older(fcinfo->flinfo->fn_oid, "zk_stat", 0, NULL);
	for (int i = 0; i < ZKL_SERVER_STAT_ERRORS; i++)
	{
		ZklRow		row = {0};

		zkl_row_add_text(&row, unpack_sql_state(zkl_report_counted[i]));
		zkl_row_add_counter(&row, &zkl_server_stat->errors[i]);
		zkl_row_put(set, &row);
	}
	return (Datum) 0;
}

/* The histogram, as Prometheus counts: each bucket includes those before it. */
static void
add_answers(ZklRow *row)
{
	Datum		bounds[ZKL_TRAFFIC_BOUNDS];
	Datum		buckets[ZKL_TRAFFIC_BOUNDS];
	uint64		answers = 0;

	for (int i = 0; i < ZKL_TRAFFIC_BOUNDS; i++)
	{
		answers += pg_atomic_read_u64(&zkl_server_stat->answers[i]);
		bounds[i] = Float8GetDatum(zkl_traffic_bounds[i] / 1000.0);
		buckets[i] = Int64GetDatum((int64) answers);
	}
	answers += pg_atomic_read_u64(&zkl_server_stat->answers[ZKL_TRAFFIC_BOUNDS]);

	zkl_row_add(row, Int64GetDatum((int64) answers));
	zkl_row_add_ms(row, pg_atomic_read_u64(&zkl_server_stat->answer_time));
	zkl_row_add(row, PointerGetDatum(construct_array(bounds, ZKL_TRAFFIC_BOUNDS,
													 FLOAT8OID, sizeof(float8),
													 FLOAT8PASSBYVAL,
													 TYPALIGN_DOUBLE)));
	zkl_row_add(row, PointerGetDatum(construct_array(buckets, ZKL_TRAFFIC_BOUNDS,
													 INT8OID, sizeof(int64),
													 FLOAT8PASSBYVAL,
													 TYPALIGN_DOUBLE)));
}

Datum
zklock_stat_reset(PG_FUNCTION_ARGS)
{
	zkl_report_unless_loaded();
	zkl_lock_stat_reset();
	zkl_server_stat_reset();
	PG_RETURN_VOID();
}
