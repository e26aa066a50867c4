/*-------------------------------------------------------------------------
 *
 * sessioncalls.c
 *	  The requests that a ticket makes, and their replies.
 *
 * Each call is remembered until its last completion.  The completion of what
 * decides turns it into one reply event.  See session.c for what a callback may
 * do.
 *
 * src/sessioncalls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "sessionint.h"

/* A request on its way; what its completion is given. */
typedef struct Call
{
	void	   *tag;
	uint32_t	attempt;
	ZklRequest	request;
	int			parts;			/* completions still to come */
	int			rc;				/* FOUND: why there is no directory */
	zoo_op_result_t results[2]; /* of a multi; the client's until it completes */
} Call;

static void create(Call *call, const char *directory, const char *prefix,
				   const char *data);
static void on_created(int rc, const char *path, const struct Stat *stat,
					   const void *data);
static void offer(Call *call, const char *directory);
static void on_offered(int rc, const char *path, const void *data);
static void on_listed(int rc, const struct String_vector *strings,
					  const void *data);
static void on_downgraded(int rc, const void *data);
static void on_inspected(int rc, const struct Stat *stat, const void *data);
static void on_watched(int rc, const char *value, int value_length,
					   const struct Stat *stat, const void *data);
static void on_answered(int rc, const struct Stat *stat, const void *data);
static bool is_text(const char *value, int value_length, const char *text);
static bool ends_with(const char *value, int value_length, const char *text);
static void on_deleted(int rc, const void *data);
static Call *begin_call(void *tag, uint32_t attempt, ZklRequest request);
static void sent(Call *call, int rc);
static ZklSessionEvent *finish_call(Call *call, int rc);
static void join_path(char *path, size_t size, const char *directory,
					  const char *child);

/*
 * Requests
 */

static Call *
begin_call(void *tag, uint32_t attempt, ZklRequest request)
{
	Call	   *call = zkl_session_allocate(sizeof(Call));

	call->tag = tag;
	call->attempt = attempt;
	call->request = request;
	call->parts = 1;
	return call;
}

/* A request that the client does not take gets no completion. */
static void
sent(Call *call, int rc)
{
	if (!zkl_session_note_sent(rc))
		finish_call(call, rc);
}

static void
end_part(Call *call)
{
	if (--call->parts == 0)
		free(call);
}

/* What decides about a call is completed; returns the event. */
static ZklSessionEvent *
finish_call(Call *call, int rc)
{
	ZklSessionEvent *event = NULL;
	ZklFailure	failure = ZKL_FAILURE_NONE;
	ZklOutcome	outcome = zkl_session_note_done(rc, &failure);

	if (!zkl_session_state.closing)
	{
		event = zkl_session_append_event(ZKL_SESSION_REPLY);
		event->tag = call->tag;
		event->attempt = call->attempt;
		event->reply.kind = ZKL_EVENT_REPLY;
		event->reply.request = call->request;
		event->reply.outcome = outcome;
		event->reply.failure = failure;
	}
	end_part(call);
	return event;
}

bool
zkl_session_note_sent(int rc)
{
	zkl_session_state.outstanding++;
	zkl_session_state.requests++;
	return rc == ZOK;
}

ZklOutcome
zkl_session_note_done(int rc, ZklFailure *failure)
{
	ZklOutcome	outcome = zkl_session_outcome_of(rc, failure);

	zkl_session_state.outstanding--;
	if (*failure == ZKL_FAILURE_REFUSED)
		elog(LOG, "ZooKeeper refused a request: %s", zerror(rc));
	return outcome;
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
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT:
		case ZRUNTIMEINCONSISTENCY:
		case ZSESSIONEXPIRED:
		case ZSESSIONMOVED:
		case ZCLOSING:
		case ZINVALIDSTATE:
		case ZTHROTTLEDOP:
			return ZKL_OUTCOME_UNKNOWN;
		case ZNOAUTH:
			*failure = ZKL_FAILURE_PERMISSION;
			return ZKL_OUTCOME_REFUSED;
		case ZNOCHILDRENFOREPHEMERALS:
			*failure = ZKL_FAILURE_EPHEMERAL_PARENT;
			return ZKL_OUTCOME_REFUSED;
		default:
			*failure = ZKL_FAILURE_REFUSED;
			return ZKL_OUTCOME_REFUSED;
	}
}

void
zkl_session_create(void *tag, uint32_t attempt, const char *directory,
				   const char *prefix, const char *data)
{
	create(begin_call(tag, attempt, ZKL_REQUEST_CREATE), directory, prefix, data);
}

