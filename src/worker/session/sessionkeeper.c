/*-------------------------------------------------------------------------
 *
 * sessionkeeper.c
 *	  Keeps the ZooKeeper session: opens it, and continues it.
 *
 * src/worker/session/sessionkeeper.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "faultpoint.h"
#include "jobs/jobwriter.h"
#include "settings.h"
#include "shared/serverstat.h"
#include "worker/request/ask.h"
#include "worker/request/entrystate.h"
#include "worker/request/orphans.h"
#include "worker/request/sessionlog.h"
#include "worker/request/ticketfeed.h"
#include "worker/session/heartbeat.h"
#include "worker/session/identity.h"
#include "worker/session/membership.h"
#include "worker/session/resolver.h"
#include "worker/session/sessionfile.h"
#include "worker/session/sessionkeeper.h"
#include "zookeeper/session.h"

#define RETRY_OPEN			ZKL_MS(1000)

static struct
{
	bool		ending_old;		/* the handle has attached to a session only
								 * to close it */
	bool		connected;
	bool		was_connected;	/* the open handle has had a connection */
	bool		replaced;		/* no server accepted the previous handle, and
								 * no attempt has failed since */
	int64		open_at;		/* when to try to open a handle */
	bool		awaits_address; /* the last attempt to open one found no
								 * address */
	bool		lookup_logged;	/* logged: the names cannot be looked up */
	bool		stranger_logged;	/* logged: a server is no ZooKeeper */
	char	   *hosts;			/* zklock.hosts when the handle was opened */
	char	   *servers;		/* the addresses of the open handle */
	bool		moved;			/* the handle was opened for new addresses,
								 * and has had little time to use them */
	int64		resolve_at;		/* while disconnected: when to look names up
								 * again */
}			keeper;

static void note_failed_send(void);
static void open_session(void);
static bool find_session(ZklSessionId *identity);
static void remember_servers(const char *servers);
static void take_lookup(void);
static bool move_to_servers(const char *servers);
static void forget_servers(void);
static void look_for_servers(void);
static void reopen(void);
static void abandon_handle(void);
static void note_accepted(void);
static void hand_out_last_answers(void);
static void on_connected(void);
static void on_disconnected(void);
static void on_expired(void);
static void log_expired(int64 safe_until);
static void on_stranger(void);
static void on_refused(void);
static void lose_connection(void);
static void end_trust(void);
static void forget_session(void);
static void publish_session(void);

void
zkl_session_keeper_tend(void)
{
	note_failed_send();
	take_lookup();
	if (!zkl_session_is_open() && zkl_now() >= keeper.open_at)
		open_session();
	else if (zkl_session_is_open() && !keeper.connected)
	{
		if (zkl_session_log_unreachable())
			keeper.replaced = false;
		if (zkl_now() >= keeper.resolve_at)
			look_for_servers();
	}
	zkl_heartbeat_tend();
	zkl_session_log_doubt();
}

/* A failed send also ends the connection, but without an event. */
static void
note_failed_send(void)
{
	if (keeper.connected && !zkl_session_is_connected())
		on_disconnected();
}

int64
zkl_session_keeper_wake_at(void)
{
	int64		wake_at = PG_INT64_MAX;
	int64		safe_until = pg_atomic_read_u64(&zkl_session_info->safe_until);

	if (!zkl_session_is_open())
		wake_at = keeper.open_at;
	else if (zkl_session_is_connected())
		wake_at = zkl_heartbeat_next();
	/* Wake up when safe until passes, to log that claims are in doubt. */
	if (safe_until > zkl_now())
		wake_at = Min(wake_at, safe_until);

	/*
	 * The worker does not wait for the pipe of the lookup, so it must poll
	 * it.
	 */
	if (zkl_resolver_is_running())
		wake_at = Min(wake_at, zkl_now() + ZKL_LOOK_INTERVAL);
	return wake_at;
}

