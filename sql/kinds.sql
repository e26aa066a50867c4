-- While a path is in use, it is one kind of lock: a mutex, a read-write lock or a semaphore.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never

CREATE TABLE kinds (kind text, acquire text, release text);
INSERT INTO kinds VALUES
	('mutex', 'zk_lock_acquire(%L)', 'zk_lock_release(%L)'),
	('mutex, of a transaction', 'zk_xact_lock_acquire(%L)', NULL),
	('mutex, of several', 'zk_multilock_acquire(ARRAY[%L])', 'zk_multilock_release(ARRAY[%L])'),
	('read', 'zk_read_lock_acquire(%L)', 'zk_read_lock_release(%L)'),
	('read, of a transaction', 'zk_xact_read_lock_acquire(%L)', NULL),
	('write', 'zk_write_lock_acquire(%L)', 'zk_write_lock_release(%L)'),
	('write, of a transaction', 'zk_xact_write_lock_acquire(%L)', NULL),
	('semaphore', 'zk_semaphore_acquire(%L, 2)', 'zk_semaphore_release(%L)'),
	('semaphore, of a transaction', 'zk_xact_semaphore_acquire(%L, 2)', NULL);

-- each of them while the session has each of them
CREATE PROCEDURE mix() LANGUAGE plpgsql AS $$
DECLARE
	has kinds;
	wants kinds;
	answers text;
	path text;
	n int := 0;
BEGIN
	FOR has IN SELECT * FROM kinds ORDER BY ctid LOOP
		answers := '';
		FOR wants IN SELECT * FROM kinds ORDER BY ctid LOOP
			n := n + 1;
			path := '/regress/mix/' || n;
			EXECUTE 'SELECT ' || format(has.acquire, path);
			answers := answers || ' ' ||
				split_part(failure('SELECT ' || format(wants.acquire, path)), ':', 1);
			COMMIT;
			PERFORM zk_lock_release_all();
		END LOOP;
		RAISE NOTICE '%:%', has.kind, answers;
	END LOOP;
END $$;
CALL mix();

-- the message
SELECT zk_lock_acquire('/regress/a');
SELECT zk_read_lock_acquire('/regress/a');
\echo :LAST_ERROR_SQLSTATE
SELECT failure($$SELECT zk_semaphore_acquire('/regress/a', 1, '0')$$);
SELECT zk_lock_release('/regress/a');

-- a wrong release gets a WARNING, and releases nothing
CREATE PROCEDURE release_wrongly() LANGUAGE plpgsql AS $$
DECLARE
	has kinds;
	wants kinds;
	released boolean;
	answers text;
	path text;
	n int := 0;
BEGIN
	FOR has IN SELECT * FROM kinds WHERE release IS NOT NULL ORDER BY ctid LOOP
		answers := '';
		FOR wants IN SELECT * FROM kinds WHERE release IS NOT NULL ORDER BY ctid LOOP
			n := n + 1;
			path := '/regress/wrongly/' || n;
			EXECUTE 'SELECT ' || format(has.acquire, path);
			EXECUTE 'SELECT ' || format(wants.release, path) INTO released;
			answers := answers || format(' %s %s,', released, zk_lock_is_held(path));
			PERFORM zk_lock_release_all();
		END LOOP;
		RAISE NOTICE '%:%', has.kind, answers;
	END LOOP;
END $$;
CALL release_wrongly();

-- an unused path may become another kind, also in the same transaction
BEGIN;
SELECT zk_lock_acquire('/regress/a'), zk_lock_release('/regress/a'),
	   zk_read_lock_acquire('/regress/a'), zk_read_lock_release('/regress/a'),
	   zk_semaphore_acquire('/regress/a', 2), zk_semaphore_release('/regress/a'),
	   zk_write_lock_acquire('/regress/a'), zk_write_lock_release('/regress/a'),
	   zk_semaphore_acquire('/regress/a', 3), zk_semaphore_release('/regress/a'),
	   zk_lock_acquire('/regress/a'), zk_lock_release('/regress/a');
SAVEPOINT s;
SELECT zk_xact_write_lock_acquire('/regress/a');
ROLLBACK TO s;
SELECT zk_xact_lock_acquire('/regress/a');
COMMIT;
SELECT claims();

-- also while the ticket of the former kind lingers
DO $$
BEGIN
	FOR i IN 1..3 LOOP
		PERFORM zk_lock_acquire('/regress/a'), zk_lock_release('/regress/a');
	END LOOP;
	PERFORM zk_read_lock_acquire('/regress/a', '1 minute');
	RAISE NOTICE '%', (SELECT kind || ' ' || mode FROM zk_locks WHERE path = '/regress/a');
	PERFORM zk_read_lock_release('/regress/a');
	FOR i IN 1..3 LOOP
		PERFORM zk_write_lock_acquire('/regress/a'), zk_write_lock_release('/regress/a');
	END LOOP;
	PERFORM zk_semaphore_acquire('/regress/a', 1, '1 minute');
	RAISE NOTICE '%', (SELECT kind || ' ' || mode FROM zk_locks WHERE path = '/regress/a' AND claim = 'held');
	PERFORM zk_semaphore_release('/regress/a');
	FOR i IN 1..3 LOOP
		PERFORM zk_semaphore_acquire('/regress/a', 1), zk_semaphore_release('/regress/a');
	END LOOP;
	PERFORM zk_lock_acquire('/regress/a', '1 minute');
	RAISE NOTICE '%', (SELECT kind || ' ' || mode FROM zk_locks WHERE path = '/regress/a' AND claim = 'held');
	PERFORM zk_lock_release('/regress/a');
END $$;

-- neighbours are other locks
SELECT zk_lock_acquire('/regress/a'), zk_read_lock_acquire('/regress/a/b'), zk_semaphore_acquire('/regress/a/b/c', 1);
SELECT claims();
SELECT zk_lock_release_all();

-- paths and timeouts are judged by the same rules
SELECT failure($$SELECT zk_read_lock_acquire('a')$$);
SELECT failure($$SELECT zk_write_lock_acquire(NULL)$$);
SELECT failure($$SELECT zk_xact_read_lock_acquire('/regress/a', '-1 ms')$$);
SELECT failure($$SELECT zk_xact_write_lock_acquire('/regress/a', '100 years')$$);
SELECT failure($$SELECT zk_read_lock_release('a')$$);
SELECT failure($$SELECT zk_write_lock_release(NULL)$$);
SELECT failure($$SELECT zk_lock_remaining('a')$$);
SELECT failure($$SELECT zk_lock_is_revoked(NULL)$$);
SELECT failure($$SELECT zk_lock_is_revoked('/regress/a')$$);
SELECT claims();

DROP TABLE kinds;
DROP PROCEDURE mix, release_wrongly;
CALL all_is_gone();
