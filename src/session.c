/*-------------------------------------------------------------------------
 *
 * session.c
 *	  One ZooKeeper session, on the single-threaded client.
 *
 * Callbacks run inside the client and must not raise errors, call the client
 * or allocate with palloc: they copy what they are given into an event and
 * append it to a queue, which the worker empties.
 *
 * What the client does not do well, and what is done about it here:
 * - it may close the socket silently and open another with the same number:
 *   the caller compares inodes; requests are held back until a heartbeat went
 *   out on the new connection (is_usable);
 * - it waits two thirds of the session timeout for a server that does not
 *   answer a connect: we give up much earlier;
 * - it turns in circles on a connection that sends nonsense: we count.
 *
 * src/session.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#include "session.h"
#include "zklock.h"

#define MAX_FRAMES_A_TURN	256
#define MAX_IDLE_TURNS		1000
#define MIN_TIMEOUT_MS		1000
#define MAX_TIMEOUT_MS		(60 * 60 * 1000)
#define NO_SOCKET_WAIT_MS	50

/* A request on its way; what its completion is given. */
typedef struct Call
{
	void	   *tag;
	uint32_t	attempt;
	ZklRequest	request;
	int			parts;			/* completions still to come */
	ZklOutcome	outcome;		/* the worst so far */
	ZklFailure	failure;
} Call;

static struct
{
	zhandle_t  *handle;
	bool		closing;		/* drop what the callbacks say */
	bool		barrier_sent;	/* on the present connection */
	bool		heartbeat_is_out;
	int64		heartbeat_sent;
	int			outstanding;
	int64		requests;
	int			nservers;
	int			timeout_ms;		/* as asked for */
	int			fd;				/* socket of the last turn */
	int64		connecting_since;	/* 0: not connecting */
	int			idle_turns;
	ZklSessionEvent *first;
	ZklSessionEvent **last;
}			session = {.last = &session.first,.fd = -1};

static void on_watch(zhandle_t *handle, int type, int state,
					 const char *path, void *context);
static void on_log(const char *message);
static void on_heartbeat(int rc, const void *data);
static void on_created(int rc, const char *path, const struct Stat *stat,
					   const void *data);
static void on_directory_made(int rc, const char *path, const void *data);
static void on_listed(int rc, const struct String_vector *strings,
					  const void *data);
static void on_inspected(int rc, const struct Stat *stat, const void *data);
static void on_watched(int rc, const char *value, int value_length,
					   const struct Stat *stat, const void *data);
static void on_deleted(int rc, const void *data);

static void check_connecting(void);
static void check_negotiated(void);
static void break_connection(void);
static Call *begin_call(void *tag, uint32_t attempt, ZklRequest request);
static void sent(Call *call, int rc);
static ZklSessionEvent *finish_call(Call *call, int rc);
static ZklOutcome outcome_of(int rc, ZklFailure *failure);
static ZklSessionEvent *append_event(ZklSessionEventKind kind);
static void free_events(void);
static void join_path(char *path, size_t size, const char *directory,
					  const char *child);

/*
 * The handle
 */

bool
zkl_session_open(const char *servers, int nservers, int timeout_ms,
				 const ZklSessionId *carry_on)
{
	clientid_t	client_id;

	Assert(session.handle == NULL);
	if (carry_on)
	{
		client_id.client_id = carry_on->id;
		memcpy(client_id.passwd, carry_on->password, sizeof(client_id.passwd));
	}

	zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
	session.closing = false;
	session.barrier_sent = false;
	session.heartbeat_is_out = false;
	session.outstanding = 0;
	session.nservers = nservers;
	session.timeout_ms = timeout_ms;
	session.fd = -1;
	session.connecting_since = 0;
	session.idle_turns = 0;
	session.handle = zookeeper_init2(servers, on_watch, timeout_ms,
									 carry_on ? &client_id : NULL, NULL,
									 ZOO_NO_LOG_CLIENTENV, on_log);
	if (session.handle == NULL)
		return false;

	/* Addresses are numeric; the client shall not resolve them each turn. */
	zoo_set_servers_resolution_delay(session.handle, -1);
	return true;
}

bool
zkl_session_is_open(void)
{
	return session.handle != NULL;
}

void
zkl_session_close(void)
{
	if (session.handle == NULL)
		return;
	session.closing = true;
	zookeeper_close(session.handle);
	session.handle = NULL;
	session.barrier_sent = false;
	free_events();
}

