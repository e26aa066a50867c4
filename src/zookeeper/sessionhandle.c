/*-------------------------------------------------------------------------
 *
 * sessionhandle.c
 *	  The handle of the ZooKeeper session, on the single-threaded client, and
 *	  its queue of events.
 *
 * Callbacks run inside the client.  They must not raise errors (logging is
 * fine), call the client or allocate with palloc.  They copy what they are
 * given into an event, and append it to a queue that the worker empties.
 *
 * The client's weak points, and what this file does about them:
 * - it may close the socket silently and open another with the same number:
 *   we count the sockets; requests are held back until a proof went
 *   out on the new connection (is_usable);
 * - it waits two thirds of the session timeout for a server that does not
 *   answer a connect: we give up much earlier;
 * - it tries servers that are away many times a second: we make pauses;
 * - it turns in circles on a connection that sends nonsense: we count;
 * - it aborts, or reads null, if an answer is odd: see sessionguard.c.
 *
 * src/zookeeper/sessionhandle.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "faultpoint.h"
#include "protocol/hosts.h"
#include "settings.h"
#include "zookeeper/sessionint.h"

#define MAX_FRAMES_A_TURN	256
#define MAX_IDLE_TURNS		1000
#define MIN_TIMEOUT_MS		1000
#define MAX_TIMEOUT_MS		(60 * 60 * 1000)
#define NO_SOCKET_WAIT_MS	50

static int	process(int events);
static int	bytes_to_read(void);
static void note_received(bool is_whole);
static void on_log(const char *message);
static void give_up(const char *reason);
static bool has_no_connection(void);
static void note_attempt(void);
static void check_connecting(long *timeout_ms);
static int	connect_limit(void);
static void void_events(void);

/*
 * The handle
 */

bool
zkl_session_open(const char *servers, int timeout_ms,
				 const ZklSessionId *carry_on)
{
	clientid_t	client_id;

	Assert(zkl_session_state.handle == NULL);
	if (carry_on)
	{
		client_id.client_id = carry_on->id;
		memcpy(client_id.passwd, carry_on->password, sizeof(client_id.passwd));
	}

	zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
	/* The facts about the previous handle. */
	memset(&zkl_session_state.handle, 0,
		   sizeof(zkl_session_state) - offsetof(ZklSessionState, handle));
	zkl_session_state.nservers = 1;
	for (const char *at = servers; *at; at++)
		zkl_session_state.nservers += *at == ',';
	zkl_session_state.timeout_ms = timeout_ms;
	zkl_session_state.fd = -1;
	zkl_session_state.attempted_at = zkl_now();
	zkl_session_state.handle = zookeeper_init2(servers, zkl_session_on_watch, timeout_ms,
											   carry_on ? &client_id : NULL, NULL,
											   ZOO_NO_LOG_CLIENTENV, on_log);
	if (zkl_session_state.handle == NULL)
		return false;

	/*
	 * The addresses are numeric, so the client need not resolve them each
	 * turn.
	 */
	zoo_set_servers_resolution_delay(zkl_session_state.handle, -1);
	return true;
}

/*
 * No completion is needed: if ZooKeeper refuses the credentials, the handle's
 * state says so.
 */
bool
zkl_session_add_auth(const char *scheme, const char *credentials,
					 size_t length)
{
	return zoo_add_auth(zkl_session_state.handle, scheme, credentials,
						(int) length, NULL, NULL) == ZOK;
}

bool
zkl_session_is_open(void)
{
	return zkl_session_state.handle != NULL;
}

void
zkl_session_close(void)
{
	if (zkl_session_state.handle == NULL)
		return;

	/*
	 * In this call, the client runs the completions that are still due.  So
	 * each request gets its reply; other events of this handle are dropped.
	 */
	zkl_session_state.closing = true;
	zkl_session_tls_close(zkl_session_state.handle);
	zkl_session_state.handle = NULL;
	zkl_session_state.barrier_sent = false;
	void_events();
}

/*
 * Free the handle without a connection, so that the client cannot close the
 * session at the server.
 */
