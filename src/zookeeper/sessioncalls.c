/*-------------------------------------------------------------------------
 *
 * sessioncalls.c
 *	  The requests to ZooKeeper, signs of life among them, and the events that
 *	  their completions become.
 *
 * A CALL is a request under way.  Its completion turns it into one event: a
 * REPLY to a ticket, or an ANSWER to an ask.  Each call becomes exactly one
 * event.  If the handle is closed first, the client completes the call while
 * it closes, and the event's outcome is UNKNOWN.  See sessionhandle.c for
 * what a callback may do.
 *
 * A SIGN OF LIFE keeps the session alive, or proves that it lives.  It is no
 * call, because only one is under way at a time, and its reply concerns the
 * session alone.
 *
 * src/zookeeper/sessioncalls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "settings.h"
#include "zookeeper/sessionint.h"

/* The completions get the call as their data. */
typedef struct ZklSessionCall
{
	ZklSessionTag tag;
	ZklTraffic	traffic;		/* of the deciding request */
	int64		sent_at;
	int64		provable;		/* by a write at sent_at */
	int			data_size;		/* how many bytes of the data are kept */
	int			parts;			/* completions still to come */
	int			refusal;		/* why a directory above could not be made */
	zoo_op_result_t results[2]; /* of a multi; the client's until it completes */
	char		path[FLEXIBLE_ARRAY_MEMBER];	/* for the log */
} ZklSessionCall;

/* ZooKeeper 3.7 and later.  The client library has no name for it. */
#define QUOTA_EXCEEDED	(-125)

static ZklSessionCall *begin_call(ZklSessionTag tag, ZklTraffic traffic,
								  const char *path);
static const char *reason_of(int rc);
static bool is_of_ticket(const ZklSessionCall *call);
static void sent(ZklSessionCall *call, int rc);
static void end_part(ZklSessionCall *call);
static ZklSessionEvent *finish_call(ZklSessionCall *call, int rc);
static void log_denial(ZklFailure failure);
static void offer_above(ZklSessionCall *call, const char *path, bool all);
static void on_offered(int rc, const char *path, const void *data);
static void on_created(int rc, const char *path, const struct Stat *stat,
					   const void *data);
static void on_children(int rc, const struct String_vector *strings,
						const void *data);
static const char *const *copy_strings(const struct String_vector *strings);
static void on_data(int rc, const char *value, int value_length,
					const struct Stat *stat, const void *data);
static void on_stat(int rc, const struct Stat *stat, const void *data);
static void set_stat(ZklSessionEvent *event, const struct Stat *stat);
static void on_deleted(int rc, const void *data);
static void on_downgraded(int rc, const void *data);
static void on_checked(int rc, const void *data);
static void on_synced(int rc, const char *path, const void *data);
static int	check_quorum(zoo_op_result_t *result,
						 void_completion_t completion, const void *data);
static bool is_answer(int rc);
static void on_unwatched(int rc, const void *data);
static int	send_sign(ZklSign sign);
static void on_proof(int rc, const void *data);
static void on_echo(int rc, const char *path, const void *data);
static void on_read(int rc, const struct Stat *stat, const void *data);
static void on_sign(int rc);

/*
 * Calls
 */

/*
 * The call outlives the worker's turn and its memory context.  The last
 * completion frees it.
 */
static ZklSessionCall *
begin_call(ZklSessionTag tag, ZklTraffic traffic, const char *path)
{
	ZklSessionCall *call = zkl_session_allocate(offsetof(ZklSessionCall, path) +
												strlen(path) + 1);

	strcpy(call->path, path);
	call->tag = tag;
	call->traffic = traffic;
	call->sent_at = zkl_now();
	call->provable = zkl_session_state.provable;
	/* The deciding request is one part; requests before it add more parts. */
	call->parts = 1;
	return call;
}

/* Tests stop at the requests of tickets, but not of asks. */
static bool
is_of_ticket(const ZklSessionCall *call)
{
	return call->tag.kind == ZKL_SESSION_REPLY;
}

/* The deciding request of a call was sent, with this result. */
static void
sent(ZklSessionCall *call, int rc)
{
	zkl_session_count_sent(call->traffic);

	/*
	 * The client took nothing, so no completion will come.  The reply is an
	 * event like any other, so the caller need not handle the failure.
	 */
	if (rc != ZOK)
		finish_call(call, rc);
}

