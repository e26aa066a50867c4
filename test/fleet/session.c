/*
 * session.c: one ZooKeeper session that plays the worker of a server.
 *
 * What it sends is what a worker sends, and the pure code of zklock decides when.  The rest
 * repeats in short what src/zookeeper/sessionhandle.c and src/worker/session/heartbeat.c do with a session
 * in a worker.
 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "protocol/hosts.h"
#include "protocol/recipe.h"

Count		count;

static void on_read(int rc, const struct Stat *stat, const void *data);
static void on_echo(int rc, const char *path, const void *data);
static void on_proof(int rc, const void *data);
static void note_reconnect(Session *s, int64_t now);
static void ask_again(Session *s);
static void on_children(int rc, const struct String_vector *names, const void *data);
static void hold(Session *s);
static void delete_ticket(Session *s);

/* No answer will come: it is not known whether ZooKeeper did the request. */
bool
is_unanswered(int rc)
{
	return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZSESSIONEXPIRED || rc == ZCLOSING;
}

/* An answer of ZooKeeper is never an error here. */
void
check(int rc, const char *what)
{
	if (rc == ZOK)
		return;
	printf("error %s: %s\n", what, zerror(rc));
	fflush(stdout);
	exit(1);
}

int64_t
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static int64_t
earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* --- when to send what --- */

/* The requests are those of the worker: see src/zookeeper/sessionhandle.c. */
static int
request_sign(Session *s, ZklSign sign)
{
	zoo_op_t	op;

	switch (sign)
	{
		case ZKL_SIGN_READ:
			return zoo_aexists(s->zk, "/", 0, on_read, s);
		case ZKL_SIGN_ECHO:
			return zoo_async(s->zk, "/", on_echo, s);
		case ZKL_SIGN_PROOF:
			zoo_check_op_init(&op, "/", -1);
			return zoo_amulti(s->zk, 1, &op, &s->proof_result, on_proof, s);
		default:
			return ZBADARGUMENTS;
	}
}

static void
send_what_is_due(Session *s, int64_t now)
{
	ZklSign		sign;

	if (!s->connected || s->is_load)
		return;
	if (s->sign != ZKL_SIGN_NONE)
	{
		if (now - s->sign_sent > zkl_cadence_patience(s->safe.timeout))
			shutdown(s->fd, SHUT_RDWR);
		return;
	}
	sign = zkl_cadence_next(&s->cadence, now, s->has_ticket, zkl_safe_until(&s->safe));
	if (sign == ZKL_SIGN_NONE)
		return;
	s->sign_sent = now;
	s->sign_provable = zkl_safe_until_provable(&s->safe);
	if (request_sign(s, sign) != ZOK)
		return;
	s->sign = sign;
	zkl_cadence_sent(&s->cadence, sign, now);
	count.sent[sign]++;
}

static int64_t
due_at(const Session *s, int64_t now)
{
	if (s->is_load)
		return load_due_at(now);
	if (!s->connected)
		return NEVER;
	if (s->sign != ZKL_SIGN_NONE)
		return s->sign_sent + zkl_cadence_patience(s->safe.timeout) + 1;
	return zkl_cadence_due(&s->cadence, s->has_ticket);
}

static void
on_sign(Session *s, int rc)
{
	ZklSign		sign = s->sign;
	int64_t		now = now_us();

	s->sign = ZKL_SIGN_NONE;
	if (rc != ZOK)
		return;
	if (sign == ZKL_SIGN_READ)
		zkl_safe_until_sign(&s->safe, s->sign_sent, now);
	else
		zkl_safe_until_echo(&s->safe, s->sign_sent, now);
	if (sign == ZKL_SIGN_PROOF)
		zkl_safe_until_proof(&s->safe, s->sign_provable);
	zkl_cadence_answered(&s->cadence, sign, now);
	note_reconnect(s, now);
}

static void
on_read(int rc, const struct Stat *stat, const void *data)
{
	(void) stat;
	on_sign((Session *) data, rc);
}

static void
on_echo(int rc, const char *path, const void *data)
{
	(void) path;
	on_sign((Session *) data, rc);
}

static void
on_proof(int rc, const void *data)
{
	on_sign((Session *) data, rc);
}

/* --- how the session is seen --- */

static void
note_ahead(Session *s, int64_t now)
{
	int64_t		ahead = zkl_safe_until(&s->safe) - now;

	if (!s->holding)
		return;
	if (ahead < count.least_ahead)
		count.least_ahead = ahead;
	if (ahead <= 0 && !s->in_doubt)
		count.doubted++;
	s->in_doubt = ahead <= 0;
}

