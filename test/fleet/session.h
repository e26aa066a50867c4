/*
 * session.h: one ZooKeeper session that plays the worker of a server.
 */
#ifndef FLEET_SESSION_H
#define FLEET_SESSION_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

#include "protocol/cadence.h"
#include "protocol/safeuntil.h"

#define MS(ms) ((int64_t) (ms) * 1000)
#define NEVER INT64_MAX
#define PATH_SIZE 128
#define DIRECTORY "/zklock/fleet"	/* of all locks; the driver makes it */

typedef struct Session
{
	zhandle_t  *zk;				/* NULL: not open */
	int			number;
	bool		is_load;		/* see load.c: sends no proofs, holds no lock */
	int			in_flight;		/* ... but so many writes at a time */

	/* the connection, as src/zookeeper/sessionhandle.c has it */
	int			fd;
	bool		connected;
	int			attempts;		/* since an answer */
	int			late;			/* connects that were given up since then */
	int64_t		attempt_at;		/* when the next may be made */
	int64_t		attempted_at;	/* when the last one began, or before */
	int64_t		connecting_since;	/* 0: not connecting */
	int64_t		down_since;		/* 0: there was an answer on this connection */

	/* the proof of life, as src/worker/session/heartbeat.c has it */
	ZklSafeUntil safe;
	ZklCadence	cadence;
	ZklSign		sign;			/* the one under way */
	int64_t		sign_sent;
	int64_t		sign_provable;	/* what it proves if it is a proof */
	zoo_op_result_t proof_result;

	/* the lock */
	bool		has_ticket;		/* from the sending of its create to that of its delete */
	bool		unanswered;		/* the last request about it; see ask_again() */
	bool		holding;
	bool		in_doubt;
	bool		lost;			/* the session has expired */
	char		znode[PATH_SIZE];
	int64_t		create_provable;	/* what its create proves */

	int64_t		wake_at;		/* when to serve it, whatever its socket says */
} Session;

/* What has happened since the last report. */
typedef struct Count
{
	int64_t		sent[ZKL_SIGN_PROOF + 1];	/* signs of life, of each kind */
	int64_t		doubted;		/* a session with a lock was in doubt */
	int64_t		disconnects;
	int64_t		least_ahead;	/* of safe until, while a lock is held */
	int			nreconnects;
	int64_t    *reconnect;		/* how long each took */
	int64_t		first_reconnect;	/* when */
	int64_t		last_reconnect;
} Count;

extern Count count;
extern const char *hosts;
extern int	nservers;			/* in hosts */
extern int	timeout_ms;

extern int64_t now_us(void);
extern bool is_unanswered(int rc);
extern void check(int rc, const char *what);

extern void session_open(Session *s, int number, bool is_load);
extern void session_close(Session *s);

/* Serve it, and say what it waits for next: in p and s->wake_at. */
extern void session_serve(Session *s, struct pollfd *p);

extern void session_hold(Session *s);
extern void session_release(Session *s);

/* As fast as ZooKeeper can if the rate is 0. */
extern void load_begin(double writes_per_second, double seconds);
extern bool load_is_busy(void);
extern void load_send(Session *s, int64_t now);

/* When its sessions have to be served at the latest. */
extern int64_t load_due_at(int64_t now);

/* The sessions of the load, and how many there are. */
#define LOAD_SESSIONS 16

/*
 * Go on with these sessions.  True at the end: then it says what has been
 * written in what time.
 */
extern bool load_tend(Session *all, int64_t now, int64_t *writes, double *seconds);

#endif							/* FLEET_SESSION_H */
