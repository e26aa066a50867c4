/*-------------------------------------------------------------------------
 *
 * multilock.c
 *	  Several mutexes at once, all or none.
 *
 * Calls of this function cannot deadlock among themselves, whatever the order
 * of the paths that callers give.  The paths are sorted, and no backend waits
 * for one of them while it holds, or queues for, a later one.
 *
 * That alone would cost a round trip for each path.  So the backend first
 * requests all of them at once, and waits only for ZooKeeper's replies.
 * Usually, ZooKeeper grants all of them.  Otherwise the backend finds the
 * first path that another backend or client holds.  It gives back that path
 * and all later ones, both tickets and advisory locks, before it waits; then
 * it goes on path by path.  A znode of this server that ZooKeeper has yet to
 * delete waits for no other client.
 *
 * A ticket that lingers cannot be part of a circle, because this server gives
 * it up when another client queues for it.
 *
 * src/backend/lock/multilock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/lock/acquire.h"
#include "backend/lock/holdcounts.h"
#include "backend/lock/multilock.h"
#include "backend/lock/permission.h"
#include "backend/lock/wait.h"
#include "backend/report.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/lockstat.h"

typedef struct Member
{
	const char *path;
	ZklLocalClaim *claim;		/* NULL if it has not begun */
	bool		is_new;			/* this call has begun it, and has not counted
								 * it yet */
	bool		held;
} Member;

typedef struct Multilock
{
	const ZklLockRequest *request;
	int			nmembers;
	Member	   *members;		/* sorted by path */
} Multilock;

static int	compare_paths(const void *one, const void *other);
static int	sort_unique(const char **paths, int npaths);
static bool acquire_all(Multilock *lock);
static void ask_for_all(Multilock *lock);
static int	count_granted(Multilock *lock);
static bool is_repeated(const char **paths, int npaths, const ZklLockRequest *request);
static bool acquire_member(Multilock *lock, Member *member);
static void begin_member(Multilock *lock, Member *member);
static void end_member(Member *member);
static bool are_all_held(Multilock *lock);
static void end_from(Multilock *lock, int first);
static void count_all(Multilock *lock);

bool
zkl_multilock_acquire(const char **paths, int npaths, const ZklLockRequest *request)
{
	Multilock	lock = {.request = request};
	volatile bool acquired = false;

	zkl_hold_counts_update();
	lock.nmembers = sort_unique(paths, npaths);
	if (is_repeated(paths, lock.nmembers, request))
		return true;
	lock.members = palloc0(sizeof(Member) * (lock.nmembers + 1));
	for (int i = 0; i < lock.nmembers; i++)
		lock.members[i].path = paths[i];

	PG_TRY();
	{
		do
			acquired = acquire_all(&lock);
		while (acquired && !are_all_held(&lock));
		ZKL_FAULT_POINT("multilock-held");
		if (acquired)
			count_all(&lock);
	}
	PG_FINALLY();
	{
		/* This ends only claims that this call has begun and not counted. */
		end_from(&lock, 0);
	}
	PG_END_TRY();
	pfree(lock.members);
	return acquired;
}

/*
 * Has this call acquired the paths before?  All claims that a call acquires
 * together note that call, so look at one of them.
 */
static bool
is_repeated(const char **paths, int npaths, const ZklLockRequest *request)
{
	const ZklLocalClaim *claim = npaths > 0 ? zkl_local_claim_find(paths[0]) : NULL;

	return claim != NULL && zkl_local_claim_is_repeated(claim, request);
}

/*
 * Compare bytes, not by a collation: the backends of all servers must use the
 * same order.
 */
static int
compare_paths(const void *one, const void *other)
{
	return strcmp(*(const char *const *) one, *(const char *const *) other);
}

/*
 * If a path is given twice, it is acquired once.  Return the number of
 * different paths.
 */
static int
sort_unique(const char **paths, int npaths)
{
	int			nunique = 0;

	qsort(paths, npaths, sizeof(char *), compare_paths);
	for (int i = 0; i < npaths; i++)
	{
		if (nunique == 0 || strcmp(paths[i], paths[nunique - 1]) != 0)
			paths[nunique++] = paths[i];
	}
	return nunique;
}

/*
 * Get all the locks; false if the time is over.  The caller ends the claims
 * that were acquired until then.
 */
static bool
acquire_all(Multilock *lock)
{
	int			granted;

	ask_for_all(lock);
	ZKL_FAULT_POINT("multilock-asked");
	granted = count_granted(lock);
	if (granted == lock->nmembers)
		return true;

	/*
	 * The backend is about to wait for the path with index "granted".  It
	 * must not hold a later path meanwhile, or wait in the queue of one.
	 */
	if (lock->request->only_tries)
		zkl_lock_stat_failed(lock->members[granted].claim->shared, ERRCODE_LOCK_NOT_AVAILABLE);
	end_from(lock, granted);
	if (lock->request->only_tries)
		return false;
	for (int i = granted; i < lock->nmembers; i++)
	{
		if (!acquire_member(lock, &lock->members[i]))
			return false;
		ZKL_FAULT_POINT("multilock-between");
	}
	return true;
}

/*
 * Request all paths up to the first one that another backend of this server
 * holds.
 */
