/* zklock--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.1'" to load this file. \quit

/*
 * Nothing of 1.0 is dropped, so an update changes no privilege and no user's view.  Each new function
 * that PUBLIC may execute demands EXECUTE on the one of its kind in 1.0, when it is called.  Those that
 * the views of 1.0 call are granted to PUBLIC, whatever the default privileges: else a role that may
 * read such a view could not read it any more.
 */


/*
 * The cluster: its servers, its ensemble, and all its locks
 */

CREATE FUNCTION zk_servers(OUT node_name text,
						   OUT zklock_version text,
						   OUT postgresql_version text,
						   OUT host text,
						   OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_servers'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_servers() IS
'servers of the cluster that have a ZooKeeper session now; see view zk_servers';

CREATE VIEW zk_servers AS
	SELECT s.node_name, s.zklock_version, s.postgresql_version, s.host, s.since
	FROM @extschema@.zk_servers() AS s;

COMMENT ON VIEW zk_servers IS
'servers of the cluster that have a ZooKeeper session now, one row for each';

CREATE FUNCTION zk_cluster_locks(below text DEFAULT NULL,
								 OUT path text,
								 OUT "position" integer,
								 OUT znode text,
								 OUT kind text,
								 OUT mode text,
								 OUT holds boolean,
								 OUT client text,
								 OUT server text,
								 OUT pid integer,
								 OUT database text,
								 OUT role text,
								 OUT application text,
								 OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_cluster_locks'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_cluster_locks(text) IS
'the queues of all locks in the whole cluster, or of those at a path and below it';

-- What people look for comes first.
CREATE VIEW zk_cluster_locks AS
	SELECT l.path, l.holds, l.server, l.pid, l.role, l.application, l.since, l.mode, l.kind,
		   l.client, l.database, l."position", l.znode
	FROM @extschema@.zk_cluster_locks() AS l;

COMMENT ON VIEW zk_cluster_locks IS
'holders and waiters of all locks in the whole cluster, one row for each';

CREATE FUNCTION zk_cluster_status(OUT ensemble_id text,
								  OUT ensemble_changes bigint,
								  OUT namesakes integer,
								  OUT refused_leaderships text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_cluster_status'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_cluster_status() IS
'what this server knows of its cluster without a request to ZooKeeper; see view zk_status';

-- A server has one session.  In version 1.0, it could have several.
CREATE OR REPLACE VIEW zk_status AS
	SELECT n.node_name,
		   s.worker_pid,
		   s.state,
		   s.session_id,
		   s.server,
		   s.session_timeout,
		   s.connected_since,
		   s.safe_until,
		   s.safe,
		   s.epoch,
		   n.entries,
		   n.max_locks,
		   s.ephemeral_bytes,
		   n.claims,
		   n.tickets,
		   n.tickets_lost,
		   n.requests,
		   n.connects,
		   n.expirations,
		   n.bypasses,
		   s.last_error,
		   s.last_error_at,
		   c.ensemble_id,
		   c.ensemble_changes,
		   c.namesakes,
		   c.refused_leaderships
	FROM @extschema@.zk_status() AS n,
		 @extschema@.zk_cluster_status() AS c,
		 @extschema@.zk_sessions AS s;

COMMENT ON VIEW zk_status IS
'state and counters of this server and its ZooKeeper session';

GRANT EXECUTE ON FUNCTION zk_cluster_status() TO PUBLIC;
GRANT SELECT ON zk_servers TO PUBLIC;

-- A look at all locks costs ZooKeeper a request for each.
REVOKE ALL ON FUNCTION zk_cluster_locks(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_cluster_locks(text) TO pg_read_all_stats;
GRANT SELECT ON zk_cluster_locks TO pg_read_all_stats;

/*
 * Views that look at several locks: one that may not be read hides no others
 */

CREATE FUNCTION zk_lock_queue_or_null(path text,
									  OUT "position" integer,
									  OUT znode text,
									  OUT kind text,
									  OUT mode text,
									  OUT holds boolean,
									  OUT client text,
									  OUT server text,
									  OUT pid integer,
									  OUT database text,
									  OUT role text,
									  OUT application text,
									  OUT since timestamptz,
									  OUT data text,
									  OUT waits_for_us boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_lock_queue_or_null'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_queue_or_null(text) IS
'zk_lock_queue, or one row of nulls if ZooKeeper''s access control forbids reading';

GRANT EXECUTE ON FUNCTION zk_lock_queue_or_null(text) TO PUBLIC;

CREATE OR REPLACE VIEW zk_leaders AS
	SELECT l.path,
		   q.position,
		   q.holds AS leads,
		   q.client,
		   q.server,
		   q.pid,
		   q.application,
		   q.since
	FROM (SELECT DISTINCT pg_catalog.btrim(p, E' \t\r\n') AS path
		  FROM pg_catalog.string_to_table(pg_catalog.current_setting('zklock.leader_of'), ',') AS p) AS l,
		 LATERAL @extschema@.zk_lock_queue_or_null(l.path) AS q
	WHERE CASE WHEN l.path <> '' THEN @extschema@.zk_path_is_allowed(l.path) END;

CREATE OR REPLACE VIEW zk_jobs AS
	SELECT j.path,
		   j.tick,
		   j.state,
		   j.attempt,
		   j.started_at,
		   j.ended_at,
		   coalesce(j.ended_at, CASE WHEN j.state = 'started' AND h.holds THEN clock_timestamp() END) - j.started_at AS duration,
		   j.server,
		   j.pid,
		   j.database,
		   j.role,
		   j.application,
		   j.token,
		   h.server AS holder_server,
		   h.pid AS holder_pid
	FROM @extschema@.zk_jobs() AS j
		 LEFT JOIN LATERAL (SELECT q.holds, q.server, q.pid
							FROM @extschema@.zk_lock_queue_or_null(j.path) AS q
							WHERE q.holds
							ORDER BY q."position"
							LIMIT 1) AS h ON true;

/*
 * zk_stat counts the commits that were late, and the transactions of several creates or deletes.
 * A second function returns them: zk_stat() could not get more columns without a DROP, which would
 * undo the privileges that an administrator has set, and fail if a user's view depends on it.
 */

CREATE FUNCTION zk_stat_transactions(OUT late_commits bigint,
									 OUT batches bigint,
									 OUT batches_undone bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_stat_transactions'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_stat() IS
'statistics of this server''s locks, requests and ZooKeeper session; see view zk_stat';

COMMENT ON FUNCTION zk_stat_transactions() IS
'statistics of transactions, of PostgreSQL and of ZooKeeper; see view zk_stat';

GRANT EXECUTE ON FUNCTION zk_stat_transactions() TO PUBLIC;

CREATE OR REPLACE VIEW zk_stat AS
	SELECT s.acquired,
		   s.acquired_locally,
		   s.waited,
		   s.wait_time,
		   s.hold_time,
		   s.timeouts,
		   s.lost,
		   s.deadlocks,
		   s.handed_over,
		   s.paths_discarded,
		   s.creates,
		   s.lists,
		   s.reads,
		   s.writes,
		   s.deletes,
		   s.checks,
		   s.unwatches,
		   s.heartbeats,
		   s.signs,
		   s.answers,
		   s.answer_time,
		   s.answer_bounds,
		   s.answer_buckets,
		   s.reconnects,
		   s.expirations,
		   s.doubt_time,
		   s.stats_reset,
		   t.late_commits,
		   t.batches,
		   t.batches_undone
	FROM @extschema@.zk_stat() AS s,
		 @extschema@.zk_stat_transactions() AS t;

COMMENT ON VIEW zk_stat IS
'statistics of this server''s locks, requests and ZooKeeper session, in one row';

/*
 * zk_fences keeps the greatest token, whatever writes a row: also logical replication and COPY.  The
 * owner of a database may insert rows there, to restore them, but not update any.
 */

CREATE FUNCTION zk_fences_keep()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zklock_fences_keep'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION zk_fences_keep() IS
'the trigger of table zk_fences: keep the greatest token of each resource';

REVOKE ALL ON FUNCTION zk_fences_keep() FROM PUBLIC;

CREATE TRIGGER zk_fences_keep BEFORE INSERT OR UPDATE ON zk_fences
	FOR EACH ROW EXECUTE FUNCTION zk_fences_keep();
ALTER TABLE zk_fences ENABLE ALWAYS TRIGGER zk_fences_keep;

COMMENT ON TRIGGER zk_fences_keep ON zk_fences IS
'keeps the greatest token of each resource';

/*
 * A semaphore whose limit is stored in ZooKeeper.  The functions that acquire get a default for
 * their number of leases.  Further functions of the same names would make calls ambiguous where
 * the types of the arguments are not known, as in statements that a driver prepares.
 */

CREATE OR REPLACE FUNCTION zk_semaphore_acquire(path text,
												n integer DEFAULT NULL,
												timeout interval DEFAULT NULL,
												quantity integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_semaphore_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_semaphore_acquire(text, integer, interval, integer) IS
'acquire leases of a cluster-wide semaphore with n leases, or with a stored limit, as a session-level lock';

CREATE OR REPLACE FUNCTION zk_xact_semaphore_acquire(path text,
													 n integer DEFAULT NULL,
													 timeout interval DEFAULT NULL,
													 quantity integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_xact_semaphore_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_semaphore_acquire(text, integer, interval, integer) IS
'acquire leases of a cluster-wide semaphore with n leases, or with a stored limit, as a transaction-level lock';

CREATE FUNCTION zk_semaphore_limit(path text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zklock_semaphore_limit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_semaphore_limit(text) IS
'the stored limit of a semaphore, or null';

CREATE FUNCTION zk_semaphore_set_limit(path text, n integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zklock_semaphore_set_limit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_semaphore_set_limit(text, integer) IS
'store the limit of a semaphore; null removes it';

-- Like those that take locks away.
REVOKE ALL ON FUNCTION zk_semaphore_set_limit(text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_semaphore_set_limit(text, integer) TO pg_signal_backend;

/*
 * Procedures that acquire like the functions, but wait without a snapshot.  Each also demands
 * EXECUTE on its function, at the call.  So they are granted to PUBLIC, too: zklock-run calls them for
 * every role that may execute the function.
 */

CREATE PROCEDURE zk_lock_wait(path text,
							  timeout interval DEFAULT NULL,
							  lease_time interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_lock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_lock_wait(text, interval, interval) IS
'acquire a cluster-wide mutex as a session-level lock; waits without a snapshot';

CREATE PROCEDURE zk_xact_lock_wait(path text,
								   timeout interval DEFAULT NULL,
								   lease_time interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_xact_lock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_xact_lock_wait(text, interval, interval) IS
'acquire a cluster-wide mutex as a transaction-level lock; waits without a snapshot';

CREATE PROCEDURE zk_read_lock_wait(path text,
								   timeout interval DEFAULT NULL,
								   lease_time interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_read_lock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_read_lock_wait(text, interval, interval) IS
'acquire a cluster-wide read-write lock for reading as a session-level lock; waits without a snapshot';

CREATE PROCEDURE zk_xact_read_lock_wait(path text,
										timeout interval DEFAULT NULL,
										lease_time interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_xact_read_lock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_xact_read_lock_wait(text, interval, interval) IS
'acquire a cluster-wide read-write lock for reading as a transaction-level lock; waits without a snapshot';

CREATE PROCEDURE zk_write_lock_wait(path text,
									timeout interval DEFAULT NULL,
									lease_time interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_write_lock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_write_lock_wait(text, interval, interval) IS
'acquire a cluster-wide read-write lock for writing as a session-level lock; waits without a snapshot';

CREATE PROCEDURE zk_xact_write_lock_wait(path text,
										 timeout interval DEFAULT NULL,
										 lease_time interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_xact_write_lock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_xact_write_lock_wait(text, interval, interval) IS
'acquire a cluster-wide read-write lock for writing as a transaction-level lock; waits without a snapshot';

CREATE PROCEDURE zk_semaphore_wait(path text,
								   n integer DEFAULT NULL,
								   timeout interval DEFAULT NULL,
								   quantity integer DEFAULT 1)
AS 'MODULE_PATHNAME', 'zklock_semaphore_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_semaphore_wait(text, integer, interval, integer) IS
'acquire leases of a cluster-wide semaphore with n leases, or with a stored limit, as a session-level lock; waits without a snapshot';

CREATE PROCEDURE zk_xact_semaphore_wait(path text,
										n integer DEFAULT NULL,
										timeout interval DEFAULT NULL,
										quantity integer DEFAULT 1)
AS 'MODULE_PATHNAME', 'zklock_xact_semaphore_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_xact_semaphore_wait(text, integer, interval, integer) IS
'acquire leases of a cluster-wide semaphore with n leases, or with a stored limit, as a transaction-level lock; waits without a snapshot';

CREATE PROCEDURE zk_multilock_wait(paths text[],
								   timeout interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_multilock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_multilock_wait(text[], interval) IS
'acquire several cluster-wide mutexes at once, all or none, as session-level locks; waits without a snapshot';

CREATE PROCEDURE zk_xact_multilock_wait(paths text[],
										timeout interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zklock_xact_multilock_wait'
LANGUAGE C;

COMMENT ON PROCEDURE zk_xact_multilock_wait(text[], interval) IS
'acquire several cluster-wide mutexes at once, all or none, as transaction-level locks; waits without a snapshot';

GRANT EXECUTE ON PROCEDURE
	zk_lock_wait(text, interval, interval),
	zk_xact_lock_wait(text, interval, interval),
	zk_read_lock_wait(text, interval, interval),
	zk_xact_read_lock_wait(text, interval, interval),
	zk_write_lock_wait(text, interval, interval),
	zk_xact_write_lock_wait(text, interval, interval),
	zk_semaphore_wait(text, integer, interval, integer),
	zk_xact_semaphore_wait(text, integer, interval, integer),
	zk_multilock_wait(text[], interval),
	zk_xact_multilock_wait(text[], interval)
TO PUBLIC;

/*
 * Claims without a backend
 */

CREATE FUNCTION zk_claim_request(path text, lease_time interval)
RETURNS text
AS 'MODULE_PATHNAME', 'zklock_claim_request'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_claim_request(text, interval) IS
'request a mutex without a wait, for no session; returns the name of the claim';

CREATE FUNCTION zk_claim_wait(claim text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_claim_wait'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_claim_wait(text, interval) IS
'wait until a claim is granted; false if the time is over';

CREATE FUNCTION zk_xact_claim_use(claim text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zklock_xact_claim_use'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_claim_use(text) IS
'hold the lock of a claim until the end of the transaction; returns the fencing token';

CREATE FUNCTION zk_claim_renew(claim text, lease_time interval)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_claim_renew'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_claim_renew(text, interval) IS
'set the lease time of a claim again, counted from now; false if the claim had ended';

CREATE FUNCTION zk_claim_release(claim text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_claim_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_claim_release(text) IS
'end a claim; false if it had ended';

CREATE FUNCTION zk_claims(OUT claim text,
						  OUT path text,
						  OUT state text,
						  OUT server text,
						  OUT pid integer,
						  OUT database text,
						  OUT role text,
						  OUT application text,
						  OUT since timestamptz,
						  OUT lease_ends timestamptz,
						  OUT token bigint,
						  OUT waiting_pid integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_claims'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_claims() IS
'claims of this server that belong to no session; see view zk_claims';

CREATE VIEW zk_claims AS
	SELECT c.claim, c.path, c.state, c.database, c.role, c.application, c.since, c.lease_ends,
		   c.token, c.waiting_pid
	FROM @extschema@.zk_claims() AS c;

COMMENT ON VIEW zk_claims IS
'claims of this server that belong to no session, one row for each';

GRANT SELECT ON zk_claims TO PUBLIC;

/*
 * Which history of the database may lead
 */

CREATE FUNCTION zk_leader_forget(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_leader_forget'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_leader_forget(text) IS
'forget which history of the database led last, so that any server may lead';

REVOKE ALL ON FUNCTION zk_leader_forget(text) FROM PUBLIC;

/*
 * Comments of 1.0 that were wrong, or questions
 */

COMMENT ON FUNCTION zk_run_once(text, timestamptz, interval, boolean, interval) IS
'true if this session may run the job: for one caller in the cluster a tick, which then holds the lock as a session-level lock';
COMMENT ON FUNCTION zk_xact_run_once(text, timestamptz, interval, boolean, interval) IS
'true if this transaction may run the job: for one caller in the cluster a tick, which then holds the lock as a transaction-level lock';
COMMENT ON FUNCTION zk_is_leader(text) IS
'true if this server leads; then the transaction commits only while it still does';
COMMENT ON FUNCTION zk_leader_resign(text, interval) IS
'give up the leadership of this server, and stand again behind the others after a pause; also changes that pause, or ends it';
COMMENT ON VIEW zk_locks IS
'claims and tickets of this server, one row for each claim, and for each ticket without claims';
COMMENT ON FUNCTION zk_sessions() IS
'ZooKeeper session of this server; see view zk_sessions';
COMMENT ON VIEW zk_sessions IS
'ZooKeeper session of this server, in one row';
COMMENT ON FUNCTION zk_status() IS
'counters of this server and its ZooKeeper session; see view zk_status';

/*
 * Comments on columns
 */

COMMENT ON COLUMN zk_locks.path IS
'the lock';
COMMENT ON COLUMN zk_locks.kind IS
'mutex, read-write or semaphore';
COMMENT ON COLUMN zk_locks.mode IS
'exclusive; write or read; lease';
COMMENT ON COLUMN zk_locks.claim IS
'held, waiting or lost; null for a ticket without claims';
COMMENT ON COLUMN zk_locks.granted IS
'true if the claim is held';
COMMENT ON COLUMN zk_locks.pid IS
'process ID of the backend';
COMMENT ON COLUMN zk_locks.datname IS
'database of the backend';
COMMENT ON COLUMN zk_locks.usename IS
'role of the backend';
COMMENT ON COLUMN zk_locks.claim_since IS
'when the claim got into this state';
COMMENT ON COLUMN zk_locks.session_count IS
'session-level acquisitions; for a semaphore, leases';
COMMENT ON COLUMN zk_locks.xact_count IS
'transaction-level acquisitions; for a semaphore, leases';
COMMENT ON COLUMN zk_locks.token IS
'fencing token';
COMMENT ON COLUMN zk_locks.ticket IS
'none, wanted, queued, owned, lingering or releasing';
COMMENT ON COLUMN zk_locks.contended IS
'true if another client queues behind the ticket';
COMMENT ON COLUMN zk_locks.znode IS
'znode of the ticket, in the directory of the lock';
COMMENT ON COLUMN zk_locks.owned_since IS
'when this server got the lock';
COMMENT ON COLUMN zk_locks.revoked IS
'true if the release of the lock has been requested';
COMMENT ON COLUMN zk_locks.lease_ends IS
'when the lease time ends; null if there is none';

COMMENT ON COLUMN zk_jobs.path IS
'the job, and its lock';
COMMENT ON COLUMN zk_jobs.tick IS
'last tick that was used';
COMMENT ON COLUMN zk_jobs.state IS
'started, done or failed; unreadable if another client has written to the record';
COMMENT ON COLUMN zk_jobs.attempt IS
'how often the tick has been run, from 1';
COMMENT ON COLUMN zk_jobs.started_at IS
'when the run began, on the clock of its server';
COMMENT ON COLUMN zk_jobs.ended_at IS
'when the run ended, on the clock of its server';
COMMENT ON COLUMN zk_jobs.duration IS
'how long the run took, or takes; null for a run that is started while no client holds the lock';
COMMENT ON COLUMN zk_jobs.server IS
'server of the backend that ran the job';
COMMENT ON COLUMN zk_jobs.pid IS
'process ID of the backend that ran the job';
COMMENT ON COLUMN zk_jobs.database IS
'database of the backend that ran the job';
COMMENT ON COLUMN zk_jobs.role IS
'role of the backend that ran the job';
COMMENT ON COLUMN zk_jobs.application IS
'application name of the backend that ran the job';
COMMENT ON COLUMN zk_jobs.token IS
'fencing token of the run';
COMMENT ON COLUMN zk_jobs.holder_server IS
'server of the backend that holds the lock now';
COMMENT ON COLUMN zk_jobs.holder_pid IS
'process ID of the backend that holds the lock now';

COMMENT ON COLUMN zk_leaders.path IS
'the leadership';
COMMENT ON COLUMN zk_leaders.position IS
'place in the queue, from 1';
COMMENT ON COLUMN zk_leaders.leads IS
'true for the leader';
COMMENT ON COLUMN zk_leaders.client IS
'zklock, curator, kazoo or unknown';
COMMENT ON COLUMN zk_leaders.server IS
'server of the process; null for other clients';
COMMENT ON COLUMN zk_leaders.pid IS
'process ID of the claims process of a server, or of a backend that uses the path as a lock';
COMMENT ON COLUMN zk_leaders.application IS
'zklock leader for a server that stands; application name of a backend';
COMMENT ON COLUMN zk_leaders.since IS
'when the znode was created';

COMMENT ON COLUMN zk_waits.path IS
'the lock for which the backend waits';
COMMENT ON COLUMN zk_waits.mode IS
'lock; write or read; lease';
COMMENT ON COLUMN zk_waits.leases IS
'how many leases the backend waits for; null for other locks';
COMMENT ON COLUMN zk_waits.server IS
'server of the backend';
COMMENT ON COLUMN zk_waits.pid IS
'process ID of the backend';
COMMENT ON COLUMN zk_waits.database IS
'database of the backend';
COMMENT ON COLUMN zk_waits.role IS
'role of the backend';
COMMENT ON COLUMN zk_waits.application IS
'application name of the backend';
COMMENT ON COLUMN zk_waits.waiting_since IS
'when the wait began, on the clock of its server';
COMMENT ON COLUMN zk_waits.holds IS
'paths of the locks that cannot be released before the wait is over';
COMMENT ON COLUMN zk_waits.held_by IS
'for each path in "holds", the process on that server that holds it';

COMMENT ON COLUMN zk_sessions.session IS
'1, because a server has one ZooKeeper session';
COMMENT ON COLUMN zk_sessions.worker_pid IS
'process ID of the worker; null if it is not running';
COMMENT ON COLUMN zk_sessions.state IS
'connected, idle, connecting, disconnected, in doubt or none';
COMMENT ON COLUMN zk_sessions.session_id IS
'ID of the ZooKeeper session';
COMMENT ON COLUMN zk_sessions.server IS
'ZooKeeper server to which the session is connected';
COMMENT ON COLUMN zk_sessions.session_timeout IS
'session timeout as negotiated; if a connection has changed it, the shortest so far';
COMMENT ON COLUMN zk_sessions.connected_since IS
'when the connection was made';
COMMENT ON COLUMN zk_sessions.safe_until IS
'moment up to which the session is known to live; null if it is idle';
COMMENT ON COLUMN zk_sessions.safe IS
'true if that moment is still to come, or an idle session is in touch with ZooKeeper';
COMMENT ON COLUMN zk_sessions.epoch IS
'grows when the session has expired';
COMMENT ON COLUMN zk_sessions.ephemeral_bytes IS
'size of the paths of its znodes, of 900,000 allowed';
COMMENT ON COLUMN zk_sessions.last_error IS
'last reason why a connection could not be made or was lost, or last other failure';
COMMENT ON COLUMN zk_sessions.last_error_at IS
'when the last error occurred';

COMMENT ON COLUMN zk_status.node_name IS
'name of this server';
COMMENT ON COLUMN zk_status.worker_pid IS
'process ID of the worker; null if it is not running';
COMMENT ON COLUMN zk_status.state IS
'connected, idle, connecting, disconnected, in doubt or none';
COMMENT ON COLUMN zk_status.session_id IS
'ID of the ZooKeeper session';
COMMENT ON COLUMN zk_status.server IS
'ZooKeeper server to which the session is connected';
COMMENT ON COLUMN zk_status.session_timeout IS
'session timeout as negotiated; if a connection has changed it, the shortest so far';
COMMENT ON COLUMN zk_status.connected_since IS
'when the connection was made';
COMMENT ON COLUMN zk_status.safe_until IS
'moment up to which the session is known to live; null if it is idle';
COMMENT ON COLUMN zk_status.safe IS
'true if that moment is still to come, or an idle session is in touch with ZooKeeper';
COMMENT ON COLUMN zk_status.epoch IS
'grows when the session has expired';
COMMENT ON COLUMN zk_status.entries IS
'locks and leases that this server tracks';
COMMENT ON COLUMN zk_status.max_locks IS
'maximum number of locks and leases that this server can track';
COMMENT ON COLUMN zk_status.ephemeral_bytes IS
'size of the paths of its znodes, of 900,000 allowed';
COMMENT ON COLUMN zk_status.claims IS
'acquired claims since the server started';
COMMENT ON COLUMN zk_status.tickets IS
'created tickets since the server started';
COMMENT ON COLUMN zk_status.tickets_lost IS
'lost tickets since the server started';
COMMENT ON COLUMN zk_status.requests IS
'requests sent to ZooKeeper since the server started, without heartbeats and other signs of life';
COMMENT ON COLUMN zk_status.connects IS
'connections made since the server started';
COMMENT ON COLUMN zk_status.expirations IS
'sessions expired since the server started';
COMMENT ON COLUMN zk_status.bypasses IS
'znodes behind a ticket of this server whose clients may not wait for it';
COMMENT ON COLUMN zk_status.last_error IS
'last reason why a connection could not be made or was lost, or last other failure';
COMMENT ON COLUMN zk_status.last_error_at IS
'when the last error occurred';

COMMENT ON COLUMN zk_stat_locks.path IS
'the lock; null if this role may not see it';
COMMENT ON COLUMN zk_stat_locks.acquired IS
'how often a backend was granted the lock';
COMMENT ON COLUMN zk_stat_locks.acquired_locally IS
'how many of these the server granted from a ticket that it had, without ZooKeeper';
COMMENT ON COLUMN zk_stat_locks.waited IS
'how many requests for a lock found it taken, and waited';
COMMENT ON COLUMN zk_stat_locks.wait_time IS
'time spent waiting for locks and for ZooKeeper, in milliseconds';
COMMENT ON COLUMN zk_stat_locks.hold_time IS
'time for which backends held the lock, in milliseconds; a claim counts when it ends';
COMMENT ON COLUMN zk_stat_locks.timeouts IS
'how many requests for a lock ended because their time was over';
COMMENT ON COLUMN zk_stat_locks.lost IS
'how many claims were lost';
COMMENT ON COLUMN zk_stat_locks.deadlocks IS
'how many waits failed with a deadlock';
COMMENT ON COLUMN zk_stat_locks.handed_over IS
'how many tickets the server gave up while other clients queued';
COMMENT ON COLUMN zk_stat_locks.stats_since IS
'since when the row counts';

COMMENT ON COLUMN zk_stat.acquired IS
'how often a backend was granted a lock';
COMMENT ON COLUMN zk_stat.acquired_locally IS
'how many of these the server granted from a ticket that it had, without ZooKeeper';
COMMENT ON COLUMN zk_stat.waited IS
'how many requests for a lock found it taken, and waited';
COMMENT ON COLUMN zk_stat.wait_time IS
'time spent waiting for locks and for ZooKeeper, in milliseconds';
COMMENT ON COLUMN zk_stat.hold_time IS
'time for which backends held a lock, in milliseconds; a claim counts when it ends';
COMMENT ON COLUMN zk_stat.timeouts IS
'how many requests for a lock ended because their time was over';
COMMENT ON COLUMN zk_stat.lost IS
'how many claims were lost';
COMMENT ON COLUMN zk_stat.deadlocks IS
'how many waits failed with a deadlock';
COMMENT ON COLUMN zk_stat.handed_over IS
'how many tickets the server gave up while other clients queued';
COMMENT ON COLUMN zk_stat.paths_discarded IS
'how many rows of zk_stat_locks were discarded to make room';
COMMENT ON COLUMN zk_stat.creates IS
'requests sent to create a znode';
COMMENT ON COLUMN zk_stat.lists IS
'requests sent to list the children of a znode';
COMMENT ON COLUMN zk_stat.reads IS
'requests sent to read a znode or its state';
COMMENT ON COLUMN zk_stat.writes IS
'requests sent to write a znode';
COMMENT ON COLUMN zk_stat.deletes IS
'requests sent to delete a znode';
COMMENT ON COLUMN zk_stat.checks IS
'requests sent that only make sure that a quorum agrees';
COMMENT ON COLUMN zk_stat.unwatches IS
'requests sent to remove a watch';
COMMENT ON COLUMN zk_stat.heartbeats IS
'heartbeats sent: small writes that prove that the session lives';
COMMENT ON COLUMN zk_stat.signs IS
'other signs of life sent, which write nothing';
COMMENT ON COLUMN zk_stat.answers IS
'answers of ZooKeeper to heartbeats and other requests';
COMMENT ON COLUMN zk_stat.answer_time IS
'latencies of these answers together, in milliseconds';
COMMENT ON COLUMN zk_stat.answer_bounds IS
'upper bounds of the histogram of latencies, in milliseconds';
COMMENT ON COLUMN zk_stat.answer_buckets IS
'histogram of latencies: how many answers took at most each of the bounds';
COMMENT ON COLUMN zk_stat.reconnects IS
'how often the session went on over another connection';
COMMENT ON COLUMN zk_stat.expirations IS
'how many sessions have expired';
COMMENT ON COLUMN zk_stat.doubt_time IS
'time for which locks were in doubt, in milliseconds';
COMMENT ON COLUMN zk_stat.stats_reset IS
'since when all this is counted';
COMMENT ON COLUMN zk_stat.late_commits IS
'commits that ended when their lock was not certain any more';
COMMENT ON COLUMN zk_stat.batches IS
'transactions sent to ZooKeeper that create, or delete, the znodes of several locks';
COMMENT ON COLUMN zk_stat.batches_undone IS
'those of them that failed, so that the znodes were created or deleted one by one';

COMMENT ON COLUMN zk_fences.resource IS
'name of the resource';
COMMENT ON COLUMN zk_fences.token IS
'greatest token that was presented for the resource';

COMMENT ON COLUMN zk_status.ensemble_id IS
'identifies the data of the ensemble; null before the first connection';
COMMENT ON COLUMN zk_status.ensemble_changes IS
'how often the server has found another ensemble_id than before';
COMMENT ON COLUMN zk_status.refused_leaderships IS
'leaderships that this server must not have, because another history of the database led last, and why';
COMMENT ON COLUMN zk_status.namesakes IS
'other servers of the cluster that have the same node_name';

COMMENT ON COLUMN zk_servers.node_name IS
'zklock.node_name of the server';
COMMENT ON COLUMN zk_servers.zklock_version IS
'version of the zklock library that it has loaded';
COMMENT ON COLUMN zk_servers.postgresql_version IS
'version of PostgreSQL';
COMMENT ON COLUMN zk_servers.host IS
'name of its host, and its port';
COMMENT ON COLUMN zk_servers.since IS
'when its ZooKeeper session began';

COMMENT ON COLUMN zk_cluster_locks.path IS
'the lock';
COMMENT ON COLUMN zk_cluster_locks.position IS
'place in the queue, from 1';
COMMENT ON COLUMN zk_cluster_locks.znode IS
'name of the znode, below the directory of the lock';
COMMENT ON COLUMN zk_cluster_locks.kind IS
'mutex, read-write or semaphore';
COMMENT ON COLUMN zk_cluster_locks.mode IS
'lock; write or read; lease or acquiring';
COMMENT ON COLUMN zk_cluster_locks.holds IS
'true if this client holds the lock';
COMMENT ON COLUMN zk_cluster_locks.client IS
'zklock, curator, kazoo or unknown';
COMMENT ON COLUMN zk_cluster_locks.server IS
'node_name of the server; null for other clients';
COMMENT ON COLUMN zk_cluster_locks.pid IS
'process ID of the backend';
COMMENT ON COLUMN zk_cluster_locks.database IS
'database of the backend';
COMMENT ON COLUMN zk_cluster_locks.role IS
'role of the backend';
COMMENT ON COLUMN zk_cluster_locks.application IS
'application_name of the backend';
COMMENT ON COLUMN zk_cluster_locks.since IS
'when the znode was created';

COMMENT ON COLUMN zk_claims.claim IS
'name of the claim, for the functions';
COMMENT ON COLUMN zk_claims.path IS
'the lock';
COMMENT ON COLUMN zk_claims.state IS
'waiting, held or in doubt';
COMMENT ON COLUMN zk_claims.database IS
'database of the session that requested it';
COMMENT ON COLUMN zk_claims.role IS
'role that requested it';
COMMENT ON COLUMN zk_claims.application IS
'application name of the session that requested it';
COMMENT ON COLUMN zk_claims.since IS
'when the claim got into this state';
COMMENT ON COLUMN zk_claims.lease_ends IS
'when the lease time ends, or a claim that waits ends unless it is asked for; null while a session waits for the claim';
COMMENT ON COLUMN zk_claims.token IS
'fencing token; null while the claim waits';
COMMENT ON COLUMN zk_claims.waiting_pid IS
'process ID of the backend that waits for the claim; null if there is none';
