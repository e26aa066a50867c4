/*-------------------------------------------------------------------------
 *
 * lockstat.c
 *	  What zk_stat_locks counts: one row for each path.
 *
 * An entry links to its row, so a lock that the server keeps is counted
 * without a look-up.  A row that is forgotten unlinks its entry, and the next
 * claim on the path makes another row.
 *
 * src/shared/lockstat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
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
	uint64		forgotten;
} Part;

static Part *parts = NULL;		/* ZKL_PARTITIONS of them */
static HTAB *table = NULL;

static int	max_rows_of_part(void);
static ZklLockStat *use(ZklClaim *claim);
static ZklLockStat *find_or_make(ZklEntry *entry, Oid role);
static void forget(Part *part, ZklLockStat *row);
static void count_wait(ZklLockStat *row, const ZklClaim *claim, int64 now);

/* Rounded down, so that there are never more than the setting says. */
static int
max_rows_of_part(void)
{
	return zkl_stat_locks / ZKL_PARTITIONS;
}

void
zkl_lock_stat_request(void)
{
	RequestAddinShmemSpace(sizeof(Part) * ZKL_PARTITIONS);
	RequestAddinShmemSpace(hash_estimate_size(max_rows_of_part() * ZKL_PARTITIONS,
											  sizeof(ZklLockStat)));
}

void
zkl_lock_stat_startup(void)
{
	HASHCTL		info = {0};
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	parts = ShmemInitStruct("zklock statistics of locks",
							sizeof(Part) * ZKL_PARTITIONS, &found);
	if (!found)
	{
		memset(parts, 0, sizeof(Part) * ZKL_PARTITIONS);
		for (int i = 0; i < ZKL_PARTITIONS; i++)
			dlist_init(&parts[i].rows);
	}

	/* All look-ups bring the hash of the lock table along. */
	info.keysize = ZKL_PATH_SIZE;
	info.entrysize = sizeof(ZklLockStat);
	info.num_partitions = ZKL_PARTITIONS;
	table = zkl_shmem_init_hash("zklock rows of statistics",
								max_rows_of_part() * ZKL_PARTITIONS, &info,
								HASH_ELEM | HASH_STRINGS | HASH_PARTITION);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * The row of the claim's path, which is now the most recently used; NULL if
 * there is no room.  The quick way is for a lock that is used again and again.
 */
static ZklLockStat *
use(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	ZklLockStat *row = entry->stat;

	if (row == NULL)
		row = find_or_make(entry, claim->role);
	if (row == NULL)
		return NULL;
	dlist_move_head(&parts[entry->hash % ZKL_PARTITIONS].rows, &row->link);

	/* Only roles that may see all see what several roles have used. */
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
			forget(part, dlist_tail_element(ZklLockStat, link, &part->rows));
			part->forgotten++;
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
forget(Part *part, ZklLockStat *row)
{
	if (row->entry != NULL)
		row->entry->stat = NULL;
	dlist_delete(&row->link);
	part->nrows--;
	(void) hash_search_with_hash_value(table, row->path,
									   zkl_lock_table_hash(row->path),
									   HASH_REMOVE, NULL);
}

void
zkl_lock_stat_unlink(ZklEntry *entry)
{
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

	if (row == NULL)
		return;
	row->acquired++;
	if (!claim->asked)
		row->acquired_locally++;
	count_wait(row, claim, now);
}

/* The grant of a lock that is free and owned is no wait. */
static void
count_wait(ZklLockStat *row, const ZklClaim *claim, int64 now)
{
	if (claim->waited)
		row->waited++;
	if (claim->waited || claim->asked)
		row->wait_time += now - claim->since;
}

void
zkl_lock_stat_lost(ZklClaim *claim, int64 now)
{
	ZklLockStat *row = use(claim);

	if (row == NULL)
		return;
	row->lost++;
	row->hold_time += now - claim->since;
}

/* The time of a claim that was lost has been counted at the loss. */
void
zkl_lock_stat_ended(ZklClaim *claim, int64 now)
{
	ZklLockStat *row = use(claim);

	if (row == NULL)
		return;
	if (claim->state == ZKL_CLAIM_HELD)
		row->hold_time += now - claim->since;
	else if (claim->state == ZKL_CLAIM_WAITING)
		count_wait(row, claim, now);
}

void
zkl_lock_stat_given_up(const ZklEntry *entry)
{
	const ZklEntry *lock = entry->semaphore ? entry->semaphore : entry;

	if (entry->contended && lock->stat != NULL)
		lock->stat->handed_over++;
}

void
zkl_lock_stat_timeout(ZklClaim *claim)
{
	LWLock	   *partition = zkl_lock_table_partition(claim->entry->hash);
	ZklLockStat *row;

	LWLockAcquire(partition, LW_EXCLUSIVE);
	row = use(claim);
	if (row != NULL)
		row->timeouts++;
	LWLockRelease(partition);
}

void
zkl_lock_stat_deadlock(ZklClaim *claim)
{
	LWLock	   *partition = zkl_lock_table_partition(claim->entry->hash);
	ZklLockStat *row;

	LWLockAcquire(partition, LW_EXCLUSIVE);
	row = use(claim);
	if (row != NULL)
		row->deadlocks++;
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
		LWLockAcquire(zkl_lock_table_partition(i), LW_SHARED);
		dlist_foreach(iter, &parts[i].rows)
			rows[(*nrows)++] = *dlist_container(ZklLockStat, link, iter.cur);
		LWLockRelease(zkl_lock_table_partition(i));
	}
	return rows;
}

uint64
zkl_lock_stat_forgotten(void)
{
	uint64		forgotten = 0;

	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		LWLockAcquire(zkl_lock_table_partition(i), LW_SHARED);
		forgotten += parts[i].forgotten;
		LWLockRelease(zkl_lock_table_partition(i));
	}
	return forgotten;
}

void
zkl_lock_stat_reset(void)
{
	for (int i = 0; i < ZKL_PARTITIONS; i++)
	{
		dlist_mutable_iter iter;

		LWLockAcquire(zkl_lock_table_partition(i), LW_EXCLUSIVE);
		dlist_foreach_modify(iter, &parts[i].rows)
			forget(&parts[i], dlist_container(ZklLockStat, link, iter.cur));
		parts[i].forgotten = 0;
		LWLockRelease(zkl_lock_table_partition(i));
	}
}
