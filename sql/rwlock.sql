-- The read-write lock in one session: levels, counts, the downgrade.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never
\set read 'zk_read_lock_acquire(\'/regress/a\')'
\set write 'zk_write_lock_acquire(\'/regress/a\')'
\set xread 'zk_xact_read_lock_acquire(\'/regress/a\')'
\set xwrite 'zk_xact_write_lock_acquire(\'/regress/a\')'
\set unread 'zk_read_lock_release(\'/regress/a\')'
\set unwrite 'zk_write_lock_release(\'/regress/a\')'

-- what the session has of the lock: its mode, its counts, PostgreSQL's own locks
CREATE FUNCTION rw() RETURNS text LANGUAGE sql AS $$
	SELECT coalesce((SELECT format('%s %s %s+%s %s', kind, mode, session_count, xact_count, claim)
					 FROM zk_locks WHERE path = '/regress/a' AND pid = pg_backend_pid()), 'none')
		|| '; local: '
		|| (SELECT coalesce(string_agg(mode, ' ' ORDER BY mode), 'none') FROM pg_locks
			WHERE locktype = 'advisory' AND database = 0 AND granted AND pid = pg_backend_pid()) $$;

-- each mode alone
SELECT :read, rw();
SELECT :unread, rw();
SELECT :write, rw();
SELECT :unwrite, rw();
BEGIN;
SELECT :xread, rw();
COMMIT;
SELECT rw();
BEGIN;
SELECT :xwrite, rw();
ROLLBACK;
SELECT rw();

-- a try, and a wait with a limit
SELECT zk_read_lock_acquire('/regress/a', '0'), zk_read_lock_acquire('/regress/a', '1 hour'), rw();
SELECT :unread, :unread, rw();
SELECT zk_write_lock_acquire('/regress/a', '1 hour'), zk_write_lock_acquire('/regress/a', '0'), rw();
SELECT :unwrite, :unwrite, rw();

-- re-entrant
SELECT :read, :read, :read, rw();
SELECT :unread, rw();
SELECT :unread, :unread, rw();
SELECT :unread;
SELECT :write, :write, :read, :read, rw();
SELECT :unread, :unwrite, rw();
SELECT :unread, rw();
SELECT :unread;
SELECT :unwrite, rw();
SELECT :unwrite;

-- each release takes off its own mode only
SELECT :read;
SELECT :unwrite;
SELECT rw();
SELECT :unread;
SELECT :write;
SELECT :unread;
SELECT rw();
SELECT :unwrite;
BEGIN;
SELECT :xread, :xread;
SELECT :unread;
SELECT :unwrite;
COMMIT;
BEGIN;
SELECT :xwrite;
SELECT :unread;
SELECT :unwrite;
COMMIT;

-- a writer may read, and goes on reading
SELECT :write, :read, rw();
SELECT zk_lock_token('/regress/a') AS token \gset
SELECT :unwrite, rw();
SELECT zk_lock_is_held('/regress/a'), zk_lock_token('/regress/a') = :token;
SELECT :read, zk_lock_token('/regress/a') = :token;
SELECT :unread, :unread, rw();

-- a reader may not write, also after a downgrade
SELECT :read;
SELECT :write;
\echo :LAST_ERROR_SQLSTATE
SELECT failure('SELECT ' || $$zk_write_lock_acquire('/regress/a', '0')$$);
SELECT failure('SELECT ' || $$zk_xact_write_lock_acquire('/regress/a', '1 hour')$$);
SELECT rw();
SELECT :unread;
SELECT :write, :read, :unwrite;
SELECT failure('SELECT ' || $$zk_write_lock_acquire('/regress/a')$$);
SELECT :unread;
-- but still may if it never stopped writing
SELECT :write, :read, :write, :unwrite, :write, rw();
SELECT :unread, :unwrite, :unwrite, rw();

-- the downgrade in all mixes of levels: session and session is above;
-- session write, transaction read: the read ends with the transaction
BEGIN;
SELECT :write, :xread, rw();
SELECT :unwrite, rw();
COMMIT;
SELECT rw();
BEGIN;
SELECT :write, :xread, rw();
COMMIT;
SELECT rw();
SELECT :unwrite, rw();
BEGIN;
SELECT :write, :xread;
ROLLBACK;
SELECT rw();
SELECT :unwrite, rw();

-- transaction write, session read: at commit the read remains
BEGIN;
SELECT :xwrite, :read, rw();
COMMIT;
SELECT rw();
SELECT :unread, rw();
BEGIN;
SELECT :xwrite, :read;
ROLLBACK;
SELECT rw();
SELECT :unread, rw();
BEGIN;
SELECT :xwrite, :read, :unread, rw();
COMMIT;
SELECT rw();

-- transaction write, transaction read
BEGIN;
SELECT :xwrite, :xread, rw();
COMMIT;
SELECT rw();

-- both levels of both modes
BEGIN;
SELECT :write, :xwrite, :read, :xread, rw();
SELECT :unwrite, rw();
SELECT :unread, rw();
SELECT :read, rw();
COMMIT;
SELECT rw();
SELECT :unread, rw();
BEGIN;
SELECT :xwrite, :write, :xread, :read;
COMMIT;
SELECT rw();
SELECT :unwrite, rw();
SELECT :unread, rw();
BEGIN;
SELECT :xread, :read, rw();
SELECT :unread, rw();
SELECT :read;
COMMIT;
SELECT rw();
SELECT :unread, rw();

