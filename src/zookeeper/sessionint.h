/*-------------------------------------------------------------------------
 *
 * sessionint.h
 *	  What the files of the session share; no other file includes it.
 *
 * src/zookeeper/sessionint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONINT_H
#define ZKL_SESSIONINT_H

/* What the library was found to have; its header wants these names. */
#ifdef ZKLOCK_TLS
#define HAVE_OPENSSL_H
#endif
#ifdef ZKLOCK_SASL
#define HAVE_CYRUS_SASL_H
#endif
#include <zookeeper/zookeeper.h>

#include "zookeeper/session.h"

typedef struct ZklSessionState
{
	zhandle_t  *handle;
	bool		closing;		/* drop the events of callbacks */
	bool		barrier_sent;	/* on the present connection */
	bool		refusal_logged; /* that signs of life are refused */
	bool		denial_logged;	/* that the access control denied a request */
	bool		auth_refused;	/* ZKL_SESSION_REFUSED was appended */
	ZklSign		sign;			/* the sign of life under way, or NONE ... */
	int64		sign_sent;
	int64		sign_provable;
	int64		provable;		/* of what is sent from now on */
	int			outstanding;
	int64		requests;
	int			nservers;
	int			timeout_ms;		/* as requested */
	int			fd;				/* socket of the last turn */
	int64		connecting_since;	/* 0: not connecting */
	void		(*on_sent) (ZklTraffic kind);
	void		(*on_answered) (int64_t latency);
	int			attempts;		/* to connect, since a proof was answered */
	int64		attempt_at;		/* when the next may be made */
	int64		attempted_at;	/* when the last one began, or before */
	int			idle_turns;
	bool		is_unread;		/* answers may be left that no socket shows */
	char		mistrust[256];	/* how TLS has failed since the last
								 * connection; empty: it has not */
	int			mistrusts;		/* how often, since the last pause */
	bool		gave_up;		/* zklock ended the connection, and "error"
								 * says why */
	bool		has_error;		/* the error has not been taken yet: */
	char		error[256];		/* why there is no connection, or no more */
	ZklSessionEvent *first;
	ZklSessionEvent **last;
} ZklSessionState;

extern ZklSessionState zkl_session_state;

/* The one watcher, for the session and for all watches. */
extern void zkl_session_on_watch(zhandle_t *handle, int type, int state,
								 const char *path, void *context);

/*
 * Send a write that changes nothing; returns the client's code.  And: has
 * ZooKeeper carried a request out, or refused it because of what is in the tree?
 * For this write, either proves that a quorum has agreed to it.
 */
extern int	zkl_session_check_quorum(zoo_op_result_t *result,
									 void_completion_t completion,
									 const void *data);
extern bool zkl_session_is_answer(int rc);

/*
 * Make a handle with TLS or SASL, if one is in use; *handle is NULL, with
 * errno, if the client cannot make it.  False: none is in use.
 */
extern bool zkl_session_init_tls(zhandle_t **handle, const char *servers,
								 int timeout_ms, const clientid_t *client_id,
								 watcher_fn on_watch, log_callback_fn on_log);
extern bool zkl_session_init_sasl(zhandle_t **handle, const char *servers,
								  int timeout_ms, const clientid_t *client_id,
								  watcher_fn on_watch, log_callback_fn on_log);

/*
 * The client is about to work on a connection that is not made yet, or has
 * worked on one.  end_tls_work returns why TLS has failed there, or NULL.
 */
extern void zkl_session_begin_tls_work(int limit_ms);
extern const char *zkl_session_end_tls_work(bool *is_mistrusted);

/* The access control list of each znode that is created. */
extern const struct ACL_vector *zkl_session_acl(void);

/* What a return code means; sets failure where it means REFUSED. */
extern ZklOutcome zkl_session_outcome_of(int rc, ZklFailure *failure);

/*
 * A call is a request under way; its completions get it as their data.  The
 * caller of begin_call fills in what the event must say, and passes the
 * client's return code to "sent".  A request that the client refuses gets no
 * completion.
 */
typedef struct ZklSessionCall
{
	ZklSessionEventKind kind;	/* what it becomes: a REPLY or an ANSWER */
	void	   *tag;
	uint32_t	attempt;
	ZklRequest	request;		/* REPLY */
	ZklTraffic	traffic;		/* of the deciding request */
	int64		sent_at;
	int64		provable;		/* then */
	int			item;			/* ANSWER */
	int			data_size;		/* how many bytes of the data are kept */
	int			parts;			/* completions still to come */
	int			refusal;		/* CREATE_BOTH: why there is no directory */
	zoo_op_result_t results[2]; /* of a multi; the client's until it completes */
} ZklSessionCall;

extern ZklSessionCall *zkl_session_begin_call(ZklSessionEventKind kind,
											  void *tag, uint32_t attempt,
											  ZklTraffic traffic);

/*
 * The deciding request of a call was sent; if the client refused it, finish
 * the call.
 */
extern void zkl_session_sent(ZklSessionCall *call, int rc);

/* One more request is under way: count it. */
extern void zkl_session_count_sent(ZklTraffic traffic);

/* A request that does not decide about the call was sent, or was completed. */
extern void zkl_session_add_part(ZklSessionCall *call);
extern void zkl_session_end_part(ZklSessionCall *call);

/*
 * Make all directories above a path in case they are missing: parts of a call
 * that makes a znode below.
 */
extern void zkl_session_offer_above(ZklSessionCall *call, const char *path);

/*
 * The deciding request is completed.  Returns the event, unless the event would
 * reach no reader.  The call is freed with its last part.
 */
extern ZklSessionEvent *zkl_session_finish_call(ZklSessionCall *call, int rc);
extern ZklSessionEvent *zkl_session_finish_data(ZklSessionCall *call, int rc,
												const char *value,
												int value_length,
												const struct Stat *stat);

/*
 * Fill in the facts about a znode: its czxid, and whether the live session
 * owns it.
 */
extern void zkl_session_set_stat(ZklSessionEvent *event,
								 const struct Stat *stat);

/* Write data of this version (-1: any); CHANGED where they have another. */
extern void zkl_session_set(ZklSessionCall *call, const char *path,
							const char *text, int version);

/* Completions, given a call. */
extern void zkl_session_on_done(int rc, const void *data);
extern void zkl_session_on_children(int rc,
									const struct String_vector *strings,
									const void *data);
extern void zkl_session_on_stat(int rc, const struct Stat *stat,
								const void *data);
extern void zkl_session_on_data(int rc, const char *value, int value_length,
								const struct Stat *stat, const void *data);

/*
 * ZooKeeper refuses this client's credentials, or the lack of any.  Appends
 * one event for a handle.
 */
extern void zkl_session_note_refused(void);

/* Append an event; the caller fills it. */
extern ZklSessionEvent *zkl_session_append_event(ZklSessionEventKind kind);

/* Zeroed memory, and a copy of a text, for events.  Never NULL. */
extern void *zkl_session_allocate(size_t size);
extern char *zkl_session_copy(const char *text);

#endif							/* ZKL_SESSIONINT_H */
