/*-------------------------------------------------------------------------
 *
 * views.c
 *	  The functions behind the views zk_locks, zk_status and zk_sessions.
 *
 * src/backend/views.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/display.h"
#include "backend/permission.h"
#include "backend/report.h"
#include "settings.h"
#include "shared/locktable.h"

PG_FUNCTION_INFO_V1(zklock_locks);
PG_FUNCTION_INFO_V1(zklock_status);
PG_FUNCTION_INFO_V1(zklock_sessions);

#define LOCKS_COLUMNS	17
#define STATUS_COLUMNS	10
#define SESSION_COLUMNS	13

/* A copy of one row, made while the table is locked. */
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
} LocksCopy;

static void copy_entry(ZklEntry *entry, void *arg);
static const ZklEntry *lock_of(const ZklEntry *entry);
static void copy_row(LocksCopy *copy, const ZklEntry *entry,
					 const ZklClaim *claim);
static void put_row(ReturnSetInfo *rsinfo, const LocksRow *row);
static const char *ticket_text(const ZklEntry *entry);
static const char *kind_text(ZklKind kind);
static const char *mode_text(ZklMode mode);
static const char *claim_text(const ZklClaim *claim);
static void put_session(ReturnSetInfo *rsinfo, int number);
static const char *state_text(const ZklSessionInfo *info, bool connected,
							  bool safe, bool idle, bool has_tickets);

