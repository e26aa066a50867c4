/*-------------------------------------------------------------------------
 *
 * dependents.c
 *	  Which backends of this server cannot go on before this one.
 *
 * A backend waits for another one if that one holds the lock in a conflicting
 * mode, or is before it in the lock's queue with a conflicting request.
 * PostgreSQL's own deadlock check has the same rule (deadlock.c).  But that
 * check may also rearrange a queue; this one does not.  A parallel worker
 * counts as its leader.
 *
 * The search uses copies that the lock manager makes.  Copying takes time and
 * keeps all partitions of its table locked, so the search ends at once if no
 * process waits for a lock of this backend.  If such a wait begins at that
 * moment, the next search finds it.
 *
 * src/backend/lock/dependents.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"

#include "backend/lock/dependents.h"
#include "compat.h"
#include "faultpoint.h"

typedef struct Search
{
	LockInstanceData *locks;	/* those of the locks for which a process
								 * waits */
	int			nlocks;
	LockInstanceData *waiters;	/* among these, the processes that wait ... */
	BlockedProcsData **queues;	/* ... and the queue of each; NULL if it was
								 * not read */
	int			nwaiters;
	ZklDependents *stuck;
	int			nstuck;
} Search;

static bool is_awaited(void);
static bool has_parallel_workers(void);
static TimestampTz wait_start(const LockInstanceData *waiter);
static void copy_locks(Search *search);
static bool has_waiter(const Search *search, const LOCKTAG *tag);
static bool add_waiter(Search *search, int index);
static bool stuck_since(const Search *search, int pid, TimestampTz *since);
static bool is_blocked_by(Search *search, int index,
						  const LockInstanceData *other);
static bool is_before(Search *search, int pid, int index);

int
zkl_dependents_find(ZklDependents **stuck)
{
	Search		search = {0};
	bool		changed = is_awaited();

	*stuck = NULL;
	if (!changed)
		return 0;
	copy_locks(&search);

	/*
	 * Each round may find backends that wait for those found before.  It may
	 * also find a way between one of them and this backend that has existed
	 * for longer.
	 */
	while (changed)
	{
		changed = false;
		for (int i = 0; i < search.nwaiters; i++)
			changed |= add_waiter(&search, i);
	}
	*stuck = search.stuck;
	return search.nstuck;
}

/*
 * If another process waits for a lock that this backend has by the fast path,
 * the lock becomes an ordinary one.  Other processes may also wait for locks
 * of this backend's parallel workers.
 */
static bool
is_awaited(void)
{
	bool		awaited = has_parallel_workers();

	for (int i = 0; i < NUM_LOCK_PARTITIONS && !awaited; i++)
		awaited = zkl_awaited_in_partition(i);
	return awaited;
}

/* A backend that once had parallel workers stays in a group of its own. */
static bool
has_parallel_workers(void)
{
	LWLock	   *lock;
	bool		any = false;
	dlist_iter	iter;

	if (MyProc->lockGroupLeader == NULL)
		return false;
	lock = LockHashPartitionLockByProc(MyProc->lockGroupLeader);
	LWLockAcquire(lock, LW_SHARED);
	dlist_foreach(iter, &MyProc->lockGroupLeader->lockGroupMembers)
		any |= dlist_container(PGPROC, lockGroupLink, iter.cur) != MyProc;
	LWLockRelease(lock);
	return any;
}

/* Copy the waits, and all locks for which a process waits. */
static void
copy_locks(Search *search)
{
	LockData   *data = GetLockStatusData();

	ZKL_FAULT_POINT("locks-copied");
	search->locks = palloc(sizeof(LockInstanceData) * (data->nelements + 1));
	search->waiters = palloc(sizeof(LockInstanceData) * (data->nelements + 1));
	for (int i = 0; i < data->nelements; i++)
	{
		LockInstanceData *lock = &data->locks[i];

		if (lock->waitLockMode != NoLock && lock->leaderPid != MyProcPid)
			search->waiters[search->nwaiters++] = *lock;
	}
	search->queues = palloc0(sizeof(BlockedProcsData *) * (search->nwaiters + 1));
	search->stuck = palloc(sizeof(ZklDependents) * (search->nwaiters + 1));
	for (int i = 0; i < data->nelements; i++)
	{
		if (has_waiter(search, &data->locks[i].locktag))
			search->locks[search->nlocks++] = data->locks[i];
	}
}

