/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background worker that holds the ZooKeeper session.
 *
 * It never runs SQL.  It exits with 1 whenever PostgreSQL must start it again:
 * the session stays alive meanwhile, and the next worker continues it from
 * what is in shared memory.  It exits with 0 only when the server shuts down:
 * it has closed the session, or leaves it to expire because locks are still
 * held or ZooKeeper does not reply.
 *
 * src/worker/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"


#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "deadlock/deadlocksearch.h"
#include "deadlock/waitpublisher.h"
#include "jobs/jobwriter.h"
#include "protocol/hosts.h"
#include "settings.h"
#include "shared/detached.h"
#include "shared/mailbox.h"
#include "shared/process.h"
#include "shared/serverstat.h"
#include "worker/commandrunner.h"
#include "worker/request/ask.h"
#include "worker/request/batches.h"
#include "worker/request/entrystate.h"
#include "worker/request/orphans.h"
#include "worker/request/ticketfeed.h"
#include "worker/session/heartbeat.h"
#include "worker/session/membership.h"
#include "worker/session/resolver.h"
#include "worker/session/sessionfile.h"
#include "worker/session/sessionkeeper.h"
#include "worker/worker.h"
#include "zookeeper/session.h"

#define SHUTDOWN_LIMIT		ZKL_MS(60 * 1000)
#define DRAIN_LIMIT			ZKL_MS(2000)

/* The client's counter of requests fails at 2^32. */
#define MAX_REQUESTS		1000000000

static struct
{
	bool		stopping;
	int64		stop_at;		/* when to stop even if claims are still held */
	int64		connect_until;	/* when to stop without a connection; else 0 */
	int64		drain_until;	/* in drain(): when to give up; else 0 */
}			worker;

/*
 * What the worker waits on.  It makes the set again when the socket changes.
 */
static struct
{
	WaitEventSet *set;
	int			fd;
	uint32		sockets;		/* zkl_session_sockets() */
	uint32		events;
	int			position;
}			waiting = {.fd = -1};

static void start_up(void);
static void warn_unless_candidate(void);
static void note_sent(ZklTraffic kind);
static void advertise(void);
static void withdraw(int code, Datum arg);
static void turn(void);
static void check_signals(void);
static void reload(void);
static int64 next_moment(void);
static void wait_for_something(void);
static uint32 wait_on_socket(int fd, uint32 events, long timeout_ms);
static void stop(void);
static bool drain(void);

void
zkl_worker_register(void)
{
	zkl_process_register("zklock worker", "zkl_worker_main");
}

/*
 * An error ends the process, and PostgreSQL starts the next worker a second
 * later.  So no function called from here has to clean up after an error.
 */
void
zkl_worker_main(Datum main_arg)
{
	MemoryContext turn_context;

	start_up();
	turn_context = AllocSetContextCreate(TopMemoryContext, "zklock turn",
										 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		/* Memory that a turn allocates and does not free must not add up. */
		MemoryContextSwitchTo(turn_context);
		turn();
		MemoryContextReset(turn_context);
	}
}

/*
 * The order matters.  A backend that made a request while no worker ran could
 * not wake one.  zkl_ticket_feed_start() puts such entries on the list of work,
 * so it must come after advertise().
 */
static void
start_up(void)
{
	char		prefix[ZKL_ROOT_SIZE];

	pqsignal(SIGHUP, SignalHandlerForConfigReload);

	/*
	 * Only set a flag: on shutdown the worker must still wait for the holders
	 * of locks, and close the session.
	 */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	/* Do this first, so that no exit leaves an outdated proc number behind. */
	before_shmem_exit(withdraw, (Datum) 0);
	advertise();

	zkl_session_observe(note_sent, zkl_server_stat_count_answer);
	zkl_session_file_remove_others();
	zkl_session_find_names(zkl_resolver_is_name_of);
	zkl_hosts_prefix(zkl_hosts, zkl_root, prefix);
	zkl_ask_start();
	zkl_orphans_start();
	zkl_batches_start(prefix);
	zkl_ticket_feed_start(prefix);
	zkl_job_writer_start(prefix);
	zkl_command_runner_start(prefix);
	zkl_wait_publisher_start(prefix);
	zkl_deadlock_search_start(prefix);
	zkl_membership_start(prefix);
	warn_unless_candidate();
}

