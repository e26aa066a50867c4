/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  The differences between the versions of PostgreSQL, 15 to 19.
 *
 * The only file that looks at PG_VERSION_NUM.
 *
 * src/compat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_COMPAT_H
#define ZKL_COMPAT_H

#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

#if PG_VERSION_NUM < 150000
#error "zklock needs PostgreSQL 15 or later"
#endif

/* Precedes the declaration of a function that does not return. */
#if PG_VERSION_NUM >= 180000
#define ZKL_NORETURN pg_noreturn
#else
#define ZKL_NORETURN pg_attribute_noreturn()
#endif

/* Ends a case that goes on with the next one.  PostgreSQL 19 has its own. */
#ifndef pg_fallthrough
#define pg_fallthrough __attribute__((fallthrough))
#endif

/*
 * The arguments that a signal handler passes on to PostgreSQL's own handler,
 * and the values for "ignore" and "default" in place of a handler.
 */
#if PG_VERSION_NUM >= 190000
#define ZKL_SIGNAL_ARGUMENTS \
	postgres_signal_arg, pg_siginfo
#else
#define ZKL_SIGNAL_ARGUMENTS \
	postgres_signal_arg
#define PG_SIG_DFL SIG_DFL
#define PG_SIG_IGN SIG_IGN
#endif

/* The hooks of the executor. */
#if PG_VERSION_NUM >= 180000
#define ZKL_EXECUTOR_RUN_PARAMETERS \
	QueryDesc *query_desc, ScanDirection direction, uint64 count
#define ZKL_EXECUTOR_RUN_ARGUMENTS \
	query_desc, direction, count
#else
#define ZKL_EXECUTOR_RUN_PARAMETERS \
	QueryDesc *query_desc, ScanDirection direction, uint64 count, \
	bool execute_once
#define ZKL_EXECUTOR_RUN_ARGUMENTS \
	query_desc, direction, count, execute_once
#endif

#define ZKL_PROCESS_UTILITY_PARAMETERS \
	PlannedStmt *statement, const char *query, bool read_only_tree, \
	ProcessUtilityContext context, ParamListInfo params, \
	QueryEnvironment *environment, DestReceiver *receiver, \
	QueryCompletion *completion
#define ZKL_PROCESS_UTILITY_ARGUMENTS \
	statement, query, read_only_tree, context, params, environment, receiver, \
	completion

/*
 * If a background worker ends just before the postmaster of PostgreSQL 15
 * begins to sleep, the postmaster starts the worker again only when something
 * else wakes the postmaster up, which may take a minute.
 */
#define ZKL_POSTMASTER_OVERSLEEPS	(PG_VERSION_NUM < 160000)

/* Is this process a worker of autovacuum? */
static inline bool
zkl_am_autovacuum(void)
{
#if PG_VERSION_NUM >= 170000
	return AmAutoVacuumWorkerProcess();
#else
	return IsAutoVacuumWorkerProcess();
#endif
}

/* This process's place in the array of processes. */
static inline int
zkl_my_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/*
 * The number of a process's transaction, which even a transaction without an
 * XID has.
 */
static inline LocalTransactionId
zkl_local_xid(const PGPROC *proc)
{
#if PG_VERSION_NUM >= 170000
	return proc->vxid.lxid;
#else
	return proc->lxid;
#endif
}

static inline LocalTransactionId
zkl_my_local_xid(void)
{
	return zkl_local_xid(MyProc);
}

/* The local transaction ID of a process that holds or awaits a lock. */
static inline LocalTransactionId
zkl_local_xid_of(const LockInstanceData *lock)
{
#if PG_VERSION_NUM >= 170000
	return lock->vxid.localTransactionId;
#else
	return lock->lxid;
#endif
}

/* Does any process wait for a lock that this process has in this partition? */
static inline bool
zkl_awaited_in_partition(int partition)
{
	bool		awaited = false;

	LWLockAcquire(LockHashPartitionLockByIndex(partition), LW_SHARED);
#if PG_VERSION_NUM >= 160000
	{
		dlist_iter	iter;

		dlist_foreach(iter, &MyProc->myProcLocks[partition])
			awaited |= dlist_container(PROCLOCK, procLink,
									   iter.cur)->tag.myLock->waitMask != 0;
	}
#else
	{
		SHM_QUEUE  *locks = &MyProc->myProcLocks[partition];
		PROCLOCK   *lock = (PROCLOCK *) SHMQueueNext(locks, locks, offsetof(PROCLOCK, procLink));

		for (; lock != NULL; lock = (PROCLOCK *) SHMQueueNext(locks, &lock->procLink, offsetof(PROCLOCK, procLink)))
			awaited |= lock->tag.myLock->waitMask != 0;
	}
#endif
	LWLockRelease(LockHashPartitionLockByIndex(partition));
	return awaited;
}

/* May this role execute the function? */
static inline AclResult
zkl_function_aclcheck(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE);
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE);
#endif
}

/* Memory that a check hook hands over to PostgreSQL; NULL if there is none. */
static inline void *
zkl_guc_malloc(size_t size)
{
#if PG_VERSION_NUM >= 160000
	return guc_malloc(LOG, size);
#else
	return malloc(size);
#endif
}

static inline PGPROC *
zkl_proc(int proc_number)
{
	return &ProcGlobal->allProcs[proc_number];
}

/* Does this backend hold the lock, according to its own lock table? */
static inline bool
zkl_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/*
 * Make a hash table of fixed size in shared memory.  Without HASH_FIXED_SIZE,
 * a table that is full would take PostgreSQL's spare memory, which is meant
 * for everyone's locks.
 */
static inline HTAB *
zkl_shmem_init_hash(const char *name, long nelems, HASHCTL *info, int flags)
{
#if PG_VERSION_NUM >= 190000
	return ShmemInitHash(name, nelems, info, flags | HASH_FIXED_SIZE);
#else
	return ShmemInitHash(name, nelems, nelems, info, flags | HASH_FIXED_SIZE);
#endif
}

/* Make a wait set that lives as long as the process. */
static inline WaitEventSet *
zkl_create_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/*
 * The wait event to show.  Before version 17, all extensions share one event;
 * "event" stores what was allocated for "name".
 */
static inline uint32
zkl_wait_event(const char *name, uint32 *event)
{
#if PG_VERSION_NUM >= 170000
	if (*event == 0)
		*event = WaitEventExtensionNew(name);
	return *event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

#endif							/* ZKL_COMPAT_H */