void
zkl_session_keeper_close(bool answered)
{
	if (!keeper.connected)
	{
		zkl_lock_table_leave_session("ZooKeeper cannot be reached");
		return;
	}
	zkl_session_close();
	ZKL_FAULT_POINT("session-closed");

	/*
	 * If ZooKeeper does not reply any more, it may not have read the close.
	 * The next worker finds the session in the session file, and ends it.
	 */
	if (!answered)
	{
		zkl_lock_table_leave_session("ZooKeeper does not reply");
		return;
	}
	(void) zkl_session_file_remove();
	end_trust();
	forget_session();
	ereport(LOG,
			errmsg("closed the ZooKeeper session"));
}

bool
zkl_session_keeper_may_connect(void)
{
	ZklSessionInfo *info = zkl_session_info;

	note_failed_send();
	return !keeper.connected && info->id != 0 &&
		zkl_now() < ZKL_MS(info->timeout_ms) +
		Max((int64) pg_atomic_read_u64(&info->heard_at), info->connected_at);
}

/*
 * Open a handle: to continue the session in shared memory, else to end the
 * one in the session file, else for a new session.  The connection comes
 * later, and then on_connected() is called.
 */
static void
open_session(void)
{
	ZklSessionInfo *info = zkl_session_info;
	ZklSessionId identity;
	bool		has_session;
	char	   *servers;
	const char *error;

	keeper.open_at = zkl_now() + RETRY_OPEN;
	zkl_resolver_start();

	/*
	 * Without an address, wait until the lookup ends or until the next
	 * attempt.
	 */
	keeper.awaits_address = !zkl_resolver_servers(&servers);
	if (keeper.awaits_address)
		return;

	/*
	 * Without its credentials, the server could not use the znodes that it
	 * has created.
	 */
	error = zkl_identity_load();
	if (error != NULL)
	{
		zkl_session_log_refused(error);
		return;
	}

	keeper.was_connected = false;
	has_session = find_session(&identity);

	/*
	 * What an earlier worker has published stays true, because the session is
	 * the same.
	 */
	zkl_heartbeat_begin(info->id != 0 ? ZKL_MS(info->timeout_ms) : 0,
						pg_atomic_read_u64(&info->safe_until));

	/* A session keeps the timeout that it was made with. */
	if (!zkl_session_open(servers,
						  info->id != 0 ? info->timeout_ms : zkl_session_timeout,
						  has_session ? &identity : NULL))
	{
		ereport(LOG,
				errmsg("could not make a ZooKeeper client: %m"));
		return;
	}
	zkl_identity_show();
	remember_servers(servers);

	/*
	 * For this long, the client may try before the names are looked up again.
	 */
	keeper.resolve_at = zkl_now() + ZKL_MS(zkl_session_timeout);
}

/*
 * The session that the handle is to attach to.  False: to none, but to open a
 * new one.  If shared memory has no session but the file has one, the server
 * has crashed, or was stopped while ZooKeeper was unreachable.  The znodes of
 * that session have no claims any more.
 */
static bool
find_session(ZklSessionId *identity)
{
	ZklSessionInfo *info = zkl_session_info;

	keeper.ending_old = false;
	identity->id = info->id;
	memcpy(identity->password, info->password, sizeof(identity->password));
	if (identity->id != 0)
		return true;

	/*
	 * No claim relies on a session that is missing from shared memory: see
	 * forget_session().  If one did, a commit might still be under way, so
	 * the session would have to expire.
	 */
	Assert(pg_atomic_read_u64(&info->safe_until) == 0);
	if (pg_atomic_read_u64(&info->safe_until) != 0)
		end_trust();
	else
		keeper.ending_old = zkl_session_file_read(identity);
	return keeper.ending_old;
}

/*
 * Keep hosts and addresses, to compare them with the setting and with later
 * lookups.
 */
