/*-------------------------------------------------------------------------
 *
 * safeuntil.h
 *	  Until when a ZooKeeper session certainly lives.
 *
 * ZooKeeper's leader expires a session when it has heard nothing of it for
 * the session timeout.  So the worker needs a moment at which the leader
 * certainly heard of the session, and may add the timeout to that.  It learns
 * that from these requests:
 *
 * - A sign of life is a request that the server we are connected to has
 *	 answered.  If that server is a follower, it only records the sign.  The
 *	 leader hears of it with the follower's answer to the leader's next ping;
 *	 there is a ping every half tick.
 * - An echo is a sign of life to which the leader itself has replied, such as a
 *	 write or a sync.  The leader's replies travel the same way as its pings,
 *	 in order.  So when an echo is answered, the follower has answered each
 *	 ping that the leader sent before its reply.
 * - A proof is a write that a quorum has acknowledged.  A write does not tell
 *	 the leader that the session is alive.  But it travels the same way as the
 *	 answers to pings: when it is answered, the leader has received what the
 *	 follower had told before.  And the leader was not deposed.
 *
 * An echo alone does not show when the last ping was sent: the leader may
 * have been suspended, and may have replied before it sent the ping that was
 * due.  But it was running when it replied to the previous echo, and a leader
 * that runs, or is resumed, pings in time.  So there was a ping at most half
 * a tick before the previous echo, or after it.  The answer to this ping has
 * carried each sign of life that was answered half a tick before the previous
 * echo was sent.  The newest of these signs is provable, and a write that is
 * sent then proves it: the sign is the base when the write is answered.
 *
 *	 safe until = when the base was sent + session timeout - jitter
 *
 * So echoes prepare what any later write proves.  No write is needed until
 * there is something to prove; then the first write suffices.
 *
 * Only the signs of the present connection count, because each server reports
 * to the leader only the signs that it has seen itself.  When a connection
 * begins, its server has the leader confirm that the session lives, and the
 * leader's count begins anew.  But the others may have deposed that leader:
 * the first proof on the connection shows that they have not.
 *
 * doc/guarantees.md has the assumptions, test/model/safe.pml a model.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no clock.  All moments and times are in
 * microseconds, on the caller's clock.
 *
 * src/protocol/safeuntil.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SAFEUNTIL_H
#define ZKL_SAFEUNTIL_H

#include <stdint.h>

/*
 * How many signs are kept.  They span a session timeout, however often signs
 * are sent.
 */
#define ZKL_SAFE_UNTIL_SIGNS	32

typedef struct ZklSafeUntilSign
{
	int64_t		sent;
	int64_t		answered;
} ZklSafeUntilSign;

typedef struct ZklSafeUntil
{
	int64_t		timeout;		/* the shortest of the session so far; 0 if
								 * none */
	int64_t		base;			/* the leader heard of the session then or
								 * later; 0 if never */

	/* of the present connection */
	int64_t		provable;		/* the base that a write proves if it is sent
								 * now; 0 if none */
	ZklSafeUntilSign echo;		/* the last one that counts; "answered" is 0
								 * if there is none */
	int			nsigns;			/* signs that came too late to be provable: */
	ZklSafeUntilSign sign[ZKL_SAFE_UNTIL_SIGNS];	/* the oldest first */
} ZklSafeUntil;

/*
 * Begin with a new session (timeout and until are 0), or with one that
 * another worker had.  Then pass the timeout and the moment that the other
 * worker published.
 */
extern void zkl_safe_until_begin(ZklSafeUntil *safe, int64_t timeout,
								 int64_t until);

/*
 * A connection has begun, with this session timeout.  Its first request was
 * sent at this moment or later.
 */
extern void zkl_safe_until_connected(ZklSafeUntil *safe, int64_t sent,
									 int64_t timeout);

/*
 * A request was answered on the present connection.  The second function is
 * for an echo, which the leader has answered as well; do not call the first
 * one for it, too.  Call these in the order of sending.
 */
extern void zkl_safe_until_sign(ZklSafeUntil *safe, int64_t sent,
								int64_t answered);
extern void zkl_safe_until_echo(ZklSafeUntil *safe, int64_t sent,
								int64_t answered);

/*
 * The first function tells what a write that is sent now will prove.  When a
 * quorum has acknowledged a write of the present connection, pass to the
 * second function what the first one told when the write was sent.
 */
extern int64_t zkl_safe_until_provable(const ZklSafeUntil *safe);
extern void zkl_safe_until_proof(ZklSafeUntil *safe, int64_t provable);

/*
 * The session certainly lives up to this moment; 0 if nothing is known.  Only
 * a connection with a shorter timeout moves it back.
 */
extern int64_t zkl_safe_until(const ZklSafeUntil *safe);

#endif							/* ZKL_SAFEUNTIL_H */
