/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background worker that holds the session.
 *
 * It never runs SQL.  It exits with 1 whenever it is to be started again: the
 * session stays alive meanwhile, and the next worker carries it on from what
 * is in shared memory.  It exits with 0 only when the server shuts down and
 * the session is closed.
 *
 * src/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "entry.h"
#include "hosts.h"
#include "session.h"
#include "sessionfile.h"
#include "tickets.h"
#include "timers.h"
#include "worker.h"
#include "zklock.h"

#define RESTART_SECONDS		1
#define RETRY_OPEN			ZKL_MS(1000)
#define SHUTDOWN_LIMIT		ZKL_MS(60 * 1000)
#define DRAIN_LIMIT			ZKL_MS(2000)

/* The client's counter of requests breaks at 2^32. */
#define MAX_REQUESTS		1000000000

static struct
{
	bool		ending_old;		/* attached to a session only to close it */
	bool		connected;
	int64		open_at;		/* when to try to open a handle */
	int64		heartbeat_at;	/* when the next is due */
	bool		stopping;
	int64		stop_at;		/* then even if claims are held */
	char	   *hosts;			/* those of the open handle ... */
	char	   *servers;		/* ... and their addresses */
	int64		resolve_at;		/* while disconnected: when to look again */
}			worker;

/* What the process waits on; made anew when the socket is another. */
static struct
{
	WaitEventSet *set;
	int			fd;
	ino_t		inode;
	uint32		events;
	int			position;
}			waiting = {.fd = -1};

static void start_up(void);
static void advertise(void);
static void withdraw(int code, Datum arg);
static void turn(void);
static void check_signals(void);
static bool server_is_shutting_down(void);
static void reload(void);
static void open_session(void);
static void look_for_servers(void);
static void wait_for_something(void);
static uint32 wait_on_socket(int fd, uint32 events, long timeout_ms);
static void handle_events(void);
static void on_connected(void);
static void on_disconnected(void);
static void on_expired(void);
static void on_stranger(void);
static void on_heartbeat(int64 sent);
static int64 next_heartbeat(void);
static int	heartbeat_period_ms(void);
static void send_heartbeat(void);
static void publish_session(void);
static void stop(void);
static void drain(void);

void
zkl_worker_register(void)
{
	BackgroundWorker bgworker = {0};

	/*
	 * With a database connection, though to none: so it is seen in
	 * pg_stat_activity, and takes part in what DROP DATABASE waits for.
	 */
	bgworker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	bgworker.bgw_start_time = BgWorkerStart_ConsistentState;
	bgworker.bgw_restart_time = RESTART_SECONDS;
	strlcpy(bgworker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(bgworker.bgw_function_name, "zkl_worker_main", BGW_MAXLEN);
	strlcpy(bgworker.bgw_name, "zklock worker", BGW_MAXLEN);
	strlcpy(bgworker.bgw_type, "zklock worker", BGW_MAXLEN);
	RegisterBackgroundWorker(&bgworker);
}

void
zkl_worker_main(Datum main_arg)
{
	MemoryContext turn_context;

	start_up();
	turn_context = AllocSetContextCreate(TopMemoryContext, "zklock turn",
										 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		MemoryContextSwitchTo(turn_context);
		turn();
		MemoryContextReset(turn_context);
	}
}

static void
start_up(void)
{
	char		prefix[ZKL_ROOT_SIZE];

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	before_shmem_exit(withdraw, (Datum) 0);
	advertise();

	zkl_hosts_prefix(zkl_hosts, zkl_root, prefix);
	zkl_tickets_start(prefix);
}

static void
advertise(void)
{
	pg_atomic_write_u32(&zkl_shared->worker_pid, MyProcPid);
	pg_atomic_write_u32(&zkl_shared->worker_proc, zkl_my_proc_number() + 1);
}

static void
withdraw(int code, Datum arg)
{
	pg_atomic_write_u32(&zkl_shared->worker_proc, 0);
	pg_atomic_write_u32(&zkl_shared->worker_pid, 0);
	pg_atomic_write_u32(&zkl_shared->session[0].connected, 0);
}

static void
turn(void)
{
	check_signals();
	if (!zkl_session_is_open() && zkl_now() >= worker.open_at)
		open_session();
	else if (zkl_session_is_open() && !worker.connected &&
			 zkl_now() >= worker.resolve_at)
		look_for_servers();

	wait_for_something();
	handle_events();
	zkl_tickets_take_work();
	zkl_tickets_run_timers();
	send_heartbeat();
	zkl_tickets_send();

	if (zkl_session_requests() > MAX_REQUESTS)
		proc_exit(1);
}

/*
 * Signals
 */

static void
check_signals(void)
{
	CHECK_FOR_INTERRUPTS();

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		reload();
	}

	if (ShutdownRequestPending && !worker.stopping)
	{
		/* Somebody terminated just us: the next worker carries on. */
		if (!server_is_shutting_down())
			proc_exit(1);
		worker.stopping = true;
		worker.stop_at = zkl_now() + SHUTDOWN_LIMIT;
		pg_atomic_write_u32(&zkl_shared->shutting_down, 1);
	}
	if (worker.stopping)
		stop();
}

