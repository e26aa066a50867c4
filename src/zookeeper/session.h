/*-------------------------------------------------------------------------
 *
 * session.h
 *	  One ZooKeeper session, on the single-threaded client.
 *
 * The worker's wait loop drives the client: it asks zkl_session_interest what
 * to wait for, waits, tells zkl_session_process what is ready, and then takes
 * the events.  Nothing in here waits, except for names being resolved when a
 * session is opened.
 *
 * Every request that is sent gets exactly one reply event, except when the
 * session is closed: then all replies are dropped.
 *
 * Called only by the worker's files.  There is one session a process.
 *
 * src/zookeeper/session.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSION_H
#define ZKL_SESSION_H

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
	ZKL_SESSION_EXPIRED,		/* the handle is of no more use: close it */
	ZKL_SESSION_STRANGER,		/* the server is no ZooKeeper: abandon the
								 * handle */
	ZKL_SESSION_REFUSED,		/* the server refuses who this client is:
								 * abandon the handle */
	ZKL_SESSION_SIGN,			/* the sign of life that was sent at "sent"
								 * was answered */
	ZKL_SESSION_REPLY,
	ZKL_SESSION_ANSWER,			/* to a request of sessionadmin.c */
	ZKL_SESSION_CHILDREN_CHANGED,	/* of the directory "path" */
	ZKL_SESSION_NODE_CHANGED	/* the znode "path" changed or is gone */
} ZklSessionEventKind;

typedef struct ZklSessionEvent
{
	struct ZklSessionEvent *next;
	ZklSessionEventKind kind;
	ZklSign		sign;			/* SIGN */
	int64_t		sent;			/* SIGN: on the clock of zkl_now() */
	int64_t		provable;		/* SIGN, REPLY, ANSWER: as set when the
								 * request was sent */
	char	   *path;			/* CHILDREN_CHANGED, NODE_CHANGED */
	bool		gone;			/* NODE_CHANGED: the znode does not exist any
								 * more */

	/* REPLY, ANSWER */
	bool		writes;			/* the request was a write */
	void	   *tag;			/* as given with the request */
	uint32_t	attempt;
	ZklTicketEvent reply;		/* its strings are freed with the event */

	char	   *data;			/* WATCH, WATCH_SELF; ANSWER: its beginning;
								 * NULL: none */
	int			data_length;

	/* ANSWER */
	int			item;			/* as given with the request */
	int64_t		ctime_ms;		/* also of a REPLY */
	int64_t		mtime_ms;
	int64_t		owner;			/* session; 0: the znode is not ephemeral */
	int			numchildren;
} ZklSessionEvent;

/* What identifies a session, so that another process can carry it on. */
typedef struct ZklSessionId
{
	int64_t		id;				/* 0: none */
	char		password[16];
} ZklSessionId;

/*
 * TLS for the handles that are opened from now on, in sessiontls.c.  set_tls
 * takes the contents of three files.  It returns NULL, or what is wrong with
 * the file *faulty; then all stays as it was.  *changed, and the result of
 * end_tls: it is not what was in use before.
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
	char	   *data;
	int			length;
} ZklTlsText;

extern const char *zkl_session_set_tls(const ZklTlsText *texts,
									   bool *changed, int *faulty);
extern bool zkl_session_end_tls(void);

/* SASL in the same way, in sessionsasl.c. */
#define ZKL_SASL_PASSWORD_SIZE	256 /* with the null */

extern const char *zkl_session_set_sasl(const char *user,
										const char *password, bool *changed);
extern bool zkl_session_end_sasl(void);

/*
 * Open a handle: for a new session, or to carry on the one given.  "servers"
 * are numeric addresses, an odd number of them.  False (with errno) if the
 * client could not make the handle.
 */
extern bool zkl_session_open(const char *servers, int nservers,
							 int timeout_ms, const ZklSessionId *carry_on);
extern bool zkl_session_is_open(void);

/*
 * Give the open handle credentials.  The client sends them at the beginning of
 * each connection, before all else.  False: the client could not take them.
 */
extern bool zkl_session_add_auth(const char *scheme, const char *credentials,
								 size_t length);

/*
 * End the session, and with it all its znodes.  This may take a second or two.
 */
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

/* The next event, or NULL.  The caller frees it. */
extern ZklSessionEvent *zkl_session_next_event(void);
extern void zkl_session_free_event(ZklSessionEvent *event);

/*
 * Send a sign of life.  A proof is also the barrier that must be the first
 * request on each new connection: nothing else is sent before it.  Does nothing
 * unless may_sign: there is a connection, and no sign is under way.
 */
extern void zkl_session_sign(ZklSign sign);
extern bool zkl_session_may_sign(void);

/* When the sign that is under way was sent; 0: none is. */
extern int64_t zkl_session_sign_sent(void);

