-- Where locks are refused: two-phase commit and parallel workers.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never

-- two-phase commit, with either scope
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a');
PREPARE TRANSACTION 'zklock';
\echo :LAST_ERROR_SQLSTATE
SELECT claims();
SELECT zk_lock_acquire('/regress/a');
BEGIN;
PREPARE TRANSACTION 'zklock';
\echo :LAST_ERROR_SQLSTATE
SELECT claims();
SELECT count(*) FROM pg_prepared_xacts;
SELECT zk_lock_release('/regress/a');

-- a function that lies about itself
CREATE FUNCTION lies(path text) RETURNS boolean LANGUAGE sql PARALLEL SAFE
RETURN zk_lock_acquire(path);
CREATE FUNCTION xact_lies(path text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE
AS $$ BEGIN RETURN zk_xact_lock_acquire(path, '0'); END $$;
SELECT name AS parallel FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel = on;
SELECT lies('/regress/a');
\echo :LAST_ERROR_SQLSTATE
SELECT xact_lies('/regress/a');
\echo :LAST_ERROR_SQLSTATE
RESET :parallel;
SELECT claims();

-- a parallel query in a transaction that holds locks
BEGIN;
SELECT zk_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/b');
SET LOCAL :parallel = on;
SELECT count(*) FROM pg_class WHERE relname = 'pg_class';
SAVEPOINT s;
SELECT lies('/regress/a');
ROLLBACK TO s;
SELECT zk_lock_is_held('/regress/a'), zk_lock_is_held('/regress/b');
COMMIT;
SELECT claims();

-- the lock functions themselves are never run in parallel
SET :parallel = on;
SELECT zk_lock_acquire('/regress/a'), zk_lock_release('/regress/a'), count(*) > 0 FROM zk_locks;
RESET :parallel;
SELECT zk_lock_release_all();

DROP FUNCTION lies, xact_lies;
CALL all_is_gone();