static void
ask_for_all(Multilock *lock)
{
	ZklLockRequest ask = *lock->request;

	/*
	 * The requests are tries, so each takes its advisory lock only if that is
	 * free.  So while this backend holds or queues for several locks, it does
	 * not wait for another backend.
	 */
	ask.only_tries = true;
	for (int i = 0; i < lock->nmembers; i++)
	{
		Member	   *member = &lock->members[i];

		ask.path = member->path;
		begin_member(lock, member);
		if (!member->is_new)
			continue;

		/*
		 * The members behind this one have not begun, so count_granted()
		 * stops here.
		 */
		if (!zkl_acquire_locally(member->claim, &ask))
			break;

		/* Requests of many locks at once must not delay other backends. */
		member->claim->shared->in_multilock = i > 0;
		member->held = zkl_grant_request(member->claim->shared, true, true) ==
			ZKL_ANSWER_HELD;
	}
}

/* How many members are held, counted from the first one without a gap? */
static int
count_granted(Multilock *lock)
{
	for (int i = 0; i < lock->nmembers; i++)
	{
		Member	   *member = &lock->members[i];
		ZklLockRequest ask = *lock->request;
		ZklWait		wait;

		/* The member has not begun, or another backend has its advisory lock. */
		if (member->claim == NULL ||
			(member->is_new &&
			 !member->claim->parts[ZKL_EXCLUSIVE].locked))
			return i;
		if (member->held)
			continue;
		ask.path = member->path;
		zkl_wait_begin(&wait, &ask, member->claim->shared);

		/* This waits for ZooKeeper's reply, but not for another client. */
		wait.impatient = true;
		if (zkl_wait_for_ticket(&wait, NULL) != ZKL_ANSWER_HELD)
			return i;
		member->held = true;
	}
	return lock->nmembers;
}

/*
 * Wait for one lock.  Meanwhile this backend holds only locks of earlier
 * paths.
 */
static bool
acquire_member(Multilock *lock, Member *member)
{
	ZklLockRequest request = *lock->request;

	request.path = member->path;
	begin_member(lock, member);
	if (!member->held)
		member->held = zkl_acquire_claim(member->claim, &request);
	return member->held;
}

/*
 * If this backend already has a claim on the path, that claim must be held;
 * otherwise raise an error.
 */
static void
begin_member(Multilock *lock, Member *member)
{
	ZklLockRequest request = *lock->request;

	request.path = member->path;
	member->claim = zkl_local_claim_find(member->path);
	if (member->claim == NULL)
	{
		zkl_permission_check_claim(member->path);
		zkl_hold_counts_check_room(1);
		member->claim = zkl_local_claim_begin(&request);
		member->is_new = true;
		return;
	}
	if (member->claim->kind != ZKL_KIND_MUTEX)
		zkl_report_other_kind(member->path);
	zkl_wait_for_certainty(&request, member->claim);
	member->held = true;
}

/* Give a lock back, unless the backend already had it before this call. */
static void
end_member(Member *member)
{
	if (member->is_new)
		zkl_local_claim_end(member->claim);
	member->claim = NULL;
	member->is_new = false;
	member->held = false;
}

/*
 * Some locks may have been lost while this backend waited for the rest.  The
 * transaction does not rely on them yet, so the call can begin again.
 */
static bool
are_all_held(Multilock *lock)
{
	for (int i = 0; i < lock->nmembers; i++)
	{
		Member	   *member = &lock->members[i];

		/*
		 * Do not check claims from before this call: the commit guard reports
		 * their loss.
		 */
		if (!member->is_new ||
			zkl_claim_status(member->claim->shared, 0) !=
			ZKL_STATUS_LOST)
			continue;
		end_from(lock, 0);
		return false;
	}
	return true;
}

static void
end_from(Multilock *lock, int first)
{
	for (int i = lock->nmembers; --i >= first;)
		end_member(&lock->members[i]);
}

/* If one acquire cannot be counted, those before it do not count either. */
static void
count_all(Multilock *lock)
{
	volatile int counted = 0;

	PG_TRY();
	{
		for (; counted < lock->nmembers; counted++)
		{
			if (counted > 0)
				ZKL_FAULT_POINT("multilock-counting");
			zkl_hold_counts_add(lock->members[counted].claim, lock->request);

			/*
			 * The claim is counted now, so it ends with its acquires, and
			 * end_from() must not end it.
			 */
			lock->members[counted].is_new = false;
		}
	}
	PG_CATCH();
	{
		/* Transaction-level acquires end with the error's transaction. */
		if (lock->request->scope == ZKL_SCOPE_SESSION)
		{
			for (int i = 0; i < counted; i++)
				zkl_hold_counts_take_session(lock->members[i].claim, ZKL_EXCLUSIVE, 1);
		}
		PG_RE_THROW();
	}
	PG_END_TRY();
}

bool
zkl_multilock_release(const char **paths, int npaths)
{
	bool		all_held = true;

	zkl_hold_counts_update();
	npaths = sort_unique(paths, npaths);
	for (int i = npaths; --i >= 0;)
		all_held &= zkl_hold_counts_release(paths[i], ZKL_MODE_LOCK, 1);
	return all_held;
}
