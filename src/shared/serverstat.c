/*-------------------------------------------------------------------------
 *
 * serverstat.c
 *	  What zk_stat counts: the requests to ZooKeeper, and the fate of the
 *	  session.
 *
 * src/shared/serverstat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "settings.h"
#include "shared/serverstat.h"
#include "shared/sessioninfo.h"

/* The struct has nothing but counts, and behind them the moment of their reset. */
#define NFIELDS		(sizeof(ZklServerStat) / sizeof(pg_atomic_uint64))
#define NCOUNTS		(offsetof(ZklServerStat, reset_at) / sizeof(pg_atomic_uint64))

ZklServerStat *zkl_server_stat = NULL;

Size
zkl_server_stat_size(void)
{
	return sizeof(ZklServerStat);
}

void
zkl_server_stat_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	zkl_server_stat = memory;
	if (!is_new)
		return;
	for (Size i = 0; i < NFIELDS; i++)
		pg_atomic_init_u64(&((pg_atomic_uint64 *) zkl_server_stat)[i], 0);
	zkl_server_stat_reset();
}

void
zkl_server_stat_count_answer(int64 latency)
{
	pg_atomic_fetch_add_u64(&zkl_server_stat->answers[zkl_traffic_bucket(latency)], 1);
	pg_atomic_fetch_add_u64(&zkl_server_stat->answer_time, latency);
}

/*
 * As in zk_sessions, the session is in doubt since "safe until" if it has
 * tickets, and was safe before.
 */
int64
zkl_server_stat_doubt(int64 now)
{
	int64		since = (int64) pg_atomic_read_u64(&zkl_session_info->safe_until);

	if (since == 0 || since == ZKL_SAFE_UNTIL_IDLE ||
		pg_atomic_read_u64(&zkl_session_info->ephemeral_bytes) == 0)
		return 0;
	since = Max(since, (int64) pg_atomic_read_u64(&zkl_server_stat->reset_at));
	return Max(0, now - since);
}

/* If the worker counts at the same time, this count may be lost. */
void
zkl_server_stat_reset(void)
{
	for (Size i = 0; i < NCOUNTS; i++)
		pg_atomic_write_u64(&((pg_atomic_uint64 *) zkl_server_stat)[i], 0);
	pg_atomic_write_u64(&zkl_server_stat->reset_at, zkl_now());
	pg_atomic_write_u64(&zkl_server_stat->reset_time, GetCurrentTimestamp());
}
