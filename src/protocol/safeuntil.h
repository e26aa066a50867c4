/*-------------------------------------------------------------------------
 *
 * safeuntil.h
 *	  Until when a ZooKeeper session certainly lives.
 *
 * ZooKeeper's leader ends a session when it has heard nothing of it for the
 * session timeout.  So the worker must know of a moment at which the leader
 * heard of the session, and may add the timeout to that.  Two things tell:
 *
 * - A sign of life is a request that the server we are connected to has
 *	 answered.  If that server is a follower, it only notes the sign.  The leader
 *	 hears of it with the follower's answer to the leader's next ping; there is
 *	 a ping every half tick.
 * - An echo is a sign of life to which the leader itself has replied, such as a
 *	 write or a sync.  The leader's replies take the same way as its pings, and
 *	 keep their order.  So when an echo is answered, the follower has answered
 *	 each ping that the leader sent before its reply.
 * - A proof is a write that a quorum has answered.  A write does not tell the
 *	 leader that the session is alive.  But it takes the same way as the answers
 *	 to pings: when it is answered, the leader has received what the follower
 *	 had told before.  And the leader was not deposed.
 *
 * An echo does not show by itself when the last ping was sent: the leader may
 * have stood still, and replied before it sent the ping that was due.  But it
 * was at work when it replied to the echo before, and a leader that is at work,
 * or wakes up, pings in time.  So there was a ping at most half a tick before
 * that echo, or after it.  The answer to this ping has carried each sign of life
 * that was answered half a tick before the earlier echo was sent.  The newest of
 * these signs is provable, and a write that is sent then proves it: the sign is
 * the base when the write is answered.
 *
 *	 safe until = when the base was sent + session timeout - jitter
 *
 * So echoes prepare what any later write proves.  No write is needed until there
 * is something to be proved, and then the first one will do.
 *
 * History counts within one connection, because each server tells the leader
 * only of the signs that it has seen itself.  Where the connection begins, the
 * leader is asked whether the session lives, and counts from then on.  But that
 * may be a leader which the others have deposed: the first proof on the
 * connection shows that it is not.
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

/* Signs that are kept.  They span a session timeout, however dense they are. */
#define ZKL_SAFE_UNTIL_SIGNS	32

typedef struct ZklSafeUntilSign
{
	int64_t		sent;
	int64_t		answered;
} ZklSafeUntilSign;

typedef struct ZklSafeUntil
{
	int64_t		timeout;		/* the shortest of the session so far; 0: none */
	int64_t		base;			/* the leader heard of us then, or later; 0:
								 * never */

	/* of the present connection */
	int64_t		provable;		/* the base that a write proves if it is sent
								 * now; 0: none */
	ZklSafeUntilSign echo;		/* the last that counts; answered 0: none */
	int			nsigns;			/* that came too late to be provable: */
	ZklSafeUntilSign sign[ZKL_SAFE_UNTIL_SIGNS];	/* the oldest first */
} ZklSafeUntil;

/*
 * Begin with a new session (timeout and until are 0), or with one that another
 * worker had: with the timeout and the moment that the other worker has
 * published.
 */
extern void zkl_safe_until_begin(ZklSafeUntil *safe, int64_t timeout,
								 int64_t until);

/*
 * There is a connection, with this session timeout.  Its first request was
 * sent at this moment or later.
 */
extern void zkl_safe_until_connected(ZklSafeUntil *safe, int64_t sent,
									 int64_t timeout);

/*
 * On the present connection, a request was answered.  An echo was also answered
 * by the leader, and is a sign of life as well.  Answers come in the order of
 * sending.
 */
extern void zkl_safe_until_sign(ZklSafeUntil *safe, int64_t sent,
								int64_t answered);
extern void zkl_safe_until_echo(ZklSafeUntil *safe, int64_t sent,
								int64_t answered);

/*
 * What does a write prove that is sent now?  And: a quorum has answered a write
 * of the present connection that was sent when it could prove this.
 */
extern int64_t zkl_safe_until_provable(const ZklSafeUntil *safe);
extern void zkl_safe_until_proof(ZklSafeUntil *safe, int64_t provable);

/*
 * The session lives up to this moment; 0: nothing is known.  Only a connection
 * with a shorter timeout moves it back.
 */
extern int64_t zkl_safe_until(const ZklSafeUntil *safe);

#endif							/* ZKL_SAFEUNTIL_H */