/*
 * The postmaster tells nobody that it shuts down, but for pg_ctl, in the last
 * line of its lock file, before it signals its children.
 */
static bool
server_is_shutting_down(void)
{
	FILE	   *file = AllocateFile("postmaster.pid", "r");
	char		line[MAXPGPATH];
	bool		result = false;

	if (file == NULL)
		return errno == ENOENT;
	while (fgets(line, sizeof(line), file) != NULL)
		result = strncmp(line, "stopping", 8) == 0;
	FreeFile(file);
	return result;
}

/* Another list of servers: the next worker carries the session on there. */
static void
reload(void)
{
	int			old_linger = zkl_linger;

	ProcessConfigFile(PGC_SIGHUP);
	if (zkl_linger != old_linger)
		zkl_tickets_reset_timers();
	if (worker.hosts == NULL || strcmp(worker.hosts, zkl_hosts) == 0)
		return;
	ereport(LOG,
			errmsg("restarting the zklock worker, because \"zklock.hosts\" was changed"));
	proc_exit(1);
}

/*
 * The session
 */

static void
open_session(void)
{
	ZklSessionInfo *info = &zkl_shared->session[0];
	ZklSessionId identity = {0};
	int			nservers;
	char	   *servers;

	worker.open_at = zkl_now() + RETRY_OPEN;
	servers = zkl_hosts_resolve(zkl_hosts, &nservers);
	if (servers == NULL)
	{
		static bool logged = false;

		if (!logged)
			ereport(LOG,
					errmsg("could not resolve any of the ZooKeeper servers \"%s\"",
						   zkl_hosts));
		logged = true;
		return;
	}

	worker.ending_old = false;
	identity.id = info->id;
	memcpy(identity.password, info->password, sizeof(identity.password));
	if (identity.id == 0)
		worker.ending_old = zkl_session_file_read(&identity);

	/* A session keeps the timeout that it was made with. */
	if (!zkl_session_open(servers, nservers,
						  info->id != 0 ? info->timeout_ms : zkl_session_timeout,
						  identity.id != 0 ? &identity : NULL))
	{
		ereport(LOG,
				errmsg("could not make a ZooKeeper client: %m"));
		return;
	}
	if (worker.hosts)
	{
		pfree(worker.hosts);
		pfree(worker.servers);
	}
	worker.hosts = MemoryContextStrdup(TopMemoryContext, zkl_hosts);
	worker.servers = MemoryContextStrdup(TopMemoryContext, servers);
	worker.resolve_at = zkl_now() + ZKL_MS(zkl_session_timeout);
}

/*
 * The servers may have moved: then the next worker carries the session on at
 * their new addresses.
 */
static void
look_for_servers(void)
{
	int			nservers;
	char	   *servers;

	worker.resolve_at = zkl_now() + ZKL_MS(zkl_session_timeout);
	servers = zkl_hosts_resolve(zkl_hosts, &nservers);
	if (servers == NULL || strcmp(servers, worker.servers) == 0)
		return;
	ereport(LOG,
			errmsg("restarting the zklock worker, because the ZooKeeper servers have other addresses"));
	proc_exit(1);
}

static void
handle_events(void)
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
			case ZKL_SESSION_HEARTBEAT:
				on_heartbeat(event->sent);
				break;
			case ZKL_SESSION_REPLY:
			case ZKL_SESSION_CHILDREN_CHANGED:
			case ZKL_SESSION_NODE_CHANGED:
				zkl_tickets_handle(event);
				break;
		}
		zkl_session_free_event(event);
	}
}

