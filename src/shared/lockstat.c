/*-------------------------------------------------------------------------
 *
 * lockstat.c
 *	  What zk_stat_locks counts: one row for each path.
 *
 * An entry links to its row, so a lock that the server keeps is counted
 * without a look-up.  A row that is discarded unlinks its entry, and the next
 * claim on the path makes another row.
 *
 * src/shared/lockstat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "settings.h"
#include "shared/lockstat.h"

/* The rows of one partition. */
typedef struct Part
{
	dlist_head	rows;
	int			nrows;
	uint64		ndiscarded;
	ZklLockCounts discarded;	/* the sum of these rows */
} Part;

static Part *parts = NULL;		/* ZKL_PARTITIONS of them */
static HTAB *table = NULL;

static int	max_rows_of_part(void);
static ZklLockStat *use(ZklClaim *claim);
static ZklLockStat *find_or_make(ZklEntry *entry, Oid role);
static void discard(Part *part, ZklLockStat *row);
static void add(ZklLockCounts *sum, const ZklLockCounts *counts);
static void count_wait(ZklLockStat *row, const ZklClaim *claim, int64 now);

/* Round down, so that there are never more rows than the setting allows. */
static int
max_rows_of_part(void)
{
	return zkl_stat_locks / ZKL_PARTITIONS;
}

Size
zkl_lock_stat_size(void)
{
	return sizeof(Part) * ZKL_PARTITIONS;
}

Size
zkl_lock_stat_hash_size(void)
{
	return hash_estimate_size(max_rows_of_part() * ZKL_PARTITIONS, sizeof(ZklLockStat));
}

void
zkl_lock_stat_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	HASHCTL		info = {0};

	parts = memory;
	for (int i = 0; i < ZKL_PARTITIONS && is_new; i++)
		dlist_init(&parts[i].rows);

	/* All look-ups pass the hash of the lock table. */
	info.keysize = ZKL_PATH_SIZE;
	info.entrysize = sizeof(ZklLockStat);
	info.num_partitions = ZKL_PARTITIONS;
	table = zkl_shmem_init_hash("zklock rows of statistics",
								max_rows_of_part() * ZKL_PARTITIONS, &info,
								HASH_ELEM | HASH_STRINGS | HASH_PARTITION);
}

/*
 * Find or make the row of the claim's path, and make it the most recently
 * used one; NULL if there is no room.  NULL also for the use of a detached
 * claim, which acquires nothing.  The quick path is for a lock that is used
 * repeatedly.
 */
static ZklLockStat *
use(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	ZklLockStat *row = entry->stat;

	Assert(zkl_lock_table_is_mine(entry));
	if (claim->is_use)
		return NULL;
	if (row == NULL)
		row = find_or_make(entry, claim->role);
	if (row == NULL)
		return NULL;
	dlist_move_head(&parts[entry->hash % ZKL_PARTITIONS].rows, &row->link);

	/*
	 * If several roles have used the row, only roles that may see everything
	 * see it.
	 */
	if (row->role != claim->role)
		row->role = InvalidOid;
	return row;
}

static ZklLockStat *
find_or_make(ZklEntry *entry, Oid role)
{
	Part	   *part = &parts[entry->hash % ZKL_PARTITIONS];
	ZklLockStat *row = hash_search_with_hash_value(table, entry->path,
												   entry->hash, HASH_FIND, NULL);

	if (row == NULL)
	{
		if (part->nrows == max_rows_of_part())
		{
			ZklLockStat *oldest = dlist_tail_element(ZklLockStat, link, &part->rows);

			add(&part->discarded, &oldest->counts);
			part->ndiscarded++;
			discard(part, oldest);
		}

		/*
		 * A free element may be on its way from one partition to another, and
		 * not be found.  Then this use is not counted.
		 */
		row = hash_search_with_hash_value(table, entry->path, entry->hash,
										  HASH_ENTER_NULL, NULL);
		if (row == NULL)
			return NULL;
		memset((char *) row + ZKL_PATH_SIZE, 0, sizeof(*row) - ZKL_PATH_SIZE);
		row->role = role;
		row->since = GetCurrentTimestamp();
		dlist_push_head(&part->rows, &row->link);
		part->nrows++;
	}
	row->entry = entry;
	entry->stat = row;
	return row;
}

static void
discard(Part *part, ZklLockStat *row)
{
	if (row->entry != NULL)
		row->entry->stat = NULL;
	dlist_delete(&row->link);
	part->nrows--;
	(void) hash_search_with_hash_value(table, row->path,
									   zkl_lock_table_hash(row->path),
									   HASH_REMOVE, NULL);
}

