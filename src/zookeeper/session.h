/*-------------------------------------------------------------------------
 *
 * session.h
 *	  One ZooKeeper session, on the single-threaded client.
 *
 * The worker's wait loop drives the client: it learns from
 * zkl_session_interest what to wait for, waits, tells zkl_session_process
 * what is ready, and then takes the events.  Nothing in here waits, except
 * for names being resolved when a session is opened.
 *
 * Every request becomes exactly one event that answers it.
 *
 * Called only by the worker's files.  Each process has one session.  This is
 * the interface of all files of this folder; sessionint.h is what they share.
 * An error ends the worker (worker.c).
 *
 * src/zookeeper/session.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_H
#define ZKL_SESSION_H

#include "lib/ilist.h"

#include "protocol/cadence.h"
#include "protocol/path.h"
#include "protocol/ticket.h"
#include "protocol/traffic.h"

/* A directory, a slash and a child, with the null. */
#define ZKL_SESSION_PATH_SIZE	(ZKL_DIR_SIZE + 1 + ZKL_CHILD_SIZE)

typedef enum ZklSessionEventKind
{
	ZKL_SESSION_CONNECTED,		/* all watches are gone; send a proof */
	ZKL_SESSION_DISCONNECTED,
	ZKL_SESSION_EXPIRED,		/* the session has expired: close the handle */
	ZKL_SESSION_STRANGER,		/* the server is not ZooKeeper: abandon the
								 * handle */
	ZKL_SESSION_REFUSED,		/* the server refuses this client's
								 * credentials: abandon the handle */
	ZKL_SESSION_SIGN,			/* the reply to the sign of life that was sent
								 * at "sent" */
	ZKL_SESSION_REPLY,
	ZKL_SESSION_ANSWER,			/* the reply to an ask */
	ZKL_SESSION_CHILDREN_CHANGED,	/* of the directory "path" */
	ZKL_SESSION_NODE_CHANGED	/* the znode "path" changed or is gone */
} ZklSessionEventKind;

typedef struct ZklSessionEvent
{
	dlist_node	link;			/* in the queue of events */
	ZklSessionEventKind kind;
	ZklSign		sign;			/* SIGN */
	int64_t		sent;			/* SIGN: on the clock of zkl_now() */
	int64_t		provable;		/* SIGN, REPLY, ANSWER: as it was when the
								 * request was sent */
	char	   *path;			/* CHILDREN_CHANGED, NODE_CHANGED */
	bool		gone;			/* NODE_CHANGED: the znode no longer exists */

	/* REPLY, ANSWER */
	bool		writes;			/* the request was a write */
	void	   *tag;			/* the owner in the request's tag */
	uint32_t	attempt;
	bool		ends_batch;		/* as in the tag */
	ZklTicketEvent reply;		/* its strings are freed with the event */

	/* UNDONE: the outcome that made the batch fail */
	ZklOutcome	cause;			/* this operation's outcome, if it made the
								 * batch fail; or OK */
	ZklOutcome	stamp;			/* the stamp's outcome, if it made the batch
								 * fail: ABSENT, REFUSED; or OK */

	char	   *data;			/* WATCH, WATCH_SELF; ANSWER: its beginning;
								 * NULL: none */
	int			data_length;

	/* ANSWER */
	int64_t		ctime_ms;		/* also of a REPLY */
	int64_t		mtime_ms;
	int64_t		owner;			/* session; 0: the znode is not ephemeral */
	int			numchildren;
} ZklSessionEvent;

/* What identifies a session, so that another process can continue it. */
typedef struct ZklSessionId
{
	int64_t		id;				/* 0 if there is none */
	char		password[16];
} ZklSessionId;

/*
 * TLS for the handles that are opened from now on, in sessiontls.c.  set_tls
 * takes three files, whose permissions are good, with what was read from
 * them; the path is "" if this server has no certificate and key.  It returns
 * NULL, or what is wrong with the file *faulty; then all stays as it was.
 * *changed becomes true unless these texts were in use before, and end_tls
 * returns true if TLS was in use.  Then the open handle has lost its
 * connection, and the caller abandons it.
 */
typedef enum ZklTlsFile
{
	ZKL_TLS_CA,
	ZKL_TLS_CERTIFICATE,
	ZKL_TLS_KEY
}			ZklTlsFile;

#define ZKL_TLS_TEXTS			(ZKL_TLS_KEY + 1)

