/*-------------------------------------------------------------------------
 *
 * sessioncalls.c
 *	  The requests that a ticket makes, and their replies.
 *
 * What becomes of a request is in sessionreply.c.
 *
 * src/zookeeper/sessioncalls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "zookeeper/sessionint.h"

/*
 * Longer than any text of zklock's, so that other data are recognized as such.
 */
#define WATCHED_DATA_SIZE	(2 * ZKL_TEXT_SIZE)

static void create(ZklSessionCall *call, const char *directory,
				   const char *prefix, const char *data);
static void on_created(int rc, const char *path, const struct Stat *stat,
					   const void *data);
static void offer(ZklSessionCall *call, const char *directory);
static void on_offered(int rc, const char *path, const void *data);
static void on_listed(int rc, const struct String_vector *strings,
					  const void *data);
static void on_downgraded(int rc, const void *data);
static void on_watched(int rc, const char *value, int value_length,
					   const struct Stat *stat, const void *data);
static void on_deleted(int rc, const void *data);
static ZklSessionCall *begin_call(void *tag, uint32_t attempt,
								  ZklRequest request);
static ZklTraffic traffic_of(ZklRequest request);
static void join_path(char *path, size_t size, const char *directory,
					  const char *child);

/*
 * Requests
 */

/* A call whose reply is an event for a ticket. */
static ZklSessionCall *
begin_call(void *tag, uint32_t attempt, ZklRequest request)
{
	ZklSessionCall *call = zkl_session_begin_call(ZKL_SESSION_REPLY, tag,
												  attempt, traffic_of(request));

	call->request = request;
	return call;
}

static ZklTraffic
traffic_of(ZklRequest request)
{
	switch (request)
	{
		case ZKL_REQUEST_CREATE:
		case ZKL_REQUEST_CREATE_BOTH:
			return ZKL_TRAFFIC_CREATE;
		case ZKL_REQUEST_LIST:
		case ZKL_REQUEST_SURVEY:
			return ZKL_TRAFFIC_LIST;
		case ZKL_REQUEST_DOWNGRADE:
		case ZKL_REQUEST_ANSWER:
			return ZKL_TRAFFIC_WRITE;
		case ZKL_REQUEST_DELETE:
			return ZKL_TRAFFIC_DELETE;
		default:
			return ZKL_TRAFFIC_READ;
	}
}

void
zkl_session_create(void *tag, uint32_t attempt, const char *directory,
				   const char *prefix, const char *data)
{
	create(begin_call(tag, attempt, ZKL_REQUEST_CREATE), directory, prefix, data);
}

/*
 * The last part of a call that makes a ticket's znode.  The session is the
 * owner, so the znode goes with it.
 */
static void
create(ZklSessionCall *call, const char *directory, const char *prefix,
	   const char *data)
{
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, prefix);
	zkl_session_sent(call, zoo_acreate2(zkl_session_state.handle, path, data, strlen(data),
										zkl_session_acl(), ZOO_EPHEMERAL_SEQUENTIAL,
										on_created, call));
	ZKL_FAULT_POINT("create-sent");
}

static void
on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
	ZklSessionCall *call = unconstify(void *, data);
	ZklSessionEvent *event;

	ZKL_FAULT_POINT("create-answered");

	/*
	 * If the directory is missing because ZooKeeper refused to make it, the
	 * refusal is the reason.
	 */
	event = zkl_session_finish_call(call, rc == ZNONODE && call->refusal != ZOK ?
									call->refusal : rc);
	if (event == NULL || rc != ZOK)
		return;
	event->reply.name = zkl_session_copy(strrchr(path, '/') + 1);
	zkl_session_set_stat(event, stat);
}

/*
 * Make the directory in case it is missing, perhaps its parents before it, and
 * the znode.  The session keeps their order, so the znode's reply tells the
 * result of all.
 */
void
zkl_session_create_both(void *tag, uint32_t attempt, const char *directory,
						bool with_parents, const char *prefix, const char *data)
{
	ZklSessionCall *call = begin_call(tag, attempt, ZKL_REQUEST_CREATE_BOTH);

	if (with_parents)
		zkl_session_offer_above(call, directory);
	offer(call, directory);
	ZKL_FAULT_POINT("directory-sent");
	create(call, directory, prefix, data);
}

/*
 * Make each directory above the path in case it is missing, from the top.  The
 * session keeps their order, so each finds its parent.
 */
void
zkl_session_offer_above(ZklSessionCall *call, const char *path)
{
	char		directory[ZKL_SESSION_PATH_SIZE];

	for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/'))
	{
		strlcpy(directory, path, Min(sizeof(directory), at - path + 1));
		offer(call, directory);
	}
}

static void
offer(ZklSessionCall *call, const char *directory)
{
	int			rc = zoo_acreate(zkl_session_state.handle, directory, "", 0,
								 zkl_session_acl(), ZOO_CONTAINER,
								 on_offered, call);

	zkl_session_add_part(call);
	/* The client took nothing, so no completion will come. */
	if (rc != ZOK)
		on_offered(rc, NULL, call);
}

/*
 * ZooKeeper checks for permission before it says that a directory exists.  So
 * a refusal means nothing if the next directory exists or can be made.
 * Otherwise it is the reason why the znode's directory is missing.
 */
static void
on_offered(int rc, const char *path, const void *data)
{
	ZklSessionCall *call = unconstify(void *, data);
	ZklFailure	failure;

	ZKL_FAULT_POINT("directory-answered");
	if (rc == ZOK || rc == ZNODEEXISTS)
		call->refusal = ZOK;
	else if (zkl_session_outcome_of(rc, &failure) == ZKL_OUTCOME_REFUSED)
		call->refusal = rc;
	zkl_session_end_part(call);
}

