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

/* What the backend said last about the lock, and when that was asked. */
typedef struct ZklStanding
{
	bool		held;
	double		safe_until;		/* less the commit margin */
	double		session_timeout;
	double		asked_at;
} ZklStanding;

/* Only server.c writes these. */
extern ZklStanding zkl_server_standing;
extern double zkl_server_asked_at;	/* when the last question was sent */
extern bool zkl_server_asking;	/* it has no answer yet */

/*
 * Seconds on the clock that counts while the machine is suspended, as the
 * server's does.
 */
extern double zkl_server_clock(void);

/* Connect and prepare the session.  Ends the program on error. */
extern void zkl_server_connect(const ZklOptions *options);
extern bool zkl_server_is_alive(void);

/*
 * Wait for the server, for a signal, or until this moment.  Signals arrive
 * only here, so that none is missed between a look and a wait.
 */
extern void zkl_server_wait_until(double until);

/*
 * Acquire the lock, and put into the environment which it is.  False if it was
 * not acquired in time.  Ends the program on error and on a signal.
 */
extern bool zkl_server_acquire(const ZklOptions *options);

/* Ask how the lock stands; read the answer if it is there. */
extern void zkl_server_ask(const ZklOptions *options);
extern void zkl_server_read_answer(void);

/* Was the lock held until now, when the command has ended? */
extern bool zkl_server_confirm(const ZklOptions *options);

/* End the run of a job, release the lock, and close the connection. */
extern void zkl_server_end_run(bool done);
extern void zkl_server_release(void);
extern void zkl_server_close(void);

#endif							/* ZKL_SERVER_H */
