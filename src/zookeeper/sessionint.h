/*-------------------------------------------------------------------------
 *
 * sessionint.h
 *	  What the files of the session share.  No other file includes it.
 *
 * Only zkl_session_tls_interest raises an error.  The client library calls
 * others, and an error would leave the library in the middle of its work.
 *
 * src/zookeeper/sessionint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONINT_H
#define ZKL_SESSIONINT_H

#include <zookeeper/zookeeper.h>

#include "zookeeper/session.h"

typedef struct ZklSessionState
{
	int64		provable;		/* what each write that is sent from now on
								 * proves */
	int64		requests;
	uint32		sockets;		/* that the client has opened so far */
	char		server[80];		/* the server of the last connect */
	void		(*on_sent) (ZklTraffic kind);
	void		(*on_answered) (int64_t latency);
	bool		(*is_name_of) (int server, const char *address);
	bool		has_error;		/* the worker has not taken the error yet: */
	char		error[256];		/* why there is no connection */
	dlist_head	events;
	int			late_connects;	/* connects that were given up since the last
								 * reply to a proof, also of other handles */

	/* What follows is about the handle, and begins anew with the next one. */
	zhandle_t  *handle;
	bool		closing;		/* keep only the replies among the callbacks'
								 * events */
	bool		barrier_sent;	/* the proof was sent on the present
								 * connection */
	bool		refusal_logged; /* logged: ZooKeeper refuses signs of life */
	bool		denial_logged;	/* logged: the access control list denied a
								 * request */
	bool		acl_logged;		/* logged: ZooKeeper does not accept
								 * zklock.acl */
	bool		auth_refused;	/* ZKL_SESSION_REFUSED was appended */
	ZklSign		sign;			/* the sign of life under way, or NONE */
	int64		sign_sent;
	int64		sign_provable;
	int			outstanding;
	int			nservers;
	int			timeout_ms;		/* as requested */
	int			fd;				/* socket of the last turn */
	int64		connecting_since;	/* 0: not connecting */
	int			attempts;		/* attempts to connect since the last reply to
								 * a proof */
	int64		attempt_at;		/* when the next attempt may be made */
	int64		attempted_at;	/* when the last attempt began, or earlier */
	int			idle_turns;
	int64		received_at;	/* when bytes last came; 0: never */
	int64		frame_since;	/* since when a part of a frame has been
								 * there; 0: none */
	bool		reply_too_long; /* zklock ended the connection because of the
								 * length of the reply that was arriving */
	bool		is_unread;		/* the library may have read replies that the
								 * socket does not show */
	char		mistrust[256];	/* why TLS has failed since the last
								 * connection; empty if it has not */
	int			mistrusts;		/* how often TLS has failed since the last
								 * pause */
	bool		gave_up;		/* zklock ended the connection, and "error"
								 * says why */
} ZklSessionState;

extern ZklSessionState zkl_session_state;

/* The callback for the session's state and for all watches. */
extern void zkl_session_on_watch(zhandle_t *handle, int type, int state,
								 const char *path, void *context);

/*
 * TLS, in sessiontls.c.  All of these do nothing without it.
 *
 * interest: the client has said what it waits for; then this says what the
 * worker has to wait for.  Call it before the client writes to a new
 * connection.  An error is raised if there are no descriptors or memory for
 * it.
 *
 * process: move what has come, and say what the client can do.
 *
 * close: as zookeeper_close(), and waits a second at most for the server.
 *
 * drop: end the connection, and send nothing any more.  The client's
 * descriptor stays, and shows the end.  True if the handshake was under way.
 */
extern void zkl_session_tls_interest(zhandle_t *handle, int *fd,
									 bool *writable, long *timeout_ms);
extern void zkl_session_tls_process(bool *readable, bool *writable);
extern void zkl_session_tls_close(zhandle_t *handle);
extern bool zkl_session_tls_drop(void);

/*
 * Keep the reason why the connection ends, in place of the client's own; if
 * "is_mistrusted", because one side does not trust the other.
 */
extern void zkl_session_note_failure(bool is_mistrusted, const char *format,...) pg_attribute_printf(2, 3);

/* Keep the reason that a line of the client's log gives. */
extern void zkl_session_note_client_error(const char *text);

/*
 * The text of an error number about a server; 0: the server has closed the
 * connection.
 */
extern void zkl_session_describe_errno(int code, char *reason, size_t size);

/*
 * Let the client work on its connection, as zookeeper_process() does.  If the
 * library fails in it, the process logs that this server is to blame, and exits
 * with 1.
 */
extern int	zkl_session_guard_process(zhandle_t *handle, int events,
									  const char *server);

/* The access control list of each znode that is created. */
extern const struct ACL_vector *zkl_session_acl(void);

/* The outcome that a return code means; sets *failure if it means REFUSED. */
extern ZklOutcome zkl_session_outcome_of(int rc, ZklFailure *failure);

/*
 * Has the connection ended because of the length of the reply to the request
 * that is completed now?  Call this for the first request that is completed
 * after the connection has ended.
 */
extern bool zkl_session_take_too_long(void);

/* One more request is under way: count it. */
extern void zkl_session_count_sent(ZklTraffic traffic);

/*
 * ZooKeeper refuses this client's credentials, or requires some.  Append one
 * event for each handle.
 */
extern void zkl_session_note_refused(void);

/* Append an event, or the one that answers a request; the caller fills in the rest. */
extern ZklSessionEvent *zkl_session_append_event(ZklSessionEventKind kind);
extern ZklSessionEvent *zkl_session_append_reply(const ZklSessionTag *tag, ZklOutcome outcome,
												 bool writes, int64_t provable);

/* Zeroed memory, and a copy of a text, for events.  Never NULL. */
extern void *zkl_session_allocate(size_t size);
extern char *zkl_session_copy(const char *text);

#endif							/* ZKL_SESSIONINT_H */