void
zkl_session_list(void *tag, uint32_t attempt, const char *directory)
{
	ZklSessionCall *call = begin_call(tag, attempt, ZKL_REQUEST_LIST);

	zkl_session_sent(call, zoo_awget_children(zkl_session_state.handle, directory, zkl_session_on_watch, NULL,
											  on_listed, call));
	ZKL_FAULT_POINT("list-sent");
}

static void
on_listed(int rc, const struct String_vector *strings, const void *data)
{
	ZKL_FAULT_POINT("list-answered");
	zkl_session_on_children(rc, strings, data);
}

/* The children of another directory, without a watch. */
void
zkl_session_survey(void *tag, uint32_t attempt, const char *directory)
{
	ZklSessionCall *call = begin_call(tag, attempt, ZKL_REQUEST_SURVEY);

	zkl_session_sent(call, zoo_aget_children(zkl_session_state.handle, directory, 0,
											 on_listed, call));
}

/*
 * Both or none, and nothing in between.  The client copies the operations when
 * it takes them, but writes to the results when the answer comes.
 */
void
zkl_session_downgrade(void *tag, uint32_t attempt, const char *directory,
					  const char *writer, int version, const char *reader,
					  const char *data)
{
	ZklSessionCall *call = begin_call(tag, attempt, ZKL_REQUEST_DOWNGRADE);
	char		old_path[ZKL_SESSION_PATH_SIZE];
	char		new_path[ZKL_SESSION_PATH_SIZE];
	zoo_op_t	ops[2];

	join_path(old_path, sizeof(old_path), directory, writer);
	join_path(new_path, sizeof(new_path), directory, reader);

	/*
	 * With the version, so that a request that another client has written
	 * since is not deleted unread.
	 */
	zoo_delete_op_init(&ops[0], old_path, version);
	zoo_create_op_init(&ops[1], new_path, data, strlen(data),
					   zkl_session_acl(), ZOO_EPHEMERAL, NULL, 0);
	zkl_session_sent(call, zoo_amulti(zkl_session_state.handle, lengthof(ops), ops,
									  call->results, on_downgraded, call));
	ZKL_FAULT_POINT("downgrade-sent");
}

/*
 * The code is that of the first operation that failed.  If there is no znode
 * to delete, that is the delete: once the delete is allowed, the directory
 * exists, too.  And if the delete succeeds, this session has made no reader's
 * znode yet.  One that exists nevertheless is forged, which counts as a
 * refusal.
 */
static void
on_downgraded(int rc, const void *data)
{
	ZKL_FAULT_POINT("downgrade-answered");
	zkl_session_finish_call(unconstify(void *, data), rc);
}

void
zkl_session_inspect(void *tag, uint32_t attempt, const char *directory,
					const char *child)
{
	ZklSessionCall *call = begin_call(tag, attempt, ZKL_REQUEST_INSPECT);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	zkl_session_sent(call, zoo_aexists(zkl_session_state.handle, path, 0,
									   zkl_session_on_stat, call));
}

/* This uses getData, which leaves no watch behind if the znode is gone. */
void
zkl_session_watch(void *tag, uint32_t attempt, ZklRequest request,
				  const char *directory, const char *child)
{
	ZklSessionCall *call = begin_call(tag, attempt, request);
	char		path[ZKL_SESSION_PATH_SIZE];

	call->data_size = WATCHED_DATA_SIZE;
	join_path(path, sizeof(path), directory, child);
	zkl_session_sent(call, zoo_awget(zkl_session_state.handle, path, zkl_session_on_watch, NULL, on_watched,
									 call));
	ZKL_FAULT_POINT("watch-sent");
}

static void
on_watched(int rc, const char *value, int value_length,
		   const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event;

	ZKL_FAULT_POINT("watch-answered");
	event = zkl_session_finish_data(unconstify(void *, data), rc, value,
									value_length, stat);
	if (event == NULL || rc != ZOK)
		return;
	event->reply.revoked = zkl_recipe_is_revoked(event->data,
												 event->data_length);
	event->reply.answered = zkl_recipe_has_mark(event->data,
												event->data_length,
												ZKL_IN_USE);
}

void
zkl_session_answer(void *tag, uint32_t attempt, const char *directory,
				   const char *child, const char *text, int version)
{
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	zkl_session_set(begin_call(tag, attempt, ZKL_REQUEST_ANSWER), path, text,
					version);
}

void
zkl_session_delete(void *tag, uint32_t attempt, const char *directory,
				   const char *child)
{
	ZklSessionCall *call = begin_call(tag, attempt, ZKL_REQUEST_DELETE);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	zkl_session_sent(call, zoo_adelete(zkl_session_state.handle, path, -1, on_deleted, call));
	ZKL_FAULT_POINT("delete-sent");
}

/*
 * That the znode was absent is reported as such; the ticket takes both for the
 * end.
 */
static void
on_deleted(int rc, const void *data)
{
	ZKL_FAULT_POINT("delete-answered");
	zkl_session_finish_call(unconstify(void *, data), rc);
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

	/*
	 * ZooKeeper keeps the watch as long as the connection lives, so it is
	 * asked to remove it.  Without a connection it has none.
	 */
	if (zkl_session_is_usable() &&
		zoo_aremove_all_watches(zkl_session_state.handle, path, ZWATCHTYPE_DATA, 0,
								(void_completion_t *) on_unwatched,
								NULL) == ZOK)
		zkl_session_count_sent(ZKL_TRAFFIC_UNWATCH);
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
