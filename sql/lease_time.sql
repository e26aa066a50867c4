-- A lock with a lease time ends by itself.  What runs at that moment is
-- cancelled, so what waits for it is a statement that knows what comes.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never
\set VERBOSITY terse

-- the error that a command raises, without the time at which the lease ended
CREATE FUNCTION refusal(command text) RETURNS text LANGUAGE sql AS
$$ SELECT regexp_replace(failure(command), '(ended at) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\S*?\.( /|$)', '\1 T.\2') $$;

-- wait until the worker has ended the lease; it may cancel this
CREATE FUNCTION over(path text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	CALL wait_until(format('EXISTS (SELECT FROM zk_locks WHERE path = %L AND pid = pg_backend_pid() AND claim = ''lost'')', path));
	PERFORM pg_sleep(0.01);
	RETURN 'over';
EXCEPTION WHEN SQLSTATE 'ZK002' THEN
	RETURN 'over';
END $$;

CREATE TABLE work (what text);

-- values
SELECT refusal($$SELECT zk_lock_acquire('/regress/a', NULL, '0')$$);
SELECT refusal($$SELECT zk_lock_acquire('/regress/a', lease_time => '-1 ms')$$);
SELECT refusal($$SELECT zk_xact_lock_acquire('/regress/a', lease_time => '100 years')$$);
SELECT refusal($$SELECT zk_read_lock_acquire('/regress/a', '0', '0')$$);
SELECT refusal($$SELECT zk_xact_read_lock_acquire('/regress/a', lease_time => '-1 day')$$);
SELECT refusal($$SELECT zk_write_lock_acquire('/regress/a', lease_time => '2147483648 ms')$$);
SELECT refusal($$SELECT zk_xact_write_lock_acquire('/regress/a', lease_time => '0.1 us')$$);
SELECT refusal($$SELECT zk_lock_acquire('/regress/a', '-1 ms', '0')$$);
SELECT refusal($$SELECT zk_lock_acquire('/regress/a', lease_time => '99.999 ms')$$);
SELECT refusal($$SELECT zk_claim_request('/regress/a', '1 microsecond')$$);
SELECT claims();

-- what is left of it
SELECT refusal($$SELECT zk_lock_remaining('/regress/a')$$);
SELECT zk_lock_acquire('/regress/a'), zk_lock_remaining('/regress/a');
SELECT zk_lock_acquire('/regress/a', lease_time => '1 hour');
SELECT zk_lock_remaining('/regress/a') BETWEEN '59 min' AND '1 hour';
SELECT zk_lock_remaining('/regress/a') - zk_lock_remaining('/regress/a') >= '0';
SELECT lease_ends - now() BETWEEN '59 min' AND '1 hour' FROM zk_locks WHERE path = '/regress/a';
-- each acquire that has one sets it anew, to what is less or more
SELECT zk_lock_acquire('/regress/a', lease_time => '10 min');
SELECT zk_lock_remaining('/regress/a') BETWEEN '9 min' AND '10 min';
SELECT zk_lock_acquire('/regress/a', '0', '2147483647 ms');
SELECT zk_lock_remaining('/regress/a') BETWEEN '24 days 20:00' AND '24 days 20:32';
-- and one without leaves it
SELECT zk_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/a', '0', NULL);
SELECT zk_lock_remaining('/regress/a') > '24 days';
SELECT zk_lock_release('/regress/a'), zk_lock_remaining('/regress/a') > '24 days';
SELECT zk_lock_release_all(), refusal($$SELECT zk_lock_remaining('/regress/a')$$);
-- the next one begins without
SELECT zk_lock_acquire('/regress/a'), zk_lock_remaining('/regress/a');
SELECT lease_ends FROM zk_locks WHERE path = '/regress/a';
SELECT zk_lock_release('/regress/a');
-- the kinds that have none
SELECT zk_semaphore_acquire('/regress/a', 1), zk_multilock_acquire('{/regress/b}');
SELECT zk_lock_remaining('/regress/a'), zk_lock_remaining('/regress/b');
SELECT zk_lock_release_all();
-- readers and writers
SELECT zk_write_lock_acquire('/regress/a', lease_time => '1 hour'), zk_read_lock_acquire('/regress/a');
SELECT zk_write_lock_release('/regress/a'), zk_lock_remaining('/regress/a') > '59 min';
SELECT zk_read_lock_acquire('/regress/a', lease_time => '10 min'), zk_lock_remaining('/regress/a') <= '10 min';
SELECT zk_lock_release_all();

-- the end of a session-level lock
SELECT zk_lock_acquire('/regress/a', lease_time => '500 ms');
SELECT zk_lock_token('/regress/a') AS token \gset
SELECT over('/regress/a');
SELECT zk_lock_is_held('/regress/a'), claims();
SELECT refusal($$SELECT zk_lock_token('/regress/a')$$);
SELECT refusal($$SELECT zk_lock_remaining('/regress/a')$$);
SELECT refusal($$SELECT zk_lock_is_revoked('/regress/a')$$);
-- a transaction that only reads gets a WARNING
SELECT 1;
-- a transaction that writes is refused
INSERT INTO work VALUES ('lost');
\echo :LAST_ERROR_SQLSTATE
-- the lock has to be released first
SELECT refusal($$SELECT zk_lock_acquire('/regress/a')$$);
SELECT refusal($$SELECT zk_lock_acquire('/regress/a', '0', '1 hour')$$);
SELECT zk_lock_release('/regress/a'), claims();
SELECT zk_lock_release('/regress/a');
INSERT INTO work VALUES ('released');
SELECT zk_lock_acquire('/regress/a'), zk_lock_token('/regress/a') > :token, zk_lock_remaining('/regress/a');
SELECT zk_lock_release('/regress/a');

-- the end of a transaction-level lock
BEGIN;
INSERT INTO work VALUES ('lost');
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '500 ms');
SELECT over('/regress/a');
SELECT zk_lock_is_held('/regress/a'), claims();
COMMIT;
\echo :LAST_ERROR_SQLSTATE
SELECT claims();
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '500 ms');
SELECT over('/regress/a');
ROLLBACK;
SELECT claims();
-- one that only reads is refused, too, because it asked for the lock
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '500 ms');
SELECT over('/regress/a');
COMMIT;
\echo :LAST_ERROR_SQLSTATE

