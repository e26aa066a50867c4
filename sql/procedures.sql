-- Locks taken in functions, DO blocks, procedures and triggers.
\pset tuples_only
\pset format unaligned

-- a function's exception block is a savepoint
CREATE FUNCTION try_it(path text, fails boolean) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock_acquire(path);
	PERFORM zk_lock_acquire(path || '/session');
	IF fails THEN
		RAISE 'failed';
	END IF;
	RETURN 'done: ' || claims();
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM || ': ' || claims();
END $$;

BEGIN;
SELECT try_it('/regress/a', false);
SELECT try_it('/regress/b', true);
SELECT claims();
COMMIT;
SELECT claims();
SELECT zk_lock_release_all();

-- in each round of a loop another savepoint
DO $$
BEGIN
	FOR i IN 1..5 LOOP
		BEGIN
			PERFORM zk_xact_lock_acquire('/regress/' || i), zk_xact_lock_acquire('/regress/0');
			IF i % 2 = 0 THEN
				PERFORM 1 / 0;
			END IF;
		EXCEPTION WHEN division_by_zero THEN
		END;
	END LOOP;
	RAISE NOTICE '%', claims();
END $$;
SELECT claims();

-- a function's failure that is caught outside
CREATE FUNCTION outer_one() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/a');
	BEGIN
		PERFORM zk_xact_lock_acquire('/regress/b');
		BEGIN
			PERFORM zk_xact_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/c');
			RAISE 'inner';
		EXCEPTION WHEN division_by_zero THEN
			RAISE 'never';
		END;
	EXCEPTION WHEN raise_exception THEN
		RETURN SQLERRM || ': ' || claims();
	END;
END $$;
SELECT outer_one();

-- a bad call is an error as any other
DO $$
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/a');
	BEGIN
		PERFORM zk_xact_lock_acquire('nonsense');
	EXCEPTION WHEN invalid_parameter_value THEN
		RAISE NOTICE '%', claims();
	END;
END $$;

-- procedures that commit
CREATE PROCEDURE batch(rolls_back boolean) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_lock_acquire('/regress/batch');
	FOR i IN 1..2 LOOP
		PERFORM zk_xact_lock_acquire('/regress/chunk/' || i);
		RAISE NOTICE 'before: %', claims();
		IF rolls_back THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
		RAISE NOTICE 'after: %', claims();
	END LOOP;
	PERFORM zk_lock_release('/regress/batch');
	PERFORM zk_xact_lock_acquire('/regress/last');
	RAISE NOTICE 'last: %', claims();
END $$;
CALL batch(false);
CALL batch(true);
SELECT claims();

DO $$
BEGIN
	FOR i IN 1..2 LOOP
		PERFORM zk_xact_lock_acquire('/regress/do');
		COMMIT AND CHAIN;
		RAISE NOTICE '%', claims();
	END LOOP;
END $$;

-- what a deferred trigger takes lasts to the very end of the commit
CREATE TABLE jobs (id int);
CREATE FUNCTION lock_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock_acquire('/regress/job/' || NEW.id);
	RAISE NOTICE '%', claims();
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER lock_job AFTER INSERT ON jobs
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION lock_job();
BEGIN;
INSERT INTO jobs VALUES (1), (2);
SELECT claims();
COMMIT;
SELECT claims();

-- lock functions as any others in a query
SELECT count(*) FROM jobs WHERE zk_xact_lock_acquire('/regress/job/' || id, '0');
WITH locked AS (UPDATE jobs SET id = id + 10 WHERE zk_xact_lock_acquire('/regress/job/' || id) RETURNING id)
SELECT string_agg(id::text, ' '), claims() FROM locked;
PREPARE job(int) AS SELECT zk_lock_acquire('/regress/job/' || $1);
EXECUTE job(1);
EXECUTE job(1);
SELECT zk_lock_release_all();

DROP TABLE jobs;
DROP FUNCTION try_it, outer_one, lock_job;
DROP PROCEDURE batch;
CALL all_is_gone();