void
zkl_session_abandon(void)
{
	if (zkl_session_state.handle == NULL)
		return;
	zkl_session_state.closing = true;
	if (zkl_session_state.fd >= 0)
	{
		/*
		 * The client must notice that the connection is gone.  Otherwise the
		 * client would send the close to the server.
		 */
		zkl_session_break_connection();
		(void) process(ZOOKEEPER_READ);
	}
	zkl_session_close();
}

void
zkl_session_interest(int *fd, bool *writable, long *timeout_ms)
{
	struct timeval wait = {0, 0};
	int			interest = 0;
	int			rc;
	int64		now = zkl_now();
	bool		connects;

	*fd = -1;
	*writable = false;
	*timeout_ms = NO_SOCKET_WAIT_MS;

	/*
	 * Without a handle, there is nothing to wait for, but the caller may open
	 * one soon.
	 */
	if (zkl_session_state.handle == NULL)
		return;

	connects = has_no_connection();

	/*
	 * During a pause between two attempts, do not call the client, because
	 * the call would make it connect.
	 */
	if (connects && now < zkl_session_state.attempt_at)
	{
		zkl_session_state.fd = -1;
		*timeout_ms = (zkl_session_state.attempt_at - now + 999) / 1000;
		return;
	}
	if (connects)
		zkl_session_state.attempted_at = now;
	rc = zookeeper_interest(zkl_session_state.handle, fd, &interest, &wait);
	if (connects && (rc != ZOK || *fd >= 0))
	{
		strlcpy(zkl_session_state.server, zkl_session_server(),
				sizeof(zkl_session_state.server));
		note_attempt();
	}
	if (rc != ZOK)
	{
		*fd = zkl_session_state.fd = -1;
		return;
	}

	Assert(connects || *fd == zkl_session_state.fd);
	if (*fd >= 0 && connects)
	{
		zkl_session_state.sockets++;
		/* Programs that the server starts must not keep the socket open. */
		fcntl(*fd, F_SETFD, FD_CLOEXEC);
		zkl_session_state.connecting_since = 0;
	}
	zkl_session_state.fd = *fd;
	*writable = (interest & ZOOKEEPER_WRITE) != 0;
	*timeout_ms = wait.tv_sec * 1000L + wait.tv_usec / 1000;
	zkl_session_tls_interest(zkl_session_state.handle, fd, writable, timeout_ms);
	if (zkl_session_state.is_unread)
		*timeout_ms = 0;
	check_connecting(timeout_ms);
}

void
zkl_session_process(bool readable, bool writable)
{
	int			unread;
	int			left;
	bool		reads;
	int			rc;

	if (zkl_session_state.handle == NULL)
		return;
	zkl_session_tls_process(&readable, &writable);
	readable |= zkl_session_state.is_unread;
	unread = readable ? bytes_to_read() : 0;
	rc = process((readable ? ZOOKEEPER_READ : 0) |
				 (writable ? ZOOKEEPER_WRITE : 0));

	/* The client does not tell whether it has read a part of a frame. */
	left = bytes_to_read();
	reads = rc == ZOK ? readable : left >= 0 && left < unread;
	if (reads)
		note_received(rc == ZOK);

	/*
	 * Count a turn in which the socket was ready but the client did nothing.
	 */
	if (rc == ZOK || reads || !(readable || writable))
		zkl_session_state.idle_turns = 0;
	else if (++zkl_session_state.idle_turns > MAX_IDLE_TURNS)
	{
		zkl_session_state.idle_turns = 0;
		give_up("does not answer like a ZooKeeper server");
	}

	/*
	 * Read several replies in a turn, but leave the worker time for its other
	 * work.  With TLS, the socket may not show what is left.
	 */
	for (int i = 0; rc == ZOK && i < MAX_FRAMES_A_TURN; i++)
		rc = process(ZOOKEEPER_READ);
	zkl_session_state.is_unread = rc == ZOK;
}

/* How many bytes the client can read now; -1 if there is no connection. */
static int
bytes_to_read(void)
{
	int			result = 0;

	if (zkl_session_state.fd < 0 ||
		ioctl(zkl_session_state.fd, FIONREAD, &result) != 0)
		return -1;
	return result;
}

