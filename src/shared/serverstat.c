/*-------------------------------------------------------------------------
 *
 * serverstat.c
 *	  What zk_stat counts: the requests to ZooKeeper, and how the sessions live.
 *
 * src/shared/serverstat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "settings.h"
#include "shared/serverstat.h"

ZklServerStat *zkl_server_stat = NULL;

void
zkl_server_stat_request(void)
{
	RequestAddinShmemSpace(sizeof(ZklServerStat));
}

void
zkl_server_stat_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zkl_server_stat = ShmemInitStruct("zklock statistics",
									  sizeof(ZklServerStat), &found);
	if (!found)
	{
		for (int i = 0; i < ZKL_TRAFFIC_KINDS; i++)
			pg_atomic_init_u64(&zkl_server_stat->sent[i], 0);
		for (int i = 0; i <= ZKL_TRAFFIC_BOUNDS; i++)
			pg_atomic_init_u64(&zkl_server_stat->answers[i], 0);
		pg_atomic_init_u64(&zkl_server_stat->answer_time, 0);
		pg_atomic_init_u64(&zkl_server_stat->reconnects, 0);
		pg_atomic_init_u64(&zkl_server_stat->expirations, 0);
		pg_atomic_init_u64(&zkl_server_stat->doubt_time, 0);
		pg_atomic_init_u64(&zkl_server_stat->reset_at, zkl_now());
		pg_atomic_init_u64(&zkl_server_stat->reset_time, GetCurrentTimestamp());
	}
	LWLockRelease(AddinShmemInitLock);
}

void
zkl_server_stat_count_sent(ZklTraffic kind)
{
	pg_atomic_fetch_add_u64(&zkl_server_stat->sent[kind], 1);
}

void
zkl_server_stat_count_answer(int64 latency)
{
	pg_atomic_fetch_add_u64(&zkl_server_stat->answers[zkl_traffic_bucket(latency)], 1);
	pg_atomic_fetch_add_u64(&zkl_server_stat->answer_time, latency);
}

/*
 * In doubt since "safe until", as zk_sessions says it: with tickets, and with a
 * session that was safe before.
 */
int64
zkl_server_stat_doubt(ZklSessionInfo *session, int64 now)
{
	int64		since = (int64) pg_atomic_read_u64(&session->safe_until);

	if (since == 0 || since == ZKL_SAFE_UNTIL_IDLE ||
		pg_atomic_read_u64(&session->ephemeral_bytes) == 0)
		return 0;
	since = Max(since, (int64) pg_atomic_read_u64(&zkl_server_stat->reset_at));
	return Max(0, now - since);
}

/* A worker that counts meanwhile may count on either side of this. */
void
zkl_server_stat_reset(void)
{
	for (int i = 0; i < ZKL_TRAFFIC_KINDS; i++)
		pg_atomic_write_u64(&zkl_server_stat->sent[i], 0);
	for (int i = 0; i <= ZKL_TRAFFIC_BOUNDS; i++)
		pg_atomic_write_u64(&zkl_server_stat->answers[i], 0);
	pg_atomic_write_u64(&zkl_server_stat->answer_time, 0);
	pg_atomic_write_u64(&zkl_server_stat->reconnects, 0);
	pg_atomic_write_u64(&zkl_server_stat->expirations, 0);
	pg_atomic_write_u64(&zkl_server_stat->doubt_time, 0);
	pg_atomic_write_u64(&zkl_server_stat->reset_at, zkl_now());
	pg_atomic_write_u64(&zkl_server_stat->reset_time, GetCurrentTimestamp());
}
