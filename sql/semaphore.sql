-- The semaphore: n leases in the whole cluster; with n = 1, a mutex that is not
-- re-entrant.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never
\set one 'zk_semaphore_acquire(\'/regress/s\', 3, \'0\')'
\set two 'zk_semaphore_acquire(\'/regress/s\', 3, \'0\', 2)'
\set xone 'zk_xact_semaphore_acquire(\'/regress/s\', 3, \'0\')'
\set xtwo 'zk_xact_semaphore_acquire(\'/regress/s\', 3, \'0\', 2)'
\set release 'zk_semaphore_release(\'/regress/s\')'
\set release_two 'zk_semaphore_release(\'/regress/s\', 2)'

-- this backend's leases: "rows: session count + transaction count", and how many
-- znodes and local locks they have
CREATE FUNCTION leases(OUT leases text) LANGUAGE sql AS $$
SELECT format('%s: %s+%s, %s znodes, %s local locks', count(*),
			  coalesce(max(session_count), 0), coalesce(max(xact_count), 0), count(DISTINCT znode),
			  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0
			   AND granted AND pid = pg_backend_pid()))
FROM zk_locks
WHERE pid = pg_backend_pid() AND path = '/regress/s' AND kind = 'semaphore'
AND mode = 'lease' AND granted AND ticket = 'owned' $$;

-- until others could have every lease: the last one of this path is deleted
CREATE PROCEDURE none_is_left() LANGUAGE plpgsql AS $$
BEGIN
	CALL wait_until($c$ NOT EXISTS (SELECT FROM zk_locks WHERE path = '/regress/s') $c$);
END $$;

-- one by one, up to n
SELECT :one, leases();
SELECT leases();
SELECT :one, :one;
SELECT leases();
SELECT :one;
SELECT zk_semaphore_acquire('/regress/s', 3, '1 ms');
SELECT leases();
SELECT zk_lock_is_held('/regress/s'), zk_lock_token('/regress/s') > 0, zk_lock_remaining('/regress/s') IS NULL;
SELECT zk_lock_is_revoked('/regress/s');
SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND database = 0 AND pid = pg_backend_pid();
SELECT :release;
SELECT leases();
SELECT :release, :release;
SELECT leases(), zk_lock_is_held('/regress/s');
SELECT :release;
SELECT zk_semaphore_acquire('/regress/s', 3), :release;

-- several at once: all or none
SELECT :two;
SELECT :two;
SELECT leases();
SELECT :one;
SELECT :release_two;
SELECT leases();
SELECT :two, leases();
-- more than are held: nothing is released
SELECT zk_semaphore_release('/regress/s', 4);
SELECT leases();
SELECT zk_semaphore_release('/regress/s', 3);
SELECT zk_semaphore_acquire('/regress/s', 3, NULL, 3), leases();
SELECT leases();
SELECT zk_lock_release_all();
SELECT leases();

-- a backend that would wait for itself
SELECT :two;
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3, NULL, 2)$$);
SELECT failure($$SELECT zk_xact_semaphore_acquire('/regress/s', 3, NULL, 3)$$);
SELECT leases();
SELECT zk_semaphore_acquire('/regress/s', 3);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3)$$);
-- not so with a limit, and not if a lease may come back meanwhile
SELECT zk_semaphore_acquire('/regress/s', 3, '1 ms');
SELECT leases();
SELECT zk_lock_release_all();

-- both levels
BEGIN;
SELECT :one, :xone;
SELECT leases();
SELECT :release_two;
SELECT leases();
SELECT :one;
SELECT leases();
COMMIT;
SELECT leases();
BEGIN;
SELECT :xone;
SELECT leases();
SELECT :one;
ROLLBACK;
SELECT leases();
BEGIN;
SELECT :xone;
SELECT :release, :release, :release;
SELECT leases();
SELECT :release_two;
ROLLBACK;
SELECT leases();
BEGIN;
SELECT :xtwo, zk_lock_release_all(), leases();
SELECT :one, zk_lock_release_all(), leases();
COMMIT;
SELECT leases();
SELECT :xone, leases();
SELECT leases();

-- savepoints
BEGIN;
SELECT :xone;
SAVEPOINT s;
SELECT :xone;
SAVEPOINT t;
SELECT :xone;
SELECT leases();
ROLLBACK TO t;
SELECT leases();
SELECT :xone;
RELEASE t;
SELECT leases();
ROLLBACK TO s;
SELECT leases();
SELECT :xtwo, :xone;
RELEASE s;
SELECT leases();
COMMIT;
SELECT leases();
BEGIN;
SAVEPOINT s;
SELECT :one, :xone;
ROLLBACK TO s;
SELECT leases();
ROLLBACK;
SELECT leases();
SELECT :release;

-- exception blocks
DO $$
BEGIN
	PERFORM zk_xact_semaphore_acquire('/regress/s', 3, '0', 2), zk_semaphore_acquire('/regress/s', 3, '0');
	RAISE NOTICE '%', leases();
	RAISE 'here';
EXCEPTION WHEN raise_exception THEN
	RAISE NOTICE '%', leases();
END $$;
SELECT leases();
DO $$
BEGIN
	PERFORM zk_semaphore_acquire('/regress/s', 3, NULL, 3);
EXCEPTION WHEN deadlock_detected THEN
	RAISE NOTICE '%: %', SQLSTATE, leases();
