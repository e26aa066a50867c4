/*-------------------------------------------------------------------------
 *
 * sessioninfo.c
 *	  What all processes know of the server's ZooKeeper sessions.
 *
 * src/shared/sessioninfo.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/locktable.h"
#include "shared/sessioninfo.h"

/* Of signs of life: more than half a session timeout. */
#define IDLE_PERIODS	12

ZklSessionInfo *zkl_session_info_mine = NULL;

int
zkl_session_info_number(void)
{
	return zkl_session_info_mine - zkl_lock_table->session;
}

bool
zkl_session_info_is_safe(int session, int64 now)
{
	int64		safe_until = pg_atomic_read_u64(&zkl_lock_table->session[session].safe_until);

	/*
	 * The caller may read the epoch or the count of losses next.  If this
	 * moment is of a new session, those must not be older: on_expired() in
	 * sessionkeeper.c raises both before the next session can be safe.
	 */
	pg_read_barrier();
	return now < safe_until;
}

bool
zkl_session_info_is_in_touch(int session, int64 now)
{
	return now < zkl_session_info_in_touch_until(session);
}

/*
 * An idle session has as much time as the proofs of a holder would give it.
 */
int64
zkl_session_info_in_touch_until(int session)
{
	ZklSessionInfo *info = &zkl_lock_table->session[session];
	int64		safe_until = (int64) pg_atomic_read_u64(&info->safe_until);

	if (pg_atomic_read_u32(&info->connected) == 0)
		return 0;
	if (safe_until != ZKL_SAFE_UNTIL_IDLE)
		return safe_until;
	return (int64) pg_atomic_read_u64(&info->heard_at) +
		IDLE_PERIODS * ZKL_MS(pg_atomic_read_u32(&info->period_ms));
}

/*
 * While ZooKeeper answers signs of life, it can be reached, and the backend's
 * request only waits for its turn.
 */
int64
zkl_session_info_silent_from(int session, int64 asked, int64 since)
{
	ZklSessionInfo *info = &zkl_lock_table->session[session];
	int64		heard_at = (int64) pg_atomic_read_u64(&info->heard_at);
	int64		refused_at = (int64) pg_atomic_read_u64(&info->refused_at);
	int			patience_ms = zkl_connection_timeout;

	if (refused_at != 0 && asked >= refused_at)
		return since;
	/* The next sign of life may be due only later than that. */
	if (pg_atomic_read_u32(&info->connected) != 0)
		patience_ms = Max(patience_ms, 2 * (int) pg_atomic_read_u32(&info->period_ms));
	return Max(since, heard_at) + ZKL_MS(patience_ms);
}

bool
zkl_session_info_is_refused(int session)
{
	return pg_atomic_read_u64(&zkl_lock_table->session[session].refused_at) != 0;
}

/*
 * The commit guard's quick way looks at all sessions, not only at its claims'.
 * None of its claims is of an idle session, unless the claim was lost before.
 */
bool
zkl_session_info_all_safe(int64 now)
{
	for (int i = 0; i < zkl_sessions; i++)
	{
		int64		safe_until = (int64) pg_atomic_read_u64(&zkl_lock_table->session[i].safe_until);

		if (safe_until != ZKL_SAFE_UNTIL_IDLE && now >= safe_until)
			return false;
	}
	/* As in zkl_session_info_is_safe(). */
	pg_read_barrier();
	return true;
}

/*
 * The epoch is read last, behind the barrier in zkl_session_info_is_safe().
 * So a moment that belongs to the next session comes with that session's
 * epoch.
 */
bool
zkl_session_info_is_in_doubt(uint64 epoch, int session, int64 now)
{
	return !zkl_session_info_is_safe(session, now) ||
		epoch != pg_atomic_read_u64(&zkl_lock_table->session[session].epoch);
}
