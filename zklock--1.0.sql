/* zklock--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION zklock" to load this file. \quit

/*
 * The mutex, which is re-entrant
 */

CREATE FUNCTION zk_lock_acquire(path text,
								timeout interval DEFAULT NULL,
								lease_time interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_lock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_acquire(text, interval, interval) IS
'acquire a cluster-wide mutex as a session-level lock';

CREATE FUNCTION zk_xact_lock_acquire(path text,
									 timeout interval DEFAULT NULL,
									 lease_time interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_xact_lock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_lock_acquire(text, interval, interval) IS
'acquire a cluster-wide mutex as a transaction-level lock';

CREATE FUNCTION zk_lock_release(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_lock_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_release(text) IS
'release a session-level mutex';

/*
 * The read-write lock
 */

CREATE FUNCTION zk_read_lock_acquire(path text,
									 timeout interval DEFAULT NULL,
									 lease_time interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_read_lock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_read_lock_acquire(text, interval, interval) IS
'acquire a read-write lock for reading as a session-level lock';

CREATE FUNCTION zk_xact_read_lock_acquire(path text,
										  timeout interval DEFAULT NULL,
										  lease_time interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_xact_read_lock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_read_lock_acquire(text, interval, interval) IS
'acquire a read-write lock for reading as a transaction-level lock';

CREATE FUNCTION zk_read_lock_release(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_read_lock_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_read_lock_release(text) IS
'release a session-level read lock';

CREATE FUNCTION zk_write_lock_acquire(path text,
									  timeout interval DEFAULT NULL,
									  lease_time interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_write_lock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_write_lock_acquire(text, interval, interval) IS
'acquire a read-write lock for writing as a session-level lock';

CREATE FUNCTION zk_xact_write_lock_acquire(path text,
										   timeout interval DEFAULT NULL,
										   lease_time interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_xact_write_lock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_write_lock_acquire(text, interval, interval) IS
'acquire a read-write lock for writing as a transaction-level lock';

CREATE FUNCTION zk_write_lock_release(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_write_lock_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_write_lock_release(text) IS
'release a session-level write lock';

/*
 * The semaphore; with n = 1, the mutex that is not re-entrant
 */

CREATE FUNCTION zk_semaphore_acquire(path text,
									 n integer,
									 timeout interval DEFAULT NULL,
									 quantity integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_semaphore_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_semaphore_acquire(text, integer, interval, integer) IS
'acquire leases of a cluster-wide semaphore with n leases, as a session-level lock';

CREATE FUNCTION zk_xact_semaphore_acquire(path text,
										  n integer,
										  timeout interval DEFAULT NULL,
										  quantity integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_xact_semaphore_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_semaphore_acquire(text, integer, interval, integer) IS
'acquire leases of a cluster-wide semaphore with n leases, as a transaction-level lock';

CREATE FUNCTION zk_semaphore_release(path text, quantity integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_semaphore_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_semaphore_release(text, integer) IS
'release session-level leases of a semaphore';

/*
 * Several mutexes at once
 */

CREATE FUNCTION zk_multilock_acquire(paths text[],
									 timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_multilock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_multilock_acquire(text[], interval) IS
'acquire several mutexes, all or none, as session-level locks';

CREATE FUNCTION zk_xact_multilock_acquire(paths text[],
										  timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_xact_multilock_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_multilock_acquire(text[], interval) IS
'acquire several mutexes, all or none, as transaction-level locks';

CREATE FUNCTION zk_multilock_release(paths text[])
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_multilock_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_multilock_release(text[]) IS
'release several session-level mutexes';

/*
 * Jobs: once a tick
 */

-- Half a minute ahead, because a clock may be a little slow, but not more: a
-- tick in the future is refused.
CREATE FUNCTION zk_tick(every interval DEFAULT '1 minute')
RETURNS timestamptz
LANGUAGE SQL STABLE PARALLEL SAFE
RETURN pg_catalog.date_bin(every,
						   pg_catalog.now() + least(every OPERATOR(pg_catalog./) 2, interval '30 seconds'),
						   timestamptz 'epoch');

COMMENT ON FUNCTION zk_tick(interval) IS
'the latest multiple of the interval, counted from 1970 in UTC, that is at most half a minute ahead';

CREATE FUNCTION zk_run_once(path text,
							tick timestamptz DEFAULT @extschema@.zk_tick(),
							timeout interval DEFAULT '0',
							retry boolean DEFAULT false,
							spacing interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_run_once'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_run_once(text, timestamptz, interval, boolean, interval) IS
'may this session run the job?  true for one caller in the cluster a tick, which then holds the lock with session scope';

CREATE FUNCTION zk_xact_run_once(path text,
								 tick timestamptz DEFAULT @extschema@.zk_tick(),
								 timeout interval DEFAULT '0',
								 retry boolean DEFAULT false,
								 spacing interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_xact_run_once'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_xact_run_once(text, timestamptz, interval, boolean, interval) IS
'may this transaction run the job?  true for one caller in the cluster a tick, which then holds the lock to the end of the transaction';

CREATE FUNCTION zk_job_forget(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_job_forget'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_job_forget(text) IS
'remove the record of a job, and with it the memory of which ticks were used';

/*
 * All kinds
 */

CREATE FUNCTION zk_lock_release_all()
RETURNS integer
AS 'MODULE_PATHNAME', 'zklock_lock_release_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_release_all() IS
'release all session-level locks of this backend';

CREATE FUNCTION zk_lock_is_held(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_lock_is_held'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_is_held(text) IS
'whether this backend holds the lock and the lock is certainly still valid';

CREATE FUNCTION zk_lock_token(path text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zklock_lock_token'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_token(text) IS
'fencing token of a lock that this backend holds, greater than that of any earlier claim';

CREATE FUNCTION zk_lock_remaining(path text)
RETURNS interval
AS 'MODULE_PATHNAME', 'zklock_lock_remaining'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_remaining(text) IS
'rest of the lease time of a lock that this backend holds; null if there is none';

CREATE FUNCTION zk_lock_is_revoked(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_lock_is_revoked'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_is_revoked(text) IS
'whether the release of a lock that this backend holds has been requested';

CREATE FUNCTION zk_path_is_allowed(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_path_is_allowed'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION zk_path_is_allowed(text) IS
'whether zklock.allowed_paths allows this session to use the path';

/*
 * The queue of a lock in the whole cluster
 */

CREATE FUNCTION zk_lock_queue(path text,
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
AS 'MODULE_PATHNAME', 'zklock_lock_queue'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_queue(text) IS
'all holders of a lock and all waiters in the whole cluster, in order';

CREATE FUNCTION zk_blockers(backend_pid integer,
							OUT path text,
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
AS 'MODULE_PATHNAME', 'zklock_blockers'
LANGUAGE C VOLATILE PARALLEL UNSAFE STRICT;

COMMENT ON FUNCTION zk_blockers(integer) IS
'the clients that keep a backend of this server waiting for a lock, in the whole cluster';

CREATE FUNCTION zk_lock_revoke(path text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zklock_lock_revoke'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_revoke(text) IS
'request the release of a lock from its holders in the whole cluster';

CREATE FUNCTION zk_lock_force_release(path text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zklock_lock_force_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_force_release(text) IS
'take a lock away from its holders in the whole cluster';

/*
 * Leadership of a server
 */

CREATE FUNCTION zk_is_leader(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_is_leader'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_is_leader(text) IS
'does this server lead? if so, the transaction commits only while it still does';

CREATE FUNCTION zk_leader_resign(path text,
								 pause interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_leader_resign'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_leader_resign(text, interval) IS
'give up the leadership of this server, and stand again behind the others after a pause';

CREATE VIEW zk_leaders AS
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
		 LATERAL @extschema@.zk_lock_queue(l.path) AS q
	WHERE CASE WHEN l.path <> '' THEN @extschema@.zk_path_is_allowed(l.path) END;

COMMENT ON VIEW zk_leaders IS
'the leaders of the paths in zklock.leader_of, and all that stand behind them, in the whole cluster';

/*
 * Fencing: refuse outdated tokens
 */

CREATE TABLE zk_fences (resource text PRIMARY KEY,
						token bigint NOT NULL);

COMMENT ON TABLE zk_fences IS
'greatest token that was presented for each resource; see zk_fence';

SELECT pg_catalog.pg_extension_config_dump('zk_fences', '');

CREATE FUNCTION zk_fence(resource text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zklock_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION zk_fence(text, bigint) IS
'refuse a token lower than the greatest that was presented for the resource; otherwise remember it';

/*
 * Views
 */

CREATE FUNCTION zk_locks(OUT path text,
						 OUT kind text,
						 OUT mode text,
						 OUT claim text,
						 OUT pid integer,
						 OUT datid oid,
						 OUT usesysid oid,
						 OUT claim_since timestamptz,
						 OUT ticket text,
						 OUT session_count integer,
						 OUT xact_count integer,
						 OUT token bigint,
						 OUT contended boolean,
						 OUT znode text,
						 OUT owned_since timestamptz,
						 OUT revoked boolean,
						 OUT lease_ends timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_locks'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_locks() IS
'claims and tickets of this server; see view zk_locks';

CREATE VIEW zk_locks AS
	SELECT l.path,
		   l.kind,
		   l.mode,
		   l.claim,
		   l.claim = 'held' AS granted,
		   l.pid,
		   d.datname,
		   r.rolname AS usename,
		   l.claim_since,
		   l.session_count,
		   l.xact_count,
		   l.token,
		   l.ticket,
		   l.contended,
		   l.znode,
		   l.owned_since,
		   l.revoked,
		   l.lease_ends
	FROM @extschema@.zk_locks() AS l
		 LEFT JOIN pg_catalog.pg_database AS d ON d.oid = l.datid
		 LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = l.usesysid;

COMMENT ON VIEW zk_locks IS
'claims and tickets of this server, one row for each claim';

CREATE FUNCTION zk_jobs(OUT path text,
						OUT tick timestamptz,
						OUT state text,
						OUT attempt integer,
						OUT started_at timestamptz,
						OUT ended_at timestamptz,
						OUT token bigint,
						OUT server text,
						OUT pid integer,
						OUT database text,
						OUT role text,
						OUT application text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_jobs'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_jobs() IS
'the record of each job in the cluster; see view zk_jobs';

CREATE VIEW zk_jobs AS
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
							FROM @extschema@.zk_lock_queue(j.path) AS q
							WHERE q.holds
							ORDER BY q."position"
							LIMIT 1) AS h ON true;

COMMENT ON VIEW zk_jobs IS
'the last run of each job in the cluster, and who holds the lock of the job now';

CREATE FUNCTION zk_waits(OUT path text,
						 OUT mode text,
						 OUT leases integer,
						 OUT server text,
						 OUT pid integer,
						 OUT database text,
						 OUT role text,
						 OUT application text,
						 OUT waiting_since timestamptz,
						 OUT holds text[],
						 OUT held_by integer[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_waits'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_waits() IS
'waits of all servers that hold up other locks; see view zk_waits';

CREATE VIEW zk_waits AS
	SELECT * FROM @extschema@.zk_waits();

COMMENT ON VIEW zk_waits IS
'waits of all servers in the cluster that hold up other locks, one row for each wait';

CREATE FUNCTION zk_sessions(OUT session integer,
							OUT worker_pid integer,
							OUT state text,
							OUT session_id text,
							OUT server text,
							OUT session_timeout_ms integer,
							OUT connected_since timestamptz,
							OUT safe_until timestamptz,
							OUT safe boolean,
							OUT epoch bigint,
							OUT ephemeral_bytes bigint,
							OUT last_error text,
							OUT last_error_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_sessions'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_sessions() IS
'ZooKeeper sessions of this server; see view zk_sessions';

CREATE VIEW zk_sessions AS
	SELECT s.session,
		   s.worker_pid,
		   s.state,
		   s.session_id,
		   s.server,
		   s.session_timeout_ms OPERATOR(pg_catalog.*) interval '1 millisecond' AS session_timeout,
		   s.connected_since,
		   s.safe_until,
		   s.safe,
		   s.epoch,
		   s.ephemeral_bytes,
		   s.last_error,
		   s.last_error_at
	FROM @extschema@.zk_sessions() AS s;

COMMENT ON VIEW zk_sessions IS
'ZooKeeper sessions of this server, one row for each session';

CREATE FUNCTION zk_version()
RETURNS text
AS 'MODULE_PATHNAME', 'zklock_version'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION zk_version() IS
'version of the zklock library that this server has loaded';

CREATE FUNCTION zk_status(OUT node_name text,
						  OUT entries integer,
						  OUT max_locks integer,
						  OUT claims bigint,
						  OUT tickets bigint,
						  OUT tickets_lost bigint,
						  OUT requests bigint,
						  OUT connects bigint,
						  OUT expirations bigint,
						  OUT bypasses bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_status'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_status() IS
'counters of this server, of all its ZooKeeper sessions; see view zk_status';

-- "state" is that of the worst session; the columns that identify a session are of the first.
CREATE VIEW zk_status AS
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
		   s.last_error_at
	FROM @extschema@.zk_status() AS n,
		 (SELECT max(worker_pid) FILTER (WHERE session = 1) AS worker_pid,
				 CASE WHEN bool_or(state = 'in doubt') THEN 'in doubt'
					  WHEN bool_and(state = 'idle') THEN 'idle'
					  WHEN bool_and(state IN ('connected', 'idle')) THEN 'connected'
					  WHEN bool_and(state = 'none') THEN 'none'
					  WHEN bool_and(state IN ('connected', 'idle', 'connecting')) THEN 'connecting'
					  ELSE 'disconnected'
				 END AS state,
				 max(session_id) FILTER (WHERE session = 1) AS session_id,
				 max(server) FILTER (WHERE session = 1) AS server,
				 max(session_timeout) FILTER (WHERE session = 1) AS session_timeout,
				 max(connected_since) FILTER (WHERE session = 1) AS connected_since,
				 CASE WHEN NOT bool_or(state = 'in doubt' AND safe_until IS NULL)
					  THEN coalesce(min(safe_until) FILTER (WHERE ephemeral_bytes > 0), min(safe_until))
				 END AS safe_until,
				 bool_and(safe) AS safe,
				 sum(epoch)::bigint - count(*) + 1 AS epoch,
				 sum(ephemeral_bytes)::bigint AS ephemeral_bytes,
				 (pg_catalog.array_agg(last_error ORDER BY last_error_at DESC NULLS LAST))[1] AS last_error,
				 max(last_error_at) AS last_error_at
		  FROM @extschema@.zk_sessions) AS s;

COMMENT ON VIEW zk_status IS
'state and counters of this server, of all its ZooKeeper sessions';

/*
 * Statistics
 */

CREATE FUNCTION zk_stat_locks(OUT path text,
							  OUT acquired bigint,
							  OUT acquired_locally bigint,
							  OUT waited bigint,
							  OUT wait_time double precision,
							  OUT hold_time double precision,
							  OUT timeouts bigint,
							  OUT lost bigint,
							  OUT deadlocks bigint,
							  OUT handed_over bigint,
							  OUT stats_since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_stat_locks'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_stat_locks() IS
'statistics of the locks that this server has used; see view zk_stat_locks';

CREATE VIEW zk_stat_locks AS
	SELECT s.path,
		   s.acquired,
		   s.acquired_locally,
		   s.waited,
		   s.wait_time,
		   s.hold_time,
		   s.timeouts,
		   s.lost,
		   s.deadlocks,
		   s.handed_over,
		   s.stats_since
	FROM @extschema@.zk_stat_locks() AS s;

COMMENT ON VIEW zk_stat_locks IS
'statistics of the locks that this server has used, one row for each path';

CREATE FUNCTION zk_stat(OUT acquired bigint,
						OUT acquired_locally bigint,
						OUT waited bigint,
						OUT wait_time double precision,
						OUT hold_time double precision,
						OUT timeouts bigint,
						OUT lost bigint,
						OUT deadlocks bigint,
						OUT handed_over bigint,
						OUT paths_discarded bigint,
						OUT creates bigint,
						OUT lists bigint,
						OUT reads bigint,
						OUT writes bigint,
						OUT deletes bigint,
						OUT checks bigint,
						OUT unwatches bigint,
						OUT heartbeats bigint,
						OUT signs bigint,
						OUT answers bigint,
						OUT answer_time double precision,
						OUT answer_bounds double precision[],
						OUT answer_buckets bigint[],
						OUT reconnects bigint,
						OUT expirations bigint,
						OUT doubt_time double precision,
						OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_stat'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_stat() IS
'statistics of this server''s locks, requests and ZooKeeper sessions; see view zk_stat';

CREATE VIEW zk_stat AS
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
		   s.stats_reset
	FROM @extschema@.zk_stat() AS s;

COMMENT ON VIEW zk_stat IS
'statistics of this server''s locks, requests and ZooKeeper sessions, in one row';

CREATE FUNCTION zk_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'zklock_stat_reset'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_stat_reset() IS
'discard the statistics in zk_stat and zk_stat_locks of this server';

/*
 * Privileges: every role may lock and read the views.  Only roles that may end
 * sessions may take locks away.  Only the database's owner may fence, because a
 * token that is too great locks other roles out; the owner also dumps, restores
 * and resets zk_fences.
 */

GRANT SELECT ON zk_locks, zk_jobs, zk_waits, zk_status, zk_sessions, zk_leaders,
				zk_stat_locks, zk_stat TO PUBLIC;

REVOKE ALL ON FUNCTION zk_lock_revoke(text), zk_lock_force_release(text),
					   zk_job_forget(text), zk_leader_resign(text, interval),
					   zk_fence(text, bigint), zk_stat_reset() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_lock_revoke(text), zk_lock_force_release(text),
						  zk_job_forget(text), zk_leader_resign(text, interval)
	TO pg_signal_backend;
GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO pg_database_owner;
GRANT SELECT, INSERT, DELETE ON zk_fences TO pg_database_owner;
