/*-------------------------------------------------------------------------
 *
 * sessioninfo.c
 *	  What all processes know of the server's ZooKeeper session.
 *
 * src/shared/sessioninfo.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"

#include "settings.h"
#include "shared/lockentry.h"
#include "shared/sessioninfo.h"

/* The longest silence of signs of life: more than half a session timeout. */
#define IDLE_PERIODS	12

ZklSessionInfo *zkl_session_info = NULL;

Size
zkl_session_info_size(void)
{
	return sizeof(ZklSessionInfo);
}

void
zkl_session_info_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	zkl_session_info = memory;
	if (!is_new)
		return;
	if (!pg_strong_random(&zkl_session_info->instance, sizeof(int64)))
		elog(ERROR, "could not generate a random number");
	zkl_session_info->instance = Max(1, zkl_session_info->instance & PG_INT64_MAX);
	pg_atomic_init_u64(&zkl_session_info->epoch, ZKL_EPOCH_NONE + 1);
	pg_atomic_init_u64(&zkl_session_info->safe_until, 0);
	pg_atomic_init_u64(&zkl_session_info->heard_at, 0);
	pg_atomic_init_u32(&zkl_session_info->period_ms, 0);
	pg_atomic_init_u32(&zkl_session_info->connected, 0);
	pg_atomic_init_u64(&zkl_session_info->refused_at, 0);
	pg_atomic_init_u32(&zkl_session_info->record_refused, 0);
	pg_atomic_init_u32(&zkl_session_info->tls, 0);
	pg_atomic_init_u64(&zkl_session_info->certificate_until, 0);
	pg_atomic_init_u32(&zkl_session_info->worker_proc, 0);
	pg_atomic_init_u32(&zkl_session_info->worker_pid, 0);
	pg_atomic_init_u32(&zkl_session_info->left, 0);
	pg_atomic_init_u64(&zkl_session_info->ephemeral_bytes, 0);
	SpinLockInit(&zkl_session_info->work_mutex);
	dlist_init(&zkl_session_info->work);
}

bool
zkl_session_info_is_safe(int64 now)
{
	int64		safe_until = pg_atomic_read_u64(&zkl_session_info->safe_until);

	/*
	 * The caller may read the epoch or the count of losses after this.  If
	 * this moment belongs to a new session, both must be at least as new as
	 * that session.  They are: on_expired() in sessionkeeper.c raises both
	 * before the next session can be safe.
	 */
	pg_read_barrier();
	return now < safe_until;
}

/*
 * An idle session has as much time as the proofs would give it if it held
 * tickets.
 */
int64
zkl_session_info_in_touch_until(void)
{
	int64		safe_until = (int64) pg_atomic_read_u64(&zkl_session_info->safe_until);

	if (pg_atomic_read_u32(&zkl_session_info->connected) == 0)
		return 0;
	if (safe_until != ZKL_SAFE_UNTIL_IDLE)
		return safe_until;
	return (int64) pg_atomic_read_u64(&zkl_session_info->heard_at) +
		IDLE_PERIODS * ZKL_MS(pg_atomic_read_u32(&zkl_session_info->period_ms));
}

bool
zkl_session_info_is_silent(int64 since)
{
	return (int64) pg_atomic_read_u64(&zkl_session_info->heard_at) < since &&
		zkl_now() - since >
		ZKL_MS(pg_atomic_read_u32(&zkl_session_info->period_ms));
}

int64
zkl_session_info_away_from(int64 since)
{
	return Max(zkl_session_info_in_touch_until(), since + ZKL_ELECTION);
}

/*
 * While ZooKeeper replies to signs of life, it can be reached, and the
 * backend's request only waits for its turn.
 */
int64
zkl_session_info_silent_from(int64 asked, int64 since)
{
	ZklSessionInfo *info = zkl_session_info;
	int64		heard_at = (int64) pg_atomic_read_u64(&info->heard_at);
	int64		refused_at = (int64) pg_atomic_read_u64(&info->refused_at);
	int			patience_ms = zkl_connection_timeout;

	if (refused_at != 0 && asked >= refused_at)
		return since;
	/* The next sign of life may be due after zklock.connection_timeout. */
	if (pg_atomic_read_u32(&info->connected) != 0)
		patience_ms = Max(patience_ms, 2 * (int) pg_atomic_read_u32(&info->period_ms));
	return Max(since, heard_at) + ZKL_MS(patience_ms);
}

bool
zkl_session_info_is_refused(void)
{
	return pg_atomic_read_u64(&zkl_session_info->refused_at) != 0;
}

/* While the session is idle, transactions have no claims but lost ones. */
int64
zkl_session_info_safe_until(void)
{
	int64		safe_until = (int64) pg_atomic_read_u64(&zkl_session_info->safe_until);

	/* For the reason, see zkl_session_info_is_safe(). */
	pg_read_barrier();
	return safe_until == ZKL_SAFE_UNTIL_IDLE ? ZKL_FOREVER : safe_until;
}

bool
zkl_session_info_is_in_doubt(uint64 epoch, int64 now)
{
	return now >= zkl_session_info_until(epoch);
}

/*
 * Read the epoch last, after a barrier as in zkl_session_info_is_safe().  So
 * if the moment belongs to the next session, the epoch does, too.
 */
int64
zkl_session_info_until(uint64 epoch)
{
	int64		safe_until = (int64) pg_atomic_read_u64(&zkl_session_info->safe_until);

	pg_read_barrier();
	return epoch == pg_atomic_read_u64(&zkl_session_info->epoch) ? safe_until : 0;
}