END $$;
SELECT leases();
SELECT :release;

-- all users pass the same n while a lease is held
SELECT :one;
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 4, '0')$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 2)$$);
SELECT leases();
SELECT :release;
SELECT zk_semaphore_acquire('/regress/s', 4, '1 h', 4), leases();
SELECT zk_lock_release_all(), leases();
-- no backend uses leases that linger
SELECT zk_semaphore_acquire('/regress/s', 4, '1 h'), zk_semaphore_release('/regress/s');
SELECT zk_semaphore_acquire('/regress/s', 4, '1 h'), zk_semaphore_release('/regress/s');
SELECT zk_semaphore_acquire('/regress/s', 2, '1 h', 2), leases();
SELECT zk_semaphore_release('/regress/s', 2);

-- arguments
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 0)$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', -1)$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', NULL)$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3, '0', 0)$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3, '0', NULL)$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3, '0', 4)$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3, '-1 s')$$);
SELECT failure($$SELECT zk_semaphore_acquire(NULL, 3)$$);
SELECT failure($$SELECT zk_semaphore_release('/regress/s', 0)$$);
SELECT failure($$SELECT zk_semaphore_release('/regress/s', NULL)$$);
SELECT left(failure(format('SELECT zk_semaphore_acquire(%L, 3)', '/regress/' || repeat('x', 224))), 50);
SELECT zk_xact_semaphore_acquire('/regress/' || repeat('x', 223), 3);
SELECT zk_xact_semaphore_acquire('/regress/s', 2147483647, '1 h'), leases();

-- n = 1: not re-entrant
SELECT zk_semaphore_acquire('/regress/s', 1);
SELECT zk_semaphore_acquire('/regress/s', 1, '0');
SELECT zk_semaphore_acquire('/regress/s', 1, '1 ms');
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 1)$$);
SELECT leases();
SELECT :release, :release;
BEGIN;
SELECT zk_xact_semaphore_acquire('/regress/s', 1);
SELECT zk_semaphore_acquire('/regress/s', 1, '0');
COMMIT;
SELECT leases();
-- its tokens grow
CREATE TABLE tokens (n int GENERATED ALWAYS AS IDENTITY, token bigint);
DO $$
BEGIN
	FOR i IN 1 .. 50 LOOP
		PERFORM zk_semaphore_acquire('/regress/s', 1);
		INSERT INTO tokens (token) VALUES (zk_lock_token('/regress/s'));
		PERFORM zk_semaphore_release('/regress/s');
	END LOOP;
END $$;
SELECT count(*), bool_and(grows)
FROM (SELECT token > lag(token, 1, 0::bigint) OVER (ORDER BY n) AS grows FROM tokens) AS t;
DROP TABLE tokens;

-- while a path is in use as a semaphore, it is no other kind
CALL none_is_left();
SELECT zk_semaphore_acquire('/regress/s', 3);
SELECT failure($$SELECT zk_lock_acquire('/regress/s', '0')$$);
SELECT failure($$SELECT zk_read_lock_acquire('/regress/s')$$);
SELECT failure($$SELECT zk_xact_write_lock_acquire('/regress/s')$$);
SELECT failure($$SELECT zk_multilock_acquire('{/regress/s}')$$);
SELECT zk_lock_release('/regress/s'), zk_read_lock_release('/regress/s'), zk_multilock_release('{/regress/s}');
SELECT leases();
SELECT :release;
SELECT zk_lock_acquire('/regress/s', '1 h');
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3, '0')$$);
SELECT :release;
SELECT zk_lock_release('/regress/s');
SELECT :one, leases();
SELECT :release;
-- its inner mutex is a lock of its own
SELECT zk_lock_acquire('/regress/s/locks');
SELECT :one, leases();
SELECT failure($$SELECT zk_semaphore_acquire('/regress/s', 3)$$);
SELECT leases();
SELECT zk_lock_release('/regress/s/locks'), :release;
SELECT zk_semaphore_acquire('/regress/s', 3), :release;

-- what ends session-level leases behind zklock's back
SELECT :two, leases();
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT leases();
BEGIN;
SELECT :one, :xone;
SELECT pg_advisory_unlock_all() IS NOT NULL, zk_lock_is_held('/regress/s');
SELECT leases();
COMMIT;
SELECT leases();
SELECT :two;
DISCARD ALL;
SELECT leases();
SELECT zk_semaphore_acquire('/regress/s', 3, '1 h', 3), zk_lock_release_all();

-- together with other locks
SELECT :two, zk_lock_acquire('/regress/a'), zk_read_lock_acquire('/regress/b');
SELECT zk_lock_release_all();

-- two-phase commit
BEGIN;
SELECT :xone;
PREPARE TRANSACTION 'zklock';
\echo :LAST_ERROR_SQLSTATE
SELECT leases();

-- parallel workers
CREATE FUNCTION lies() RETURNS boolean LANGUAGE sql PARALLEL SAFE
RETURN zk_semaphore_acquire('/regress/s', 3);
SELECT name AS parallel FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel = on;
SELECT lies();
\echo :LAST_ERROR_SQLSTATE
RESET :parallel;
SELECT leases();

CALL all_is_gone();
CALL wait_until('entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
DROP FUNCTION lies, leases;
DROP PROCEDURE none_is_left;
