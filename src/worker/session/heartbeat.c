/*-------------------------------------------------------------------------
 *
 * heartbeat.c
 *	  Proves that the ZooKeeper session lives: signs of life, and safe until.
 *
 * safeuntil.h has the rule, and cadence.h says what is sent when.  A
 * heartbeat is a proof that the worker sends by itself; successful writes of
 * tickets, commands and jobs are proofs as well.
 *
 * If nothing must be proved, the session is idle, and safe until may pass.
 * The worker then publishes, instead of the moment, that the session is idle,
 * so that no process takes the session to be in doubt.  Then no claim is held:
 * only the worker makes a ticket owned, and while it has such a ticket, it
 * does not call the session idle.
 *
 * src/worker/session/heartbeat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "protocol/cadence.h"
#include "protocol/safeuntil.h"
#include "settings.h"
#include "shared/serverstat.h"
#include "worker/request/entrystate.h"
#include "worker/request/orphans.h"
#include "worker/request/sendqueue.h"
#include "worker/request/sessionlog.h"
#include "worker/session/heartbeat.h"
#include "zookeeper/session.h"

static ZklSafeUntil safe;
static ZklCadence cadence;

static int64 give_up_at(void);
static void give_up(int64 now);
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
	ZklSessionInfo *info = zkl_session_info;
	int64		now = zkl_now();

	if (event->sign == ZKL_SIGN_READ)
		zkl_safe_until_sign(&safe, event->sent, now);
	else
		zkl_safe_until_echo(&safe, event->sent, now);
	zkl_session_set_provable(zkl_safe_until_provable(&safe));
	zkl_cadence_answered(&cadence, event->sign, now);
	if (event->sign == ZKL_SIGN_PROOF)
		prove(event->provable);

	/* Waiting backends see here that ZooKeeper replies, although slowly. */
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
 * Call this before the ticket gets its reply.  Then, when the reply to a
 * create makes the server own a lock, the same reply has already moved safe
 * until.
 */
void
zkl_heartbeat_note_reply(const ZklSessionEvent *event)
{
	if (!event->writes)
		return;
	/* That a batch is UNDONE was decided by a quorum, too. */
	if (event->reply.outcome == ZKL_OUTCOME_OK ||
		event->reply.outcome == ZKL_OUTCOME_UNDONE)
		prove(event->provable);
	else
		zkl_cadence_failed(&cadence);
}

/* A quorum has acknowledged a write, so the session lives on. */
static void
prove(int64 provable)
{
	int64		published_before = published();
	int64		now;

	zkl_orphans_proved(zkl_now());
	zkl_safe_until_proof(&safe, provable);
	ZKL_FAULT_POINT("proof-noted");
	publish_safe_until();

	/*
	 * Read the clock after the new moment is visible to every backend.  A
	 * backend may have found the session in doubt just before that, and gone
	 * to sleep.
	 */
	pg_memory_barrier();
	now = zkl_now();
	ZKL_FAULT_POINT("safe-until-moved");
	if (zkl_session_log_is_refused())
		zkl_session_log_accepted();

	/*
	 * Claims are no longer in doubt, and waiting backends may be granted
	 * their locks.
	 */
	if (published_before <= now &&
		zkl_session_info_is_safe(now))
		zkl_entry_state_wake_all();
}

/*
 * If a shorter timeout moves safe until back, publish the moment before the
 * timeout.  Otherwise a worker that starts in between would add the shorter
 * timeout to a moment that it computes too late.  After the moment, raise the
 * count of losses: a commit whose guard relied on the later moment sees that
 * the count has grown, and looks at its claims again.
 */
static void
publish_safe_until(void)
{
	int64		safe_until = zkl_safe_until(&safe);
	int64		now = zkl_now();
	bool		moves_back = safe_until < published();

	if (safe_until > now)
		zkl_heartbeat_count_doubt(now);
	else if (published() == ZKL_SAFE_UNTIL_IDLE)
		return;
	pg_atomic_write_u64(&zkl_session_info->safe_until, safe_until);
	if (moves_back)
		pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
}

static int64
published(void)
{
	return (int64) pg_atomic_read_u64(&zkl_session_info->safe_until);
}

/*
 * Publish this a little before safe until, so that no backend finds a moment
 * that has passed.
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
		pg_atomic_write_u64(&zkl_session_info->safe_until,
							ZKL_SAFE_UNTIL_IDLE);
	}
}

/* If there was a doubt, it is over: the session lives, or has expired. */
void
zkl_heartbeat_count_doubt(int64 now)
{
	pg_atomic_fetch_add_u64(&zkl_server_stat->doubt_time,
							zkl_server_stat_doubt(now));
}

/*
 * If the connection still waits for its barrier, call zkl_heartbeat_send() at
 * once.
 */
int64
zkl_heartbeat_next(void)
{
	if (!zkl_session_is_usable())
		return 0;
	if (!zkl_session_may_sign())
		return give_up_at();
	return zkl_cadence_due(&cadence, has_to_prove());
}

/* Is there something that must be proved? */
static bool
has_to_prove(void)
{
	return zkl_send_queue_holds() || zkl_orphans_may_come();
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

static int64
give_up_at(void)
{
	return zkl_cadence_give_up_at(safe.timeout, zkl_session_sign_sent(),
								  zkl_session_received_at());
}

/*
 * A connection on which no reply comes is of no use.  But if a long reply is
 * still arriving, its request must not be sent again, because the next
 * connection would be given up as well.
 */
static void
give_up(int64 now)
{
	int64		patience = zkl_cadence_patience(safe.timeout);
	int64		since = zkl_session_frame_since();

	if (since != 0 && now - since > patience &&
		now - zkl_session_received_at() < patience)
		zkl_session_break_reply();
	else
		zkl_session_break_connection();
}

void
zkl_heartbeat_send(void)
{
	int64		now = zkl_now();
	ZklSign		sign;

	if (zkl_session_is_usable() && !zkl_session_may_sign() &&
		now > give_up_at())
		give_up(now);
	if (!zkl_session_may_sign())
		return;

	/* Only a proof makes the connection usable. */
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