static void
create(Call *call, const char *directory, const char *prefix, const char *data)
{
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, prefix);
	sent(call, zoo_acreate2(zkl_session_state.handle, path, data, strlen(data),
							&ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL,
							on_created, call));
	ZKL_FAULT_POINT("create-sent");
}

/* Which znode it is, and whether the live session owns it. */
static void
note_stat(ZklSessionEvent *event, const struct Stat *stat)
{
	event->reply.czxid = stat->czxid;
	event->reply.ours = stat->ephemeralOwner ==
		zoo_client_id(zkl_session_state.handle)->client_id;
}

static void
on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
	Call	   *call = unconstify(void *, data);
	ZklSessionEvent *event;

	ZKL_FAULT_POINT("create-answered");
	event = finish_call(call, rc == ZNONODE && call->rc != ZOK ? call->rc : rc);
	if (event == NULL || rc != ZOK)
		return;
	event->reply.name = zkl_session_copy(strrchr(path, '/') + 1);
	note_stat(event, stat);
}

/*
 * The directory in case that it is missing, perhaps its parents before it, and
 * the znode.  The session keeps their order, so the znode's reply tells what
 * became of all.
 */
void
zkl_session_found(void *tag, uint32_t attempt, const char *directory,
				  bool with_parents, const char *prefix, const char *data)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_FOUND);
	char		path[ZKL_SESSION_PATH_SIZE];

	for (const char *at = strchr(directory + 1, '/'); at && with_parents;
		 at = strchr(at + 1, '/'))
	{
		strlcpy(path, directory, Min(sizeof(path), at - directory + 1));
		offer(call, path);
	}
	offer(call, directory);
	ZKL_FAULT_POINT("directory-sent");
	create(call, directory, prefix, data);
}

static void
offer(Call *call, const char *directory)
{
	int			rc = zoo_acreate(zkl_session_state.handle, directory, "", 0,
								 &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER,
								 on_offered, call);

	call->parts++;
	if (!zkl_session_note_sent(rc))
		on_offered(rc, NULL, call);
}

/*
 * ZooKeeper asks for permission before it says that a directory is there.  So a
 * refusal means nothing if the next one is there or can be made; else it is why
 * the znode's directory is missing.
 */
static void
on_offered(int rc, const char *path, const void *data)
{
	Call	   *call = unconstify(void *, data);
	ZklFailure	failure;

	ZKL_FAULT_POINT("directory-answered");
	zkl_session_state.outstanding--;
	if (rc == ZOK || rc == ZNODEEXISTS)
		call->rc = ZOK;
	else if (zkl_session_outcome_of(rc, &failure) == ZKL_OUTCOME_REFUSED)
		call->rc = rc;
	end_part(call);
}

void
zkl_session_list(void *tag, uint32_t attempt, const char *directory)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_LIST);

	sent(call, zoo_awget_children(zkl_session_state.handle, directory, zkl_session_on_watch, NULL,
								  on_listed, call));
	ZKL_FAULT_POINT("list-sent");
}

static void
on_listed(int rc, const struct String_vector *strings, const void *data)
{
	ZklSessionEvent *event;

	ZKL_FAULT_POINT("list-answered");
	event = finish_call(unconstify(void *, data), rc);
	if (event != NULL && rc == ZOK)
		zkl_session_set_children(event, strings);
}

void
zkl_session_set_children(ZklSessionEvent *event,
						 const struct String_vector *strings)
{
	const char **children;

	children = zkl_session_allocate(sizeof(char *) * (strings->count + 1));
	for (int i = 0; i < strings->count; i++)
		children[i] = zkl_session_copy(strings->data[i]);
	event->reply.children = children;
	event->reply.nchildren = strings->count;
}

/* The children of another directory, without a watch. */
void
zkl_session_survey(void *tag, uint32_t attempt, const char *directory)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_SURVEY);

	sent(call, zoo_aget_children(zkl_session_state.handle, directory, 0,
								 on_listed, call));
}

/*
 * Both or none, and nothing in between.  The client copies the operations when
 * it takes them, but writes to the results when the answer comes.
 */
void
zkl_session_downgrade(void *tag, uint32_t attempt, const char *directory,
					  const char *writer, const char *reader, const char *data)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_DOWNGRADE);
	char		old_path[ZKL_SESSION_PATH_SIZE];
	char		new_path[ZKL_SESSION_PATH_SIZE];
	zoo_op_t	ops[2];

	join_path(old_path, sizeof(old_path), directory, writer);
	join_path(new_path, sizeof(new_path), directory, reader);
	zoo_delete_op_init(&ops[0], old_path, -1);
	zoo_create_op_init(&ops[1], new_path, data, strlen(data),
					   &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0);
	sent(call, zoo_amulti(zkl_session_state.handle, lengthof(ops), ops,
						  call->results, on_downgraded, call));
	ZKL_FAULT_POINT("downgrade-sent");
}