-- acquired and cancelled by one statement: psql sees the error
DO $$
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/a', lease_time => '300 ms');
	CALL wait_until('false');
END $$;
\echo :LAST_ERROR_SQLSTATE
SELECT claims();
DO $$
BEGIN
	PERFORM zk_lock_acquire('/regress/a', lease_time => '300 ms');
	CALL wait_until('false');
END $$;
\echo :LAST_ERROR_SQLSTATE
SELECT refusal($$SELECT zk_lock_token('/regress/a')$$);
SELECT zk_lock_release('/regress/a');
-- with an exception block, which is a savepoint: the lock is gone with it
DO $$
BEGIN
	INSERT INTO work VALUES ('outside of the block');
	BEGIN
		PERFORM zk_xact_lock_acquire('/regress/a', lease_time => '300 ms');
		INSERT INTO work VALUES ('lost');
		CALL wait_until('false');
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE '% %', SQLSTATE, SQLERRM;
	END;
	RAISE NOTICE '%', claims();
END $$;
-- acquired outside of the block: the commit is refused
DO $$
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/a', lease_time => '300 ms');
	INSERT INTO work VALUES ('lost');
	BEGIN
		CALL wait_until('false');
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE '% %', SQLSTATE, SQLERRM;
	END;
	RAISE NOTICE '%', claims();
END $$;
\echo :LAST_ERROR_SQLSTATE
-- the same where the lock is released before the commit
DO $$
BEGIN
	PERFORM zk_lock_acquire('/regress/a', lease_time => '300 ms');
	INSERT INTO work VALUES ('lost');
	BEGIN
		CALL wait_until('false');
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE '% %', SQLSTATE, zk_lock_release('/regress/a');
	END;
	RAISE NOTICE '%', claims();
END $$;
\echo :LAST_ERROR_SQLSTATE
SELECT claims();

-- savepoints: what was acquired in it does not count any more
BEGIN;
INSERT INTO work VALUES ('before the savepoint');
SAVEPOINT s;
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '500 ms');
SELECT over('/regress/a');
ROLLBACK TO s;
SELECT claims();
COMMIT;
-- but it does if only a further acquire was
BEGIN;
INSERT INTO work VALUES ('lost');
SELECT zk_xact_lock_acquire('/regress/a');
SAVEPOINT s;
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '500 ms');
ROLLBACK TO s;
SELECT zk_lock_remaining('/regress/a') IS NOT NULL;
SELECT over('/regress/a');
COMMIT;
\echo :LAST_ERROR_SQLSTATE