static void
end_part(ZklSessionCall *call)
{
	zkl_session_state.outstanding--;

	/*
	 * Completions come in the order of sending.  Parts without a reply of
	 * their own may still be under way when the call has failed at once.
	 */
	if (--call->parts == 0)
		free(call);
}

/* The deciding request is completed.  The call is freed with its last part. */
static ZklSessionEvent *
finish_call(ZklSessionCall *call, int rc)
{
	ZklFailure	failure = ZKL_FAILURE_NONE;
	ZklOutcome	outcome = zkl_session_outcome_of(rc, &failure);
	ZklSessionEvent *event;

	if (outcome == ZKL_OUTCOME_UNKNOWN && zkl_session_take_too_long() &&
		!zkl_traffic_is_write(call->traffic))
	{
		outcome = ZKL_OUTCOME_REFUSED;
		failure = ZKL_FAILURE_TOO_LONG;
		elog(LOG, "could not read ZooKeeper's reply about \"%s\": it is too long for the connection",
			 call->path);
	}
	event = zkl_session_append_reply(&call->tag, outcome,
									 zkl_traffic_is_write(call->traffic),
									 call->provable);

	/*
	 * The other failures have an error message for the backend.  Here only
	 * the log tells the reason.
	 */
	if (outcome != ZKL_OUTCOME_UNKNOWN)
		zkl_session_state.on_answered(zkl_now() - call->sent_at);
	if (failure == ZKL_FAILURE_REFUSED || failure == ZKL_FAILURE_QUOTA)
		elog(LOG, "ZooKeeper refused a request for \"%s\": %s (error %d)",
			 call->path, reason_of(rc), rc);
	else if (failure == ZKL_FAILURE_PERMISSION || failure == ZKL_FAILURE_ACL)
		log_denial(failure);

	event->reply.failure = failure;
	end_part(call);
	return event;
}

/*
 * Log each failure once for a handle: each caller gets an error anyway, and a
 * log that repeats the failure for every request would hide the rest.
 */
static void
log_denial(ZklFailure failure)
{
	bool	   *logged = failure == ZKL_FAILURE_ACL ?
	&zkl_session_state.acl_logged : &zkl_session_state.denial_logged;

	if (*logged || zkl_session_state.closing)
		return;
	*logged = true;
	if (failure == ZKL_FAILURE_ACL)
		ereport(LOG,
				errmsg("ZooKeeper does not accept the access control list in \"zklock.acl\""),
				errhint("\"creator\" and the scheme \"auth\" need a ZooKeeper session that is authenticated, as by \"zklock.auth_file\"."));
	else
		ereport(LOG,
				errmsg("ZooKeeper denied permission for a request of this server"),
				errdetail("Its callers get an error each time; this message comes only once for each set of credentials."),
				errhint("Check the credentials in \"zklock.auth_file\", and the access control lists of the directory \"zklock.root\" and below."));
}

/*
 * Creating znodes
 */

/*
 * The session keeps the order of its requests.  So the directories above are
 * there when the znode is made, and the znode's reply tells the result of all.
 */
void
zkl_session_create(ZklSessionTag tag, const char *path, const char *data,
				   int length, ZklCreateMode mode, ZklParents parents)
{
	const int	modes[] = {
		[ZKL_CREATE_TICKET] = ZOO_EPHEMERAL_SEQUENTIAL,
		[ZKL_CREATE_EPHEMERAL] = ZOO_EPHEMERAL,
		[ZKL_CREATE_PERSISTENT] = ZOO_PERSISTENT,
		[ZKL_CREATE_CONTAINER] = ZOO_CONTAINER
	};
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_CREATE, path);

	if (parents != ZKL_PARENTS_NONE)
	{
		offer_above(call, path, parents == ZKL_PARENTS_ALL);
		if (is_of_ticket(call))
			ZKL_FAULT_POINT("directory-sent");
	}
	sent(call, zoo_acreate2(zkl_session_state.handle, path, data, length,
							zkl_session_acl(), modes[mode], on_created, call));
	if (mode == ZKL_CREATE_TICKET)
		ZKL_FAULT_POINT("create-sent");
}

/*
 * Make each directory above the path in case it is missing, from the top; or
 * only the nearest.
 */
