-- Everybody may lock and look; what belongs to other roles is hidden.
SET client_min_messages = warning;
CREATE ROLE regress_zklock_a;
CREATE ROLE regress_zklock_b;
SELECT zk_lock_acquire('/regress/super');
SET ROLE regress_zklock_a;
SELECT zk_lock_acquire('/regress/a'), zk_lock_is_held('/regress/a'), zk_lock_token('/regress/a') > 0 AS token;
SET ROLE regress_zklock_b;
SELECT zk_lock_acquire('/regress/b');
CREATE TEMP VIEW seen AS
SELECT path, CASE WHEN usename LIKE 'regress_zklock%' THEN usename ELSE '(superuser)' END AS usename,
	   claim, ticket, pid = pg_backend_pid() AS pid, datname = current_database() AS datname,
	   claim_since IS NOT NULL AS since, session_count, xact_count, token IS NOT NULL AS token
FROM zk_locks WHERE path LIKE '/regress/%' ORDER BY path COLLATE "C";
GRANT SELECT ON seen TO PUBLIC;
RESET ROLE;

-- as an ordinary role
SET ROLE regress_zklock_b;
SELECT * FROM pg_temp.seen;
SELECT state, session_id IS NULL AS hidden, safe FROM zk_status;
SELECT count(*) FROM zk_locks() WHERE path LIKE '/regress/%';
RESET ROLE;

-- as a member of the other role
GRANT regress_zklock_a TO regress_zklock_b;
SET ROLE regress_zklock_b;
SELECT path, session_count FROM pg_temp.seen;
RESET ROLE;
REVOKE regress_zklock_a FROM regress_zklock_b;

-- as one who may see all
GRANT pg_read_all_stats TO regress_zklock_b;
SET ROLE regress_zklock_b;
SELECT path, since, session_count, token FROM pg_temp.seen;
SELECT session_id IS NULL AS hidden FROM zk_status;
RESET ROLE;

-- as superuser
SELECT path, since, session_count, token FROM pg_temp.seen;
SELECT session_id IS NULL AS hidden FROM zk_status;

-- claims are the backend's, not the role's
SET ROLE regress_zklock_a;
SELECT zk_lock_release('/regress/super'), zk_lock_release('/regress/b'), zk_lock_release('/regress/a');
RESET ROLE;

-- what a role dropped in the meantime has left
SET ROLE regress_zklock_a;
SELECT zk_lock_acquire('/regress/a');
RESET ROLE;
DROP ROLE regress_zklock_a;
SELECT path, usename, claim FROM zk_locks WHERE pid = pg_backend_pid();
SELECT zk_lock_release('/regress/a');

-- settings: only what concerns the session itself
SET ROLE regress_zklock_b;
SET zklock.connection_timeout = '1s';
SET zklock.linger = 0;
RESET zklock.connection_timeout;
RESET ROLE;

DROP VIEW seen;
DROP ROLE regress_zklock_b;
CALL all_is_gone();
