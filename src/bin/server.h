/*-------------------------------------------------------------------------
 *
 * server.h
 *	  The connection of zklock-run, and the lock that it holds.
 *
 * src/bin/server.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SERVER_H
#define ZKL_SERVER_H

#include <stdbool.h>

#include "bin/options.h"

/* What the backend last reported about the lock, and when the query was sent. */
typedef struct ZklStanding
{
	bool		held;
	double		safe_until;		/* without the commit margin */
	double		session_timeout;
	double		grace;			/* the longest time that the command gets to
								 * end before "safe_until" */
	double		next_reply;		/* how long after the last reply to expect it,
								 * at most */
	bool		prompt;			/* replies that take as long as the last one
								 * come in time */
	double		asked_at;
} ZklStanding;

/* Only server.c writes these. */
extern ZklStanding zkl_server_standing;
extern double zkl_server_asked_at;	/* when the last query about it was sent */
extern bool zkl_server_asking;	/* it has no reply yet */

/*
 * Seconds, on the same kind of clock as the server's, which also counts while
 * the machine is suspended.
 */
extern double zkl_server_clock(void);

/* Connect and prepare the session.  Exits on error. */
extern void zkl_server_connect(const ZklOptions *options);
extern bool zkl_server_is_alive(void);	/* is there a connection? */

/*
 * Wait for the server, for a signal, or until this moment.  Signals are
 * unblocked only here, so that none is missed between a check and a wait.
 */
extern void zkl_server_wait_until(double until);

/* How often to send the query about the lock, in seconds. */
#define ZKL_SERVER_ASK_INTERVAL		(fmax(zkl_server_standing.session_timeout, 1) / 20)

/*
 * Acquire the lock, describe it in the environment, and wait until it is safe
 * for long enough to start the command.  With --guard, the environment also
 * tells the sessions of the command to commit only under the lock.  A lock
 * that is lost meanwhile is acquired again.  If the lock is held already, only
 * wait.  False if it was not acquired in time.  Exits on an error or a signal,
 * and if the lock is not safe for long enough within a session timeout, or if
 * the replies take too long.
 */
extern bool zkl_server_acquire(const ZklOptions *options);

/*
 * Send a query about the lock; read the reply if it has come.  Only after
 * zkl_server_acquire().
 */
extern void zkl_server_ask(const ZklOptions *options);
extern void zkl_server_read_answer(void);

/*
 * Is the lock still held?  Waits for the reply while the lock is safe, and at
 * least until this moment.  If the reply is an error, asks again.
 */
extern bool zkl_server_confirm(const ZklOptions *options, double until);

/*
 * With --guard, after the command: warn if no session of it has committed under
 * the lock.
 */
extern void zkl_server_warn_unless_used(const ZklOptions *options);

/*
 * Release the lock before this program ends, because other programs may wait
 * for the lock, and record whether the run of a job is done.  False if the
 * server did not confirm the release.
 */
extern bool zkl_server_release(const ZklOptions *options, bool done);
extern void zkl_server_close(void);

#endif							/* ZKL_SERVER_H */