static void
offer_above(ZklSessionCall *call, const char *path, bool all)
{
	char		directory[ZKL_SESSION_PATH_SIZE];

	for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/'))
	{
		int			rc;

		if (!all && strchr(at + 1, '/') != NULL)
			continue;
		strlcpy(directory, path, Min(sizeof(directory), at - path + 1));
		rc = zoo_acreate(zkl_session_state.handle, directory, "", 0,
						 zkl_session_acl(), ZOO_CONTAINER, on_offered, call);
		call->parts++;
		zkl_session_count_sent(ZKL_TRAFFIC_CREATE);
		/* The client took nothing, so no completion will come. */
		if (rc != ZOK)
			on_offered(rc, NULL, call);
	}
}

/*
 * ZooKeeper checks for permission before it says that a directory exists.  So
 * a refusal means nothing if the next directory exists or can be made.
 * Otherwise the refusal is the reason why the znode's directory is missing.
 */
static void
on_offered(int rc, const char *path, const void *data)
{
	ZklSessionCall *call = unconstify(void *, data);
	ZklFailure	failure;

	if (is_of_ticket(call))
		ZKL_FAULT_POINT("directory-answered");
	if (rc == ZOK || rc == ZNODEEXISTS)
		call->refusal = ZOK;
	else if (zkl_session_outcome_of(rc, &failure) == ZKL_OUTCOME_REFUSED)
		call->refusal = rc;
	end_part(call);
}

static void
on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
	ZklSessionCall *call = unconstify(void *, data);
	ZklSessionEvent *event;

	if (is_of_ticket(call))
		ZKL_FAULT_POINT("create-answered");

	/*
	 * If the directory is missing because ZooKeeper refused to make it, the
	 * refusal is the reason.  That the znode exists counts as a change.
	 */
	if (rc == ZNONODE && call->refusal != ZOK)
		rc = call->refusal;
	event = finish_call(call, rc == ZNODEEXISTS ? ZBADVERSION : rc);
	if (rc != ZOK)
		return;
	/* Abort, as the client itself does at an unexpected answer. */
	if (path == NULL || strrchr(path, '/') == NULL)
		abort();
	event->reply.name = zkl_session_copy(strrchr(path, '/') + 1);
	set_stat(event, stat);
}

/*
 * Reading
 */

void
zkl_session_children(ZklSessionTag tag, const char *path, bool watch)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_LIST, path);

	sent(call, zoo_awget_children(zkl_session_state.handle, path,
								  watch ? zkl_session_on_watch : NULL, NULL,
								  on_children, call));
	if (watch && tag.kind == ZKL_SESSION_REPLY)
		ZKL_FAULT_POINT("list-sent");
}

static void
on_children(int rc, const struct String_vector *strings, const void *data)
{
	ZklSessionCall *call = unconstify(void *, data);
	ZklSessionEvent *event;

	if (is_of_ticket(call))
		ZKL_FAULT_POINT("list-answered");
	event = finish_call(call, rc);
	if (rc != ZOK)
		return;
	event->reply.children = copy_strings(strings);
	event->reply.nchildren = strings->count;
}

/*
 * The client frees its strings when the completion returns.  The copy is one
 * piece of memory, because there may be thousands of strings.
 */
static const char *const *
copy_strings(const struct String_vector *strings)
{
	Size		size = sizeof(char *) * (strings->count + 1);
	const char **copy;
	char	   *to;

	/* Abort, as the client itself does at an unexpected answer. */
	if (strings->count < 0)
		abort();
	for (int i = 0; i < strings->count; i++)
		size += strlen(strings->data[i]) + 1;
	copy = zkl_session_allocate(size);
	to = (char *) (copy + strings->count + 1);
	for (int i = 0; i < strings->count; i++)
	{
		copy[i] = to;
		to = stpcpy(to, strings->data[i]) + 1;
	}
	return copy;
}

/* This uses getData, which leaves no watch behind if the znode is gone. */
void
zkl_session_data(ZklSessionTag tag, const char *path, int data_size, bool watch)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_READ, path);

	call->data_size = data_size;
	sent(call, zoo_awget(zkl_session_state.handle, path,
						 watch ? zkl_session_on_watch : NULL, NULL,
						 on_data, call));
	if (watch)
		ZKL_FAULT_POINT("watch-sent");
}