/*
 * The code is that of the first operation that failed.  Where there is no
 * znode, that is the delete: once it is allowed, the directory is there, too.
 * And where the delete is allowed, we have made no reader's znode yet; one that
 * exists nevertheless is a forged one, which is a refusal.
 */
static void
on_downgraded(int rc, const void *data)
{
	ZKL_FAULT_POINT("downgrade-answered");
	finish_call(unconstify(void *, data), rc);
}

void
zkl_session_inspect(void *tag, uint32_t attempt, const char *directory,
					const char *child)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_INSPECT);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	sent(call, zoo_aexists(zkl_session_state.handle, path, 0, on_inspected, call));
}

static void
on_inspected(int rc, const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);

	if (event == NULL || rc != ZOK)
		return;
	note_stat(event, stat);
}

/* By getData, which leaves no watch behind where the znode is gone. */
void
zkl_session_watch(void *tag, uint32_t attempt, ZklRequest request,
				  const char *directory, const char *child)
{
	Call	   *call = begin_call(tag, attempt, request);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	sent(call, zoo_awget(zkl_session_state.handle, path, zkl_session_on_watch, NULL, on_watched,
						 call));
	ZKL_FAULT_POINT("watch-sent");
}

static void
on_watched(int rc, const char *value, int value_length,
		   const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event;

	ZKL_FAULT_POINT("watch-answered");
	event = finish_call(unconstify(void *, data), rc);
	if (event == NULL || rc != ZOK)
		return;
	note_stat(event, stat);
	event->reply.revoked = is_text(value, value_length, ZKL_REVOKE);
	event->reply.answered = ends_with(value, value_length, ZKL_IN_USE);
	event->reply.version = stat->version;
}

static bool
is_text(const char *value, int value_length, const char *text)
{
	return value_length == strlen(text) &&
		memcmp(value, text, value_length) == 0;
}

static bool
ends_with(const char *value, int value_length, const char *text)
{
	int			length = strlen(text);

	return value_length > length &&
		is_text(value + value_length - length, length, text);
}

void
zkl_session_answer(void *tag, uint32_t attempt, const char *directory,
				   const char *child, const char *about, int version)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_ANSWER);
	char		path[ZKL_SESSION_PATH_SIZE];
	char		data[ZKL_SESSION_DATA_SIZE];

	join_path(path, sizeof(path), directory, child);
	snprintf(data, sizeof(data), "%s" ZKL_IN_USE, about);
	sent(call, zoo_aset(zkl_session_state.handle, path, data, strlen(data),
						version, on_answered, call));
}

/*
 * Other data than expected are those that somebody else has written, or we
 * ourselves, if the answer to that was lost.
 */
static void
on_answered(int rc, const struct Stat *stat, const void *data)
{
	finish_call(unconstify(void *, data),
				rc == ZBADVERSION ? ZCONNECTIONLOSS : rc);
}

void
zkl_session_delete(void *tag, uint32_t attempt, const char *directory,
				   const char *child)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_DELETE);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	sent(call, zoo_adelete(zkl_session_state.handle, path, -1, on_deleted, call));
	ZKL_FAULT_POINT("delete-sent");
}

static void
on_deleted(int rc, const void *data)
{
	ZKL_FAULT_POINT("delete-answered");
	finish_call(unconstify(void *, data), rc);
}

/*
 * Watches
 *
 * The client's header says "pointer to function pointer" for the completion
 * of a removal, but the client takes it for the function itself.
 */

static void
on_unwatched(int rc, const void *data)
{
	zkl_session_state.outstanding--;
}

void
zkl_session_unwatch(const char *directory, const char *child)
{
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	if (zkl_session_is_usable() &&
		zoo_aremove_all_watches(zkl_session_state.handle, path, ZWATCHTYPE_DATA, 0,
								(void_completion_t *) on_unwatched,
								NULL) == ZOK)
	{
		zkl_session_state.outstanding++;
		zkl_session_state.requests++;
	}
	else
		zkl_session_drop_watch(path);
}

void
zkl_session_drop_watch(const char *path)
{
	if (zkl_session_state.handle != NULL)
		zoo_aremove_all_watches(zkl_session_state.handle, path, ZWATCHTYPE_ANY, 1,
								NULL, NULL);
}

static void
join_path(char *path, size_t size, const char *directory, const char *child)
{
	snprintf(path, size, "%s/%s", directory, child);
}
