/*-------------------------------------------------------------------------
 *
 * sessionreply.c
 *	  From a request's completion to the event that tells of it.
 *
 * Each call is remembered until its last completion.  The completion of the
 * request that decides turns it into one event: a REPLY to a ticket, or an
 * ANSWER to a command.  See session.c for what
 * a callback may do.
 *
 * src/zookeeper/sessionreply.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "zookeeper/sessionint.h"

static void log_denial(ZklFailure failure);
static const char *const *copy_strings(const struct String_vector *strings);

/*
 * The call outlives the worker's turn and its memory context.  The last
 * completion frees it.
 */
ZklSessionCall *
zkl_session_begin_call(ZklSessionEventKind kind, void *tag, uint32_t attempt,
					   ZklTraffic traffic)
{
	ZklSessionCall *call = zkl_session_allocate(sizeof(ZklSessionCall));

	call->kind = kind;
	call->tag = tag;
	call->attempt = attempt;
	call->traffic = traffic;
	call->sent_at = zkl_now();
	call->provable = zkl_session_state.provable;
	/* The request that decides.  Others that go before it are added. */
	call->parts = 1;
	return call;
}

void
zkl_session_sent(ZklSessionCall *call, int rc)
{
	zkl_session_count_sent(call->traffic);

	/*
	 * The client took nothing, so no completion will come.  The reply is an
	 * event like any other, and the caller need not care.
	 */
	if (rc != ZOK)
		zkl_session_finish_call(call, rc);
}

void
zkl_session_count_sent(ZklTraffic traffic)
{
	zkl_session_state.outstanding++;
	zkl_session_state.requests++;
	zkl_session_state.on_sent(traffic);
}

/* Directories above a znode are all that goes before a deciding request. */
void
zkl_session_add_part(ZklSessionCall *call)
{
	call->parts++;
	zkl_session_count_sent(ZKL_TRAFFIC_CREATE);
}

void
zkl_session_end_part(ZklSessionCall *call)
{
	zkl_session_state.outstanding--;

	/*
	 * Completions come in the order of sending.  Parts without a reply of
	 * their own may still be under way when the call has failed at once.
	 */
	if (--call->parts == 0)
		free(call);
}

ZklSessionEvent *
zkl_session_finish_call(ZklSessionCall *call, int rc)
{
	ZklSessionEvent *event = NULL;
	ZklFailure	failure = ZKL_FAILURE_NONE;
	ZklOutcome	outcome = zkl_session_outcome_of(rc, &failure);

	/*
	 * The other failures have an error message for the backend.  Here only
	 * the log tells the reason.
	 */
	if (outcome != ZKL_OUTCOME_UNKNOWN)
		zkl_session_state.on_answered(zkl_now() - call->sent_at);
	if (failure == ZKL_FAILURE_REFUSED)
		elog(LOG, "ZooKeeper refused a request: %s", zerror(rc));
	else if (failure == ZKL_FAILURE_PERMISSION || failure == ZKL_FAILURE_ACL)
		log_denial(failure);
	/* When the handle is closed, the reply is dropped. */
	if (!zkl_session_state.closing)
	{
		event = zkl_session_append_event(call->kind);
		event->tag = call->tag;
		event->attempt = call->attempt;
		event->item = call->item;
		event->writes = zkl_traffic_is_write(call->traffic);
		event->provable = call->provable;
		event->reply.kind = ZKL_EVENT_REPLY;
		event->reply.request = call->request;
		event->reply.outcome = outcome;
		event->reply.failure = failure;
	}
	zkl_session_end_part(call);
	return event;
}

/*
 * Once a handle: each caller gets an error anyway, and a log that repeats it
 * for every request would hide the rest.
 */
static void
log_denial(ZklFailure failure)
{
	if (zkl_session_state.denial_logged || zkl_session_state.closing)
		return;
	zkl_session_state.denial_logged = true;
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
			 * After these codes, the request counts as perhaps done.  Where
			 * ZooKeeper refuses this client's credentials, the next handle
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
		default:
			*failure = ZKL_FAILURE_REFUSED;
			return ZKL_OUTCOME_REFUSED;
	}
}

/*
 * Completions
 */

void
zkl_session_on_done(int rc, const void *data)
{
	zkl_session_finish_call(unconstify(void *, data), rc);
}

void
zkl_session_on_children(int rc, const struct String_vector *strings,
						const void *data)
{
	ZklSessionEvent *event = zkl_session_finish_call(unconstify(void *, data),
													 rc);

	if (event == NULL || rc != ZOK)
		return;
	event->reply.children = copy_strings(strings);
	event->reply.nchildren = strings->count;
}

/*
 * The client frees its strings when the completion returns.  The copy is one
 * piece of memory, because there may be thousands.
 */
static const char *const *
copy_strings(const struct String_vector *strings)
{
	Size		size = sizeof(char *) * (strings->count + 1);
	const char **copy;
	char	   *to;

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

void
zkl_session_set_stat(ZklSessionEvent *event, const struct Stat *stat)
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

void
zkl_session_on_stat(int rc, const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event = zkl_session_finish_call(unconstify(void *, data),
													 rc);

	if (event != NULL && rc == ZOK)
		zkl_session_set_stat(event, stat);
}

/* The client says -1 for the length of data that are null. */
ZklSessionEvent *
zkl_session_finish_data(ZklSessionCall *call, int rc, const char *value,
						int value_length, const struct Stat *stat)
{
	/* Before the call is freed. */
	int			data_size = call->data_size;
	ZklSessionEvent *event = zkl_session_finish_call(call, rc);

	if (event == NULL || rc != ZOK)
		return event;
	zkl_session_set_stat(event, stat);
	event->data_length = Min(Max(value_length, 0), data_size);
	/* One byte more, which is null: the data are text to their readers. */
	event->data = zkl_session_allocate(event->data_length + 1);
	if (event->data_length > 0)
		memcpy(event->data, value, event->data_length);
	return event;
}

void
zkl_session_on_data(int rc, const char *value, int value_length,
					const struct Stat *stat, const void *data)
{
	(void) zkl_session_finish_data(unconstify(void *, data), rc, value,
								   value_length, stat);
}

void
zkl_session_set(ZklSessionCall *call, const char *path, const char *text,
				int version)
{
	zkl_session_sent(call, zoo_aset(zkl_session_state.handle, path, text,
									strlen(text), version,
									zkl_session_on_stat, call));
}
