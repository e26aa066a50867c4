/*-------------------------------------------------------------------------
 *
 * session.h
 *	  One ZooKeeper session, on the single-threaded client.
 *
 * The client is driven by its owner's wait loop: ask zkl_session_interest
 * what to wait for, wait, tell zkl_session_process what is ready, then take
 * the events that came of it.  Nothing in here waits, but for names being
 * resolved when a session is opened.
 *
 * Every request that is sent gets exactly one reply event, except when the
 * session is closed: then all replies are dropped.
 *
 * Called only by the worker's files.  There is one session a process.
 *
 * src/session.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_H
#define ZKL_SESSION_H

#include "path.h"
#include "ticket.h"

/* A directory, a slash and a child, with the null. */
#define ZKL_SESSION_PATH_SIZE	(ZKL_DIR_SIZE + 1 + ZKL_CHILD_SIZE)

typedef enum ZklSessionEventKind
{
	ZKL_SESSION_CONNECTED,		/* all watches are gone; send a heartbeat */
	ZKL_SESSION_DISCONNECTED,
	ZKL_SESSION_EXPIRED,		/* the handle is of no more use: close it */
	ZKL_SESSION_STRANGER,		/* no ZooKeeper answered: abandon the handle */
	ZKL_SESSION_HEARTBEAT,		/* a quorum answered what was sent at "sent" */
	ZKL_SESSION_REPLY,
	ZKL_SESSION_ANSWER,			/* to a request of sessionadmin.c */
	ZKL_SESSION_CHILDREN_CHANGED,	/* of the directory "path" */
	ZKL_SESSION_NODE_CHANGED	/* the znode "path" changed or is gone */
} ZklSessionEventKind;

typedef struct ZklSessionEvent
{
	struct ZklSessionEvent *next;
	ZklSessionEventKind kind;
	int64_t		sent;			/* HEARTBEAT: on the clock of zkl_now() */
	char	   *path;			/* ..._CHANGED */
	bool		gone;			/* NODE_CHANGED: it does not exist any more */

	/* REPLY, ANSWER */
	void	   *tag;			/* as given with the request */
	uint32_t	attempt;
	ZklTicketEvent reply;		/* its strings live as long as the event */

	char	   *data;			/* WATCH_SELF; ANSWER: its beginning; NULL:
								 * none */
	int			data_length;

	/* ANSWER */
	int			item;			/* as given with the request */
	int64_t		ctime_ms;
	int64_t		owner;			/* session; 0: the znode is not ephemeral */
} ZklSessionEvent;

/* What identifies a session, so that another process can carry it on. */
typedef struct ZklSessionId
{
	int64_t		id;				/* 0: none */
	char		password[16];
} ZklSessionId;

/*
 * Open a handle: for a new session, or to carry on the one given.  "servers"
 * are numeric addresses, an odd number of them.  False (with errno) if the
 * client could not be made.
 */
extern bool zkl_session_open(const char *servers, int nservers,
							 int timeout_ms, const ZklSessionId *carry_on);
extern bool zkl_session_is_open(void);

/* End the session, and with it all its znodes.  May take a second or two. */
extern void zkl_session_close(void);

/*
 * Free the handle, but leave the session alive, to be carried on.  All replies
 * are dropped.
 */
extern void zkl_session_abandon(void);

/* Give up the connection, and try another server. */
extern void zkl_session_break_connection(void);

/*
 * What to wait for: the socket (-1: none now), whether it shall be writable
 * as well as readable, and for how many milliseconds at most.
 */
extern void zkl_session_interest(int *fd, bool *writable, long *timeout_ms);

/* Read and write what is ready. */
extern void zkl_session_process(bool readable, bool writable);

/* The next event, or NULL.  To be freed by the caller. */
extern ZklSessionEvent *zkl_session_next_event(void);
extern void zkl_session_free_event(ZklSessionEvent *event);

/*
 * Send a write whose answer proves that the session lives.  Also the barrier
 * that must be the first request on each new connection: nothing else is
 * sent before it.  Does nothing unless it may be sent: connected, and none on
 * its way.
 */
