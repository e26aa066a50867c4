/*-------------------------------------------------------------------------
 *
 * locallock.c
 *	  PostgreSQL's own lock behind a claim: who goes first in this server.
 *
 * Waiting always happens at transaction level, under the current resource
 * owner, even for session scope: if the wait is cancelled at the moment of
 * the grant, PostgreSQL books the lock where it was waited for, and only
 * what is booked to a (sub)transaction goes away with the error.
 *
 * src/locallock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "compat.h"
#include "locallock.h"
#include "zklock.h"

/* PostgreSQL itself uses 1 and 2 in an advisory lock's last field. */
#define FIRST_GENERATION_FIELD	3
#define GENERATION_FIELDS		(PG_UINT16_MAX - FIRST_GENERATION_FIELD + 1)

static bool acquire(const LOCKTAG *tag, ZklScope scope, bool dont_wait);
static void wait_here(const LOCKTAG *tag, ZklScope scope);
static bool wait_in_subtransaction(const LOCKTAG *tag, ZklScope scope,
								   int limit_ms);
static int	milliseconds_until(int64 until);

void
zkl_local_lock_tag(LOCKTAG *tag, const char *path, uint32 generation)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) path,
										   strlen(path), 0);

	/* Database 0: locks are the whole server's. */
	memset(tag, 0, sizeof(*tag));
	tag->locktag_field2 = (uint32) (hash >> 32);
	tag->locktag_field3 = (uint32) hash;
	tag->locktag_field4 = FIRST_GENERATION_FIELD +
		generation % GENERATION_FIELDS;
	tag->locktag_type = LOCKTAG_ADVISORY;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
}

bool
zkl_local_lock_try(const LOCKTAG *tag, ZklScope scope)
{
	return acquire(tag, scope, true);
}

bool
zkl_local_lock_wait(const LOCKTAG *tag, ZklScope scope, int64 until)
{
	int			limit_ms = milliseconds_until(until);

	/* A shorter lock_timeout raises its error; then there is no "false". */
	if (until == ZKL_FOREVER || (LockTimeout > 0 && LockTimeout <= limit_ms))
	{
		wait_here(tag, scope);
		return true;
	}
	return limit_ms > 0 && wait_in_subtransaction(tag, scope, limit_ms);
}

void
zkl_local_lock_move(const LOCKTAG *tag, ZklScope from, ZklScope to)
{
	/* It is held already, so this is booked without any wait. */
	if (from != to && acquire(tag, to, true))
		zkl_local_lock_release(tag, from);
}

void
zkl_local_lock_release(const LOCKTAG *tag, ZklScope scope)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (scope == ZKL_SCOPE_XACT)
		CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelease(tag, ExclusiveLock, scope == ZKL_SCOPE_SESSION);
	CurrentResourceOwner = owner;
}

static bool
acquire(const LOCKTAG *tag, ZklScope scope, bool dont_wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	if (scope == ZKL_SCOPE_XACT)
		CurrentResourceOwner = TopTransactionResourceOwner;
	PG_TRY();
	{
		result = LockAcquire(tag, ExclusiveLock, scope == ZKL_SCOPE_SESSION,
							 dont_wait);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();
	return result != LOCKACQUIRE_NOT_AVAIL;
}

/* Wait under the current owner, then book the lock where it belongs. */
static void
wait_here(const LOCKTAG *tag, ZklScope scope)
{
	(void) LockAcquire(tag, ExclusiveLock, false, false);

	/* The time may have ended, or a cancel come, at the moment of the grant. */
	CHECK_FOR_INTERRUPTS();
	(void) acquire(tag, scope, true);
	LockRelease(tag, ExclusiveLock, false);
}

/*
 * lock_timeout is the lock manager's only limit to a wait, and it ends it
 * with an error; a subtransaction makes that harmless.
 */
static bool
wait_in_subtransaction(const LOCKTAG *tag, ZklScope scope, int limit_ms)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			users_limit = LockTimeout;
	volatile bool booked = false;
	volatile bool acquired = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		LockTimeout = limit_ms;
		wait_here(tag, scope);
		LockTimeout = users_limit;
		booked = true;

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		acquired = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = users_limit;
		if (booked)
			zkl_local_lock_release(tag, scope);
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		FreeErrorData(error);
	}
	PG_END_TRY();
	return acquired;
}

static int
milliseconds_until(int64 until)
{
	int64		left;

	if (until == ZKL_FOREVER)
		return 0;
	left = (until - zkl_now() + 999) / 1000;
	return (int) Min(Max(left, 0), INT_MAX);
}
