-- Many locks, many counts, many levels.
\pset tuples_only
\pset format unaligned
CREATE FUNCTION count_claims() RETURNS text LANGUAGE sql AS $$
SELECT format('%s held, %s local locks', count(*),
			  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))
FROM zk_locks WHERE pid = pg_backend_pid() AND granted $$;

BEGIN;
SELECT count(*) FROM generate_series(1, 300) i WHERE zk_xact_lock_acquire('/regress/many/' || i);
SELECT count_claims();
SAVEPOINT s;
SELECT count(*) FROM generate_series(201, 500) i WHERE zk_xact_lock_acquire('/regress/many/' || i);
SELECT count_claims();
ROLLBACK TO s;
SELECT count_claims();
SELECT count(*) FROM generate_series(1, 300) i WHERE zk_lock_acquire('/regress/many/' || i, '0');
COMMIT;
SELECT count_claims();
SELECT zk_lock_release_all();
SELECT count_claims();

-- one lock very often
BEGIN;
SELECT count(*) FROM generate_series(1, 10000) i WHERE zk_lock_acquire('/regress/a') AND zk_xact_lock_acquire('/regress/a');
SELECT claims();
COMMIT;
SELECT zk_lock_release_all(), claims();

-- a hundred savepoints deep; every third is rolled back
CREATE FUNCTION deep(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF n = 0 THEN
		RAISE NOTICE 'deepest: %', count_claims();
		RETURN;
	END IF;
	PERFORM zk_xact_lock_acquire('/regress/deep/' || n), zk_xact_lock_acquire('/regress/deep/0');
	PERFORM deep(n - 1);
	IF n % 3 = 0 THEN
		RAISE 'here';
	END IF;
EXCEPTION WHEN raise_exception THEN
END $$;
BEGIN;
SELECT deep(100) IS NOT NULL;
SELECT claims();
COMMIT;

-- nothing is left of all that
CALL all_is_gone();
CALL wait_until('entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
SELECT claims();
DROP FUNCTION count_claims, deep;