static void
on_connected(void)
{
	if (!zkl_session_is_plausible())
	{
		on_stranger();
		return;
	}
	if (worker.ending_old)
	{
		zkl_session_close();
		worker.open_at = zkl_session_file_remove() ? 0 : zkl_now() + RETRY_OPEN;
		ereport(LOG,
				errmsg("closed the ZooKeeper session that the server had before it crashed"));
		return;
	}

	/* First of all the barrier; then every ticket is looked at again. */
	worker.heartbeat_at = 0;
	send_heartbeat();
	publish_session();
	if (!worker.connected)
		ereport(LOG,
				errmsg("connected to ZooKeeper server \"%s\"",
					   zkl_session_server()),
				errdetail("The session timeout is %d ms.",
						  zkl_session_timeout_ms()));
	worker.connected = true;
	pg_atomic_write_u32(&zkl_shared->session[0].connected, 1);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.connects, 1);
	zkl_tickets_reconnected();
	zkl_entry_wake_all();
}

static void
on_disconnected(void)
{
	if (!worker.connected)
		return;
	ereport(LOG,
			errmsg("lost the connection to ZooKeeper"));
	worker.connected = false;
	worker.resolve_at = zkl_now() + ZKL_MS(zkl_session_timeout);
	pg_atomic_write_u32(&zkl_shared->session[0].connected, 0);
	zkl_tickets_disconnected();
	zkl_entry_wake_all();
}

/*
 * The epoch comes first: from that moment on no claim of the old session
 * passes for held, even before we have marked it.
 */
static void
on_expired(void)
{
	ZklSessionInfo *info = &zkl_shared->session[0];

	zkl_session_close();
	worker.open_at = zkl_session_file_remove() ? 0 : zkl_now() + RETRY_OPEN;
	if (worker.ending_old)
		return;

	pg_atomic_write_u64(&info->safe_until, 0);
	pg_atomic_fetch_add_u64(&info->epoch, 1);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.expirations, 1);
	on_disconnected();

	LWLockAcquire(zkl_table_session_lock(), LW_EXCLUSIVE);
	info->id = 0;
	LWLockRelease(zkl_table_session_lock());

	ereport(LOG,
			errmsg("the ZooKeeper session has expired"));
	zkl_tickets_expired();
}

/* Another handle carries the session on; it knows nothing of what was asked. */
static void
on_stranger(void)
{
	static bool logged = false;

	if (!logged)
		ereport(LOG,
				errmsg("one of the servers \"%s\" does not answer like a ZooKeeper server",
					   zkl_hosts));
	logged = true;
	on_disconnected();
	zkl_session_abandon();
	worker.open_at = zkl_now() + RETRY_OPEN;
	zkl_tickets_restarted();
}

/* Id and password, for the next worker and for whoever runs after a crash. */
static void
publish_session(void)
{
	ZklSessionInfo *info = &zkl_shared->session[0];
	ZklSessionId identity;
	bool		is_new;

	zkl_session_identity(&identity);
	is_new = identity.id != info->id;

	LWLockAcquire(zkl_table_session_lock(), LW_EXCLUSIVE);
	info->id = identity.id;
	memcpy(info->password, identity.password, sizeof(info->password));
	info->timeout_ms = zkl_session_timeout_ms();
	strlcpy(info->server, zkl_session_server(), sizeof(info->server));
	info->connected_at = zkl_now();
	LWLockRelease(zkl_table_session_lock());

	if (is_new)
		zkl_session_file_write(&identity);
}

/*
 * Safe until: what the ensemble answered proves that it knew the session when
 * the heartbeat was sent.  The leader may have counted from a little earlier:
 * a follower passes its clients' signs of life on every half tick, and a tick
 * is at most half the timeout.
 */
static void
on_heartbeat(int64 sent)
{
	int			timeout_ms = zkl_session_timeout_ms();
	int			period_ms = heartbeat_period_ms();
	int			margin_ms = Max(timeout_ms / 3, timeout_ms / 4 + 2 * period_ms);
	ZklSessionInfo *info = &zkl_shared->session[0];
	int64		now = zkl_now();
	int64		was_safe_until = pg_atomic_read_u64(&info->safe_until);

	pg_atomic_write_u64(&info->safe_until,
						sent + ZKL_MS(timeout_ms - margin_ms));
	pg_atomic_write_u64(&info->heard_at, now);
	pg_atomic_write_u32(&info->period_ms, period_ms);
	worker.heartbeat_at = now + ZKL_MS(period_ms);
	pg_atomic_fetch_add_u64(&zkl_shared->counters.heartbeats, 1);
	if (was_safe_until <= zkl_now())
		zkl_entry_wake_all();
}