/* A frame was read, or a part of one. */
static void
note_received(bool is_whole)
{
	zkl_session_state.received_at = zkl_now();
	if (is_whole)
		zkl_session_state.frame_since = 0;
	else if (zkl_session_state.frame_since == 0)
		zkl_session_state.frame_since = zkl_session_state.received_at;
}

/*
 * Let the client work on its connection.  The client may report no event when
 * ZooKeeper refuses its credentials.
 */
static int
process(int events)
{
	int			rc = zkl_session_guard_process(zkl_session_state.handle, events,
											   zkl_session_state.server);

	if (zkl_session_state.closing)
		return rc;
	if (zoo_state(zkl_session_state.handle) == ZOO_AUTH_FAILED_STATE)
		zkl_session_note_refused();
	return rc;
}

uint32
zkl_session_sockets(void)
{
	return zkl_session_state.sockets;
}

/*
 * Has the client no connection, not even one that it is about to make?  It
 * uses two states for this, one before the first connection and one after a
 * failure.
 */
static bool
has_no_connection(void)
{
	int			state = zoo_state(zkl_session_state.handle);

	return state == 0 || state == ZOO_NOTCONNECTED_STATE;
}

/* Only a proof with a reply shows that a connection was of use. */
static void
note_attempt(void)
{
	int			attempts = ++zkl_session_state.attempts;
	uint32		random = 0;
	int			pause;

	zkl_session_state.gave_up = false;
	(void) pg_strong_random(&random, sizeof(random));
	pause = zkl_hosts_pause_ms(attempts, zkl_session_state.nservers,
							   zkl_session_state.timeout_ms, random);
	if (pause > 0)
	{
		/*
		 * If TLS failed for want of trust, the next round has little chance
		 * either.  Pause, because many servers that go on trying would burden
		 * ZooKeeper with TLS handshakes.
		 */
		if (zkl_session_state.mistrusts >= zkl_session_state.nservers)
			pause = zkl_session_state.timeout_ms / 4 +
				random % (zkl_session_state.timeout_ms / 4 + 1);
		zkl_session_state.mistrusts = 0;
	}
	zkl_session_state.attempt_at = zkl_now() + ZKL_MS(pause);
}

/*
 * Give up a silent server earlier than the client itself would.  The client
 * would sleep for a third of the session timeout, so shorten the sleep.
 */
static void
check_connecting(long *timeout_ms)
{
	int			state = zoo_state(zkl_session_state.handle);
	int64		now = zkl_now();
	int64		left;

	/* Only an attempt to connect can take too long. */
	if (zkl_session_state.fd < 0 || has_no_connection() ||
		state == ZOO_CONNECTED_STATE || state == ZOO_READONLY_STATE)
	{
		zkl_session_state.connecting_since = 0;
		return;
	}
	if (zkl_session_state.connecting_since == 0)
		zkl_session_state.connecting_since = now;
	left = zkl_session_state.connecting_since + ZKL_MS(connect_limit()) - now;
	if (left > 0)
	{
		*timeout_ms = Min(*timeout_ms, (left + 999) / 1000);
		return;
	}
	zkl_session_state.connecting_since = 0;
	zkl_session_state.late_connects++;
	zkl_session_break_connection();
}

/* How long a connect may take, in milliseconds. */
static int
connect_limit(void)
{
	return zkl_hosts_limit_ms(zkl_session_state.late_connects,
							  zkl_session_state.nservers,
							  zkl_session_timeout_ms(),
							  zoo_client_id(zkl_session_state.handle)->client_id == 0);
}

/*
 * Another program than ZooKeeper may answer on a port in zklock.hosts.  The
 * client believes whatever it says, and then the handle is useless.
 */
bool
zkl_session_is_plausible(void)
{
	int			timeout_ms = zoo_recv_timeout(zkl_session_state.handle);

	return zoo_client_id(zkl_session_state.handle)->client_id != 0 &&
		timeout_ms >= MIN_TIMEOUT_MS && timeout_ms <= MAX_TIMEOUT_MS;
}