/* The client says -1 for the length of data that are null. */
static void
on_data(int rc, const char *value, int value_length, const struct Stat *stat,
		const void *data)
{
	ZklSessionCall *call = unconstify(void *, data);
	int			length = Min(Max(value_length, 0), call->data_size);
	ZklSessionEvent *event;

	if (is_of_ticket(call))
		ZKL_FAULT_POINT("watch-answered");
	event = finish_call(call, rc);
	if (rc != ZOK)
		return;
	set_stat(event, stat);
	/* One byte more, which is null: the data are text to their readers. */
	event->data = zkl_session_allocate(length + 1);
	event->data_length = length;
	if (length > 0)
		memcpy(event->data, value, length);
	event->reply.revoked = zkl_recipe_is_revoked(event->data, length);
	event->reply.answered = zkl_recipe_has_mark(event->data, length, ZKL_IN_USE);
	event->reply.queried = zkl_recipe_has_mark(event->data, length, ZKL_QUERY);
}

void
zkl_session_stat(ZklSessionTag tag, const char *path)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_READ, path);

	sent(call, zoo_aexists(zkl_session_state.handle, path, 0, on_stat, call));
}

static void
on_stat(int rc, const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);

	if (rc == ZOK)
		set_stat(event, stat);
}

static void
set_stat(ZklSessionEvent *event, const struct Stat *stat)
{
	event->reply.czxid = stat->czxid;
	event->reply.version = stat->version;
	/* Only a znode of the present session is the ticket's. */
	event->reply.ours = stat->ephemeralOwner ==
		zoo_client_id(zkl_session_state.handle)->client_id;
	event->ctime_ms = stat->ctime;
	event->mtime_ms = stat->mtime;
	event->owner = stat->ephemeralOwner;
	event->numchildren = stat->numChildren;
}

/*
 * Changing znodes
 */

void
zkl_session_write(ZklSessionTag tag, const char *path, const char *data,
				  int length, int version)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_WRITE, path);

	sent(call, zoo_aset(zkl_session_state.handle, path, data, length,
						version, on_stat, call));
}

void
zkl_session_delete(ZklSessionTag tag, const char *path)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_DELETE, path);

	sent(call, zoo_adelete(zkl_session_state.handle, path, -1, on_deleted, call));
	if (tag.kind == ZKL_SESSION_REPLY)
		ZKL_FAULT_POINT("delete-sent");
}

/*
 * The reply is ABSENT if the znode was gone, which the ticket takes for the
 * end, as it takes OK.
 */
static void
on_deleted(int rc, const void *data)
{
	ZklSessionCall *call = unconstify(void *, data);

	if (is_of_ticket(call))
		ZKL_FAULT_POINT("delete-answered");
	finish_call(call, rc);
}

/*
 * ZooKeeper does both operations or none, and nothing in between.  The client
 * copies the operations when it takes them, but writes to the results when the
 * answer comes.
 */
void
zkl_session_downgrade(ZklSessionTag tag, const char *writer, int version,
					  const char *reader, const char *data)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_WRITE, writer);
	zoo_op_t	ops[2];

	/*
	 * Delete this version only, so that a request that another client has
	 * written since is not deleted unread.
	 */
	zoo_delete_op_init(&ops[0], writer, version);
	zoo_create_op_init(&ops[1], reader, data, strlen(data),
					   zkl_session_acl(), ZOO_EPHEMERAL, NULL, 0);
	sent(call, zoo_amulti(zkl_session_state.handle, lengthof(ops), ops,
						  call->results, on_downgraded, call));
	ZKL_FAULT_POINT("downgrade-sent");
}

/*
 * The code comes from the first operation that failed.  ZNONODE comes from
 * the delete: once the delete is allowed, the directory exists, too.  And if
 * the delete succeeds, this session has made no reader's znode yet.  A
 * reader's znode that exists nevertheless is forged, which counts as a
 * refusal.
 */
static void
on_downgraded(int rc, const void *data)
{
	ZKL_FAULT_POINT("downgrade-answered");
	finish_call(unconstify(void *, data), rc);
}

/*
 * What a server knows
 */

/*
 * ZooKeeper's sync would not do: a leader that has lost its quorum answers a
 * sync until it notices, while another leader may have been elected.
 */
void
zkl_session_check(ZklSessionTag tag)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_CHECK, "/");

	sent(call, check_quorum(call->results, on_checked, call));
}

/*
 * A multi goes through the quorum although it changes nothing, and even if
 * this client may not read "/".  A follower does not refuse it by itself, as
 * it may refuse other writes (enableEagerACLCheck).  The client copies the
 * operation.
 */
static int
check_quorum(zoo_op_result_t *result,
			 void_completion_t completion, const void *data)
{
	zoo_op_t	op;

	zoo_check_op_init(&op, "/", -1);
	return zoo_amulti(zkl_session_state.handle, 1, &op, result, completion,
					  data);
}

