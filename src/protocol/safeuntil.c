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
 * The longest half tick: ZooKeeper's shortest session timeout is two ticks.
 */
static int64_t
half_tick(const ZklSafeUntil *safe)
{
	return safe->timeout / 4;
}

/*
 * A ping may be this late, and clocks may differ by as much in a session
 * timeout.
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
	if (until != 0)
		safe->base = until - timeout + jitter(timeout);
}

/*
 * The timeout may have been another before, if ZooKeeper's configuration has
 * changed.  The leader may count with any that the session has had: with that
 * of the session's creation, if it has just been elected, or with that of an
 * earlier connection, if another follower tells of it late.  Hence the
 * shortest.
 */
void
zkl_safe_until_connected(ZklSafeUntil *safe, int64_t sent, int64_t timeout)
{
	assert(sent > 0 && timeout > 0);
	if (safe->timeout == 0 || timeout < safe->timeout)
		safe->timeout = timeout;
	safe->provable = sent;
	safe->proof_answered = 0;
	safe->nsigns = 0;
}

/* If a sign is missing, the base is only older, so some may be left out. */
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
		if (sent - last->sent < safe->timeout / ZKL_SAFE_UNTIL_SIGNS)
			return;
	}
	safe->sign[safe->nsigns].sent = sent;
	safe->sign[safe->nsigns].answered = answered;
	safe->nsigns++;
}

void
zkl_safe_until_proof(ZklSafeUntil *safe, int64_t sent, int64_t answered)
{
	int64_t		told = sent - half_tick(safe) - jitter(safe->timeout);
	int			nolder = 0;

	assert(sent >= safe->proof_answered);
	safe->proof_answered = answered;
	if (safe->provable > safe->base)
		safe->base = safe->provable;

	/*
	 * The next proof will prove the signs of which the follower has told by
	 * now.
	 */
	while (nolder < safe->nsigns && safe->sign[nolder].answered <= told)
		safe->provable = safe->sign[nolder++].sent;
	safe->nsigns -= nolder;
	memmove(safe->sign, safe->sign + nolder,
			safe->nsigns * sizeof(safe->sign[0]));

	zkl_safe_until_sign(safe, sent, answered);
}

int64_t
zkl_safe_until(const ZklSafeUntil *safe)
{
	if (safe->base == 0)
		return 0;
	return safe->base + safe->timeout - jitter(safe->timeout);
}
