/*-------------------------------------------------------------------------
 *
 * heartbeat.c
 *	  Proves that the ZooKeeper session lives: heartbeats, and safe until.
 *
 * safeuntil.h has the rule.  A heartbeat is a small write: when a quorum has
 * answered it, the session certainly lives for some time more.
 *
 * src/worker/heartbeat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "protocol/safeuntil.h"
#include "settings.h"
#include "shared/serverstat.h"
#include "worker/entrystate.h"
#include "worker/heartbeat.h"
#include "worker/sessionnews.h"
#include "zookeeper/session.h"

static ZklSafeUntil safe;
static int64 due_at = 0;		/* when the next heartbeat is due */

static void publish_safe_until(void);
static int	heartbeat_period_ms(void);

void
zkl_heartbeat_begin(int64 timeout, int64 safe_until)
{
	zkl_safe_until_begin(&safe, timeout, safe_until);
}

void
zkl_heartbeat_connected(void)
{
	zkl_safe_until_connected(&safe, zkl_session_connect_sent(),
							 ZKL_MS(zkl_session_timeout_ms()));
	publish_safe_until();
	due_at = 0;
	zkl_heartbeat_send();
}

/* A quorum has answered a heartbeat: the session lives on. */
void
zkl_heartbeat_answered(int64 sent)
{
	int			period_ms = heartbeat_period_ms();
	ZklSessionInfo *info = zkl_session_info_mine;
	int64		now = zkl_now();
	int			session = zkl_session_info_number();
	bool		was_safe = zkl_session_info_is_safe(session, now);

	zkl_safe_until_proof(&safe, sent, now);
	publish_safe_until();
	ZKL_FAULT_POINT("safe-until-moved");
	/* Backends that wait see that ZooKeeper answers, only slowly. */
	pg_atomic_write_u64(&info->heard_at, now);
	pg_atomic_write_u32(&info->period_ms, period_ms);
	if (zkl_session_news_is_refused())
		zkl_session_news_accepted();

	/*
	 * Claims are good again, and backends may be granted what they wait for.
	 */
	if (!was_safe && zkl_session_info_is_safe(session, now))
		zkl_entry_state_wake_all();
}

/*
 * If a shorter timeout moves safe until back, this comes before the timeout is
 * published.  Otherwise a worker that starts in between would add the shorter
 * timeout to a moment that it takes for later than it was.
 */
static void
publish_safe_until(void)
{
	int64		safe_until = zkl_safe_until(&safe);
	int64		now = zkl_now();

	if (safe_until > now)
		zkl_heartbeat_count_doubt(now);
	pg_atomic_write_u64(&zkl_session_info_mine->safe_until, safe_until);
}

/* A doubt, if there is one, is over: the session lives, or has expired. */
void
zkl_heartbeat_count_doubt(int64 now)
{
	pg_atomic_fetch_add_u64(&zkl_server_stat->doubt_time,
							zkl_server_stat_doubt(zkl_session_info_mine, now));
}

/* At once, if the connection still waits for its barrier. */
int64
zkl_heartbeat_next(void)
{
	return zkl_session_is_usable() ? due_at : 0;
}

/*
 * Safe until moves on with each heartbeat.  Twenty of them in a session
 * timeout keep it near the best moment that can be proved.
 */
static int
heartbeat_period_ms(void)
{
	return Max(100, zkl_heartbeat_timeout_ms() / 20);
}

/*
 * The shortest timeout that the session has had, because ZooKeeper may still
 * count with that.
 */
int
zkl_heartbeat_timeout_ms(void)
{
	return safe.timeout / ZKL_MS(1);
}

void
zkl_heartbeat_send(void)
{
	/* A connection that answers nothing is of no use. */
	if (zkl_session_is_usable() && zkl_session_heartbeat_age() >
		ZKL_MS(zkl_heartbeat_timeout_ms() / 3))
		zkl_session_break_connection();

	if (!zkl_session_may_heartbeat() || zkl_now() < zkl_heartbeat_next())
		return;

	/*
	 * From the sending, not from the answer: the next one goes out at this
	 * moment if the answer has come by then, else with the answer.
	 */
	due_at = zkl_now() + ZKL_MS(heartbeat_period_ms());
	zkl_session_heartbeat();
}
