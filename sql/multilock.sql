-- Several mutexes at once, all or none.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never

SELECT zk_multilock_acquire('{/regress/a,/regress/b,/regress/c}');
SELECT claims();
SELECT string_agg(DISTINCT kind || ' ' || mode, ', ') FROM zk_locks WHERE granted;
SELECT count(DISTINCT zk_lock_token(p)) FROM unnest('{/regress/a,/regress/b,/regress/c}'::text[]) AS p;
SELECT zk_multilock_release('{/regress/c,/regress/a,/regress/b}');
SELECT claims();

-- in any order, with duplicates, in any shape
SELECT zk_multilock_acquire('{/regress/c,/regress/a,/regress/c,/regress/b,/regress/a}', '0'), claims();
SELECT claims();
SELECT zk_multilock_release('{/regress/a,/regress/a,/regress/c,/regress/b}'), claims();
SELECT claims();
SELECT zk_multilock_acquire('{{/regress/a,/regress/b},{/regress/c,/regress/a}}', '1 h');
SELECT zk_multilock_acquire('[7:8]={/regress/a,/regress/b}'::text[], '1 h');
SELECT claims();
SELECT zk_multilock_release('{{{/regress/c}}}'), zk_lock_release_all();

-- none at all
SELECT zk_multilock_acquire('{}'), zk_xact_multilock_acquire('{}', '0'), zk_multilock_release('{}');
SELECT claims();

-- wrong input; nothing is kept
SELECT failure($$SELECT zk_multilock_acquire(NULL)$$);
SELECT failure($$SELECT zk_multilock_release(NULL)$$);
SELECT failure($$SELECT zk_multilock_acquire('{/regress/a,NULL}')$$);
SELECT failure($$SELECT zk_multilock_release('{NULL}')$$);
SELECT failure($$SELECT zk_multilock_acquire('{/regress/a,regress}')$$);
SELECT failure($$SELECT zk_multilock_acquire('{/regress/a,""}')$$);
SELECT failure($$SELECT zk_multilock_acquire('{/regress/a}', '-1 s')$$);
SELECT claims();
SELECT failure($$SELECT zk_multilock_acquire(ARRAY(SELECT '/regress/' || i FROM generate_series(1, 1001) i))$$);
SELECT failure($$SELECT zk_multilock_release(ARRAY(SELECT '/regress/' || i FROM generate_series(1, 1001) i))$$);
SELECT failure($$SELECT zk_multilock_acquire(array_fill('/regress/a'::text, '{1001}'))$$);
SELECT claims();

-- a thousand
CREATE FUNCTION thousand() RETURNS text[] LANGUAGE sql RETURN
	ARRAY(SELECT '/regress/many/' || i FROM generate_series(1, 1000) i);
CREATE FUNCTION held() RETURNS text LANGUAGE sql RETURN
	(SELECT format('%s held, %s znodes, %s tokens, %s local locks', count(*), count(DISTINCT znode), count(token),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0 AND granted AND pid = pg_backend_pid()))
	 FROM zk_locks WHERE pid = pg_backend_pid() AND granted);
SELECT zk_multilock_acquire(thousand());
SELECT held();
BEGIN;
SELECT zk_xact_multilock_acquire(thousand(), '0');
SELECT zk_multilock_release(thousand());
SELECT held();
ROLLBACK;
SELECT held();

-- those that are held already are counted once more
SELECT zk_lock_acquire('/regress/b');
SELECT zk_multilock_acquire('{/regress/a,/regress/b,/regress/c}');
SELECT claims();
SELECT zk_lock_release('/regress/b'), zk_lock_release('/regress/a'), zk_lock_acquire('/regress/c');
SELECT claims();
-- a release of some that are not held, or held no more
SELECT zk_multilock_release('{/regress/a,/regress/b,/regress/c,/regress/d}');
SELECT claims();
SELECT zk_lock_release_all();

-- session-level and transaction-level locks
BEGIN;
SELECT zk_multilock_acquire('{/regress/a,/regress/b}'), zk_xact_multilock_acquire('{/regress/b,/regress/c}');
SELECT claims();
SELECT zk_multilock_release('{/regress/a,/regress/b,/regress/c}');
SELECT claims();
SELECT zk_multilock_acquire('{/regress/a,/regress/b}');
COMMIT;
SELECT claims();
BEGIN;
SELECT zk_xact_multilock_acquire('{/regress/a,/regress/b}'), zk_lock_release_all();
SELECT claims();
ROLLBACK;
SELECT claims();

-- savepoints and exception blocks
BEGIN;
SELECT zk_xact_multilock_acquire('{/regress/a,/regress/b}');
SAVEPOINT s;
SELECT zk_xact_multilock_acquire('{/regress/b,/regress/c}');
SELECT claims();
ROLLBACK TO s;
SELECT claims();
SELECT zk_xact_multilock_acquire('{/regress/b,/regress/c}', '0');
RELEASE s;
SELECT claims();
COMMIT;
SELECT claims();
DO $$
BEGIN
	PERFORM zk_xact_multilock_acquire('{/regress/a,/regress/b}'), zk_multilock_acquire('{/regress/b,/regress/c}');
	RAISE NOTICE '%', claims();
	RAISE 'here';
EXCEPTION WHEN raise_exception THEN
	RAISE NOTICE '%', claims();
END $$;
SELECT zk_lock_release_all();

-- one of them is another kind of lock: nothing is kept, also none before it
SELECT zk_read_lock_acquire('/regress/b');
SELECT failure($$SELECT zk_multilock_acquire('{/regress/c,/regress/b,/regress/a}')$$);
SELECT failure($$SELECT zk_multilock_acquire('{/regress/c,/regress/b,/regress/a}', '0')$$);
SELECT failure($$SELECT zk_xact_multilock_acquire('{/regress/c,/regress/b,/regress/a}')$$);
SELECT claims();
SELECT zk_lock_acquire('/regress/a');
SELECT failure($$SELECT zk_multilock_acquire('{/regress/c,/regress/b,/regress/a}', '1 h')$$);
SELECT claims();
SELECT zk_read_lock_release('/regress/b');
SELECT zk_semaphore_acquire('/regress/c', 1);
SELECT failure($$SELECT zk_multilock_acquire('{/regress/c,/regress/b,/regress/a}', '1 h')$$);
SELECT claims();
SELECT zk_lock_release_all();
SELECT zk_multilock_acquire('{/regress/c,/regress/b,/regress/a}', '1 h');
SELECT claims();

-- what ends session-level locks behind zklock's back
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT claims();
SELECT zk_multilock_acquire('{/regress/a,/regress/b}');
DISCARD ALL;
SELECT claims();

-- where it is refused
BEGIN;
SELECT zk_xact_multilock_acquire('{/regress/a,/regress/b}');
PREPARE TRANSACTION 'zklock';
\echo :LAST_ERROR_SQLSTATE
SELECT claims();
CREATE FUNCTION lies() RETURNS boolean LANGUAGE sql PARALLEL SAFE
RETURN zk_multilock_acquire('{/regress/a,/regress/b}');
SELECT name AS parallel FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel = on;
SELECT lies();
\echo :LAST_ERROR_SQLSTATE
RESET :parallel;
SELECT claims();

CALL all_is_gone();
CALL wait_until('entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
DROP FUNCTION thousand, held, lies;