/* What the check itself found does not matter: a quorum has answered. */
static void
on_checked(int rc, const void *data)
{
	finish_call(unconstify(void *, data), is_answer(rc) ? ZOK : rc);
}

/* An error that a multi finds in the tree was decided by a quorum, too. */
static bool
is_answer(int rc)
{
	switch (rc)
	{
		case ZOK:
		case ZNONODE:
		case ZNOAUTH:
		case ZBADVERSION:
		case ZNODEEXISTS:
		case ZNOTEMPTY:
			return true;
		default:
			return false;
	}
}

void
zkl_session_sync(ZklSessionTag tag)
{
	ZklSessionCall *call = begin_call(tag, ZKL_TRAFFIC_READ, "/");

	sent(call, zoo_async(zkl_session_state.handle, "/", on_synced, call));
}

static void
on_synced(int rc, const char *path, const void *data)
{
	finish_call(unconstify(void *, data), rc);
}

/*
 * Watches
 *
 * The client's header says "pointer to function pointer" for the completion
 * of a removal, but the client takes it for the function itself.
 */

void
zkl_session_unwatch(const char *path)
{
	/*
	 * ZooKeeper keeps the watch as long as the connection lives, so request
	 * its removal.  Without a connection there is no watch.
	 */
	if (zkl_session_is_usable() &&
		zoo_aremove_all_watches(zkl_session_state.handle, path, ZWATCHTYPE_DATA, 0,
								(void_completion_t *) on_unwatched,
								NULL) == ZOK)
		zkl_session_count_sent(ZKL_TRAFFIC_UNWATCH);
	else
		zkl_session_drop_watch(path);
}

static void
on_unwatched(int rc, const void *data)
{
	zkl_session_state.outstanding--;
}

void
zkl_session_drop_watch(const char *path)
{
	if (zkl_session_state.handle != NULL)
		zoo_aremove_all_watches(zkl_session_state.handle, path, ZWATCHTYPE_ANY, 1,
								NULL, NULL);
}

/*
 * Signs of life
 */

void
zkl_session_sign(ZklSign sign)
{
	if (!zkl_session_may_sign())
		return;

	zkl_session_state.sign_sent = zkl_now();
	zkl_session_state.sign_provable = zkl_session_state.provable;
	if (send_sign(sign) != ZOK)
		return;
	zkl_session_state.sign = sign;
	if (sign != ZKL_SIGN_PROOF)
	{
		zkl_session_count_sent(ZKL_TRAFFIC_SIGN);
		return;
	}
	/* The barrier is sent, so tickets may send requests. */
	zkl_session_state.barrier_sent = true;
	zkl_session_count_sent(ZKL_TRAFFIC_HEARTBEAT);
	ZKL_FAULT_POINT("heartbeat-sent");
}

/* The leader replies to a sync, but a sync is not a write. */
static int
send_sign(ZklSign sign)
{
	static zoo_op_result_t result;

	switch (sign)
	{
		case ZKL_SIGN_READ:
			return zoo_aexists(zkl_session_state.handle, "/", 0, on_read, NULL);
		case ZKL_SIGN_ECHO:
			return zoo_async(zkl_session_state.handle, "/", on_echo, NULL);
		case ZKL_SIGN_PROOF:
			return check_quorum(&result, on_proof, NULL);
		case ZKL_SIGN_NONE:
			break;
	}
	return ZBADARGUMENTS;
}

bool
zkl_session_may_sign(void)
{
	return zkl_session_state.sign == ZKL_SIGN_NONE && zkl_session_is_connected();
}

int64_t
zkl_session_sign_sent(void)
{
	return zkl_session_state.sign == ZKL_SIGN_NONE ? 0 : zkl_session_state.sign_sent;
}

void
zkl_session_set_provable(int64_t provable)
{
	zkl_session_state.provable = provable;
}

static void
on_proof(int rc, const void *data)
{
	ZKL_FAULT_POINT("heartbeat-answered");

	/*
	 * Only the reply to a proof shows that the connection is of use.  After
	 * such a reply, the next attempts to connect are made at full speed, and
	 * given up early.
	 */
	if (!zkl_session_state.closing && is_answer(rc))
	{
		zkl_session_state.attempts = zkl_session_state.late_connects = 0;
		zkl_session_state.on_answered(zkl_now() - zkl_session_state.sign_sent);
	}
	on_sign(rc);
}

static void
on_echo(int rc, const char *path, const void *data)
{
	on_sign(rc);
}

