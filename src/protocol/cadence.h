/*-------------------------------------------------------------------------
 *
 * cadence.h
 *	  What to send when, so that a ZooKeeper session lives and the worker
 *	  knows it.
 *
 * A worker has one sign of life under way at a time.  There are three kinds,
 * and safeuntil.h says what each of them tells:
 *
 * - A read is answered by the server that we are connected to.  It keeps the
 *	 session alive, and shows that the connection works.
 * - An echo is answered by the leader.  It is not a write: it has no place in
 *   ZooKeeper's order, and is not written to disk.
 * - A proof is a write that changes nothing.
 *
 * Signs are a twentieth of the session timeout apart.  A round is two echoes
 * and then two reads.  The two echoes prepare a base: each write that is sent
 * after them makes it the base of safe until.  If the session holds a ticket,
 * such a write follows the echoes: a proof, unless a request of a ticket is
 * one.  So a session that holds tickets sends five proofs at most in a session
 * timeout.  A session without tickets sends none.  It is idle, and the create
 * of its next ticket moves safe until by itself.
 *
 * Safe until may come near nevertheless, because ZooKeeper is slow or the
 * worker was suspended.  Then each sign is a proof.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no clock.  All moments and times are in
 * microseconds, on the caller's clock.
 *
 * src/protocol/cadence.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CADENCE_H
#define ZKL_CADENCE_H

#include <stdbool.h>
#include <stdint.h>

/* A sign of life, or none. */
typedef enum ZklSign
{
	ZKL_SIGN_NONE,
	ZKL_SIGN_READ,
	ZKL_SIGN_ECHO,
	ZKL_SIGN_PROOF
} ZklSign;

typedef struct ZklCadence
{
	int64_t		timeout;		/* of the session */
	int64_t		due_at;			/* when the next sign is due */
	int64_t		wrote_at;		/* when the last write was sent; 0: never */
	int64_t		proof_at;		/* when the last proof was sent */
	int64_t		sent_at;		/* when the last sign was sent */
	int64_t		took;			/* from the last sign to its reply */
	int			beat;			/* the sign's place in the round, from 0 on */
	bool		barrier;		/* the connection has yet to begin with a
								 * proof */
	bool		prepared;		/* the next proof has a new base, and so moves
								 * safe until */
	bool		fails;			/* a write has failed since the last proof */
} ZklCadence;

/* How far apart signs are, and how long ZooKeeper may be silent. */
extern int64_t zkl_cadence_period(int64_t timeout);
extern int64_t zkl_cadence_patience(int64_t timeout);

/*
 * When to give up a connection on which a sign, sent at this moment, has no
 * reply.  The reply may come behind a long reply, so the sign has more time,
 * up to a bound, while bytes arrive.  "received": when the last bytes came;
 * 0: never.
 */
extern int64_t zkl_cadence_give_up_at(int64_t timeout, int64_t sent,
									  int64_t received);

/* A connection begins: its first request must be a proof, at once. */
extern void zkl_cadence_connected(ZklCadence *cadence, int64_t timeout);

/*
 * Which sign to send now, if none is under way, and when to call this
 * function again.  "holds": the session has a ticket, so something must be
 * proved.  If nothing is known of safe until, pass a moment in the past.
 */
extern ZklSign zkl_cadence_next(const ZklCadence *cadence, int64_t now,
								bool holds, int64_t safe_until);
extern int64_t zkl_cadence_due(const ZklCadence *cadence, bool holds);

/* Call these when a sign was sent, and when its reply has come. */
extern void zkl_cadence_sent(ZklCadence *cadence, ZklSign sign, int64_t now);
extern void zkl_cadence_answered(ZklCadence *cadence, ZklSign sign,
								 int64_t now);

/*
 * Call zkl_cadence_wrote when another write was sent; it is a proof if it
 * succeeds.  Call the second function if it has failed: then a proof follows
 * soon, unless another write succeeds first.
 */
extern void zkl_cadence_wrote(ZklCadence *cadence, int64_t now);
extern void zkl_cadence_failed(ZklCadence *cadence);

#endif							/* ZKL_CADENCE_H */