void
zkl_session_break_connection(void)
{
	give_up("did not answer in time");
}

/* The reply that is arriving belongs to the oldest request without a reply. */
void
zkl_session_break_reply(void)
{
	zkl_session_state.reply_too_long = true;
	give_up("answers too slowly for the length of a reply");
}

bool
zkl_session_take_too_long(void)
{
	bool		result = zkl_session_state.reply_too_long;

	zkl_session_state.reply_too_long = false;
	return result;
}

/*
 * End the connection.  The client notices at its next turn, and tries the
 * next server.
 */
static void
give_up(const char *reason)
{
	if (zkl_session_state.fd < 0)
		return;
	if (zkl_session_tls_drop())
		reason = "did not complete the TLS handshake in time";
	zkl_session_note_failure(false, "server %s %s", zkl_session_server(), reason);
	shutdown(zkl_session_state.fd, SHUT_RDWR);
}

/*
 * Events
 *
 * Callbacks append them; the worker's loop takes them.  Both run in the same
 * process, one after the other.
 */

ZklSessionEvent *
zkl_session_next_event(void)
{
	if (dlist_is_empty(&zkl_session_state.events))
		return NULL;
	return dlist_container(ZklSessionEvent, link,
						   dlist_pop_head_node(&zkl_session_state.events));
}

void
zkl_session_free_event(ZklSessionEvent *event)
{
	free((void *) event->reply.children);	/* one allocation, with its texts */
	free(unconstify(char *, event->reply.name));
	free(event->data);
	free(event->path);
	free(event);
}

/*
 * A callback cannot report that it is out of memory, so abort, as the client
 * itself does.
 */
void *
zkl_session_allocate(size_t size)
{
	void	   *result = calloc(1, size);

	if (result == NULL)
		abort();
	return result;
}

char *
zkl_session_copy(const char *str)
{
	size_t		size = strlen(str) + 1;

	return memcpy(zkl_session_allocate(size), str, size);
}

ZklSessionEvent *
zkl_session_append_event(ZklSessionEventKind kind)
{
	ZklSessionEvent *event = zkl_session_allocate(sizeof(ZklSessionEvent));

	event->kind = kind;
	dlist_push_tail(&zkl_session_state.events, &event->link);
	return event;
}

/*
 * The handle is gone.  Give each reply that the worker has not taken the
 * outcome UNKNOWN, and drop all other events of the handle.
 */
static void
void_events(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &zkl_session_state.events)
	{
		ZklSessionEvent *event = dlist_container(ZklSessionEvent, link, iter.cur);

		if (event->kind == ZKL_SESSION_REPLY || event->kind == ZKL_SESSION_ANSWER)
		{
			event->reply.outcome = ZKL_OUTCOME_UNKNOWN;
			event->reply.failure = ZKL_FAILURE_NONE;
			event->reply.nchildren = 0;
		}
		else
		{
			dlist_delete(&event->link);
			zkl_session_free_event(event);
		}
	}
}

void
zkl_session_count_sent(ZklTraffic traffic)
{
	zkl_session_state.outstanding++;
	zkl_session_state.requests++;
	zkl_session_state.on_sent(traffic);
}

/*
 * The client reports the refusal by the state of its handle, and the server
 * by the code of a reply.  Both may come, so report only the first.
 */
void
zkl_session_note_refused(void)
{
	if (zkl_session_state.auth_refused)
		return;
	zkl_session_state.auth_refused = true;
	zkl_session_append_event(ZKL_SESSION_REFUSED);
}

/*
 * The client reports that the session's state has changed, or that a watch
 * has fired.
 */
