/*-------------------------------------------------------------------------
 *
 * safeuntil.c
 *	  Until when a ZooKeeper session certainly lives.
 *
 * src/protocol/safeuntil.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/safeuntil.h"

#include <assert.h>
#include <string.h>

/*
 * The longest half tick.  ZooKeeper's shortest session timeout is two ticks.
 */
static int64_t
half_tick(const ZklSafeUntil *safe)
{
	return safe->timeout / 4;
}

/*
 * An allowance for a late ping, and for clocks that run at different rates
 * during a session timeout.
 */
static int64_t
jitter(int64_t timeout)
{
	return timeout / 40;
}

void
zkl_safe_until_begin(ZklSafeUntil *safe, int64_t timeout, int64_t until)
{
	assert(timeout >= 0 && until >= 0 && (until == 0 || timeout > 0));
	memset(safe, 0, sizeof(*safe));
	safe->timeout = timeout;

	/*
	 * zkl_safe_until() computes the moment from the base; this computes the
	 * base from the moment.
	 */
	if (until != 0)
		safe->base = until - timeout + jitter(timeout);
}

/*
 * If ZooKeeper's configuration has changed, the session may have had another
 * timeout before.  The leader may use any of these timeouts: the first, if the
 * leader was just elected, or an earlier connection's, if another follower
 * reports that one late.  So use the shortest.
 */
void
zkl_safe_until_connected(ZklSafeUntil *safe, int64_t sent, int64_t timeout)
{
	assert(sent > 0 && timeout > 0);
	if (safe->timeout == 0 || timeout < safe->timeout)
		safe->timeout = timeout;

	/*
	 * When a connection begins, the server has the leader confirm the
	 * session.  The first proof shows that this leader is not deposed.  Signs
	 * of earlier connections do not count any more: their servers may not
	 * have reported them to the leader.
	 */
	safe->provable = sent;
	safe->echo.answered = 0;
	safe->nsigns = 0;
}

/*
 * A sign that is missing only makes the base older, so some may be left out.
 */
void
zkl_safe_until_sign(ZklSafeUntil *safe, int64_t sent, int64_t answered)
{
	assert(safe->timeout > 0 && sent <= answered);
	if (safe->nsigns == ZKL_SAFE_UNTIL_SIGNS)
		return;
	if (safe->nsigns > 0)
	{
		const ZklSafeUntilSign *last = &safe->sign[safe->nsigns - 1];

		assert(sent >= last->sent && answered >= last->answered);

		/*
		 * The signs that are kept must span a session timeout, so leave out a
		 * sign that comes too soon after the last one.
		 */
		if (sent - last->sent < safe->timeout / ZKL_SAFE_UNTIL_SIGNS)
			return;
	}
	safe->sign[safe->nsigns].sent = sent;
	safe->sign[safe->nsigns].answered = answered;
	safe->nsigns++;
}

/*
 * This echo may have been sent very soon after the reply to the previous
 * echo.  Then a leader that had just been resumed may have replied to both
 * before it sent a ping.  So the earlier echo goes on to count.
 */
void
zkl_safe_until_echo(ZklSafeUntil *safe, int64_t sent, int64_t answered)
{
	int64_t		told = safe->echo.sent - half_tick(safe) - jitter(safe->timeout);
	int			nolder = 0;

	if (safe->echo.answered == 0 ||
		sent >= safe->echo.answered + jitter(safe->timeout))
	{
		/*
		 * The follower has reported these signs, so a write can prove them
		 * from now on.
		 */
		while (safe->echo.answered != 0 && nolder < safe->nsigns &&
			   safe->sign[nolder].answered <= told)
			safe->provable = safe->sign[nolder++].sent;
		safe->nsigns -= nolder;
		memmove(safe->sign, safe->sign + nolder,
				safe->nsigns * sizeof(safe->sign[0]));
		safe->echo = (ZklSafeUntilSign)
		{
			.sent = sent,.answered = answered
		};
	}
	zkl_safe_until_sign(safe, sent, answered);
}

int64_t
zkl_safe_until_provable(const ZklSafeUntil *safe)
{
	return safe->provable;
}

void
zkl_safe_until_proof(ZklSafeUntil *safe, int64_t provable)
{
	if (provable > safe->base)
		safe->base = provable;
}

int64_t
zkl_safe_until(const ZklSafeUntil *safe)
{
	if (safe->base == 0)
		return 0;
	return safe->base + safe->timeout - jitter(safe->timeout);
}
