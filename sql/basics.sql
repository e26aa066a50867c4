-- Acquire, re-entry, release, tokens.
\pset tuples_only
\pset format unaligned

-- as often as one likes, and released as often
SELECT zk_lock_acquire('/regress/a');
SELECT zk_lock_acquire('/regress/a', '0');
SELECT zk_lock_acquire(timeout => '1 minute', path => '/regress/a');
SELECT claims();
SELECT zk_lock_release('/regress/a'), zk_lock_release('/regress/a');
SELECT zk_lock_is_held('/regress/a'), claims();
SELECT zk_lock_release('/regress/a');
SELECT zk_lock_is_held('/regress/a'), claims();

-- what is not held
SELECT zk_lock_release('/regress/a');
SELECT zk_lock_release('/regress/never');
SELECT zk_lock_is_held('/regress/never');
SELECT failure($$SELECT zk_lock_token('/regress/never')$$);
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a');
SELECT zk_lock_release('/regress/a');
SELECT zk_lock_is_held('/regress/a'), claims();
COMMIT;
SELECT failure($$SELECT zk_lock_token('/regress/a')$$);

-- release all: how many acquires that were
SELECT zk_lock_release_all();
SELECT zk_lock_acquire('/regress/a'), zk_lock_acquire('/regress/b'), zk_lock_acquire('/regress/a');
SELECT claims();
SELECT zk_lock_release_all();
SELECT zk_lock_release_all(), claims();
BEGIN;
SELECT zk_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/b');
SELECT zk_lock_release_all();
SELECT claims();
COMMIT;
SELECT claims();

-- a path and another one below it are two locks
SELECT zk_lock_acquire('/regress/a'), zk_lock_acquire('/regress/a/b/c/d'), zk_lock_acquire('/regress');
SELECT zk_lock_release('/regress/a');
SELECT zk_lock_is_held('/regress/a'), zk_lock_is_held('/regress/a/b/c/d'), claims();
SELECT zk_lock_release_all();
CALL wait_until($$NOT EXISTS (SELECT FROM zk_locks WHERE path = '/regress')$$);

-- upper and lower case differ, spaces count
SELECT zk_lock_acquire('/regress/a'), zk_lock_is_held('/regress/A'), zk_lock_is_held('/regress/a ');
SELECT zk_lock_release_all();

-- tokens: the same on re-entry, greater for each claim
CREATE FUNCTION next_token(OUT same boolean, OUT greater boolean) LANGUAGE plpgsql AS $$
DECLARE
	token bigint := zk_lock_token('/regress/token');
	last bigint := nullif(current_setting('regress.token', true), '');
BEGIN
	PERFORM set_config('regress.token', token::text, false);
	same := token = last;
	greater := token > last;
END $$;

SELECT zk_lock_acquire('/regress/token'), next_token();
SELECT zk_lock_acquire('/regress/token'), next_token();
BEGIN;
SELECT zk_xact_lock_acquire('/regress/token'), next_token();
SELECT zk_lock_release('/regress/token'), next_token();
SELECT zk_lock_release('/regress/token'), next_token();
COMMIT;
BEGIN;
SELECT zk_xact_lock_acquire('/regress/token'), next_token();
SAVEPOINT s;
SELECT zk_xact_lock_acquire('/regress/token'), next_token();
ROLLBACK TO s;
SELECT next_token();
ROLLBACK;
SELECT zk_lock_acquire('/regress/token'), next_token();
SELECT zk_lock_release('/regress/token');

-- also from one ticket to the next
CALL wait_until($$NOT EXISTS (SELECT FROM zk_locks WHERE path = '/regress/token')$$);
SELECT zk_lock_acquire('/regress/token'), next_token();
SELECT zk_lock_release('/regress/token');

-- a hundred claims, quickly one after the other
DO $$
DECLARE
	last bigint := current_setting('regress.token');
BEGIN
	FOR i IN 1..100 LOOP
		IF NOT zk_lock_acquire('/regress/token', '1 minute') OR zk_lock_token('/regress/token') <= last THEN
			RAISE 'claim % has a token that is not greater', i;
		END IF;
		last := zk_lock_token('/regress/token');
		PERFORM zk_lock_release('/regress/token');
	END LOOP;
END $$;

DROP FUNCTION next_token;
CALL all_is_gone();
