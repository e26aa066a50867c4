-- One server's databases share the locks, whatever their encodings.  "other" is a
-- session in another database that tries to get the lock.
\pset tuples_only
\pset format unaligned
\set main :DBNAME
CREATE DATABASE regress_zklock_utf8 ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
CREATE DATABASE regress_zklock_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
CREATE DATABASE regress_zklock_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0;
\c regress_zklock_latin1
CREATE EXTENSION zklock;
\c regress_zklock_utf8
CREATE EXTENSION zklock;

SELECT zk_lock_acquire('/regress/a');
SELECT datname FROM zk_locks WHERE path = '/regress/a';
\set other `psql -XqAt -d regress_zklock_latin1 -c "SELECT zk_lock_acquire('/regress/a', '0'), datname FROM zk_locks WHERE path = '/regress/a'"`
\echo :other
SELECT zk_lock_token('/regress/a') AS token \gset
SELECT zk_lock_release('/regress/a');
\set other `psql -XqAt -d regress_zklock_latin1 -c "SELECT zk_lock_acquire('/regress/a', '0')" -c "SELECT zk_lock_token('/regress/a')"`
SELECT split_part(:'other', E'\n', 1), split_part(:'other', E'\n', 2)::bigint > :token;

-- a path is text, not bytes: UTF-8 here is Latin-1 there
SET client_encoding = 'UTF8';
SELECT zk_lock_acquire('/regress/Käse'), zk_lock_acquire('/regress/锁');
SELECT path FROM zk_locks WHERE pid = pg_backend_pid() ORDER BY path COLLATE "C";
SELECT zk_lock_is_held(U&'/regress/K\00e4se'), zk_lock_is_held(U&'/regress/Ka\0308se');
\set other `psql -XqAt -d regress_zklock_latin1 -c "SET client_encoding = 'UTF8'" -c "SELECT zk_lock_acquire('/regress/K' || chr(228) || 'se', '0'), octet_length('/regress/K' || chr(228) || 'se')" -c "SELECT path FROM zk_locks WHERE granted ORDER BY path COLLATE \"C\""`
\echo :other
SELECT zk_lock_release('/regress/Käse'), zk_lock_release('/regress/锁');
\set other `psql -XqAt -d regress_zklock_latin1 -c "SET client_encoding = 'UTF8'" -c "SELECT zk_lock_acquire('/regress/K' || chr(228) || 'se', '1 minute')" -c "SELECT path, zk_lock_release(path) FROM zk_locks WHERE granted"`
\echo :other

-- a path that another encoding lacks: the escaped text that is shown there stands for it, and acquires nothing
SELECT zk_run_once('/regress/锁', '2026-01-01 02:00+00');
\set other `psql -XqAt -d regress_zklock_latin1 -c "SELECT path, holder_pid > 0 FROM zk_jobs WHERE path LIKE '/regress/%'"`
\echo :other
SELECT split_part(:'other', '|', 1) AS escaped \gset
\setenv ESCAPED :escaped
\set other `psql -XqAt -d regress_zklock_latin1 -c "SELECT holds, database FROM zk_lock_queue('$ESCAPED')" -c "SELECT zk_path_is_allowed('$ESCAPED'), zk_lock_revoke('$ESCAPED/1'), zk_lock_force_release('$ESCAPED/1'), count(*) FROM zk_cluster_locks('$ESCAPED')" -c "SELECT zk_lock_acquire('$ESCAPED', '0')" -c "\set VERBOSITY sqlstate" -c "SELECT zk_multilock_acquire(ARRAY['/regress/a', '$ESCAPED'], '0')" -c "SELECT zk_job_forget('$ESCAPED')" -c "SELECT zk_lock_acquire(p, '0'), zk_lock_release(p) FROM unnest(ARRAY['/regress/\x41', '/regress/\xe9', '/regress/\xE9\x94\x81', '/regress/\xc3\xa4']) AS p" 2>&1`
\echo :other
SELECT zk_lock_acquire(:'escaped', '0'), zk_lock_release(:'escaped'), zk_lock_release('/regress/锁'), zk_job_forget('/regress/锁');

-- where the encoding has the characters of a path, the text with escapes is another path, also in a session's first call; a refused path changes nothing
\set other `psql -XqAt -d regress_zklock_latin1 -c "\set VERBOSITY sqlstate" -c "SELECT zk_lock_is_held('/regress/\xc3\xa4')" -c "SELECT zk_lock_acquire('/regress/a')" -c "SELECT zk_lock_is_held('$ESCAPED/')" -c "SELECT zk_lock_release('/regress/a')" 2>&1`
\echo :other

-- paths in settings are UTF-8, too
\set other `psql -XqAt -d regress_zklock_latin1 -c "\set VERBOSITY sqlstate" -c "SELECT set_config('zklock.commit_under', '/regress/K' || chr(228) || 'se', false)" -c "SELECT set_config('zklock.commit_requires', '/regress/K' || chr(228) || 'se', false)" 2>&1`
\echo :other

-- the limit is in bytes of UTF-8, and some characters are refused
SELECT zk_lock_acquire('/regress/' || repeat('ä', 123)), zk_lock_release('/regress/' || repeat('ä', 123));
\set VERBOSITY sqlstate
SELECT zk_lock_acquire('/regress/' || repeat('ä', 124));
SELECT zk_lock_acquire(U&'/regress/\0085');
SELECT zk_lock_acquire(U&'/regress/\e000');
SELECT zk_lock_acquire(U&'/regress/\ffff');
SELECT zk_lock_acquire(U&'/regress/\+01f512');
\set VERBOSITY default
SELECT zk_lock_acquire(U&'/regress/\00a0\d7ff\f900\ffef');
SELECT zk_lock_release_all();

-- without an encoding, the bytes have to be UTF-8
\c regress_zklock_ascii
CREATE EXTENSION zklock;
SELECT zk_lock_acquire(E'/regress/K\xc3\xa4se');
SELECT path FROM zk_locks WHERE pid = pg_backend_pid();
\set other `psql -XqAt -d regress_zklock_utf8 -c "SELECT zk_lock_acquire('/regress/Käse', '0')"`
\echo :other
\set VERBOSITY sqlstate
SELECT zk_lock_acquire(E'/regress/\xe4');
\set VERBOSITY default
SELECT zk_lock_release_all();

-- a database goes while a lock that was acquired there is kept
\c regress_zklock_latin1
SELECT zk_lock_acquire('/regress/a'), zk_lock_release('/regress/a'), zk_lock_acquire('/regress/a');
\c :main
CALL wait_until($$pg_stat_clear_snapshot() IS NOT NULL
				  AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname LIKE 'regress_zklock_%')$$);
DROP DATABASE regress_zklock_utf8;
DROP DATABASE regress_zklock_ascii;
DROP DATABASE regress_zklock_latin1;
SELECT zk_lock_acquire('/regress/a', '1 minute'), zk_lock_release('/regress/a');
CALL all_is_gone();