typedef struct ZklTlsText
{
	const char *path;
	char	   *data;
	int			length;
} ZklTlsText;

extern const char *zkl_session_set_tls(const ZklTlsText *texts,
									   bool *changed, int *faulty);
extern bool zkl_session_end_tls(void);

/*
 * This server's own certificate, from the files that were set last: the span
 * in which it is valid, in seconds since 1970; and whether an authority in
 * the file ZKL_TLS_CA has signed it, regardless of the time.  False: there is
 * none.
 */
typedef struct ZklCertificate
{
	int64		not_before;
	int64		not_after;
	bool		fits;
} ZklCertificate;

extern bool zkl_session_certificate(ZklCertificate *certificate);

/*
 * Set a callback: is the server in zklock.hosts, counted from 0, given by a
 * name, and does that name have this address?  Call this before a handle is
 * opened.
 */
extern void zkl_session_find_names(bool (*is_name_of) (int server,
													   const char *address));

/*
 * Open a handle, for a new session or to continue the given one.  "servers"
 * are numeric addresses, an odd number of them.  False (with errno) if the
 * client could not make the handle.
 */
extern bool zkl_session_open(const char *servers, int timeout_ms,
							 const ZklSessionId *carry_on);
extern bool zkl_session_is_open(void);

/*
 * Give the open handle credentials.  The client sends them at the beginning
 * of each connection, before anything else.  False: the client could not take
 * them.
 */
extern bool zkl_session_add_auth(const char *scheme, const char *credentials,
								 size_t length);

/*
 * End the session, and with it all its znodes.  This may take a second or two.
 */
extern void zkl_session_close(void);

/*
 * Free the handle, but leave the session alive, so that another handle can
 * continue it.  After this, as after close, the only events are replies to the
 * outstanding requests, all with outcome UNKNOWN.
 */
extern void zkl_session_abandon(void);

/*
 * Give up the connection, and try another server.  The second function is for
 * a reply that takes too long to arrive: if it is the reply to a read, the
 * outcome is REFUSED with ZKL_FAILURE_TOO_LONG.
 */
extern void zkl_session_break_connection(void);
extern void zkl_session_break_reply(void);

/*
 * What to wait for: the socket (-1: none now), whether to wait until it is
 * also writable, and for how many milliseconds at most.
 */
extern void zkl_session_interest(int *fd, bool *writable, long *timeout_ms);

/*
 * How many sockets the client has opened so far.  A new socket may have the
 * number of the old one, and then only this count tells them apart.
 */
extern uint32 zkl_session_sockets(void);

/* Read and write what is ready. */
extern void zkl_session_process(bool readable, bool writable);

/* The next event, or NULL.  The caller frees it. */
extern ZklSessionEvent *zkl_session_next_event(void);
extern void zkl_session_free_event(ZklSessionEvent *event);

/*
 * Send a sign of life.  A proof is also the barrier that must be the first
 * request on each new connection.  Does nothing unless may_sign: there is a
 * connection, and no sign is under way.
 */
extern void zkl_session_sign(ZklSign sign);
extern bool zkl_session_may_sign(void);

/* When the sign that is under way was sent; 0: none is under way. */
extern int64_t zkl_session_sign_sent(void);

/*
 * When bytes last came from ZooKeeper, and since when a part of a frame has
 * been there; 0 if never, or none.
 */
extern int64_t zkl_session_received_at(void);
extern int64_t zkl_session_frame_since(void);

/* Note what each write that is sent from now on proves; see safeuntil.h. */
extern void zkl_session_set_provable(int64_t provable);

/* May requests be sent now? */
extern bool zkl_session_is_usable(void);

/* Is there a connection?  A connection may end without an event. */
extern bool zkl_session_is_connected(void);

/*
 * Requests that are sent between the calls with true and with false go out
 * together.  Otherwise the client would send each request as two packets.
 */
extern void zkl_session_cork(bool on);

/*
 * The first function returns what the client has said, since the last call,
 * about a connection that failed or was lost; NULL if nothing.  The second
 * tells whether the client has tried all servers in vain.
 */
extern const char *zkl_session_take_error(void);
extern bool zkl_session_tried_all(void);

/*
 * Why TLS has failed since the last connection, because one side does not
 * trust the other; NULL if it has not.
 */
extern const char *zkl_session_mistrust(void);

/*
 * Set callbacks: the first is called for each request that is sent, the
 * second for each reply, with the microseconds that it took.  The end of a
 * connection is not a reply.  Neither callback may raise an error.
 */