/*
 * When the wait began.  A wait that has just begun has no time yet.  And in
 * older releases of PostgreSQL, ProcWakeup() clears the time of the process
 * that wakes another one: a process that solves a deadlock by rearranging a
 * queue does so, and goes on waiting.  Without a time, the number of the
 * transaction identifies the wait.  It is smaller than any time.
 */
static TimestampTz
wait_start(const LockInstanceData *waiter)
{
	return waiter->waitStart != 0 ? waiter->waitStart :
		zkl_local_xid_of(waiter);
}

static bool
has_waiter(const Search *search, const LOCKTAG *tag)
{
	for (int i = 0; i < search->nwaiters; i++)
	{
		if (memcmp(&search->waiters[i].locktag, tag, sizeof(LOCKTAG)) == 0)
			return true;
	}
	return false;
}

/*
 * Does this process wait for a stuck one?  If there are several ways, use the
 * one that has existed for the longest.  True if this changes the result.
 */
static bool
add_waiter(Search *search, int index)
{
	const LockInstanceData *waiter = &search->waiters[index];
	ZklDependents *known = NULL;
	TimestampTz start = wait_start(waiter);
	bool		changed = false;

	for (int i = 0; i < search->nstuck; i++)
	{
		if (search->stuck[i].pid == waiter->leaderPid)
			known = &search->stuck[i];
	}
	for (int i = 0; i < search->nlocks; i++)
	{
		const LockInstanceData *other = &search->locks[i];
		TimestampTz since;

		if (other->leaderPid == waiter->leaderPid ||
			!stuck_since(search, other->leaderPid, &since) ||
			(known != NULL && known->since <= Max(since, start)) ||
			!is_blocked_by(search, index, other))
			continue;
		if (known == NULL)
			known = &search->stuck[search->nstuck++];
		known->pid = waiter->leaderPid;
		known->waiter = waiter->pid;
		known->wait_start = start;
		known->since = Max(since, start);
		changed = true;
	}
	return changed;
}

/* Is this backend, or its lock group, stuck?  If so, since when? */
static bool
stuck_since(const Search *search, int pid, TimestampTz *since)
{
	*since = 0;
	if (pid == MyProcPid)
		return true;
	for (int i = 0; i < search->nstuck; i++)
	{
		if (search->stuck[i].pid == pid)
		{
			*since = search->stuck[i].since;
			return true;
		}
	}
	return false;
}

/* All heavyweight locks have the same table of conflicts. */
static bool
is_blocked_by(Search *search, int index, const LockInstanceData *other)
{
	const LockInstanceData *waiter = &search->waiters[index];

	if (memcmp(&waiter->locktag, &other->locktag, sizeof(LOCKTAG)) != 0)
		return false;
	for (LOCKMODE mode = 1; mode <= MaxLockMode; mode++)
	{
		if ((other->holdMask & LOCKBIT_ON(mode)) != 0 &&
			DoLockModesConflict(waiter->waitLockMode, mode))
			return true;
	}
	return other->waitLockMode != NoLock &&
		DoLockModesConflict(waiter->waitLockMode, other->waitLockMode) &&
		is_before(search, other->pid, index);
}

/* Is this process before the waiter in the queue of the lock? */
static bool
is_before(Search *search, int pid, int index)
{
	BlockedProcsData *queue = search->queues[index];

	if (queue == NULL)
		queue = search->queues[index] =
			GetBlockerStatusData(search->waiters[index].pid);
	for (int i = 0; i < queue->npids; i++)
	{
		if (queue->waiter_pids[i] == pid)
			return true;
	}
	return false;
}