/* Check now: the first write would also fail, but late. */
static void
warn_unless_candidate(void)
{
	const char *at = zkl_commit_requires;
	char		path[ZKL_SETTINGS_LEADER_SIZE];

	while (zkl_settings_next_leader(&at, path))
	{
		if (!zkl_settings_lists_leader(zkl_leader_of, path))
			ereport(WARNING,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("\"zklock.commit_requires\" names \"%s\", but \"zklock.leader_of\" does not",
						   path),
					errdetail("As a primary, this server refuses to write."));
	}
}

static void
note_sent(ZklTraffic kind)
{
	pg_atomic_fetch_add_u64(&zkl_server_stat->sent[kind], 1);
	if (kind != ZKL_TRAFFIC_HEARTBEAT && kind != ZKL_TRAFFIC_SIGN)
		pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
	if (zkl_traffic_is_write(kind))
		zkl_heartbeat_wrote();
}

/*
 * From now on backends can wake this worker.  0 stands for no worker, so
 * store the number plus 1.
 */
static void
advertise(void)
{
	pg_atomic_write_u32(&zkl_session_info->left, 0);
	pg_atomic_write_u32(&zkl_session_info->worker_pid, MyProcPid);
	pg_atomic_write_u32(&zkl_session_info->worker_proc, zkl_my_proc_number() + 1);
}

/*
 * Called on every exit, also after an error, maybe with LWLocks held.  The next
 * process with this proc number must not get the wake-ups that are meant for a
 * worker.  The claims process sees to the restart; but when the server stops,
 * there is none.
 */
static void
withdraw(int code, Datum arg)
{
	LWLockReleaseAll();
	if (code != 0 && ShutdownRequestPending && zkl_process_server_is_stopping())
		zkl_lock_table_leave_session("the zklock worker has failed");
	pg_atomic_write_u32(&zkl_session_info->worker_proc, 0);
	pg_atomic_write_u32(&zkl_session_info->worker_pid, 0);
	pg_atomic_write_u32(&zkl_session_info->connected, 0);
	zkl_detached_wake_owner();
}

/*
 * Events come first, so that tickets know what ZooKeeper has said before they
 * get new work.  A sign of life goes before all other requests of the turn,
 * because ZooKeeper answers in the order of sending, and the sign moves safe
 * until.  The ends of jobs' runs go before the deletes of their tickets, so
 * that the next client which gets the lock finds the end in the record.
 */
static void
turn(void)
{
	check_signals();
	zkl_session_keeper_tend();

	/*
	 * The worker puts entries on its own list, and does most of them in the
	 * same turn, so it does not set its own latch.  Do not sleep if entries
	 * are left.
	 */
	if (zkl_entry_state_any_work())
		SetLatch(MyLatch);
	wait_for_something();
	zkl_session_keeper_handle_events();
	zkl_ticket_feed_take_work();
	zkl_ticket_feed_run_timers();
	zkl_heartbeat_send();
	zkl_job_writer_send();
	zkl_ticket_feed_send();
	zkl_command_runner_take();
	zkl_wait_publisher_send();
	zkl_deadlock_search_begin();
	zkl_membership_send();
	zkl_ask_send();

	/*
	 * The next worker continues the session with a new handle, whose counter
	 * begins again.
	 */
	if (zkl_session_requests() > MAX_REQUESTS && !worker.stopping)
	{
		ereport(LOG,
				errmsg("restarting the zklock worker, because it has sent %d requests",
					   MAX_REQUESTS));
		proc_exit(1);
	}
}

/*
 * Signals
 */

static void
check_signals(void)
{
	/* PostgreSQL may wait for this process to absorb a barrier. */
	CHECK_FOR_INTERRUPTS();

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		reload();
	}
	if (ShutdownRequestPending && !worker.stopping)
	{
		/* The next worker continues. */
		if (!zkl_process_server_is_stopping())
			zkl_process_exit_terminated();

		/*
		 * The postmaster waits for this worker, and some holders may never
		 * end: hence the limit.
		 */
		worker.stopping = true;
		worker.stop_at = zkl_now() + SHUTDOWN_LIMIT;
		pg_atomic_write_u32(&zkl_lock_table->shutting_down, 1);
	}

	/*
	 * Check this in every turn, until no claim is held any more.  The turns
	 * in between keep the session alive for the holders.
	 */
	if (worker.stopping)
		stop();
}

static void
reload(void)
{
	/* The moments at which timers fire depend on both settings. */
	int			old_linger = zkl_linger;
	int			old_deadlock_timeout = DeadlockTimeout;

	ProcessConfigFile(PGC_SIGHUP);
	if (zkl_linger != old_linger || DeadlockTimeout != old_deadlock_timeout)
		zkl_entry_state_reset_timers();
	warn_unless_candidate();
	zkl_session_keeper_reload();
	zkl_membership_reload();
}