/* At once, where the connection still waits for its barrier. */
static int64
next_heartbeat(void)
{
	return zkl_session_is_usable() ? worker.heartbeat_at : 0;
}

static int
heartbeat_period_ms(void)
{
	return Max(100, zkl_session_timeout_ms() / 20);
}

static void
send_heartbeat(void)
{
	/* A connection over which nothing is answered is of no use. */
	if (zkl_session_is_usable() && zkl_session_heartbeat_age() >
		ZKL_MS(zkl_session_timeout_ms() / 3))
		zkl_session_break_connection();

	if (!zkl_session_may_heartbeat() || zkl_now() < next_heartbeat())
		return;
	worker.heartbeat_at = zkl_now() + ZKL_MS(heartbeat_period_ms());
	zkl_session_heartbeat();
}

/*
 * Waiting
 */

static void
wait_for_something(void)
{
	int			fd;
	bool		writable;
	long		timeout_ms;
	int64		now = zkl_now();
	int64		wake_at = zkl_timers_next();
	uint32		events;

	zkl_session_interest(&fd, &writable, &timeout_ms);
	if (!zkl_session_is_open())
		wake_at = Min(wake_at, worker.open_at);
	else if (zkl_session_may_heartbeat())
		wake_at = Min(wake_at, next_heartbeat());
	if (wake_at != PG_INT64_MAX)
		timeout_ms = Min(timeout_ms, Max(0, (wake_at - now + 999) / 1000));

	events = wait_on_socket(fd, WL_SOCKET_READABLE |
							(writable ? WL_SOCKET_WRITEABLE : 0), timeout_ms);
	zkl_session_process((events & WL_SOCKET_READABLE) != 0,
						(events & WL_SOCKET_WRITEABLE) != 0);
}

/*
 * Wait for the latch, the postmaster's death, or the socket.  After a
 * reconnect the socket may have the same number and yet be another one, so
 * inodes are compared.
 */
static uint32
wait_on_socket(int fd, uint32 events, long timeout_ms)
{
	static uint32 wait_event = 0;
	struct stat status;
	WaitEvent	occurred[3];
	uint32		result = 0;
	int			n;

	if (fd < 0 || fstat(fd, &status) != 0)
	{
		fd = -1;
		status.st_ino = 0;
	}
	if (waiting.set == NULL || fd != waiting.fd ||
		status.st_ino != waiting.inode)
	{
		if (waiting.set != NULL)
			FreeWaitEventSet(waiting.set);
		waiting.set = zkl_create_wait_event_set(3);
		AddWaitEventToSet(waiting.set, WL_LATCH_SET, PGINVALID_SOCKET,
						  MyLatch, NULL);
		AddWaitEventToSet(waiting.set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET,
						  NULL, NULL);
		if (fd >= 0)
			waiting.position = AddWaitEventToSet(waiting.set, events, fd,
												 NULL, NULL);
	}
	else if (fd >= 0 && events != waiting.events)
		ModifyWaitEvent(waiting.set, waiting.position, events, NULL);
	waiting.fd = fd;
	waiting.inode = status.st_ino;
	waiting.events = events;

	n = WaitEventSetWait(waiting.set, timeout_ms, occurred, lengthof(occurred),
						 zkl_wait_event("ZklockWorkerMain", &wait_event));
	for (int i = 0; i < n; i++)
	{
		if (occurred[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		else
			result |= occurred[i].events;
	}
	return result;
}

/*
 * Shutdown
 */

/* Holders' transactions end first; only then does the lock go to others. */
static void
stop(void)
{
	if (zkl_entry_any_held() && zkl_now() < worker.stop_at)
		return;
	if (zkl_entry_any_held())
	{
		ereport(LOG,
				errmsg("leaving the ZooKeeper session to expire, because locks are still held"));
		proc_exit(0);
	}
	if (worker.connected)
	{
		drain();
		zkl_session_close();
		zkl_session_file_remove();
		ereport(LOG,
				errmsg("closed the ZooKeeper session"));
	}
	proc_exit(0);
}

/* The server loses the good-bye of a client that has not read its answers. */
static void
drain(void)
{
	int64		until = zkl_now() + DRAIN_LIMIT;

	while (zkl_session_outstanding() > 0 && zkl_now() < until &&
		   zkl_session_is_open())
	{
		wait_for_something();
		handle_events();
	}
}