static void
remember_servers(const char *servers)
{
	if (keeper.hosts)
	{
		pfree(keeper.hosts);
		pfree(keeper.servers);
	}
	keeper.hosts = MemoryContextStrdup(TopMemoryContext, zkl_hosts);
	keeper.servers = MemoryContextStrdup(TopMemoryContext, servers);
}

/*
 * The lookup has ended: open a handle at once, or move to other servers.  A
 * failed lookup is logged once, until one succeeds.
 *
 * Each handle begins with a lookup.  If each lookup finds other addresses, and
 * a connect takes longer than a lookup, no handle would ever connect.  So a
 * handle for new addresses has a session timeout for itself.
 */
static void
take_lookup(void)
{
	char	   *text;
	char	   *servers;
	ZklResolverOutcome outcome = zkl_resolver_take(&text);

	if (outcome == ZKL_RESOLVER_DONE)
	{
		keeper.lookup_logged = false;
		/* If the worker waits after a refusal, its pause goes on. */
		if (!zkl_session_is_open() && keeper.awaits_address)
			keeper.open_at = 0;
		else if (zkl_session_is_open() && !keeper.connected &&
				 !keeper.moved && zkl_resolver_servers(&servers))
			keeper.moved = move_to_servers(servers);
	}
	if (outcome != ZKL_RESOLVER_FAILED)
		return;
	zkl_session_log_error(psprintf("could not resolve any of the servers: %s", text));
	if (!zkl_session_is_open())
		zkl_session_log_nowhere();
	if (!keeper.lookup_logged)
		ereport(LOG,
				errmsg("could not resolve any of the ZooKeeper servers \"%s\"",
					   zkl_hosts),
				errdetail("The last error was: %s.", text));
	keeper.lookup_logged = true;
}

/* If the lookup found other servers, a new handle continues the session. */
static bool
move_to_servers(const char *servers)
{
	if (strcmp(servers, keeper.servers) == 0)
		return false;
	ereport(LOG,
			errmsg("continuing the ZooKeeper session with a new client handle, because the addresses of the ZooKeeper servers have changed"));
	forget_servers();
	reopen();
	return true;
}

/* The errors that were noted and logged were about servers that are no longer used. */
static void
forget_servers(void)
{
	keeper.replaced = false;
	keeper.lookup_logged = false;
	keeper.stranger_logged = false;
	zkl_session_log_forget();
}

/* The claims are not affected, because the session lives on meanwhile. */
static void
reopen(void)
{
	lose_connection();
	abandon_handle();
	keeper.open_at = 0;
}

/*
 * The connection has been missing for long.  The servers may have moved, or
 * may refuse this handle.  A lookup may also have found
 * more servers since the handle was opened.
 */
static void
look_for_servers(void)
{
	char	   *servers;

	keeper.resolve_at = zkl_now() + ZKL_MS(zkl_session_timeout);
	keeper.moved = false;
	zkl_resolver_start();
	if (zkl_resolver_servers(&servers) && move_to_servers(servers))
		return;
	if (!keeper.was_connected)
		return;

	/*
	 * A ZooKeeper server refuses a client that has seen a later write than
	 * the server's last one.  After ZooKeeper was emptied, or restored from a
	 * backup, the server would refuse it for ever, because a handle does not
	 * forget what it has seen.  So another handle continues the session, or
	 * learns that the session has expired.  If ZooKeeper is merely
	 * unreachable, another handle is needless but harmless, and is made once.
	 */
	ereport(LOG,
			errmsg("continuing the ZooKeeper session with a new client handle, because no server has accepted the old one"));
	reopen();
	keeper.replaced = true;
}

/*
 * ZooKeeper has answered.  If no server accepted the last handle for a whole
 * session timeout, and the first one accepts this handle at once, the reason
 * was that ZooKeeper's data are older than what the old handle had seen.
 */
static void
note_accepted(void)
{
	if (keeper.replaced)
		zkl_membership_note_older();
	keeper.replaced = false;
}