/* A session is usable from the first answer on its connection. */
static void
note_reconnect(Session *s, int64_t now)
{
	s->attempts = s->late = 0;
	if (s->down_since == 0)
		return;
	if (count.nreconnects == 0)
		count.first_reconnect = now;
	count.last_reconnect = now;
	count.reconnect = realloc(count.reconnect, (count.nreconnects + 1) * sizeof(int64_t));
	count.reconnect[count.nreconnects++] = now - s->down_since;
	s->down_since = 0;
}

static void
note_disconnect(Session *s)
{
	if (!s->connected)
		return;
	s->connected = false;
	s->down_since = now_us();
	count.disconnects++;
}

static void
on_session(zhandle_t *zk, int type, int state, const char *path, void *context)
{
	Session    *s = context;

	(void) path;
	if (type != ZOO_SESSION_EVENT)
		return;
	note_disconnect(s);
	if (state == ZOO_CONNECTED_STATE)
	{
		s->connected = true;
		zkl_safe_until_connected(&s->safe, s->attempted_at, MS(zoo_recv_timeout(zk)));
		zkl_cadence_connected(&s->cadence, s->safe.timeout);
	}
	else if (state == ZOO_EXPIRED_SESSION_STATE)
	{
		s->lost = true;
		s->holding = s->in_doubt = false;
	}
}

/* --- the connection, as zookeeper/sessionhandle.c has it --- */

void
session_open(Session *s, int number, bool is_load)
{
	memset(s, 0, sizeof(*s));
	s->number = number;
	s->is_load = is_load;
	s->fd = -1;
	s->down_since = now_us();
	s->zk = zookeeper_init2(hosts, on_session, timeout_ms, NULL, s, ZOO_NO_LOG_CLIENTENV, NULL);
	check(s->zk != NULL ? ZOK : ZSYSTEMERROR, "open");
	zoo_set_servers_resolution_delay(s->zk, -1);
}

void
session_close(Session *s)
{
	if (s->zk != NULL)
		zookeeper_close(s->zk);
	s->zk = NULL;
	s->connected = false;
	s->wake_at = 0;
}

static bool
has_no_connection(const Session *s)
{
	int			state = zoo_state(s->zk);

	return state == 0 || state == ZOO_NOTCONNECTED_STATE;
}

/* Returns when it has taken too long. */
static int64_t
check_connecting(Session *s, int64_t now)
{
	int			state = zoo_state(s->zk);
	int64_t		limit = MS(zkl_hosts_limit_ms(s->late, nservers, timeout_ms, zoo_client_id(s->zk)->client_id == 0));

	if (s->fd < 0 || (state != ZOO_CONNECTING_STATE && state != ZOO_ASSOCIATING_STATE))
		s->connecting_since = 0;
	else if (s->connecting_since == 0)
		s->connecting_since = now;
	else if (now - s->connecting_since > limit)
	{
		s->connecting_since = 0;
		s->late++;
		shutdown(s->fd, SHUT_RDWR);
	}
	return s->connecting_since != 0 ? s->connecting_since + limit + 1 : NEVER;
}

/* What the session waits for, and until when. */
static struct pollfd
interest_of(Session *s, int64_t now)
{
	struct pollfd p = {-1, 0, 0};
	struct timeval wait = {0};
	int			interest = 0,
				rc;
	bool		connects = has_no_connection(s);

	s->wake_at = now + MS(50);
	if (connects && now < s->attempt_at)
	{
		s->fd = -1;
		s->wake_at = s->attempt_at;
		return p;
	}
	if (connects)
		s->attempted_at = now;
	rc = zookeeper_interest(s->zk, &p.fd, &interest, &wait);
	if (connects && (rc != ZOK || p.fd >= 0))
		s->attempt_at = now + MS(zkl_hosts_pause_ms(++s->attempts, nservers, timeout_ms, random()));
	s->fd = p.fd = rc == ZOK ? p.fd : -1;
	if (rc != ZOK)
		return p;
	p.events = (interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0);
	s->wake_at = earlier(now + wait.tv_sec * INT64_C(1000000) + wait.tv_usec, check_connecting(s, now));
	return p;
}

void
session_serve(Session *s, struct pollfd *p)
{
	bool		readable = p->fd >= 0 && (p->revents & (POLLIN | POLLHUP | POLLERR)),
				writable = p->fd >= 0 && (p->revents & POLLOUT);
	int64_t		now = now_us();

	p->fd = -1;
	s->wake_at = NEVER;
	if (s->lost || s->zk == NULL)
		return;
	note_ahead(s, now);
	if (readable || writable)
	{
		int			rc = zookeeper_process(s->zk, (readable ? ZOOKEEPER_READ : 0) | (writable ? ZOOKEEPER_WRITE : 0));

		for (int i = 0; rc == ZOK && i < 256; i++)
			rc = zookeeper_process(s->zk, ZOOKEEPER_READ);
	}
	if (s->connected && zoo_state(s->zk) != ZOO_CONNECTED_STATE)
		note_disconnect(s);
	if (s->lost)
		return;
	now = now_us();
	note_ahead(s, now);
	if (s->is_load)
		load_send(s, now);
	ask_again(s);
	send_what_is_due(s, now);
	*p = interest_of(s, now);

	s->wake_at = earlier(s->wake_at, due_at(s, now));
	if (s->holding && !s->in_doubt)
		s->wake_at = earlier(s->wake_at, zkl_safe_until(&s->safe));
}

