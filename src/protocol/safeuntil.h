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
 * - A proof is a write that a quorum has answered.  One proof is under way at
 *	 a time.  A write does not tell the leader that the session is alive.  But
 *	 it takes the same way as the pings and their answers, which keep their
 *	 order: what the follower has answered before, the leader has received.
 *
 * When a proof is answered, each ping that the leader sent before it committed
 * the proof before that one has been answered, and the leader has that answer.
 * The last of these pings was sent at most half a tick before the commit, so it
 * has carried each sign of life that was answered half a tick before the
 * earlier proof was sent.  The newest of these signs is the base:
 *
 *	 safe until = when the base was sent + session timeout - jitter
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
	int64_t		provable;		/* what the next proof makes of the base; 0:
								 * nothing */
	int64_t		proof_answered; /* when the last one was; 0: none was */
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
 * On the present connection, a request or a proof was answered.  A proof is a
 * sign of life as well.  Answers come in the order of sending, and a proof was
 * sent after the answer to the one before.
 */
extern void zkl_safe_until_sign(ZklSafeUntil *safe, int64_t sent,
								int64_t answered);
extern void zkl_safe_until_proof(ZklSafeUntil *safe, int64_t sent,
								 int64_t answered);

/*
 * The session lives up to this moment; 0: nothing is known.  Only a connection
 * with a shorter timeout moves it back.
 */
extern int64_t zkl_safe_until(const ZklSafeUntil *safe);

#endif							/* ZKL_SAFEUNTIL_H */