/* What a write proves that is sent from now on: see safeuntil.h. */
extern void zkl_session_set_provable(int64_t provable);

/* May requests be sent now? */
extern bool zkl_session_is_usable(void);

/* Is there a connection?  A connection may end without an event. */
extern bool zkl_session_is_connected(void);

/*
 * Requests that are sent between these two go out together.  Otherwise the
 * client would send each request as two packets.
 */
extern void zkl_session_begin_sending(void);
extern void zkl_session_end_sending(void);

/*
 * What the client has said, since the last call, about a connection that
 * failed or was lost; NULL: nothing.  And: has the client tried all servers in
 * vain?
 */
extern const char *zkl_session_take_error(void);
extern bool zkl_session_tried_all(void);

/*
 * How TLS has failed, since the last connection, because one side does not
 * trust the other; NULL: it has not.
 */
extern const char *zkl_session_mistrust(void);

/*
 * Call the first function for each request that is sent, and the second for
 * each answer, with the microseconds that it took.  The end of a connection is
 * no answer.  Neither must raise an error.
 */
extern void zkl_session_observe(void (*sent) (ZklTraffic kind),
								void (*answered) (int64_t latency));

/* Requests without an answer, and all that this process has sent. */
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
 * Requests.  "tag" and "attempt" come back with the reply.  "prefix" is what
 * the znode's name begins with; the server adds the number.
 */
extern void zkl_session_create(void *tag, uint32_t attempt,
							   const char *directory, const char *prefix,
							   const char *data);
extern void zkl_session_create_both(void *tag, uint32_t attempt,
									const char *directory, bool with_parents,
									const char *prefix, const char *data);
extern void zkl_session_list(void *tag, uint32_t attempt,
							 const char *directory);

extern void zkl_session_survey(void *tag, uint32_t attempt,
							   const char *directory);
extern void zkl_session_downgrade(void *tag, uint32_t attempt,
								  const char *directory, const char *writer,
								  int version, const char *reader,
								  const char *data);
extern void zkl_session_inspect(void *tag, uint32_t attempt,
								const char *directory, const char *child);
extern void zkl_session_watch(void *tag, uint32_t attempt, ZklRequest request,
							  const char *directory, const char *child);
extern void zkl_session_answer(void *tag, uint32_t attempt,
							   const char *directory, const char *child,
							   const char *text, int version);
extern void zkl_session_delete(void *tag, uint32_t attempt,
							   const char *directory, const char *child);

/* Remove the watch on a child, in the client and at the server. */
extern void zkl_session_unwatch(const char *directory, const char *child);

/*
 * Remove the watches on this path in the client, after the connection was
 * lost.
 */
extern void zkl_session_drop_watch(const char *path);

/*
 * Requests of commands, in sessionadmin.c.  "tag", "attempt" and "item" come
 * back with the answer, which is an event ZKL_SESSION_ANSWER.  Its reply has
 * outcome and failure, the children, and the czxid.  At most "data_size" bytes
 * of the data are kept.
 *
 * quorum answers when a quorum has agreed that this server may still speak for
 * it: the server then knows all that any client has been told before.  That is
 * a write.  sync is none: the server then knows all that its leader does, but
 * another leader may have been elected.  write is CHANGED if the data have another version than the one given; -1 stands for
 * any.
 */
typedef struct ZklSessionAsk
{
	void	   *tag;
	uint32_t	attempt;
	int			item;
} ZklSessionAsk;

extern void zkl_session_ask_quorum(ZklSessionAsk ask);
extern void zkl_session_ask_sync(ZklSessionAsk ask);
extern void zkl_session_ask_children(ZklSessionAsk ask, const char *path);
extern void zkl_session_ask_data(ZklSessionAsk ask, const char *path,
								 int data_size);
extern void zkl_session_ask_stat(ZklSessionAsk ask, const char *path);
extern void zkl_session_ask_write(ZklSessionAsk ask, const char *path,
								  const char *data, int version);
extern void zkl_session_ask_delete(ZklSessionAsk ask, const char *path);

/*
 * Requests about the records of jobs, in sessionadmin.c.  A record is a
 * persistent znode.  create_directory makes the directories above as well, and
 * create_record does if with_parents.  Both answer with the znode's Stat.  The
 * outcome is CHANGED if the znode exists already.
 */
extern void zkl_session_create_directory(ZklSessionAsk ask, const char *path);
extern void zkl_session_create_record(ZklSessionAsk ask, const char *path,
									  const char *data, bool with_parents);

/* The same for a znode that ends with this session, for records of waits. */
extern void zkl_session_create_ephemeral(ZklSessionAsk ask, const char *path,
										 const char *data, bool with_parents);

#endif							/* ZKL_SESSION_H */