void
zkl_session_interest(int *fd, bool *writable, long *timeout_ms)
{
	struct timeval wait = {0, 0};
	int			interest = 0;
	int			rc;

	*fd = -1;
	*writable = false;
	*timeout_ms = NO_SOCKET_WAIT_MS;
	if (session.handle == NULL)
		return;

	rc = zookeeper_interest(session.handle, fd, &interest, &wait);
	if (rc != ZOK)
	{
		*fd = session.fd = -1;
		return;
	}

	if (*fd >= 0 && *fd != session.fd)
		fcntl(*fd, F_SETFD, FD_CLOEXEC);
	session.fd = *fd;
	*writable = (interest & ZOOKEEPER_WRITE) != 0;
	*timeout_ms = wait.tv_sec * 1000L + wait.tv_usec / 1000;
	check_connecting();
}

void
zkl_session_process(bool readable, bool writable)
{
	int			rc;

	if (session.handle == NULL)
		return;
	rc = zookeeper_process(session.handle,
						   (readable ? ZOOKEEPER_READ : 0) |
						   (writable ? ZOOKEEPER_WRITE : 0));
	if (rc == ZOK || !(readable || writable))
		session.idle_turns = 0;
	else if (++session.idle_turns > MAX_IDLE_TURNS)
	{
		session.idle_turns = 0;
		break_connection();
	}
	for (int i = 0; rc == ZOK && i < MAX_FRAMES_A_TURN; i++)
		rc = zookeeper_process(session.handle, ZOOKEEPER_READ);
}

/* Do not wait for one silent server as long as the client would. */
static void
check_connecting(void)
{
	int			state = zoo_state(session.handle);
	int64		now = zkl_now();
	int			limit = Max(200, session.timeout_ms / (3 * session.nservers));

	if (session.fd < 0 || (state != ZOO_CONNECTING_STATE &&
						   state != ZOO_ASSOCIATING_STATE))
		session.connecting_since = 0;
	else if (session.connecting_since == 0)
		session.connecting_since = now;
	else if (now - session.connecting_since > ZKL_MS(limit))
	{
		session.connecting_since = 0;
		break_connection();
	}
}

/* Something that is no ZooKeeper may answer on that port. */
static void
check_negotiated(void)
{
	int			timeout_ms = zoo_recv_timeout(session.handle);

	if (zoo_client_id(session.handle)->client_id == 0 ||
		timeout_ms < MIN_TIMEOUT_MS || timeout_ms > MAX_TIMEOUT_MS)
		break_connection();
}

/* The client notices at its next turn, and tries the next server. */
static void
break_connection(void)
{
	if (session.fd >= 0)
		shutdown(session.fd, SHUT_RDWR);
}

/*
 * Events
 */

ZklSessionEvent *
zkl_session_next_event(void)
{
	ZklSessionEvent *event = session.first;

	if (event != NULL)
	{
		session.first = event->next;
		if (session.first == NULL)
			session.last = &session.first;
	}
	return event;
}

void
zkl_session_free_event(ZklSessionEvent *event)
{
	for (int i = 0; i < event->reply.nchildren; i++)
		free(unconstify(char *, event->reply.children[i]));
	free((void *) event->reply.children);
	free(unconstify(char *, event->reply.name));
	free(event->path);
	free(event);
}

static void
free_events(void)
{
	ZklSessionEvent *event;

	while ((event = zkl_session_next_event()) != NULL)
		zkl_session_free_event(event);
}

/*
 * Callbacks have nobody to tell that memory is out, and the client itself
 * aborts when it is.
 */
static void *
must_allocate(size_t size)
{
	void	   *result = calloc(1, size);

	if (result == NULL)
		abort();
	return result;
}

static char *
must_copy(const char *text)
{
	size_t		size = strlen(text) + 1;

	return memcpy(must_allocate(size), text, size);
}

static ZklSessionEvent *
append_event(ZklSessionEventKind kind)
{
	ZklSessionEvent *event = must_allocate(sizeof(ZklSessionEvent));

	event->kind = kind;
	*session.last = event;
	session.last = &event->next;
	return event;
}