static void
add(ZklLockCounts *sum, const ZklLockCounts *counts)
{
	sum->acquired += counts->acquired;
	sum->acquired_locally += counts->acquired_locally;
	sum->waited += counts->waited;
	sum->wait_time += counts->wait_time;
	sum->hold_time += counts->hold_time;
	sum->timeouts += counts->timeouts;
	sum->lost += counts->lost;
	sum->deadlocks += counts->deadlocks;
	sum->handed_over += counts->handed_over;
}

void
zkl_lock_stat_unlink(ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	if (entry->stat != NULL)
		entry->stat->entry = NULL;
	entry->stat = NULL;
}

/*
 * Counting
 */

void
zkl_lock_stat_granted(ZklClaim *claim, int64 now)
{
	ZklLockStat *row = use(claim);

	Assert(claim->state == ZKL_CLAIM_WAITING);
	if (row == NULL)
		return;
	row->counts.acquired++;
	if (!claim->asked)
		row->counts.acquired_locally++;
	count_wait(row, claim, now);
}

/* The grant of a lock that is free and owned does not count as a wait. */
static void
count_wait(ZklLockStat *row, const ZklClaim *claim, int64 now)
{
	if (claim->waited)
		row->counts.waited++;
	if (claim->waited || claim->asked)
		row->counts.wait_time += now - claim->since;
}

void
zkl_lock_stat_lost(ZklClaim *claim, int64 now)
{
	ZklLockStat *row = use(claim);

	Assert(claim->state == ZKL_CLAIM_HELD);
	if (row == NULL)
		return;
	row->counts.lost++;
	row->counts.hold_time += now - claim->since;
}

/* If the claim was lost, its time was already counted at the loss. */
void
zkl_lock_stat_ended(ZklClaim *claim, int64 now)
{
	ZklLockStat *row = use(claim);

	if (row == NULL)
		return;
	if (claim->state == ZKL_CLAIM_HELD)
		row->counts.hold_time += now - claim->since;
	else if (claim->state == ZKL_CLAIM_WAITING)
		count_wait(row, claim, now);
}

void
zkl_lock_stat_given_up(const ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	if (entry->contended && entry->lock->stat != NULL)
		entry->lock->stat->counts.handed_over++;
}

void
zkl_lock_stat_failed(ZklClaim *claim, int sqlstate)
{
	LWLock	   *partition = zkl_lock_table_partition(claim->entry->hash);
	bool		timeout = sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
	ZklLockStat *row;

	if (!timeout && sqlstate != ERRCODE_T_R_DEADLOCK_DETECTED)
		return;
	LWLockAcquire(partition, LW_EXCLUSIVE);
	row = use(claim);
	if (row != NULL && timeout)
		row->counts.timeouts++;
	else if (row != NULL)
		row->counts.deadlocks++;
	LWLockRelease(partition);
}

/*
 * Reading and resetting
 */

ZklLockStat *
zkl_lock_stat_copy(int *nrows)
{
	ZklLockStat *rows = palloc(sizeof(ZklLockStat) * max_rows_of_part() *
							   ZKL_PARTITIONS);
	dlist_iter	iter;

	*nrows = 0;
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		zkl_lock_table_begin_browsing(i);
		dlist_foreach(iter, &parts[i].rows)
			rows[(*nrows)++] = *dlist_container(ZklLockStat, link, iter.cur);
		zkl_lock_table_end_browsing(i);
	}
	return rows;
}

uint64
zkl_lock_stat_sum(ZklLockCounts *sum)
{
	uint64		ndiscarded = 0;
	dlist_iter	iter;

	memset(sum, 0, sizeof(*sum));
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		zkl_lock_table_begin_browsing(i);
		ndiscarded += parts[i].ndiscarded;
		add(sum, &parts[i].discarded);
		dlist_foreach(iter, &parts[i].rows)
			add(sum, &dlist_container(ZklLockStat, link, iter.cur)->counts);
		zkl_lock_table_end_browsing(i);
	}
	return ndiscarded;
}

void
zkl_lock_stat_reset(void)
{
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		dlist_mutable_iter iter;

		LWLockAcquire(zkl_lock_table_partition(i), LW_EXCLUSIVE);
		dlist_foreach_modify(iter, &parts[i].rows)
			discard(&parts[i], dlist_container(ZklLockStat, link, iter.cur));
		parts[i].ndiscarded = 0;
		memset(&parts[i].discarded, 0, sizeof(ZklLockCounts));
		LWLockRelease(zkl_lock_table_partition(i));
	}
}
