/*-------------------------------------------------------------------------
 *
 * heartbeat.c
 *	  Proves that the ZooKeeper session lives: signs of life, and safe until.
 *
 * safeuntil.h has the rule, cadence.h says what is sent when.  A heartbeat is a
 * proof that the worker sends by itself; successful writes of tickets, commands
 * and jobs are proofs as well.
 *
 * While nothing is to be proved and safe until passes, the session is idle.  The
 * worker publishes this in place of the moment, so that no process takes it for
 * a doubt.  Then no claim is held: only the worker makes a ticket owned, and
 * while it has such a ticket, it does not call the session idle.
 *
 * src/worker/heartbeat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "protocol/cadence.h"
#include "protocol/safeuntil.h"
#include "settings.h"
#include "shared/serverstat.h"
#include "worker/entrystate.h"
#include "worker/heartbeat.h"
#include "worker/sendqueue.h"
#include "worker/sessionnews.h"
#include "worker/strays.h"
#include "zookeeper/session.h"

static ZklSafeUntil safe;
static ZklCadence cadence;

static bool has_to_prove(void);
static void prove(int64 provable);
static void publish_safe_until(void);
static int64 published(void);

void
zkl_heartbeat_begin(int64 timeout, int64 safe_until)
{
	zkl_safe_until_begin(&safe, timeout,
						 safe_until == ZKL_SAFE_UNTIL_IDLE ? 0 : safe_until);
}

void
zkl_heartbeat_connected(void)
{
	zkl_safe_until_connected(&safe, zkl_session_connect_sent(),
							 ZKL_MS(zkl_session_timeout_ms()));
	zkl_session_set_provable(zkl_safe_until_provable(&safe));
	zkl_cadence_connected(&cadence, safe.timeout);
	publish_safe_until();
	zkl_heartbeat_send();
}

void
zkl_heartbeat_answered(const ZklSessionEvent *event)
{
	ZklSessionInfo *info = zkl_session_info_mine;
	int64		now = zkl_now();

	if (event->sign == ZKL_SIGN_READ)
		zkl_safe_until_sign(&safe, event->sent, now);
	else
		zkl_safe_until_echo(&safe, event->sent, now);
	zkl_session_set_provable(zkl_safe_until_provable(&safe));
	zkl_cadence_answered(&cadence, event->sign, now);
	if (event->sign == ZKL_SIGN_PROOF)
		prove(event->provable);

	/* Backends that wait see that ZooKeeper answers, only slowly. */
	pg_atomic_write_u64(&info->heard_at, now);
	pg_atomic_write_u32(&info->period_ms,
						zkl_cadence_period(safe.timeout) / ZKL_MS(1));
}

void
zkl_heartbeat_wrote(void)
{
	zkl_cadence_wrote(&cadence, zkl_now());
}

/*
 * This comes before the ticket hears of its reply.  So when the reply to a
 * create makes the server own a lock, safe until has been moved by the same
 * reply.
 */
void
zkl_heartbeat_note_reply(const ZklSessionEvent *event)
{
	if (!event->writes)
		return;
	if (event->reply.outcome == ZKL_OUTCOME_OK)
		prove(event->provable);
	else
		zkl_cadence_failed(&cadence);
}

/* A quorum has answered a write: the session lives on. */
static void
prove(int64 provable)
{
	int			session = zkl_session_info_number();
	int64		now = zkl_now();
	bool		was_safe = zkl_session_info_is_safe(session, now);

	zkl_safe_until_proof(&safe, provable);
	publish_safe_until();
	zkl_strays_proved(now);
	ZKL_FAULT_POINT("safe-until-moved");
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
	else if (published() == ZKL_SAFE_UNTIL_IDLE)
		return;
	pg_atomic_write_u64(&zkl_session_info_mine->safe_until, safe_until);
}

static int64
published(void)
{
	return (int64) pg_atomic_read_u64(&zkl_session_info_mine->safe_until);
}

/*
 * A little before safe until, so that no backend finds a moment that has
 * passed.
 */
void
zkl_heartbeat_tend(void)
{
	int64		now = zkl_now();
	int64		soon = now + 2 * zkl_cadence_period(safe.timeout);

	if (!has_to_prove() && published() > ZKL_SAFE_UNTIL_IDLE &&
		published() < soon)
	{
		zkl_heartbeat_count_doubt(now);
		pg_atomic_write_u64(&zkl_session_info_mine->safe_until,
							ZKL_SAFE_UNTIL_IDLE);
	}
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
	if (!zkl_session_is_usable())
		return 0;
	if (!zkl_session_may_sign())
		return zkl_session_sign_sent() + zkl_cadence_patience(safe.timeout);
	return zkl_cadence_due(&cadence, has_to_prove());
}

/* Is there something to be proved? */
static bool
has_to_prove(void)
{
	return zkl_send_queue_holds() || zkl_strays_may_come();
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
	int64		now = zkl_now();
	ZklSign		sign;

	/* A connection that answers nothing is of no use. */
	if (zkl_session_is_usable() && !zkl_session_may_sign() &&
		now - zkl_session_sign_sent() > zkl_cadence_patience(safe.timeout))
		zkl_session_break_connection();
	if (!zkl_session_may_sign())
		return;

	/* Nothing but a proof makes the connection usable. */
	sign = !zkl_session_is_usable() ? ZKL_SIGN_PROOF :
		zkl_cadence_next(&cadence, now, has_to_prove(),
						 zkl_safe_until(&safe));
	if (sign == ZKL_SIGN_NONE)
		return;
	zkl_session_sign(sign);
	/* The barrier is still due if the client did not take it. */
	if (!zkl_session_may_sign())
		zkl_cadence_sent(&cadence, sign, now);
}