/* A new handle does not know the requests of this one. */
static void
abandon_handle(void)
{
	keeper.moved = false;
	zkl_session_abandon();
	hand_out_last_answers();
	zkl_ticket_feed_tell_all(ZKL_EVENT_RESTARTED);
}

/*
 * The handle is gone, and the outstanding replies are lost: each owner of a
 * request gets the outcome UNKNOWN.  Do this before the tickets get other
 * events, because an entry stays only until the requests of its ticket have
 * their replies.
 */
static void
hand_out_last_answers(void)
{
	ZklSessionEvent *event;

	while ((event = zkl_session_next_event()) != NULL)
	{
		if (event->kind == ZKL_SESSION_ANSWER)
			zkl_ask_handle(event);
		else
			zkl_ticket_feed_take_reply(event);
		zkl_session_free_event(event);
	}
	zkl_job_writer_forget_time();
}

/*
 * Events come in the order of ZooKeeper's replies.  Requests that were lost
 * with a connection get their outcome before the event of the next
 * connection; tickets rely on that.
 */
void
zkl_session_keeper_handle_events(void)
{
	ZklSessionEvent *event;

	while ((event = zkl_session_next_event()) != NULL)
	{
		switch (event->kind)
		{
			case ZKL_SESSION_CONNECTED:
				on_connected();
				break;
			case ZKL_SESSION_DISCONNECTED:
				on_disconnected();
				break;
			case ZKL_SESSION_EXPIRED:
				on_expired();
				break;
			case ZKL_SESSION_STRANGER:
				on_stranger();
				break;
			case ZKL_SESSION_REFUSED:
				on_refused();
				break;
			case ZKL_SESSION_SIGN:
				zkl_heartbeat_answered(event);
				break;
			case ZKL_SESSION_REPLY:
				zkl_heartbeat_note_reply(event);
				/* The reply to a create also shows ZooKeeper's time. */
				zkl_job_writer_note_reply(event);
				zkl_ticket_feed_take_reply(event);
				break;
			case ZKL_SESSION_ANSWER:
				zkl_heartbeat_note_reply(event);
				zkl_ask_handle(event);
				break;
			case ZKL_SESSION_CHILDREN_CHANGED:
			case ZKL_SESSION_NODE_CHANGED:
				if (!zkl_membership_note_change(event->path))
					zkl_ticket_feed_note_change(event);
				break;
		}
		zkl_session_free_event(event);
	}
}

static void
on_connected(void)
{
	/*
	 * The events of such a connection must neither move safe until nor be
	 * published.
	 */
	if (!zkl_session_is_plausible())
	{
		on_stranger();
		return;
	}
	ZKL_FAULT_POINT("connected");
	note_accepted();
	if (keeper.ending_old)
	{
		/*
		 * The close deletes the znodes of the old session at once.  If the
		 * file cannot be removed, pause before the next attempt reads it
		 * again.
		 */
		zkl_session_close();
		ZKL_FAULT_POINT("old-session-closed");
		keeper.open_at = zkl_session_file_remove() ? 0 : zkl_now() + RETRY_OPEN;
		ereport(LOG,
				errmsg("closed the ZooKeeper session that an earlier run of this server left behind"));
		return;
	}

	/*
	 * First, a shorter session timeout moves safe until back.  Then the
	 * barrier is sent.  Then every ticket is looked at again.
	 */
	zkl_heartbeat_connected();
	publish_session();
	zkl_session_log_connected(!keeper.connected);
	keeper.connected = true;
	keeper.was_connected = true;
	keeper.moved = false;
	pg_atomic_write_u32(&zkl_session_info->connected, 1);
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.connects, 1);

	/*
	 * The new connection has no watches, so each ticket that relies on one
	 * lists again.  Backends that wait for ZooKeeper look again, too.
	 */
	zkl_ticket_feed_tell_all(ZKL_EVENT_RECONNECTED);
	zkl_orphans_reconnected();
	zkl_entry_state_wake_all();
}

/*
 * Also called for a connection that ended without an event.  Only the first
 * of two calls does anything.
 */
