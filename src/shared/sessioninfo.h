/*-------------------------------------------------------------------------
 *
 * sessioninfo.h
 *	  What all processes know of the server's ZooKeeper session.
 *
 * Functions read only atomics, so they need no lock.  None raises an error.
 *
 * src/shared/sessioninfo.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONINFO_H
#define ZKL_SESSIONINFO_H

#include "lib/ilist.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#define ZKL_SERVER_SIZE		80	/* "address:port" */
#define ZKL_PASSWORD_SIZE	16
#define ZKL_ERROR_SIZE		256

/*
 * Published instead of safe until: the session is idle.  It holds no lock, so
 * it needs no proof of its life.
 */
#define ZKL_SAFE_UNTIL_IDLE	1

/*
 * While ZooKeeper elects a leader, its servers refuse clients, for less than
 * this.  So a call that does not wait reports only after this time that
 * ZooKeeper cannot be reached.
 */
#define ZKL_ELECTION	ZKL_MS(1000)

/*
 * The end of a session is one ZooKeeper transaction that names all its
 * ephemeral znodes.  A transaction of about 2 MB brings the whole ensemble
 * down, so stay far below the smallest limit that a ZooKeeper server may be
 * configured with.
 */
#define ZKL_EPHEMERAL_BYTES_MAX	900000
#define ZKL_EPHEMERAL_BYTES_LEADERS	50000	/* in addition, for leaderships
											 * only */

/*
 * The ZooKeeper session.  Only the worker writes this, except for the list of
 * work and "left".  Every process reads the atomic fields without a lock.
 */
typedef struct ZklSessionInfo
{
	int64		instance;		/* a random number from 1 on that identifies
								 * this start of the server; fixed */
	pg_atomic_uint64 epoch;		/* grows when the session has expired */
	pg_atomic_uint64 safe_until;	/* on the clock of zkl_now(); 0 if nothing
									 * is known */
	pg_atomic_uint64 heard_at;	/* when ZooKeeper last replied to a sign of
								 * life */
	pg_atomic_uint32 period_ms; /* the time between two signs of life */
	pg_atomic_uint32 connected;
	pg_atomic_uint64 refused_at;	/* since when ZooKeeper has refused this
									 * server; 0 if it does not */
	pg_atomic_uint32 record_refused;	/* ZooKeeper refuses the record of
										 * this server, over the present
										 * connection */

	pg_atomic_uint32 tls;		/* connections use TLS */
	pg_atomic_uint64 certificate_until; /* when this server's own certificate
										 * ends, in seconds since 1970; 0 if
										 * it has none */

	/* Written under session_lock.  The worker itself reads them without it. */
	int64		id;				/* 0 if none */
	char		password[ZKL_PASSWORD_SIZE];
	int			timeout_ms;		/* the shortest that ZooKeeper has granted */
	char		server[ZKL_SERVER_SIZE];
	int64		connected_at;
	char		last_error[ZKL_ERROR_SIZE];
	int64		last_error_at;	/* 0 if never */
	char		refusal[ZKL_ERROR_SIZE];	/* why this server is refused,
											 * since "refused_at" */

	pg_atomic_uint32 worker_proc;	/* proc number + 1; 0: not running */
	pg_atomic_uint32 worker_pid;
	pg_atomic_uint32 left;		/* logged since this worker began: the session
								 * is left to expire */
	pg_atomic_uint64 ephemeral_bytes;	/* see sendqueue.c */

	slock_t		work_mutex;
	dlist_head	work;			/* entries that the worker must look at;
								 * protected by work_mutex */
} ZklSessionInfo;

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_session_info_size(void);
extern void zkl_session_info_attach(void *memory, LWLockPadded *locks, bool is_new);

extern ZklSessionInfo *zkl_session_info;

/* Is this process the worker?  For assertions. */
static inline bool
zkl_session_info_is_worker(void)
{
	return pg_atomic_read_u32(&zkl_session_info->worker_pid) == MyProcPid;
}

/*
 * The first function tells whether the ZooKeeper session certainly lives at
 * this moment of zkl_now(); the second, up to what moment it certainly lives,
 * or ZKL_FOREVER if it is idle.  A caller that reads "losses" or an epoch after
 * that sees values at least as new: when a session expires, both grow before
 * the next session can be safe, and when a claim is lost, "losses" grows
 * before the session can be idle.
 */
extern bool zkl_session_info_is_safe(int64 now);
extern int64 zkl_session_info_safe_until(void);

/*
 * Up to what moment is the session in touch, if no more replies come?  In
 * touch means that its worker is connected to ZooKeeper, and the session
 * certainly lives; or, if it is idle, that ZooKeeper has replied recently.  A
 * moment in the past: it is not in touch.
 */
extern int64 zkl_session_info_in_touch_until(void);

/*
 * A request has had no reply since then.  Is ZooKeeper silent, or was the time
 * merely too short?
 */
extern bool zkl_session_info_is_silent(int64 since);

/*
 * From what moment may a try that has no reply since "since" report that
 * ZooKeeper cannot be reached?  It is later than now while the session is in
 * touch.
 */
extern int64 zkl_session_info_away_from(int64 since);

/*
 * A backend made its request at "asked", and has waited for an answer since
 * "since".  Returns the moment from which it may report that ZooKeeper cannot
 * be reached.  While ZooKeeper replies to signs of life, that moment moves
 * on: then the answer just takes long.  If ZooKeeper had refused this server
 * before the request, there is nothing to wait for.
 */
extern int64 zkl_session_info_silent_from(int64 asked, int64 since);

/* Does ZooKeeper refuse this server's credentials? */
extern bool zkl_session_info_is_refused(void);

/* Is the session of this epoch in doubt, or has another epoch begun? */
extern bool zkl_session_info_is_in_doubt(uint64 epoch, int64 now);

/*
 * Up to what moment does the session of this epoch certainly live?  0 if it
 * does not.
 */
extern int64 zkl_session_info_until(uint64 epoch);

#endif							/* ZKL_SESSIONINFO_H */
