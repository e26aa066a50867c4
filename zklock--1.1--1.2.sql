/* zklock--1.1--1.2.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.2'" to load this file. \quit

/*
 * What the planner expects.  By default, it would expect 1,000 rows from each function: three such
 * functions in a join cost it 10^9 rows, for which it compiles the query with JIT each time.  So each
 * function says how many rows it returns on a usual server.
 */

ALTER FUNCTION zk_sessions() ROWS 1;
ALTER FUNCTION zk_status() ROWS 1;
ALTER FUNCTION zk_cluster_status() ROWS 1;
ALTER FUNCTION zk_stat() ROWS 1;
ALTER FUNCTION zk_stat_transactions() ROWS 1;
ALTER FUNCTION zk_locks() ROWS 50;
ALTER FUNCTION zk_stat_locks() ROWS 50;
ALTER FUNCTION zk_claims() ROWS 10;

/*
 * These ask ZooKeeper, the last one once for each lock, so that conditions that cost less come first.
 * The functions that acquire keep the cost 1: else PostgreSQL would evaluate a condition beside them,
 * such as a function of the user, before the lock is held.
 */

ALTER FUNCTION zk_lock_queue(text) ROWS 10 COST 1000;
ALTER FUNCTION zk_lock_queue_or_null(text) ROWS 10 COST 1000;
ALTER FUNCTION zk_blockers(integer) ROWS 10 COST 1000;
ALTER FUNCTION zk_servers() ROWS 10 COST 1000;
ALTER FUNCTION zk_jobs() ROWS 20 COST 1000;
ALTER FUNCTION zk_waits() ROWS 10 COST 1000;
ALTER FUNCTION zk_semaphore_limit(text) COST 1000;
ALTER FUNCTION zk_cluster_locks(text) ROWS 100 COST 10000;

/*
 * Which paths the views and queues show
 */

CREATE FUNCTION zk_sees_all_paths()
RETURNS boolean
AS 'MODULE_PATHNAME', 'zklock_sees_all_paths'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION zk_sees_all_paths() IS
'whether the views show all paths to this session';

GRANT EXECUTE ON FUNCTION zk_sees_all_paths() TO PUBLIC;

-- The planner expects 10 elements of an array, but 1,000 rows from string_to_table().
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
		  FROM pg_catalog.unnest(pg_catalog.string_to_array(pg_catalog.current_setting('zklock.leader_of'), ',')) AS p) AS l,
		 LATERAL @extschema@.zk_lock_queue_or_null(l.path) AS q
	WHERE CASE WHEN l.path <> '' THEN @extschema@.zk_path_is_allowed(l.path) OR @extschema@.zk_sees_all_paths() END;

/*
 * What zk_status tells in addition.  As in 1.1, a second function returns it, because a function
 * that exists could not get more columns without a DROP.
 */