/*
 * Waiting
 */

/*
 * In drain(), timers and heartbeats that are due stay due.  If the worker
 * waited for them, it would loop without pause.
 */
static int64
next_moment(void)
{
	int64		wake_at;

	if (worker.drain_until != 0)
		return worker.drain_until;
	wake_at = Min(zkl_entry_state_wake_at(), zkl_session_keeper_wake_at());
	if (worker.connect_until != 0)
		wake_at = Min(wake_at, worker.connect_until);
	if (zkl_session_is_usable())
	{
		wake_at = Min(wake_at, zkl_wait_publisher_wake_at());
		wake_at = Min(wake_at, zkl_deadlock_search_wake_at());
		wake_at = Min(wake_at, zkl_membership_wake_at());
	}
	return wake_at;
}

/*
 * Sleep until the latch is set, the socket is ready, or something is due.
 * Then let the client read and write.
 */
static void
wait_for_something(void)
{
	int			fd;
	bool		writable;
	long		timeout_ms;
	int64		now = zkl_now();
	int64		wake_at;
	uint32		events;

	zkl_session_interest(&fd, &writable, &timeout_ms);
	wake_at = next_moment();

	/*
	 * Round up to milliseconds.  Otherwise the worker would wake too early,
	 * and loop without pause until the moment has come.
	 */
	if (wake_at != PG_INT64_MAX)
		timeout_ms = Min(timeout_ms, Max(0, (wake_at - now + 999) / 1000));

	events = wait_on_socket(fd, WL_SOCKET_READABLE |
							(writable ? WL_SOCKET_WRITEABLE : 0), timeout_ms);
	zkl_session_process((events & WL_SOCKET_READABLE) != 0,
						(events & WL_SOCKET_WRITEABLE) != 0);
}

/* Wait for the latch, the postmaster's death, or the socket. */
static uint32
wait_on_socket(int fd, uint32 events, long timeout_ms)
{
	static uint32 wait_event = 0;
	uint32		sockets = zkl_session_sockets();
	WaitEvent	occurred[3];
	uint32		result = 0;
	int			n;

	/*
	 * The kernel silently removes a closed socket from the set.  The set
	 * would never report a new socket with the same number.
	 */
	if (waiting.set == NULL || fd != waiting.fd || sockets != waiting.sockets)
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
	waiting.sockets = sockets;
	waiting.events = events;

	/*
	 * If the postmaster dies, the worker exits in this call.  The session
	 * then ends by its timeout, or with the help of the session file.
	 */
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

/*
 * Wait until the holders' transactions have ended, because other clients get
 * the locks when the session ends.
 */
static void
stop(void)
{
	bool		any_held = zkl_lock_table_any_held();
	bool		answered;

	if (any_held && zkl_now() < worker.stop_at)
		return;
	if (any_held)
	{
		/*
		 * Closing the session would give the locks to other clients while
		 * transactions still rely on them.
		 */
		zkl_lock_table_leave_session("locks are still held");
		proc_exit(0);
	}

	answered = drain();

	/*
	 * The connection may have been lost just now, also in drain(), or another
	 * handle is about to continue the session.  So try further turns, which
	 * may connect again.
	 */
	if (zkl_session_keeper_may_connect())
	{
		if (worker.connect_until == 0)
			worker.connect_until = zkl_now() + DRAIN_LIMIT;
		if (zkl_now() < worker.connect_until)
			return;
	}
	zkl_session_keeper_close(answered);
	proc_exit(0);
}

/*
 * First write how the runs of jobs have ended, and read all replies: if a
 * client has not read all replies, ZooKeeper's server loses its close
 * request.  True if all have come, one of them to a sign of life.
 */
static bool
drain(void)
{
	int64		began = zkl_now();

	worker.drain_until = began + DRAIN_LIMIT;
	if (zkl_session_is_usable())
		zkl_session_sign(ZKL_SIGN_READ);	/* its reply shows that ZooKeeper
											 * still replies */
	zkl_job_writer_send();
	while (zkl_session_outstanding() > 0 && zkl_now() < worker.drain_until &&
		   zkl_session_is_open())
	{
		/*
		 * A reply may lead to the next request of a run, which is sent below.
		 */
		wait_for_something();
		zkl_session_keeper_handle_events();
		zkl_job_writer_send();
	}
	worker.drain_until = 0;
	return zkl_session_outstanding() == 0 &&
		(int64) pg_atomic_read_u64(&zkl_session_info->heard_at) >= began;
}
