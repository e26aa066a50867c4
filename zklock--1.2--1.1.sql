/* zklock--1.2--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.1'" to load this file. \quit

/*
 * Back to 1.1, so that an older library can be installed again.  What users have built on objects
 * of 1.1 stays, and so do its privileges.  So the columns that 1.2 has added to a view stay, too,
 * and are null: without them, the view would have to be dropped.
 */

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
		   NULL::boolean AS refuses_commits,
		   NULL::boolean AS tls,
		   NULL::integer AS clones,
		   NULL::timestamptz AS certificate_until
	FROM @extschema@.zk_status() AS n,
		 @extschema@.zk_cluster_status() AS c,
		 @extschema@.zk_sessions AS s;

CREATE OR REPLACE VIEW zk_servers AS
	SELECT s.node_name, s.zklock_version, s.postgresql_version, s.host, s.since,
		   NULL::bigint AS system_identifier, NULL::boolean AS is_standby
	FROM @extschema@.zk_servers() AS s;

DROP FUNCTION zk_server_status(), zk_leaderships(), zk_stat_errors(), zk_sees_all_paths(), zk_lock_uses(text), zk_server_records();

/*
 * The defaults of what the planner expects
 */

ALTER FUNCTION zk_sessions() ROWS 1000;
ALTER FUNCTION zk_status() ROWS 1000;
ALTER FUNCTION zk_cluster_status() ROWS 1000;
ALTER FUNCTION zk_stat() ROWS 1000;
ALTER FUNCTION zk_stat_transactions() ROWS 1000;
ALTER FUNCTION zk_locks() ROWS 1000;
ALTER FUNCTION zk_stat_locks() ROWS 1000;
ALTER FUNCTION zk_claims() ROWS 1000;
ALTER FUNCTION zk_lock_queue(text) ROWS 1000 COST 1;
ALTER FUNCTION zk_lock_queue_or_null(text) ROWS 1000 COST 1;
ALTER FUNCTION zk_blockers(integer) ROWS 1000 COST 1;
ALTER FUNCTION zk_servers() ROWS 1000 COST 1;
ALTER FUNCTION zk_jobs() ROWS 1000 COST 1;
ALTER FUNCTION zk_waits() ROWS 1000 COST 1;
ALTER FUNCTION zk_semaphore_limit(text) COST 1;
ALTER FUNCTION zk_cluster_locks(text) ROWS 1000 COST 1;

COMMENT ON COLUMN zk_leaders.client IS
'zklock, curator, kazoo or unknown';
COMMENT ON COLUMN zk_cluster_locks.client IS
'zklock, curator, kazoo or unknown';
COMMENT ON COLUMN zk_status.state IS
'connected, idle, connecting, disconnected, in doubt or none';
COMMENT ON COLUMN zk_sessions.state IS
'connected, idle, connecting, disconnected, in doubt or none';
COMMENT ON FUNCTION zk_locks() IS
'claims and tickets of this server; see view zk_locks';
COMMENT ON VIEW zk_locks IS
'claims and tickets of this server, one row for each claim, and for each ticket without claims';
COMMENT ON COLUMN zk_locks.claim IS
'held, waiting or lost; null for a ticket without claims';
COMMENT ON COLUMN zk_locks.granted IS
'true if the claim is held';
COMMENT ON COLUMN zk_locks.claim_since IS
'when the claim got into this state';
COMMENT ON COLUMN zk_status.claims IS
'acquired claims since the server started';
COMMENT ON COLUMN zk_stat_locks.hold_time IS
'time for which backends held the lock, in milliseconds; a claim counts when it ends';
COMMENT ON COLUMN zk_stat_locks.lost IS
'how many claims were lost';
COMMENT ON COLUMN zk_stat.hold_time IS
'time for which backends held a lock, in milliseconds; a claim counts when it ends';
COMMENT ON COLUMN zk_stat.lost IS
'how many claims were lost';
COMMENT ON FUNCTION zk_lock_token(text) IS
'fencing token of a lock that this backend holds, greater than that of any earlier claim';