CREATE FUNCTION zk_server_status(OUT refuses_commits boolean,
								 OUT tls boolean,
								 OUT clones integer,
								 OUT certificate_until timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_server_status'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;

COMMENT ON FUNCTION zk_server_status() IS
'state of this server, without a request to ZooKeeper; see view zk_status';

CREATE FUNCTION zk_leaderships(OUT path text,
							   OUT leads boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_leaderships'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 3;

COMMENT ON FUNCTION zk_leaderships() IS
'the leaderships in this server''s settings, and whether it leads, without a request to ZooKeeper';

CREATE FUNCTION zk_stat_errors(OUT sqlstate text,
							   OUT errors bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_stat_errors'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 15;

COMMENT ON FUNCTION zk_stat_errors() IS
'how many requests of this server''s backends were refused or failed, by SQLSTATE';

GRANT EXECUTE ON FUNCTION zk_server_status(), zk_leaderships(), zk_stat_errors() TO PUBLIC;

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
		   c.refused_leaderships,
		   v.refuses_commits,
		   v.tls,
		   v.clones,
		   v.certificate_until
	FROM @extschema@.zk_status() AS n,
		 @extschema@.zk_cluster_status() AS c,
		 @extschema@.zk_server_status() AS v,
		 @extschema@.zk_sessions AS s;

COMMENT ON COLUMN zk_status.refuses_commits IS
'true if this server is a primary that refuses to write, because it does not lead what zklock.commit_requires names';
COMMENT ON COLUMN zk_status.tls IS
'true if the connection to ZooKeeper uses TLS; null if this role may not see it';

/* The queue tells clients of go-zookeeper apart. */

COMMENT ON COLUMN zk_leaders.client IS
'zklock, curator, kazoo, go-zookeeper or unknown';
COMMENT ON COLUMN zk_cluster_locks.client IS
'zklock, curator, kazoo, go-zookeeper or unknown';
COMMENT ON COLUMN zk_status.state IS
'connected, idle, connecting, disconnected, refused, in doubt or none';
COMMENT ON COLUMN zk_sessions.state IS
'connected, idle, connecting, disconnected, refused, in doubt or none';

/*
 * A claim is what zk_claim_request returns.  A backend's possession of a lock is a hold, and its
 * request for one a wait.
 */

COMMENT ON FUNCTION zk_locks() IS
'holds, waits and tickets of this server; see view zk_locks';
COMMENT ON VIEW zk_locks IS
'holds, waits and tickets of this server, one row for each hold and wait, and for each ticket without them';
COMMENT ON COLUMN zk_locks.claim IS
'held, waiting or lost; null for a ticket without holds and waits';
COMMENT ON COLUMN zk_locks.granted IS
'true if it is held';
COMMENT ON COLUMN zk_locks.claim_since IS
'when it got into this state';
COMMENT ON COLUMN zk_status.claims IS
'acquired holds since the server started';
COMMENT ON COLUMN zk_stat_locks.hold_time IS
'time for which backends held the lock, in milliseconds; a hold is counted when it ends';
COMMENT ON COLUMN zk_stat_locks.lost IS
'how many holds were lost';
COMMENT ON COLUMN zk_stat.hold_time IS
'time for which backends held a lock, in milliseconds; a hold is counted when it ends';
COMMENT ON COLUMN zk_stat.lost IS
'how many holds were lost';
COMMENT ON FUNCTION zk_lock_token(text) IS
'fencing token of a lock that this backend holds, greater than the token of any earlier holder';

CREATE FUNCTION zk_lock_uses(path text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zklock_lock_uses'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_uses(text) IS
'how many transactions of other sessions have committed under a lock that this backend holds, by zklock.commit_under';
COMMENT ON COLUMN zk_status.certificate_until IS
'when the certificate ends that this server shows to ZooKeeper; null if there is none, or if this role may not see it';
COMMENT ON COLUMN zk_status.clones IS
'other primaries in this cluster with the database system identifier of this server';

/*
 * zk_servers shows copies of a database.  A server before version 1.2 does not tell.
 */

CREATE FUNCTION zk_server_records(OUT node_name text,
								  OUT zklock_version text,
								  OUT postgresql_version text,
								  OUT host text,
								  OUT since timestamptz,
								  OUT system_identifier bigint,
								  OUT is_standby boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_server_records'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10 COST 1000;

COMMENT ON FUNCTION zk_server_records() IS
'the record of each server of the cluster; see view zk_servers';

GRANT EXECUTE ON FUNCTION zk_server_records() TO PUBLIC;

CREATE OR REPLACE VIEW zk_servers AS
	SELECT s.node_name, s.zklock_version, s.postgresql_version, s.host, s.since, s.system_identifier, s.is_standby
	FROM @extschema@.zk_server_records() AS s;

COMMENT ON COLUMN zk_servers.system_identifier IS
'database system identifier; servers that have the same one are copies of one database';
COMMENT ON COLUMN zk_servers.is_standby IS
'true if the server is in recovery';