static void
on_read(int rc, const struct Stat *stat, const void *data)
{
	on_sign(rc);
}

static void
on_sign(int rc)
{
	ZklSign		sign = zkl_session_state.sign;
	ZklFailure	failure;

	(void) zkl_session_take_too_long();
	zkl_session_state.sign = ZKL_SIGN_NONE;
	zkl_session_state.outstanding--;
	/* This is not a reply: the handle is being closed. */
	if (zkl_session_state.closing)
		return;
	if (is_answer(rc))
	{
		ZklSessionEvent *event = zkl_session_append_event(ZKL_SESSION_SIGN);

		event->sign = sign;
		event->sent = zkl_session_state.sign_sent;
		event->provable = zkl_session_state.sign_provable;
	}
	else if (rc == ZSESSIONCLOSEDREQUIRESASLAUTH)
		zkl_session_note_refused();
	else if (zkl_session_outcome_of(rc, &failure) == ZKL_OUTCOME_REFUSED &&
			 !zkl_session_state.refusal_logged)
	{
		zkl_session_state.refusal_logged = true;
		elog(LOG, "ZooKeeper refuses the heartbeat: %s (error %d)",
			 reason_of(rc), rc);
	}
}

/*
 * What the requests share
 */

ZklSessionEvent *
zkl_session_append_reply(const ZklSessionTag *tag, ZklOutcome outcome,
						 bool writes, int64_t provable)
{
	ZklSessionEvent *event = zkl_session_append_event(tag->kind);

	event->tag = tag->owner;
	event->attempt = tag->attempt;
	event->ends_batch = tag->ends_batch;
	event->writes = writes;
	event->provable = provable;
	event->reply.kind = ZKL_EVENT_REPLY;
	event->reply.request = tag->request;
	event->reply.outcome = outcome;
	return event;
}

ZklOutcome
zkl_session_outcome_of(int rc, ZklFailure *failure)
{
	switch (rc)
	{
		case ZOK:
			return ZKL_OUTCOME_OK;
		case ZNONODE:
			return ZKL_OUTCOME_ABSENT;
		case ZBADVERSION:
			return ZKL_OUTCOME_CHANGED;

			/*
			 * After these codes, the request may or may not have been done.
			 * If ZooKeeper refuses this client's credentials, the next handle
			 * finds out.
			 */
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT:
		case ZRUNTIMEINCONSISTENCY:
		case ZSESSIONEXPIRED:
		case ZSESSIONMOVED:
		case ZSESSIONCLOSEDREQUIRESASLAUTH:
		case ZAUTHFAILED:
		case ZCLOSING:
		case ZINVALIDSTATE:
		case ZTHROTTLEDOP:
			return ZKL_OUTCOME_UNKNOWN;
		case ZNOAUTH:
			*failure = ZKL_FAILURE_PERMISSION;
			return ZKL_OUTCOME_REFUSED;
		case ZINVALIDACL:
			*failure = ZKL_FAILURE_ACL;
			return ZKL_OUTCOME_REFUSED;
		case ZNOCHILDRENFOREPHEMERALS:
			*failure = ZKL_FAILURE_EPHEMERAL_PARENT;
			return ZKL_OUTCOME_REFUSED;
		case QUOTA_EXCEEDED:
			*failure = ZKL_FAILURE_QUOTA;
			return ZKL_OUTCOME_REFUSED;
		default:

			/*
			 * A code that the library does not know is a refusal as well: a
			 * request that counts as unknown would be sent again for ever.
			 */
			*failure = ZKL_FAILURE_REFUSED;
			return ZKL_OUTCOME_REFUSED;
	}
}

/* For the log. */
static const char *
reason_of(int rc)
{
	return rc == QUOTA_EXCEEDED ? "quota exceeded" : zerror(rc);
}

/*
 * The list is built for each request, which costs little beside the request
 * itself.  So a change of the setting applies to the next znode.  The client
 * copies the list when it takes the request.
 */
const struct ACL_vector *
zkl_session_acl(void)
{
	static struct ACL entries[ZKL_ACL_ENTRIES];
	static struct ACL_vector result = {0, entries};

	result.count = zkl_settings_acl.nentries;
	for (int i = 0; i < result.count; i++)
	{
		ZklAclEntry *entry = &zkl_settings_acl.entry[i];

		entries[i].perms = entry->permissions;
		entries[i].id.scheme = entry->scheme;
		entries[i].id.id = entry->id;
	}
	return &result;
}
