/*-------------------------------------------------------------------------
 *
 * cadence.c
 *	  What to send when, so that a ZooKeeper session lives and the worker
 *	  knows it.
 *
 * src/protocol/cadence.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/cadence.h"

#include <assert.h>
#include <string.h>

#define SHORTEST_PERIOD	100000

/* The places of a round: echoes up to ECHOES, then reads. */
#define ECHOES			2
#define BEATS			4

static bool may_prove(const ZklCadence *cadence, int64_t now, bool holds);
static bool is_near(const ZklCadence *cadence, int64_t now,
					int64_t safe_until);

int64_t
zkl_cadence_period(int64_t timeout)
{
	return timeout / 20 > SHORTEST_PERIOD ? timeout / 20 : SHORTEST_PERIOD;
}

/*
 * Safe until must be at least 0.4 session timeouts ahead.  A sign is due
 * within a period, which leaves time to find another server before that
 * moment.
 */
int64_t
zkl_cadence_patience(int64_t timeout)
{
	return timeout / 4;
}

/*
 * Bytes that arrive prove nothing about the session, and ZooKeeper hears
 * nothing of this server while the worker waits.  Half of the session timeout
 * is left to find another server before the session can expire.
 */
int64_t
zkl_cadence_give_up_at(int64_t timeout, int64_t sent, int64_t received)
{
	int64_t		heard = received > sent ? received : sent;
	int64_t		silent = heard + zkl_cadence_patience(timeout);
	int64_t		latest = sent + timeout / 2;

	return silent < latest ? silent : latest;
}

void
zkl_cadence_connected(ZklCadence *cadence, int64_t timeout)
{
	assert(timeout > 0);
	memset(cadence, 0, sizeof(*cadence));
	cadence->timeout = timeout;
	cadence->barrier = true;
}

/*
 * A write that was just sent is a proof itself, and on a busy server other
 * writes follow it.  So a separate proof waits for one period.  But a write
 * that fails proves nothing, so it does not put the proof off.
 */
static int64_t
may_prove_at(const ZklCadence *cadence)
{
	int64_t		wrote_at = cadence->fails ? cadence->proof_at : cadence->wrote_at;

	return wrote_at == 0 ? 0 : wrote_at + zkl_cadence_period(cadence->timeout);
}

static bool
may_prove(const ZklCadence *cadence, int64_t now, bool holds)
{
	return holds && now >= may_prove_at(cadence);
}

/*
 * Is a proof needed soon?  If the last echo counts, the reply to the next
 * proof comes within the time of two signs.
 */
static bool
is_near(const ZklCadence *cadence, int64_t now, int64_t safe_until)
{
	return safe_until - now < cadence->timeout * 35 / 100 + 2 * cadence->took;
}

ZklSign
zkl_cadence_next(const ZklCadence *cadence, int64_t now, bool holds,
				 int64_t safe_until)
{
	if (cadence->barrier)
		return ZKL_SIGN_PROOF;
	if (cadence->prepared && may_prove(cadence, now, holds))
		return ZKL_SIGN_PROOF;
	if (now < cadence->due_at)
		return ZKL_SIGN_NONE;
	if (is_near(cadence, now, safe_until) &&
		may_prove(cadence, now, holds))
		return ZKL_SIGN_PROOF;
	return cadence->beat < ECHOES ? ZKL_SIGN_ECHO : ZKL_SIGN_READ;
}

int64_t
zkl_cadence_due(const ZklCadence *cadence, bool holds)
{
	int64_t		prove_at;

	if (cadence->barrier)
		return 0;
	if (!cadence->prepared || !holds)
		return cadence->due_at;
	prove_at = may_prove_at(cadence);
	return prove_at < cadence->due_at ? prove_at : cadence->due_at;
}

/* The period counts from the sending of a sign, not from its reply. */
void
zkl_cadence_sent(ZklCadence *cadence, ZklSign sign, int64_t now)
{
	cadence->sent_at = now;
	cadence->due_at = now + zkl_cadence_period(cadence->timeout);
	if (sign == ZKL_SIGN_PROOF)
	{
		zkl_cadence_wrote(cadence, now);
		cadence->proof_at = now;
	}
	else
		cadence->beat = (cadence->beat + 1) % BEATS;
	cadence->barrier = false;
}

/*
 * If the reply came late, the next sign does not follow at once.  An echo
 * tells more if some time passes after the reply to the previous echo; see
 * safeuntil.h.
 */
void
zkl_cadence_answered(ZklCadence *cadence, ZklSign sign, int64_t now)
{
	int64_t		next = now + cadence->timeout / 40;

	cadence->took = now - cadence->sent_at;
	if (cadence->due_at < next)
		cadence->due_at = next;
	if (sign == ZKL_SIGN_ECHO && cadence->beat == ECHOES)
		cadence->prepared = true;
	if (sign == ZKL_SIGN_PROOF)
		cadence->fails = false;
}

void
zkl_cadence_wrote(ZklCadence *cadence, int64_t now)
{
	cadence->prepared = false;
	cadence->wrote_at = now;
}

void
zkl_cadence_failed(ZklCadence *cadence)
{
	cadence->prepared = true;
	cadence->fails = true;
}