static void
on_watch(zhandle_t *handle, int type, int state, const char *path,
		 void *context)
{
	if (session.closing)
		return;
	if (type == ZOO_SESSION_EVENT)
	{
		/* Whatever it is, nothing is sent before the next heartbeat. */
		session.barrier_sent = false;
		if (state == ZOO_CONNECTED_STATE)
			append_event(ZKL_SESSION_CONNECTED);
		else if (state == ZOO_EXPIRED_SESSION_STATE)
			append_event(ZKL_SESSION_EXPIRED);
		else
		{
			append_event(ZKL_SESSION_DISCONNECTED);
			if (state == ZOO_READONLY_STATE)
				break_connection();
		}
	}
	else if (type == ZOO_CHILD_EVENT)
		append_event(ZKL_SESSION_CHILDREN_CHANGED)->path = must_copy(path);
	else if (type == ZOO_CHANGED_EVENT || type == ZOO_DELETED_EVENT)
		append_event(ZKL_SESSION_NODE_CHANGED)->path = must_copy(path);
}

/* The worker itself logs changes of state; this is for finding faults. */
static void
on_log(const char *message)
{
	elog(DEBUG1, "ZooKeeper client: %.*s",
		 (int) strcspn(message, "\n"), message);
}

/*
 * Heartbeat
 */

void
zkl_session_heartbeat(void)
{
	static zoo_op_t op;
	static zoo_op_result_t result;

	if (session.handle == NULL || session.heartbeat_is_out)
		return;
	check_negotiated();

	/* A multi goes through the quorum although it changes nothing. */
	zoo_check_op_init(&op, "/", -1);
	session.heartbeat_sent = zkl_now();
	if (zoo_amulti(session.handle, 1, &op, &result, on_heartbeat, NULL) == ZOK)
	{
		session.heartbeat_is_out = true;
		session.barrier_sent = true;
		session.outstanding++;
		session.requests++;
	}
}

bool
zkl_session_heartbeat_is_out(void)
{
	return session.heartbeat_is_out;
}

static void
on_heartbeat(int rc, const void *data)
{
	session.heartbeat_is_out = false;
	session.outstanding--;
	if (rc == ZOK && !session.closing)
		append_event(ZKL_SESSION_HEARTBEAT)->sent = session.heartbeat_sent;
}

/*
 * Facts
 */

bool
zkl_session_is_usable(void)
{
	return session.handle != NULL && session.barrier_sent &&
		zoo_state(session.handle) == ZOO_CONNECTED_STATE;
}

int
zkl_session_outstanding(void)
{
	return session.outstanding;
}

int64_t
zkl_session_requests(void)
{
	return session.requests;
}

int
zkl_session_timeout_ms(void)
{
	return zoo_recv_timeout(session.handle);
}

void
zkl_session_identity(ZklSessionId *identity)
{
	const clientid_t *client_id = zoo_client_id(session.handle);

	identity->id = client_id->client_id;
	memcpy(identity->password, client_id->passwd, sizeof(identity->password));
}

const char *
zkl_session_server(void)
{
	const char *server = zoo_get_current_server(session.handle);

	return server ? server : "";
}

/*
 * Requests
 */

static Call *
begin_call(void *tag, uint32_t attempt, ZklRequest request)
{
	Call	   *call = must_allocate(sizeof(Call));

	call->tag = tag;
	call->attempt = attempt;
	call->request = request;
	call->parts = 1;
	call->outcome = ZKL_OUTCOME_OK;
	return call;
}

/* A request that the client does not take gets no completion. */
static void
sent(Call *call, int rc)
{
	session.outstanding++;
	session.requests++;
	if (rc != ZOK)
		finish_call(call, ZCONNECTIONLOSS);
}

/* One completion of a call has come; returns the event if it was the last. */
static ZklSessionEvent *
finish_call(Call *call, int rc)
{
	ZklSessionEvent *event = NULL;
	ZklFailure	failure = ZKL_FAILURE_NONE;
	ZklOutcome	outcome = outcome_of(rc, &failure);

	session.outstanding--;
	if (outcome > call->outcome)
	{
		call->outcome = outcome;
		call->failure = failure;
	}
	if (--call->parts > 0)
		return NULL;

	if (!session.closing)
	{
		event = append_event(ZKL_SESSION_REPLY);
		event->tag = call->tag;
		event->attempt = call->attempt;
		event->reply.kind = ZKL_EVENT_REPLY;
		event->reply.request = call->request;
		event->reply.outcome = call->outcome;
		event->reply.failure = call->failure;
	}
	free(call);
	return event;
}