extern void zkl_session_observe(void (*sent) (ZklTraffic kind),
								void (*answered) (int64_t latency));

/*
 * The number of requests without a reply, and of all that this process has
 * sent.
 */
extern int	zkl_session_outstanding(void);
extern int64_t zkl_session_requests(void);

/* Is the server at the other end a ZooKeeper?  If not, abandon the handle. */
extern bool zkl_session_is_plausible(void);

/* Facts about the connected session. */
extern int	zkl_session_timeout_ms(void);
extern int64_t zkl_session_connect_sent(void);	/* at that moment or later */
extern void zkl_session_identity(ZklSessionId *identity);
extern const char *zkl_session_server(void);

/*
 * Requests.  Each becomes exactly one event, even if the client does not take
 * it, or the handle is closed before the reply.  The tag comes back with the
 * event.
 */
typedef struct ZklSessionTag
{
	ZklSessionEventKind kind;	/* REPLY for a ticket's request; ANSWER for an
								 * ask */
	void	   *owner;
	uint32_t	attempt;		/* REPLY */
	ZklRequest	request;		/* REPLY */
	bool		ends_batch;		/* REPLY: the caller's mark */
} ZklSessionTag;

typedef enum ZklCreateMode
{
	ZKL_CREATE_TICKET,			/* ephemeral, and numbered by ZooKeeper */
	ZKL_CREATE_EPHEMERAL,		/* it ends with this session */
	ZKL_CREATE_PERSISTENT,
	ZKL_CREATE_CONTAINER
} ZklCreateMode;

/* Which directories above the znode to create if they are missing. */
typedef enum ZklParents
{
	ZKL_PARENTS_NONE,
	ZKL_PARENTS_NEAREST,
	ZKL_PARENTS_ALL
} ZklParents;

/* The outcome is CHANGED if the znode already exists. */
extern void zkl_session_create(ZklSessionTag tag, const char *path,
							   const char *data, int length,
							   ZklCreateMode mode, ZklParents parents);

/* "watch": an event reports the next change. */
extern void zkl_session_children(ZklSessionTag tag, const char *path,
								 bool watch);

/* At most "data_size" bytes of the data are kept. */
extern void zkl_session_data(ZklSessionTag tag, const char *path,
							 int data_size, bool watch);
extern void zkl_session_stat(ZklSessionTag tag, const char *path);

/* The outcome is CHANGED if the version is another one; -1 stands for any. */
extern void zkl_session_write(ZklSessionTag tag, const char *path,
							  const char *data, int length, int version);
extern void zkl_session_delete(ZklSessionTag tag, const char *path);

/*
 * Several creates of tickets, or several deletes, that are done together or
 * not at all.  Each becomes an event of its own, in this order.  If ZooKeeper
 * answers anything but OK, the outcome of each is UNDONE.  "stamp": for
 * creates, a znode whose data the session writes; NULL for deletes.
 */
#define ZKL_SESSION_BATCH_SIZE	64

typedef struct ZklSessionOperation
{
	ZklSessionTag tag;
	const char *path;
	const char *data;			/* of the ticket to create; NULL: delete */
	ZklParents	parents;		/* of a create; for a batch, only the nearest
								 * directory is made, before the batch */
} ZklSessionOperation;

extern void zkl_session_batch(const ZklSessionOperation *operations,
							  int noperations, const char *stamp);

/* Send an operation by itself, not in a batch. */
extern void zkl_session_send_alone(const ZklSessionOperation *operation);

/* Delete the writer's znode and create the reader's, both or none. */
extern void zkl_session_downgrade(ZklSessionTag tag, const char *writer,
								  int version, const char *reader,
								  const char *data);

/*
 * Bring the connected server up to date.  A check is a write: its reply shows
 * that the server's leader still has a quorum.  So the server then knows
 * everything that any client was told before.  A sync would not suffice: the
 * server would then know what its leader knows, but another leader may have
 * been elected.
 */
extern void zkl_session_check(ZklSessionTag tag);
extern void zkl_session_sync(ZklSessionTag tag);

/* Remove the data watch of a path, in the client and at the server. */
extern void zkl_session_unwatch(const char *path);

/*
 * Remove the watches on this path in the client, after the connection was
 * lost.
 */
extern void zkl_session_drop_watch(const char *path);

#endif							/* ZKL_SESSION_H */