extern void zkl_session_heartbeat(void);
extern bool zkl_session_may_heartbeat(void);

/* For how long one is on its way, in microseconds; 0: none is. */
extern int64_t zkl_session_heartbeat_age(void);

/* May requests be sent now? */
extern bool zkl_session_is_usable(void);

/* Is there a connection?  It may have ended without an event. */
extern bool zkl_session_is_connected(void);

/*
 * Requests that are sent between the two go out together: the client would make
 * two packets of each.
 */
extern void zkl_session_begin_sending(void);
extern void zkl_session_end_sending(void);

/*
 * What the client said since this was asked last about a connection that failed
 * or was lost; NULL: nothing.  Has it gone through all servers in vain?
 */
extern const char *zkl_session_take_error(void);
extern bool zkl_session_tried_all(void);

/* Requests without an answer, and all that were ever sent by this process. */
extern int	zkl_session_outstanding(void);
extern int64_t zkl_session_requests(void);

/* Is it a ZooKeeper that we are connected to?  If not, abandon the handle. */
extern bool zkl_session_is_plausible(void);

/* Facts about the connected session. */
extern int	zkl_session_timeout_ms(void);
extern int64_t zkl_session_connect_sent(void);	/* then, or later */
extern void zkl_session_identity(ZklSessionId *identity);
extern const char *zkl_session_server(void);

/*
 * Requests.  "tag" and "attempt" come back with the reply.  "prefix" is what
 * the znode's name begins with; the server adds the number.
 */
extern void zkl_session_create(void *tag, uint32_t attempt,
							   const char *directory, const char *prefix,
							   const char *data);
extern void zkl_session_found(void *tag, uint32_t attempt,
							  const char *directory, bool with_parents,
							  const char *prefix, const char *data);
extern void zkl_session_list(void *tag, uint32_t attempt,
							 const char *directory);

extern void zkl_session_survey(void *tag, uint32_t attempt,
							   const char *directory);
extern void zkl_session_downgrade(void *tag, uint32_t attempt,
								  const char *directory, const char *writer,
								  const char *reader, const char *data);
extern void zkl_session_inspect(void *tag, uint32_t attempt,
								const char *directory, const char *child);
extern void zkl_session_watch(void *tag, uint32_t attempt, ZklRequest request,
							  const char *directory, const char *child);
extern void zkl_session_answer(void *tag, uint32_t attempt,
							   const char *directory, const char *child,
							   const char *text, int version);
extern void zkl_session_delete(void *tag, uint32_t attempt,
							   const char *directory, const char *child);

/* Forget the watch on a child, at the server too. */
extern void zkl_session_unwatch(const char *directory, const char *child);

/* Forget all watches on this side, after the connection was lost. */
extern void zkl_session_drop_watch(const char *path);

/*
 * Requests that are no ticket's, in sessionadmin.c.  "tag", "attempt" and
 * "item" come back with the answer, which is an event ZKL_SESSION_ANSWER: its
 * reply has outcome and failure, the children, and the czxid.  Of the data, at
 * most "data_size" bytes are kept.
 *
 * sync answers when the server that we are connected to knows what any had
 * known before.  write is UNKNOWN where the data has another version than
 * given; -1 is any.
 */
typedef struct ZklSessionAsk
{
	void	   *tag;
	uint32_t	attempt;
	int			item;
} ZklSessionAsk;

extern void zkl_session_ask_sync(ZklSessionAsk ask, const char *path);
extern void zkl_session_ask_children(ZklSessionAsk ask, const char *path);
extern void zkl_session_ask_data(ZklSessionAsk ask, const char *path,
								 int data_size);
extern void zkl_session_ask_stat(ZklSessionAsk ask, const char *path);
extern void zkl_session_ask_write(ZklSessionAsk ask, const char *path,
								  const char *data, int version);
extern void zkl_session_ask_delete(ZklSessionAsk ask, const char *path);

#endif							/* ZKL_SESSION_H */