static void
on_disconnected(void)
{
	const char *error;

	if (!keeper.connected)
		return;
	error = zkl_session_take_error();
	zkl_session_log_error(error ? error : "lost the connection to ZooKeeper");
	if (!zkl_session_log_is_refused())
		ereport(LOG,
				errmsg("lost the connection to ZooKeeper"),
				error ? errdetail("The last error was: %s.", error) : 0);
	lose_connection();
}

/* The caller reports what on_disconnected() would report. */
static void
lose_connection(void)
{
	if (!keeper.connected)
		return;
	keeper.connected = false;

	/*
	 * If the client finds no server by itself for this long, look the names
	 * up again.
	 */
	keeper.resolve_at = zkl_now() + ZKL_MS(zkl_session_timeout);
	pg_atomic_write_u32(&zkl_session_info->connected, 0);
	zkl_ticket_feed_disconnected();

	/*
	 * Backends that wait may have to report that ZooKeeper cannot be reached.
	 */
	zkl_entry_state_wake_all();
}

static void
on_expired(void)
{
	ZklSessionInfo *info = zkl_session_info;
	int64		safe_until = pg_atomic_read_u64(&info->safe_until);

	ZKL_FAULT_POINT("expired");
	note_accepted();

	/*
	 * A session to which the worker attached only to close it has no claims.
	 */
	if (!keeper.ending_old)
	{
		zkl_heartbeat_count_doubt(zkl_now());
		end_trust();
		ZKL_FAULT_POINT("epoch-raised");
	}
	zkl_session_close();
	hand_out_last_answers();
	keeper.open_at = zkl_session_file_remove() ? 0 : zkl_now() + RETRY_OPEN;
	if (keeper.ending_old)
	{
		ereport(LOG,
				errmsg("the ZooKeeper session that an earlier run of this server left behind has expired"),
				errhint("If \"zklock.hosts\" named another ensemble then, the locks of that session stay there until it expires there."));
		return;
	}

	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.expirations, 1);
	pg_atomic_fetch_add_u64(&zkl_server_stat->expirations, 1);
	on_disconnected();

	/* Without an id, the next turn opens a new session. */
	forget_session();
	ZKL_FAULT_POINT("session-forgotten");

	zkl_session_log_error("the ZooKeeper session has expired");

	/*
	 * A session that ZooKeeper has refused from the beginning held no locks,
	 * so say nothing.
	 */
	if (safe_until != 0 || !zkl_session_log_is_refused())
		log_expired(safe_until);
	zkl_orphans_expired();
	/* Do this last: it marks one claim after another, and may take a while. */
	zkl_ticket_feed_tell_all(ZKL_EVENT_EXPIRED);
}

/*
 * A client may also end a session before its time, and others have its locks
 * from then on.  This server cannot tell that from a change to another
 * ensemble.  So the session has expired in either case, and the hint names a
 * possible reason.
 */
static void
log_expired(int64 safe_until)
{
	int64		now = zkl_now();

	ereport(LOG,
			errmsg("the ZooKeeper session has expired"),
			safe_until <= now ? 0 :
			errdetail("ZooKeeper had confirmed it for %lld ms more.",
					  (long long) (safe_until - now) / ZKL_MS(1)),
			safe_until <= now ? 0 :
			errhint("If \"zklock.hosts\" named another ensemble before, the locks stay there until the session expires there, within %d ms.",
					zkl_heartbeat_timeout_ms()));
}

/*
 * First the session stops being safe, and its loss is counted.  From then on
 * each commit guard looks at its claims one by one, even if this worker
 * fails, and the next one has a new session before it has marked the claims.
 * Then the epoch grows.  From that moment on no claim of the old session
 * counts as held, even before the worker has marked it.
 */
static void
end_trust(void)
{
	pg_atomic_write_u64(&zkl_session_info->safe_until, 0);
	pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
	pg_atomic_fetch_add_u64(&zkl_session_info->epoch, 1);
}

