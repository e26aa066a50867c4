/*-------------------------------------------------------------------------
 *
 * sessioninfo.h
 *	  What all processes know of the server's ZooKeeper sessions.
 *
 * src/shared/sessioninfo.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONINFO_H
#define ZKL_SESSIONINFO_H

#include "lib/ilist.h"
#include "port/atomics.h"
#include "storage/spin.h"

#define ZKL_SERVER_SIZE		80	/* "address:port" */
#define ZKL_PASSWORD_SIZE	16
#define ZKL_ERROR_SIZE		256

/*
 * In place of safe until: the session is idle.  It holds no lock, so that it need
 * not be proved to live.
 */
#define ZKL_SAFE_UNTIL_IDLE	1

/*
 * The end of a session is one transaction that names all its ephemeral znodes.
 * A transaction of some 2 MB brings the whole ensemble down, so stay far below
 * the least that a server is configured for.
 */
#define ZKL_EPHEMERAL_BYTES_MAX	900000

/*
 * One ZooKeeper session.  Only its worker writes this, except for the list of
 * work.  Every process reads the atomic fields without a lock.
 */
typedef struct ZklSessionInfo
{
	pg_atomic_uint64 epoch;		/* grows when the session has expired */
	pg_atomic_uint64 safe_until;	/* on the clock of zkl_now(); 0: nothing
									 * is known */
	pg_atomic_uint64 heard_at;	/* when ZooKeeper last answered a sign of life */
	pg_atomic_uint32 period_ms; /* between signs of life */
	pg_atomic_uint32 connected;
	pg_atomic_uint64 refused_at;	/* since when ZooKeeper has refused this
									 * server; 0: it does not */

	/*
	 * Written under session_lock.  The worker itself reads them without it.
	 */
	int64		id;				/* 0: none */
	char		password[ZKL_PASSWORD_SIZE];
	int			timeout_ms;		/* the shortest that ZooKeeper has granted */
	char		server[ZKL_SERVER_SIZE];
	int64		connected_at;
	char		last_error[ZKL_ERROR_SIZE];
	int64		last_error_at;	/* 0: never */

	pg_atomic_uint32 worker_proc;	/* proc number + 1; 0: not running */
	pg_atomic_uint32 worker_pid;
	pg_atomic_uint64 ephemeral_bytes;	/* see sendqueue.c */

	slock_t		work_mutex;
	dlist_head	work;			/* entries that the worker is asked to look
								 * at; protected by work_mutex */
} ZklSessionInfo;

/*
 * In a worker: its ZooKeeper session, which is fixed, and the number of that
 * session.  Elsewhere: NULL.
 */
extern ZklSessionInfo *zkl_session_info_mine;
extern int	zkl_session_info_number(void);

/*
 * Is this ZooKeeper session certainly alive at this moment of zkl_now()?  And: is
 * each of them alive or idle?  A caller that reads "losses" or an epoch after
 * that sees values at least as new: when a session expires, both grow before
 * the next session can be safe, and when a claim is lost, "losses" grows before
 * its session can be idle.
 */
extern bool zkl_session_info_is_safe(int session, int64 now);
extern bool zkl_session_info_all_safe(int64 now);

/*
 * Is its worker connected to ZooKeeper, and the session certainly alive; or if it
 * is idle, has ZooKeeper answered of late?  And: up to what moment does this hold,
 * if nothing more is heard?  A moment that has passed stands for "no".
 */
extern bool zkl_session_info_is_in_touch(int session, int64 now);
extern int64 zkl_session_info_in_touch_until(int session);

/*
 * A backend that asked at "asked" has waited for an answer since "since".  This
 * returns the moment from which it may report that ZooKeeper cannot be reached.
 * While ZooKeeper answers signs of life, that moment moves on: then the answer
 * only takes long.  If ZooKeeper had refused this server before the backend
 * asked, there is nothing to wait for.
 */
extern int64 zkl_session_info_silent_from(int session, int64 asked,
										  int64 since);

/* Does ZooKeeper refuse this server's credentials? */
extern bool zkl_session_info_is_refused(int session);

/*
 * Is the session not certainly alive, or has its epoch changed since this one?
 */
extern bool zkl_session_info_is_in_doubt(uint64 epoch, int session, int64 now);

#endif							/* ZKL_SESSIONINFO_H */