static ZklOutcome
outcome_of(int rc, ZklFailure *failure)
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
			elog(LOG, "ZooKeeper refused a request: %s", zerror(rc));
			*failure = ZKL_FAILURE_REFUSED;
			return ZKL_OUTCOME_REFUSED;
	}
}

void
zkl_session_create(void *tag, uint32_t attempt, const char *directory,
				   const char *prefix, const char *data)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_CREATE);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, prefix);
	sent(call, zoo_acreate2(session.handle, path, data, strlen(data),
							&ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL,
							on_created, call));
}

static void
on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);

	if (event == NULL || rc != ZOK)
		return;
	event->reply.name = must_copy(strrchr(path, '/') + 1);
	event->reply.czxid = stat->czxid;
	event->reply.ours = stat->ephemeralOwner ==
		zoo_client_id(session.handle)->client_id;
}

/*
 * All parents are asked for at once: the server keeps the order.  What exists
 * already is fine.
 */
void
zkl_session_make_directory(void *tag, uint32_t attempt, const char *directory)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_MAKE_DIRECTORY);
	char		path[ZKL_SESSION_PATH_SIZE];
	int			parts = 0;

	for (const char *at = directory; *at; at++)
		parts += *at == '/';
	call->parts = parts;

	for (const char *at = directory; parts > 0; parts--)
	{
		at += 1 + strcspn(at + 1, "/");
		strlcpy(path, directory, Min(sizeof(path), at - directory + 1));
		sent(call, zoo_acreate(session.handle, path, "", 0,
							   &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER,
							   on_directory_made, call));
	}
}

static void
on_directory_made(int rc, const char *path, const void *data)
{
	finish_call(unconstify(void *, data), rc == ZNODEEXISTS ? ZOK : rc);
}

void
zkl_session_list(void *tag, uint32_t attempt, const char *directory)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_LIST);

	sent(call, zoo_awget_children(session.handle, directory, on_watch, NULL,
								  on_listed, call));
}

static void
on_listed(int rc, const struct String_vector *strings, const void *data)
{
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);
	const char **children;

	if (event == NULL || rc != ZOK)
		return;
	children = must_allocate(sizeof(char *) * (strings->count + 1));
	for (int i = 0; i < strings->count; i++)
		children[i] = must_copy(strings->data[i]);
	event->reply.children = children;
	event->reply.nchildren = strings->count;
}

void
zkl_session_inspect(void *tag, uint32_t attempt, const char *directory,
					const char *child)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_INSPECT);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	sent(call, zoo_aexists(session.handle, path, 0, on_inspected, call));
}

static void
on_inspected(int rc, const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);

	if (event == NULL || rc != ZOK)
		return;
	event->reply.czxid = stat->czxid;
	event->reply.ours = stat->ephemeralOwner ==
		zoo_client_id(session.handle)->client_id;
}

/* By getData, which leaves no watch behind where the znode is gone. */
void
zkl_session_watch(void *tag, uint32_t attempt, const char *directory,
				  const char *child)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_WATCH);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	sent(call, zoo_awget(session.handle, path, on_watch, NULL, on_watched,
						 call));
}

static void
on_watched(int rc, const char *value, int value_length,
		   const struct Stat *stat, const void *data)
{
	finish_call(unconstify(void *, data), rc);
}

void
zkl_session_delete(void *tag, uint32_t attempt, const char *directory,
				   const char *child)
{
	Call	   *call = begin_call(tag, attempt, ZKL_REQUEST_DELETE);
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	sent(call, zoo_adelete(session.handle, path, -1, on_deleted, call));
}

static void
on_deleted(int rc, const void *data)
{
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
	session.outstanding--;
}

void
zkl_session_unwatch(const char *directory, const char *child)
{
	char		path[ZKL_SESSION_PATH_SIZE];

	join_path(path, sizeof(path), directory, child);
	if (zkl_session_is_usable() &&
		zoo_aremove_all_watches(session.handle, path, ZWATCHTYPE_DATA, 0,
								(void_completion_t *) on_unwatched,
								NULL) == ZOK)
	{
		session.outstanding++;
		session.requests++;
	}
	else
		zkl_session_drop_watch(path);
}

void
zkl_session_drop_watch(const char *path)
{
	if (session.handle != NULL)
		zoo_aremove_all_watches(session.handle, path, ZWATCHTYPE_ANY, 1,
								NULL, NULL);
}

static void
join_path(char *path, size_t size, const char *directory, const char *child)
{
	snprintf(path, size, "%s/%s", directory, child);
}
