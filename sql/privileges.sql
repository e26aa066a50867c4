-- Every role may lock and read the views; what belongs to other roles is hidden.
\pset tuples_only
\pset format unaligned
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
	   claim_since IS NOT NULL AS since, owned_since IS NOT NULL AS owned_since,
	   (SELECT since IS NOT NULL FROM zk_lock_queue(path)) AS queue_since,
	   session_count, xact_count, token IS NOT NULL AS token
FROM zk_locks WHERE path LIKE '/regress/%' ORDER BY path COLLATE "C";
GRANT SELECT ON seen TO PUBLIC;
RESET ROLE;

-- as an ordinary role
SET ROLE regress_zklock_b;
\pset tuples_only off
SELECT * FROM pg_temp.seen;
\pset tuples_only on
SELECT state IN ('connected', 'idle') AS state, session_id IS NULL AS hidden, safe FROM zk_status;
SELECT count(*) FROM zk_locks() WHERE path LIKE '/regress/%';
RESET ROLE;

-- as a member of the other role
GRANT regress_zklock_a TO regress_zklock_b;
SET ROLE regress_zklock_b;
SELECT path, since, owned_since, queue_since, session_count FROM pg_temp.seen;
RESET ROLE;
REVOKE regress_zklock_a FROM regress_zklock_b;

-- as a role that may read all statistics
GRANT pg_read_all_stats TO regress_zklock_b;
SET ROLE regress_zklock_b;
SELECT path, since, owned_since, queue_since, session_count, token FROM pg_temp.seen;
SELECT session_id IS NULL AS hidden FROM zk_status;
RESET ROLE;

-- as superuser
SELECT path, since, owned_since, queue_since, session_count, token FROM pg_temp.seen;
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

-- only some roles may take locks from others
SET ROLE regress_zklock_b;
SELECT failure($$SELECT zk_lock_revoke('/regress/a')$$);
SELECT failure($$SELECT zk_lock_force_release('/regress/a')$$);
SELECT failure($$SELECT zk_fence('r', 9223372036854775807)$$);
SELECT failure($$TABLE zk_fences$$);
RESET ROLE;
GRANT pg_signal_backend TO regress_zklock_b;
GRANT EXECUTE ON FUNCTION zk_fence TO regress_zklock_b;
SET ROLE regress_zklock_b;
SELECT zk_lock_revoke('/regress/nobody'), zk_lock_force_release('/regress/nobody');
SELECT zk_fence('r', 1);
RESET ROLE;
DELETE FROM zk_fences;
REVOKE EXECUTE ON FUNCTION zk_fence FROM regress_zklock_b;

-- the database's owner may fence, and reset it
SELECT current_database() AS database, current_user AS superuser \gset
ALTER DATABASE :"database" OWNER TO regress_zklock_b;
SET ROLE regress_zklock_b;
SELECT zk_fence('r', 9223372036854775807);
SELECT failure($$SELECT zk_fence('r', 1)$$);
SELECT failure($$UPDATE zk_fences SET token = 1$$);
TABLE zk_fences;
DELETE FROM zk_fences WHERE resource = 'r';
SELECT zk_fence('r', 1);
DELETE FROM zk_fences;
RESET ROLE;
ALTER DATABASE :"database" OWNER TO :"superuser";

-- settings: only what concerns the session itself
SET ROLE regress_zklock_b;
SET zklock.connection_timeout = '1s';
SET zklock.linger = 0;
RESET zklock.connection_timeout;
RESET ROLE;

-- what superusers allow
SELECT zk_lock_acquire('/regress/a'), zk_lock_acquire('/regress/b/1'), zk_sees_all_paths();
SET zklock.allowed_paths = '/regress/b/, /regress/c';
SELECT path FROM zk_locks WHERE pid = pg_backend_pid();
SELECT zk_sees_all_paths();
SELECT p AS path, zk_path_is_allowed(p) FROM unnest('{/regress/b,/regress/b/1,/regress/b/1/2,/regress/b2/1,/regress/c,/regress/c/1}'::text[]) AS p;
SELECT failure($$SELECT zk_xact_lock_acquire('/regress/a')$$);
SELECT failure($$SELECT zk_xact_multilock_acquire('{/regress/c, /regress/a}')$$);
SELECT failure($$SELECT * FROM zk_lock_queue('/regress/a')$$);
SELECT failure($$SELECT zk_lock_release('/regress/a')$$);
SELECT failure($$SELECT zk_fence('/regress/a', 1)$$);
SELECT failure($$SELECT zk_path_is_allowed('regress')$$);
SELECT failure($$SET zklock.allowed_paths = '/regress/*'$$);
SET ROLE regress_zklock_b;
SELECT failure($$SET zklock.allowed_paths = '*'$$);
SELECT failure($$SET zklock.session_level = on$$);
SELECT failure($$SET zklock.max_locks_per_backend = 1000$$);
RESET ROLE;
SET zklock.session_level = off;
SELECT failure($$SELECT zk_lock_acquire('/regress/b/1')$$);
SELECT zk_lock_release('/regress/b/1');
SET zklock.allowed_paths = '';
SELECT count(*) FROM zk_locks;
SELECT zk_lock_release_all();
RESET zklock.allowed_paths;
RESET zklock.session_level;

DROP VIEW seen;
DROP ROLE regress_zklock_b;
CALL all_is_gone();