void
zkl_session_on_watch(zhandle_t *handle, int type, int state, const char *path,
					 void *context)
{
	if (zkl_session_state.closing)
		return;
	if (type == ZOO_SESSION_EVENT)
	{
		/* In any new state, nothing may be sent before the next proof. */
		zkl_session_state.barrier_sent = false;
		if (state == ZOO_CONNECTED_STATE)
		{
			zkl_session_state.has_error = false;
			zkl_session_state.mistrust[0] = '\0';
			zkl_session_append_event(ZKL_SESSION_CONNECTED);
		}
		else if (state == ZOO_EXPIRED_SESSION_STATE)
			zkl_session_append_event(ZKL_SESSION_EXPIRED);
		else if (state == ZOO_AUTH_FAILED_STATE)
			zkl_session_note_refused();
		/* This client has not agreed to a read-only server. */
		else if (state == ZOO_READONLY_STATE)
			zkl_session_append_event(ZKL_SESSION_STRANGER);
		else
			zkl_session_append_event(ZKL_SESSION_DISCONNECTED);
	}
	else if (type == ZOO_CHILD_EVENT)
		zkl_session_append_event(ZKL_SESSION_CHILDREN_CHANGED)->path = zkl_session_copy(path);
	else if (type == ZOO_CHANGED_EVENT || type == ZOO_DELETED_EVENT)
	{
		ZklSessionEvent *event;

		ZKL_FAULT_POINT("watch-fired");
		event = zkl_session_append_event(ZKL_SESSION_NODE_CHANGED);
		event->path = zkl_session_copy(path);
		event->gone = type == ZOO_DELETED_EVENT;
	}
}

/*
 * A line of the client's log.  The worker itself logs changes of state, so
 * this is only for debugging.  But errors are all about connections; keep
 * them as the reason why there is none.
 */
static void
on_log(const char *message)
{
	const char *str = strstr(message, ": ");

	if (str != NULL && strstr(message, "ZOO_ERROR") != NULL &&
		!zkl_session_state.gave_up && !zkl_session_state.closing)
		zkl_session_note_client_error(str + 2);
	elog(DEBUG1, "ZooKeeper client: %.*s",
		 (int) strcspn(message, "\n"), message);
}

/*
 * Facts
 */

bool
zkl_session_is_connected(void)
{
	return zkl_session_state.handle != NULL &&
		zoo_state(zkl_session_state.handle) == ZOO_CONNECTED_STATE;
}

bool
zkl_session_tried_all(void)
{
	return zkl_session_state.attempts > zkl_session_state.nservers ||
		(zkl_session_state.attempts == zkl_session_state.nservers &&
		 has_no_connection());
}

bool
zkl_session_is_usable(void)
{
	return zkl_session_state.barrier_sent && zkl_session_is_connected();
}

/* Ignore a failure, which only makes requests slower. */
void
zkl_session_cork(bool on)
{
#ifdef TCP_CORK
	int			value = on;

	if (zkl_session_state.fd >= 0)
		(void) setsockopt(zkl_session_state.fd, IPPROTO_TCP, TCP_CORK, &value,
						  sizeof(value));
#endif
}

void
zkl_session_observe(void (*sent) (ZklTraffic kind),
					void (*answered) (int64_t latency))
{
	zkl_session_state.on_sent = sent;
	zkl_session_state.on_answered = answered;
}

void
zkl_session_find_names(bool (*is_name_of) (int server, const char *address))
{
	zkl_session_state.is_name_of = is_name_of;
}

int
zkl_session_outstanding(void)
{
	return zkl_session_state.outstanding;
}

int64_t
zkl_session_requests(void)
{
	return zkl_session_state.requests;
}

int
zkl_session_timeout_ms(void)
{
	return zoo_recv_timeout(zkl_session_state.handle);
}

int64_t
zkl_session_received_at(void)
{
	return zkl_session_state.received_at;
}

int64_t
zkl_session_frame_since(void)
{
	return zkl_session_state.frame_since;
}

int64_t
zkl_session_connect_sent(void)
{
	return zkl_session_state.attempted_at;
}

void
zkl_session_identity(ZklSessionId *identity)
{
	const clientid_t *client_id = zoo_client_id(zkl_session_state.handle);

	identity->id = client_id->client_id;
	memcpy(identity->password, client_id->passwd, sizeof(identity->password));
}

const char *
zkl_session_server(void)
{
	const char *server = zoo_get_current_server(zkl_session_state.handle);

	return server ? server : "";
}