Datum
zklock_locks(PG_FUNCTION_ARGS)
{
	LocksCopy	copy = {0};

	zkl_report_unless_loaded();
	InitMaterializedSRF(fcinfo, 0);

	/* Make room before a partition is locked; it is rarely too little. */
	copy.max_rows = 64 + 2 * pg_atomic_read_u32(&zkl_lock_table->nentries) / ZKL_PARTITIONS;
	copy.rows = palloc(copy.max_rows * sizeof(LocksRow));
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		copy.nrows = 0;
		zkl_lock_table_browse(i, copy_entry, &copy);
		for (int j = 0; j < copy.nrows; j++)
			put_row((ReturnSetInfo *) fcinfo->resultinfo, &copy.rows[j]);
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

	if (!zkl_permission_allows(lock_of(entry)->path))
		return;
	if (entry->semaphore != NULL)
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

/* Of a lease: its semaphore. */
static const ZklEntry *
lock_of(const ZklEntry *entry)
{
	return entry->semaphore != NULL ? entry->semaphore : entry;
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
	strlcpy(row->path, lock_of(entry)->path, sizeof(row->path));
	strlcpy(row->znode, entry->znode, sizeof(row->znode));
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
 * One row of zk_locks, made without any lock.  What another user's backend
 * does in detail is null, unless this user may see it.
 */
static void
put_row(ReturnSetInfo *rsinfo, const LocksRow *row)
{
	const ZklClaim *claim = &row->claim;
	Datum		values[LOCKS_COLUMNS] = {0};
	bool		nulls[LOCKS_COLUMNS] = {0};

	memset(nulls, true, sizeof(nulls));
	values[0] = CStringGetTextDatum(zkl_display_path(row->path));
	values[1] = CStringGetTextDatum(kind_text(row->kind));
	values[8] = CStringGetTextDatum(row->ticket);
	values[12] = BoolGetDatum(row->contended);
	values[15] = BoolGetDatum(row->revoked);
	nulls[0] = nulls[1] = nulls[8] = nulls[12] = nulls[15] = false;

	if (row->has_claim)
	{
		values[2] = CStringGetTextDatum(mode_text(claim->mode));
		values[3] = CStringGetTextDatum(claim_text(claim));
		values[4] = Int32GetDatum(claim->pid);
		values[5] = ObjectIdGetDatum(claim->database);
		values[6] = ObjectIdGetDatum(claim->role);
		nulls[2] = nulls[3] = nulls[4] = nulls[5] = nulls[6] = false;
		if (zkl_permission_may_see(claim->role))
		{
			values[7] = TimestampTzGetDatum(zkl_display_time(claim->since));
			values[9] = Int32GetDatum(claim->session_count);
			values[10] = Int32GetDatum(claim->xact_count);
			values[11] = Int64GetDatum(claim->token);
			nulls[7] = nulls[9] = nulls[10] = false;
			values[16] = TimestampTzGetDatum(zkl_display_time(claim->lease_until));
			nulls[16] = claim->lease_until == 0;
			nulls[11] = claim->state == ZKL_CLAIM_WAITING;
		}
	}
	if (row->znode[0])
	{
		values[13] = CStringGetTextDatum(row->znode);
		nulls[13] = false;
	}
	/* A ticket may have served claims of any role. */
	if (row->owned && zkl_permission_may_see(InvalidOid))
	{
		values[14] = TimestampTzGetDatum(zkl_display_time(row->owned_at));
		nulls[14] = false;
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static const char *
ticket_text(const ZklEntry *entry)
{
	switch (entry->state)
	{
		case ZKL_ENTRY_NONE:
			return "none";
		case ZKL_ENTRY_WANTED:
			return "wanted";
		case ZKL_ENTRY_QUEUED:
			return "queued";
		case ZKL_ENTRY_OWNED:
			return entry->nheld + entry->nwaiting > 0 ? "owned" : "lingering";
		case ZKL_ENTRY_RELEASING:
			return "releasing";
	}
	return NULL;
}

static const char *
kind_text(ZklKind kind)
{
	switch (kind)
	{
		case ZKL_KIND_MUTEX:
			return "mutex";
		case ZKL_KIND_READ_WRITE:
			return "read-write";
		case ZKL_KIND_SEMAPHORE:
			return "semaphore";
	}
	return NULL;
}

static const char *
mode_text(ZklMode mode)
{
	switch (mode)
	{
		case ZKL_MODE_WRITE:
			return "write";
		case ZKL_MODE_READ:
			return "read";
		case ZKL_MODE_LEASE:
			return "lease";
		case ZKL_MODE_LOCK:
		case ZKL_MODE_KAZOO_LOCK:
		case ZKL_MODE_KAZOO_READ:
			break;
	}
	return "exclusive";
}

static const char *
claim_text(const ZklClaim *claim)
{
	switch (claim->state)
	{
		case ZKL_CLAIM_WAITING:
			return "waiting";
		case ZKL_CLAIM_HELD:
			return "held";
		case ZKL_CLAIM_LOST:
			return "lost";
	}
	return NULL;
}

static void
put_count(Datum *value, pg_atomic_uint64 *counter)
{
	*value = Int64GetDatum((int64) pg_atomic_read_u64(counter));
}

Datum
zklock_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[STATUS_COLUMNS] = {0};
	bool		nulls[STATUS_COLUMNS] = {0};
	uint64		claims = 0;

	zkl_report_unless_loaded();
	InitMaterializedSRF(fcinfo, 0);

	/*
	 * Read without the partitions' locks: the sum need not be of one moment.
	 */
	for (int i = 0; i < ZKL_PARTITIONS; i++)
		claims += zkl_lock_table->nclaims[i];

	values[0] = CStringGetTextDatum(zkl_settings_node_name());
	values[1] = Int32GetDatum(pg_atomic_read_u32(&zkl_lock_table->nentries));
	values[2] = Int32GetDatum(zkl_lock_table->max_entries);
	values[3] = Int64GetDatum((int64) claims);
	put_count(&values[4], &zkl_lock_table->counters.tickets);
	put_count(&values[5], &zkl_lock_table->counters.lost);
	put_count(&values[6], &zkl_lock_table->counters.requests);
	put_count(&values[7], &zkl_lock_table->counters.connects);
	put_count(&values[8], &zkl_lock_table->counters.expirations);
	put_count(&values[9], &zkl_lock_table->counters.bypasses);

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

Datum
zklock_sessions(PG_FUNCTION_ARGS)
{
	zkl_report_unless_loaded();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < zkl_sessions; i++)
		put_session((ReturnSetInfo *) fcinfo->resultinfo, i);
	return (Datum) 0;
}

/*
 * Only few roles may see the session's id: a client that knows it can compute
 * the session's password and end the session.
 */
static void
put_session(ReturnSetInfo *rsinfo, int number)
{
	ZklSessionInfo *session = &zkl_lock_table->session[number];
	Datum		values[SESSION_COLUMNS] = {0};
	bool		nulls[SESSION_COLUMNS] = {0};
	ZklSessionInfo info;
	uint32		worker_pid = pg_atomic_read_u32(&session->worker_pid);
	bool		connected = pg_atomic_read_u32(&session->connected) != 0;
	uint64		safe_until = pg_atomic_read_u64(&session->safe_until);
	uint64		bytes = pg_atomic_read_u64(&session->ephemeral_bytes);
	bool		idle = safe_until == ZKL_SAFE_UNTIL_IDLE;
	bool		safe = zkl_now() < (idle ? zkl_session_info_in_touch_until(number) :
									(int64) safe_until);

	/*
	 * The lock is for the fields that are no atomics, so that the row does
	 * not mix those of two sessions.
	 */
	LWLockAcquire(zkl_lock_table_session_lock(), LW_SHARED);
	info = *session;
	LWLockRelease(zkl_lock_table_session_lock());

	values[0] = Int32GetDatum(number + 1);
	values[1] = Int32GetDatum(worker_pid);
	nulls[1] = worker_pid == 0;
	values[2] = CStringGetTextDatum(state_text(&info, connected, safe, idle, bytes > 0));
	values[3] = CStringGetTextDatum(psprintf("0x%" PRIx64, (uint64) info.id));
	nulls[3] = info.id == 0 || !zkl_permission_may_see(BOOTSTRAP_SUPERUSERID);
	values[4] = CStringGetTextDatum(info.server);
	nulls[4] = !connected;
	values[5] = Int32GetDatum(info.timeout_ms);
	nulls[5] = info.id == 0;
	values[6] = TimestampTzGetDatum(zkl_display_time(info.connected_at));
	nulls[6] = !connected;
	values[7] = TimestampTzGetDatum(zkl_display_time(safe_until));
	nulls[7] = safe_until == 0 || idle;
	values[8] = BoolGetDatum(safe);
	values[9] = Int64GetDatum((int64) pg_atomic_read_u64(&session->epoch));
	values[10] = Int64GetDatum((int64) bytes);
	values[11] = CStringGetTextDatum(info.last_error);
	values[12] = TimestampTzGetDatum(zkl_display_time(info.last_error_at));
	nulls[11] = nulls[12] = info.last_error_at == 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * A session without a ticket is never in doubt; nor is it usable before
 * ZooKeeper has confirmed it.  An idle session may have tickets that need no
 * proof.
 */
static const char *
state_text(const ZklSessionInfo *info, bool connected, bool safe, bool idle,
		   bool has_tickets)
{
	if (info->id != 0 && has_tickets && !safe && !idle)
		return "in doubt";
	if (connected && safe)
		return idle ? "idle" : "connected";
	if (connected)
		return "connecting";
	return info->id != 0 ? "disconnected" : "none";
}