-- savepoints: the write is rolled back under the read
BEGIN;
SAVEPOINT s;
SELECT :xwrite, :read, rw();
ROLLBACK TO s;
SELECT rw();
COMMIT;
SELECT :unread, rw();
BEGIN;
SELECT :xread;
SAVEPOINT s;
SELECT :xwrite;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
SELECT rw();
COMMIT;
-- the read is rolled back under the write
BEGIN;
SELECT :xwrite;
SAVEPOINT s;
SELECT :xread, :xread, rw();
ROLLBACK TO s;
SELECT rw();
SELECT :xread;
RELEASE s;
SELECT rw();
COMMIT;
SELECT rw();
-- the write in a savepoint that is released; then it is the parent's
BEGIN;
SAVEPOINT s1;
SAVEPOINT s2;
SELECT :xwrite, :read;
RELEASE s2;
SELECT rw();
ROLLBACK TO s1;
SELECT rw();
COMMIT;
SELECT :unread, rw();
-- a read, and a write above it, each at a level of its own
BEGIN;
SELECT :xwrite;
SAVEPOINT s1;
SELECT :xread;
SAVEPOINT s2;
SELECT :xwrite, :xread, rw();
ROLLBACK TO s2;
SELECT rw();
SAVEPOINT s3;
SELECT :xwrite;
RELEASE s1;
SELECT rw();
COMMIT;
SELECT rw();
-- a session-level lock knows no savepoints
BEGIN;
SAVEPOINT s;
SELECT :write, :read;
ROLLBACK TO s;
SELECT rw();
SAVEPOINT s;
SELECT :unwrite;
ROLLBACK TO s;
SELECT rw();
ROLLBACK;
SELECT :unread, rw();
-- an error in a savepoint
BEGIN;
SELECT :read;
SAVEPOINT s;
SELECT :xread, 1/0;
ROLLBACK TO s;
SELECT rw();
COMMIT;
SELECT :unread, rw();

-- exception blocks
CREATE FUNCTION write_then_fail() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM zk_xact_write_lock_acquire('/regress/a');
		PERFORM zk_read_lock_acquire('/regress/a');
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		RETURN rw();
	END;
END $$;
SELECT write_then_fail();
SELECT :unread, rw();
DO $$
BEGIN
	PERFORM zk_xact_read_lock_acquire('/regress/a');
	BEGIN
		PERFORM zk_xact_write_lock_acquire('/regress/a');
	EXCEPTION WHEN object_not_in_prerequisite_state THEN
		RAISE NOTICE '%', rw();
	END;
END $$;
SELECT rw();

-- a cursor
BEGIN;
DECLARE c CURSOR FOR SELECT i, zk_xact_read_lock_acquire('/regress/a') FROM generate_series(1, 3) AS i;
FETCH 2 FROM c;
SELECT rw();
CLOSE c;
SELECT rw();
COMMIT;
BEGIN;
DECLARE held CURSOR WITH HOLD FOR SELECT :xwrite, :read;
COMMIT;
SELECT rw();
FETCH held;
CLOSE held;
SELECT :unread, rw();

-- release_all counts acquires of both modes
SELECT :write, :write, :read, zk_read_lock_acquire('/regress/b'), zk_lock_acquire('/regress/c');
SELECT zk_lock_release_all(), claims();
BEGIN;
SELECT :write, :xread, rw();
SELECT zk_lock_release_all(), rw();
COMMIT;
SELECT rw();
BEGIN;
SELECT :xwrite, :read, :read;
SELECT zk_lock_release_all(), rw();
COMMIT;
SELECT rw();

-- pg_advisory_unlock_all() releases the session-level locks of both modes
SELECT :read;
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT rw();
SELECT :write, :read;
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT rw();
SELECT :write, :read, :unwrite;
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT rw();
BEGIN;
SELECT :write, :xread;
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT zk_lock_is_held('/regress/a'), rw();
COMMIT;
SELECT rw();
BEGIN;
SELECT :xwrite, :read;
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT zk_lock_is_held('/regress/a'), rw();
SELECT :read, rw();
COMMIT;
SELECT rw();
SELECT :unread;
BEGIN;
SELECT :read, :xread, :read;
SELECT pg_advisory_unlock_all() IS NOT NULL;
SELECT zk_lock_is_held('/regress/a'), rw();
COMMIT;
SELECT rw();
SELECT :write, :read;
DISCARD ALL;
SELECT rw();
SELECT :read;
DISCARD ALL;
SELECT rw();

-- what the views show of it
SELECT :write;
SELECT kind, mode, claim, granted, ticket, session_count, xact_count, contended, revoked,
	   znode ~ '-__WRIT__\d{10}$' AS znode, lease_ends FROM zk_locks WHERE path = '/regress/a';
SELECT locktype, database, mode, granted, fastpath FROM pg_locks WHERE locktype = 'advisory';
SELECT :read;
SELECT mode FROM pg_locks WHERE locktype = 'advisory' ORDER BY mode;
SELECT :unwrite;
CALL wait_until($$ znode ~ '__READ__' FROM zk_locks WHERE path = '/regress/a' $$);
SELECT kind, mode, claim, granted, ticket, session_count, xact_count, contended
FROM zk_locks WHERE path = '/regress/a';
SELECT locktype, database, mode, granted, fastpath FROM pg_locks WHERE locktype = 'advisory';
SELECT :unread;

DROP FUNCTION rw, write_then_fail;
CALL all_is_gone();