/*
 * Nothing else takes the id away.  As long as a claim may rely on the session,
 * the next worker finds the id, and continues the session.
 */
static void
forget_session(void)
{
	Assert(pg_atomic_read_u64(&zkl_session_info->safe_until) == 0);
	LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
	zkl_session_info->id = 0;
	LWLockRelease(zkl_lock_table_session_lock());
}

/*
 * Give the handle up, so that another one continues the session.  Logged once,
 * because this may happen repeatedly.
 */
static void
on_stranger(void)
{
	on_disconnected();
	zkl_session_log_error(psprintf("server %s does not answer like a ZooKeeper server",
								   zkl_session_server()));
	if (!keeper.stranger_logged)
		ereport(LOG,
				errmsg("server \"%s\" does not answer like a ZooKeeper server",
					   zkl_session_server()),
				errhint("See that \"zklock.hosts\" names ZooKeeper servers only."));
	keeper.stranger_logged = true;
	abandon_handle();
	keeper.open_at = zkl_now() + RETRY_OPEN;
}

/*
 * The server refuses the credentials, or requires some.  A quick retry would
 * be refused as well.  And each attempt to continue the session keeps the
 * session alive: locks that this server cannot use would block other servers
 * for ever.  So the next attempt comes when the session has expired.  But if
 * a reload brings other credentials before that, nothing is lost.
 */
static void
on_refused(void)
{
	zkl_session_log_refused("ZooKeeper refused the credentials of this server, or demands some, or SASL, which zklock does not have");
	lose_connection();
	abandon_handle();
	keeper.open_at = zkl_now() +
		2 * ZKL_MS(Max(zkl_heartbeat_timeout_ms(), zkl_session_timeout));
}

/*
 * A handle can neither take back credentials nor change its servers, so a new
 * handle continues the session with the new ones.
 */
void
zkl_session_keeper_reload(void)
{
	bool		moves = keeper.hosts != NULL && strcmp(keeper.hosts, zkl_hosts) != 0;
	bool		changed = zkl_identity_reload();

	if (moves)
	{
		forget_servers();
		LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
		zkl_session_info->last_error_at = 0;
		LWLockRelease(zkl_lock_table_session_lock());
	}
	else if (!changed && !zkl_session_log_is_refused())
		return;

	/*
	 * Callers wait again until ZooKeeper has decided about the new
	 * credentials.
	 */
	pg_atomic_write_u64(&zkl_session_info->refused_at, 0);
	keeper.open_at = 0;
	if (!(moves || changed) || !zkl_session_is_open())
		return;
	ereport(LOG,
			moves ?
			errmsg("continuing the ZooKeeper session with a new client handle, because \"zklock.hosts\" was changed") :
			errmsg("continuing the ZooKeeper session with other credentials"));
	reopen();
}

/*
 * Publish the session's id and password: in shared memory for the next
 * worker, and in a file for the worker of the server's next run.  The file
 * comes first.  If this worker fails in between, the next worker ends a
 * session that is not in use yet.  In the other order, the next worker would
 * continue a session that is in no file, and a crash would leave its znodes
 * behind.
 */
static void
publish_session(void)
{
	ZklSessionInfo *info = zkl_session_info;
	ZklSessionId identity;

	zkl_session_identity(&identity);
	if (identity.id == info->id)
		pg_atomic_fetch_add_u64(&zkl_server_stat->reconnects, 1);
	else
	{
		zkl_session_file_write(&identity);
		ZKL_FAULT_POINT("session-file-written");
	}

	LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
	info->id = identity.id;
	memcpy(info->password, identity.password, sizeof(info->password));
	info->timeout_ms = zkl_heartbeat_timeout_ms();
	strlcpy(info->server, zkl_session_server(), sizeof(info->server));
	info->connected_at = zkl_now();
	LWLockRelease(zkl_lock_table_session_lock());
	ZKL_FAULT_POINT("session-published");
}
