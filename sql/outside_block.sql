-- A transaction-level lock that ends with its statement: a WARNING where the statement does nothing else.
\pset tuples_only
\pset format unaligned
CREATE FUNCTION work() RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT 'done' $$;
CREATE FUNCTION locked_work() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	done record;
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/a');
	FOR done IN SELECT zk_xact_lock_acquire('/regress/a') LOOP
		RETURN 'done';
	END LOOP;
END $$;
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/a');
	COMMIT;
	PERFORM zk_xact_lock_acquire('/regress/a');
END $$;
CREATE TABLE written (t text);
CREATE FUNCTION lock_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/a');
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER lock_it AFTER INSERT ON written DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION lock_it();

-- every function for transaction-level locks: nothing else is done while the lock is held
SELECT zk_xact_lock_acquire('/regress/a');
SELECT zk_xact_read_lock_acquire('/regress/b', '1 min');
SELECT zk_xact_write_lock_acquire('/regress/c', lease_time => '1 min');
SELECT zk_xact_semaphore_acquire('/regress/d', 2);
SELECT zk_xact_multilock_acquire('{/regress/e, /regress/f}');
SELECT zk_xact_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/g');

-- the statement does its work under the lock
SELECT work() WHERE zk_xact_lock_acquire('/regress/a');
SELECT zk_xact_lock_acquire('/regress/a'), work();
SELECT zk_xact_lock_acquire('/regress/a') FROM generate_series(1, 2);
SELECT zk_xact_lock_acquire('/regress/a'), (SELECT work());
SELECT zk_xact_lock_acquire('/regress/' || floor(random()));
WITH w AS (INSERT INTO written VALUES ('x')) SELECT zk_xact_lock_acquire('/regress/a');
INSERT INTO written SELECT 'x' WHERE zk_xact_lock_acquire('/regress/a');
INSERT INTO written VALUES ('x');
SELECT locked_work();
CALL steps();
DO $$ BEGIN PERFORM zk_xact_lock_acquire('/regress/a'); END $$;

-- in a transaction, of whatever kind
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a');
SAVEPOINT s;
SELECT zk_xact_lock_acquire('/regress/a');
COMMIT;
SELECT zk_xact_lock_acquire('/regress/a')\; INSERT INTO written VALUES ('x');

-- session-level locks, and where nothing was acquired
SELECT zk_lock_acquire('/regress/a');
SELECT zk_xact_multilock_acquire('{}'), zk_xact_multilock_acquire('{}');
SELECT zk_lock_release('/regress/a');
SELECT claims();

DROP TABLE written;
DROP PROCEDURE steps;
DROP FUNCTION work, locked_work, lock_it;
CALL all_is_gone();