-- released in time, it ends nothing any more
SELECT zk_lock_acquire('/regress/a', lease_time => '300 ms'), zk_lock_release('/regress/a');
SELECT zk_lock_acquire('/regress/a'), zk_lock_acquire('/regress/b', lease_time => '500 ms');
SELECT over('/regress/b');
SELECT zk_lock_is_held('/regress/a'), zk_lock_release_all();
-- prolonged in time, neither
DO $$
BEGIN
	PERFORM zk_lock_acquire('/regress/a', lease_time => '300 ms');
	PERFORM zk_lock_acquire('/regress/a', lease_time => '1 hour');
	PERFORM zk_xact_lock_acquire('/regress/b', lease_time => '400 ms');
	BEGIN
		CALL wait_until('false');
	EXCEPTION WHEN SQLSTATE 'ZK002' THEN
		RAISE NOTICE '%, %', SQLERRM, zk_lock_is_held('/regress/a');
	END;
END $$;
SELECT zk_lock_release_all();

-- of several locks one ends
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/b', lease_time => '500 ms'),
	   zk_xact_read_lock_acquire('/regress/c', lease_time => '1 hour');
SELECT over('/regress/b');
SELECT claims();
COMMIT;
\echo :LAST_ERROR_SQLSTATE
-- readers and writers
DO $$
BEGIN
	PERFORM zk_write_lock_acquire('/regress/a', lease_time => '300 ms'), zk_read_lock_acquire('/regress/a');
	CALL wait_until('false');
END $$;
SELECT claims();
SELECT zk_read_lock_release('/regress/a'), zk_write_lock_release('/regress/a'), claims();
DO $$
BEGIN
	PERFORM zk_write_lock_acquire('/regress/a', lease_time => '300 ms'), zk_read_lock_acquire('/regress/a');
	PERFORM zk_write_lock_release('/regress/a');
	CALL wait_until('false');
END $$;
SELECT claims();
SELECT refusal($$SELECT zk_read_lock_acquire('/regress/a')$$);
SELECT zk_lock_release_all(), claims();

-- a commit that comes too close to the end is refused as well
SET zklock.commit_margin = '2s';
BEGIN;
INSERT INTO work VALUES ('lost');
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '1900 ms');
COMMIT;
\echo :LAST_ERROR_SQLSTATE
SET zklock.commit_margin = 0;
BEGIN;
INSERT INTO work VALUES ('without a margin');
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '10 min');
COMMIT;
RESET zklock.commit_margin;

-- the guard looks, also when all that was held before was good
SELECT zk_lock_acquire('/regress/b');
BEGIN;
INSERT INTO work VALUES ('lost');
SELECT zk_xact_lock_acquire('/regress/a', lease_time => '1900 ms');
SET LOCAL zklock.commit_margin = '2s';
COMMIT;
\echo :LAST_ERROR_SQLSTATE
BEGIN;
INSERT INTO work VALUES ('lost');
SELECT zk_xact_lock_acquire('/regress/b', lease_time => '1900 ms');
SET LOCAL zklock.commit_margin = '2s';
COMMIT;
\echo :LAST_ERROR_SQLSTATE
SET zklock.commit_margin = 0;
SET client_min_messages = error;
SELECT zk_lock_release_all();
RESET client_min_messages;
RESET zklock.commit_margin;

-- a timeout and a cancel are what they are
SELECT zk_lock_acquire('/regress/a', lease_time => '1 hour');
SET statement_timeout = '10 ms';
SELECT pg_sleep(600);
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
DO $$
BEGIN
	PERFORM pg_cancel_backend(pg_backend_pid());
	PERFORM pg_sleep(600);
END $$;
\echo :LAST_ERROR_SQLSTATE
SELECT zk_lock_is_held('/regress/a'), zk_lock_release_all();
-- also after a lock has ended of which was told
DO $$
BEGIN
	PERFORM zk_lock_acquire('/regress/a', lease_time => '300 ms');
	CALL wait_until('false');
END $$;
SET statement_timeout = '10 ms';
SELECT pg_sleep(600);
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
SELECT zk_lock_release('/regress/a');

SELECT what FROM work;
DROP TABLE work;
DROP FUNCTION refusal, over;
CALL all_is_gone();
-- also where a long lease time was not used up
CALL wait_until('entries = 0 FROM zk_status');

-- DISCARD ALL ends what was lost, too
SELECT left(failure($$SELECT zk_lock_acquire('/regress/a', lease_time => '100 ms'), pg_sleep(600)$$), 5);
SET client_min_messages = error;
DISCARD ALL;
SELECT claims();
CREATE TABLE written_after_discard ();
DROP TABLE written_after_discard;
CALL all_is_gone();