/* --- locks --- */

static void
on_synced(int rc, const char *value, const void *data)
{
	(void) rc, (void) value, (void) data;
}

/*
 * A request without an answer is repeated on the next connection.  The list of the session's
 * directory then tells whether the create of its ticket was done.  A server answers a list from
 * what it knows, and the create may still be on its way through the leader; so the list comes after
 * a sync.
 */
static void
ask_again(Session *s)
{
	char		directory[PATH_SIZE];

	if (!s->unanswered || !s->connected)
		return;
	s->unanswered = false;
	if (!s->has_ticket)
		delete_ticket(s);
	else
	{
		snprintf(directory, sizeof(directory), DIRECTORY "/%d", s->number);
		check(zoo_async(s->zk, directory, on_synced, NULL), "sync");
		check(zoo_aget_children(s->zk, directory, 0, on_children, s), "reading of a directory");
	}
}

static void
on_children(int rc, const struct String_vector *names, const void *data)
{
	Session    *s = (Session *) data;

	s->unanswered = is_unanswered(rc);
	if (s->unanswered)
		return;
	if (rc == ZNONODE || (rc == ZOK && names->count == 0))
	{
		session_hold(s);
		return;
	}
	check(rc, "reading of a directory");
	snprintf(s->znode, sizeof(s->znode), DIRECTORY "/%d/%s", s->number, names->data[0]);
	hold(s);
}

static void
on_directory(int rc, const char *value, const void *data)
{
	(void) value, (void) data;
	if (rc != ZNODEEXISTS && !is_unanswered(rc))
		check(rc, "create of a directory");
}

static void
make_directory(Session *s, const char *path)
{
	check(zoo_acreate(s->zk, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, on_directory, s),
		  "create of a directory");
}

static void
hold(Session *s)
{
	zkl_safe_until_proof(&s->safe, s->create_provable);
	s->holding = true;
}

static void
on_held(int rc, const char *value, const void *data)
{
	Session    *s = (Session *) data;

	s->unanswered = is_unanswered(rc);
	if (s->unanswered)
		return;
	check(rc, "create of a ticket");
	snprintf(s->znode, sizeof(s->znode), "%s", value);
	hold(s);
}

/* Directory and ticket have names and texts as those of the worker. */
void
session_hold(Session *s)
{
	char		path[PATH_SIZE],
				uuid[ZKL_UUID_SIZE],
				prefix[ZKL_ZNODE_SIZE],
				text[ZKL_TEXT_SIZE];
	uint8_t		bytes[16];
	int			length;

	for (int i = 0; i < 16; i++)
		bytes[i] = random();
	zkl_recipe_make_uuid(bytes, false, uuid);
	zkl_recipe_make_prefix(ZKL_MODE_LOCK, uuid, prefix);
	snprintf(path, sizeof(path), DIRECTORY "/%d", s->number);
	make_directory(s, path);
	snprintf(path, sizeof(path), DIRECTORY "/%d/%s", s->number, prefix);
	length = snprintf(text, sizeof(text), "server=fleet-%d pid=%d database=postgres role=postgres application=fleet"
					  ZKL_PLAIN, s->number, (int) getpid());
	s->has_ticket = true;
	s->create_provable = zkl_safe_until_provable(&s->safe);
	zkl_cadence_wrote(&s->cadence, now_us());
	check(zoo_acreate(s->zk, path, text, length, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, on_held, s),
		  "create of a ticket");
}

static void
on_released(int rc, const void *data)
{
	Session    *s = (Session *) data;

	s->unanswered = is_unanswered(rc);
	if (!s->unanswered && rc != ZNONODE)	/* an unanswered delete may have been done */
		check(rc, "delete of a ticket");
}

static void
delete_ticket(Session *s)
{
	zkl_cadence_wrote(&s->cadence, now_us());
	check(zoo_adelete(s->zk, s->znode, -1, on_released, s), "delete of a ticket");
}

/* As in the worker, the lock is not held any more when its delete is sent. */
void
session_release(Session *s)
{
	s->has_ticket = s->holding = s->in_doubt = false;
	delete_ticket(s);
}
