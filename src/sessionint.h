/*-------------------------------------------------------------------------
 *
 * sessionint.h
 *	  What session.c and sessioncalls.c share; nobody else includes it.
 *
 * src/sessionint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONINT_H
#define ZKL_SESSIONINT_H

#include <zookeeper/zookeeper.h>

#include "session.h"

typedef struct ZklSessionState
{
	zhandle_t  *handle;
	bool		closing;		/* drop what the callbacks say */
	bool		barrier_sent;	/* on the present connection */
	bool		heartbeat_is_out;
	bool		refusal_logged; /* that heartbeats are refused */
	int64		heartbeat_sent;
	int			outstanding;
	int64		requests;
	int			nservers;
	int			timeout_ms;		/* as asked for */
	int			fd;				/* socket of the last turn */
	int64		connecting_since;	/* 0: not connecting */
	int			attempts;		/* to connect, since a heartbeat was answered */
	int64		attempt_at;		/* when the next may be made */
	int64		attempted_at;	/* before the last one began */
	int			idle_turns;
	ZklSessionEvent *first;
	ZklSessionEvent **last;
} ZklSessionState;

extern ZklSessionState zkl_session_state;

/* The one watcher, for the session and for all watches. */
extern void zkl_session_on_watch(zhandle_t *handle, int type, int state,
								 const char *path, void *context);

/* What a return code means; sets failure where it means REFUSED. */
extern ZklOutcome zkl_session_outcome_of(int rc, ZklFailure *failure);

/*
 * A request was given to the client; true if the client has taken it, and will
 * call its completion.
 */
extern bool zkl_session_note_sent(int rc);

/* It was completed: what does that mean? */
extern ZklOutcome zkl_session_note_done(int rc, ZklFailure *failure);

/* Copy the children that were listed into an event. */
extern void zkl_session_set_children(ZklSessionEvent *event,
									 const struct String_vector *strings);

/* Append an event; the caller fills it. */
extern ZklSessionEvent *zkl_session_append_event(ZklSessionEventKind kind);

/* Zeroed memory, and a copy of a text, for events.  Never NULL. */
extern void *zkl_session_allocate(size_t size);
extern char *zkl_session_copy(const char *text);

#endif							/* ZKL_SESSIONINT_H */
