-- The extension comes and goes while a lock is held; the lock stays.
\pset tuples_only
\pset format unaligned
\set VERBOSITY terse
SELECT zk_lock_acquire('/regress/a');
SELECT zk_lock_token('/regress/a') AS token \gset
DROP EXTENSION zklock;
SELECT zk_lock_is_held('/regress/a');
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
CREATE EXTENSION zklock;
SELECT zk_lock_is_held('/regress/a'), zk_lock_token('/regress/a') = :token, claims();
SELECT zk_lock_release('/regress/a');

-- in a transaction that holds one
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a');
DROP EXTENSION zklock;
ROLLBACK;
SELECT claims();
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a');
DROP EXTENSION zklock;
CREATE EXTENSION zklock;
SELECT claims();
COMMIT;
SELECT claims();

-- in a schema of its own, whatever the search path
DROP EXTENSION zklock;
CREATE SCHEMA zk;
CREATE EXTENSION zklock SCHEMA zk;
SELECT zk.zk_lock_acquire('/regress/a'), zk.zk_lock_is_held('/regress/a');
SELECT path, claim FROM zk.zk_locks WHERE pid = pg_backend_pid();
SELECT state FROM zk.zk_status;
SELECT zk.zk_lock_release('/regress/a');
DROP EXTENSION zklock;
DROP SCHEMA zk;

-- the objects of 1.0, whose rows have fewer columns, and then those of today
CREATE EXTENSION zklock VERSION '1.0';
SELECT count(*), count(stats_reset) FROM zk_stat;
ALTER EXTENSION zklock UPDATE;
SELECT count(*), count(late_commits), has_table_privilege('public', 'zk_stat', 'SELECT') FROM zk_stat;
SELECT extversion FROM pg_extension WHERE extname = 'zklock';
CALL all_is_gone();
