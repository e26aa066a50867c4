-- Jobs: once a tick, and what the records say of the runs.
\pset tuples_only
\pset format unaligned
SET client_min_messages = warning;

CREATE FUNCTION forget_all() RETURNS void LANGUAGE sql AS
$$ SELECT zk_job_forget(path) FROM zk_jobs() WHERE path LIKE '/regress/%' $$;
CREATE VIEW jobs AS
SELECT path, tick AT TIME ZONE 'UTC' AS tick, state, attempt, ended_at >= started_at AS ended,
	   server = (SELECT node_name FROM zk_status) AS server, pid = pg_backend_pid() AS pid,
	   database = current_database() AS database, role = current_user AS role,
	   holder_pid = pg_backend_pid() AS holder
FROM zk_jobs WHERE path LIKE '/regress/%' ORDER BY path;
-- no commit waits for the record of the run's end
CREATE PROCEDURE job_says(job text, wanted text) LANGUAGE sql AS
$$ CALL wait_until(format('(SELECT state FROM zk_jobs() WHERE path = %L) = %L', job, wanted)) $$;
SELECT forget_all();

-- to the end of the transaction
BEGIN;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 02:00Z');
SELECT * FROM jobs;
SELECT zk_lock_is_held('/regress/jobs'), zk_lock_token('/regress/jobs') = token FROM zk_jobs WHERE path = '/regress/jobs';
-- again: the own run goes on
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 02:00Z'), zk_run_once('/regress/jobs', '2024-05-05 03:00Z', retry => true);
COMMIT;
CALL job_says('/regress/jobs', 'done');
SELECT * FROM jobs;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 02:00Z') AS same, zk_xact_run_once('/regress/jobs', '2024-05-05 01:59Z') AS older,
	   zk_xact_run_once('/regress/jobs', '2024-05-05 02:00Z', retry => true) AS retry;
SELECT zk_lock_is_held('/regress/jobs');

-- rolled back: failed, and used up all the same
BEGIN;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 03:00Z');
ROLLBACK;
CALL job_says('/regress/jobs', 'failed');
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 03:00Z');

-- but not for one that retries
BEGIN;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 02:30Z', retry => true) AS older, zk_xact_run_once('/regress/jobs', '2024-05-05 03:00Z', retry => true);
SELECT tick, state, attempt FROM jobs;
SELECT 1/0;
COMMIT;
CALL job_says('/regress/jobs', 'failed');
BEGIN;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 03:00Z', retry => true);
SELECT tick, state, attempt FROM jobs;
COMMIT;
CALL job_says('/regress/jobs', 'done');
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 03:00Z', retry => true);

-- savepoints
BEGIN;
SAVEPOINT s;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 04:00Z');
SAVEPOINT t;
ROLLBACK TO t;
SELECT zk_lock_is_held('/regress/jobs'), state FROM jobs;
ROLLBACK TO s;
SELECT zk_lock_is_held('/regress/jobs');
CALL job_says('/regress/jobs', 'failed');
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 04:00Z') AS once, zk_xact_run_once('/regress/jobs', '2024-05-05 04:00Z', retry => true) AS again;
RELEASE s;
COMMIT;
CALL job_says('/regress/jobs', 'done');
BEGIN;
SAVEPOINT s;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 05:00Z');
RELEASE s;
COMMIT;
CALL job_says('/regress/jobs', 'done');

-- with session scope, until it is released
SELECT zk_run_once('/regress/jobs', '2024-05-05 06:00Z');
SELECT zk_lock_is_held('/regress/jobs'), state, holder FROM jobs;
SELECT zk_run_once('/regress/jobs', '2024-05-05 06:00Z'), zk_run_once('/regress/jobs', '2024-05-05 07:00Z');
SELECT zk_lock_release('/regress/jobs');
CALL job_says('/regress/jobs', 'done');

-- and only a release says that it is done; the last transaction counts
SELECT zk_run_once('/regress/jobs', '2024-05-05 07:00Z');
SELECT 1/0;
SELECT zk_lock_release_all();
CALL job_says('/regress/jobs', 'failed');
SELECT zk_run_once('/regress/jobs', '2024-05-05 08:00Z');
SELECT 1/0;
SELECT 1;
SELECT zk_lock_release('/regress/jobs');
CALL job_says('/regress/jobs', 'done');
SELECT zk_run_once('/regress/jobs', '2024-05-05 09:00Z');
DISCARD ALL;
SET client_min_messages = warning;
CALL job_says('/regress/jobs', 'failed');
SELECT zk_run_once('/regress/jobs', '2024-05-05 09:30Z');
SELECT pg_advisory_unlock_all();
CALL job_says('/regress/jobs', 'failed');

-- a plain claim is no run; the run ends with its own acquire
SELECT zk_lock_acquire('/regress/jobs');
SELECT zk_run_once('/regress/jobs', '2024-05-05 10:00Z');
SELECT zk_lock_acquire('/regress/jobs');
SELECT zk_lock_release('/regress/jobs');
SELECT state FROM jobs;
SELECT zk_lock_release('/regress/jobs');
CALL job_says('/regress/jobs', 'done');
SELECT zk_lock_is_held('/regress/jobs');
BEGIN;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 11:00Z');
COMMIT;
CALL job_says('/regress/jobs', 'done');
SELECT zk_lock_is_held('/regress/jobs'), zk_lock_release('/regress/jobs');

-- in a procedure with COMMITs, and in the statement of a scheduler
CREATE TABLE ran (v text);
CREATE PROCEDURE nightly() LANGUAGE plpgsql AS $$
BEGIN
	IF zk_run_once('/regress/jobs', '2024-05-05 12:00Z') THEN
		INSERT INTO ran VALUES ('one');
		COMMIT;
		INSERT INTO ran VALUES ('two');
		COMMIT;
		PERFORM zk_lock_release('/regress/jobs');
	END IF;
END $$;
CALL nightly();
CALL nightly();
SELECT * FROM ran;
CREATE FUNCTION fail() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'failed'; END $$;
CREATE FUNCTION work() RETURNS text LANGUAGE sql AS $$ INSERT INTO ran VALUES ('statement') RETURNING v $$;
SELECT work() WHERE zk_xact_run_once('/regress/jobs', '2024-05-05 13:00Z');
CALL job_says('/regress/jobs', 'done');
SELECT work() WHERE zk_xact_run_once('/regress/jobs', '2024-05-05 13:00Z');
SELECT work() || fail() WHERE zk_xact_run_once('/regress/jobs', '2024-05-05 14:00Z');
CALL job_says('/regress/jobs', 'failed');
SELECT count(*) FROM ran;

-- one call in a statement runs the job; other calls do not, nor other rows, nor another execution
SET client_min_messages = error;
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 15:00Z'), zk_xact_run_once('/regress/jobs', '2024-05-05 15:00Z');
SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 16:00Z') FROM generate_series(1, 3);
RESET client_min_messages;
SET plan_cache_mode = force_generic_plan;
PREPARE run AS SELECT zk_xact_run_once('/regress/jobs', '2024-05-05 17:00Z');
BEGIN;
EXECUTE run;
EXECUTE run;
COMMIT;
RESET plan_cache_mode;
CALL job_says('/regress/jobs', 'done');

-- spacing: ticks that are near to the last one are the same
SELECT work() WHERE zk_xact_run_once('/regress/jobs', '2024-05-06 02:00Z', spacing => '1 hour');
SELECT work() WHERE zk_xact_run_once('/regress/jobs', '2024-05-06 03:00Z', spacing => '1 hour');
SELECT work() WHERE zk_xact_run_once('/regress/jobs', '2024-05-06 03:00:01Z', spacing => '1 hour');
SELECT tick, attempt FROM jobs;
-- one that retries keeps the tick
SELECT work() || fail() WHERE zk_xact_run_once('/regress/jobs', '2024-05-07 02:00Z', spacing => '1 hour');
SELECT work() WHERE zk_xact_run_once('/regress/jobs', '2024-05-07 02:30Z', spacing => '1 hour');
SELECT work() WHERE zk_xact_run_once('/regress/jobs', '2024-05-07 02:30Z', spacing => '1 hour', retry => true);
SELECT tick, attempt FROM jobs;

-- a job that runs twice a year
SELECT work() WHERE zk_xact_run_once('/regress/jobs/rarely', '2024-01-01 02:00Z', spacing => '5 months');
SELECT work() WHERE zk_xact_run_once('/regress/jobs/rarely', '2024-05-01 02:00Z', spacing => '5 months');

-- the tick that is the default is a minute's beginning, and nearly now
SELECT zk_run_once('/regress/jobs/default');
SELECT extract(epoch FROM tick) % 60 = 0, tick BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'
FROM zk_jobs WHERE path = '/regress/jobs/default';
SELECT zk_lock_release('/regress/jobs/default');

-- errors
CREATE FUNCTION fails(arguments text) RETURNS text LANGUAGE sql AS
$$ SELECT failure(format('SELECT zk_run_once(%s)', arguments)) $$;
SELECT fails($$NULL$$);
SELECT fails($$'/regress/jobs', NULL$$);
SELECT fails($$'/regress/jobs', 'infinity'$$);
SELECT fails($$'/regress/jobs', '-infinity'$$);
SELECT fails($$'/regress/jobs', retry => NULL$$);
SELECT fails($$'/regress/jobs', spacing => '-1 s'$$);
SELECT fails($$'/regress/jobs', spacing => '1000001 days'$$);
SELECT fails($$'/regress/jobs', timeout => '-1 s'$$);
SELECT fails($$'/.zklock'$$);
SELECT fails($$'/.zklock/jobs'$$);
SELECT failure($$SELECT zk_lock_acquire('/.zklock/jobs/x')$$);
SELECT regexp_replace(fails($$'/regress/jobs', clock_timestamp() + '62 s'$$), 'The tick is .* and ZooKeeper''s time is [^/]*', '...');
SELECT regexp_replace(fails($$'/regress/jobs', '294276-12-31 23:59Z'$$), 'The tick is .* and ZooKeeper''s time is [^/]*', '...');
SELECT regexp_replace(fails($$'/regress/new', '2035-01-01Z'$$), 'The tick is .* and ZooKeeper''s time is [^/]*', '...');
SELECT count(*) FROM zk_jobs WHERE path = '/regress/new' OR tick > '2025-01-01Z' AND path = '/regress/jobs';
SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL;
SELECT zk_run_once('/regress/old', '4713-01-01 00:00Z BC'), zk_lock_release('/regress/old');
SELECT tick FROM jobs WHERE path = '/regress/old';

-- another kind of lock
SELECT zk_read_lock_acquire('/regress/jobs');
SELECT fails($$'/regress/jobs', '2024-05-08 02:00Z'$$);
SELECT zk_read_lock_release('/regress/jobs');
CALL all_is_gone();

-- forgetting is for those who may take locks from others
CREATE ROLE regress_zklock_job;
SET ROLE regress_zklock_job;
SELECT failure($$SELECT zk_job_forget('/regress/jobs')$$);
SELECT zk_run_once('/regress/of role', '2024-05-07 02:00Z'), zk_lock_release('/regress/of role');
SELECT role = 'regress_zklock_job', holder_pid FROM zk_jobs WHERE path = '/regress/of role';
RESET ROLE;
GRANT pg_signal_backend TO regress_zklock_job;
SET ROLE regress_zklock_job;
SELECT zk_job_forget('/regress/of role'), zk_job_forget('/regress/of role');
-- a superuser's only for superusers
SELECT failure($$SELECT zk_job_forget('/regress/jobs')$$);
RESET ROLE;
DROP ROLE regress_zklock_job;
SELECT zk_run_once('/regress/jobs', '2024-01-01Z');
SELECT zk_job_forget('/regress/jobs');
SELECT zk_run_once('/regress/jobs', '2024-01-01Z'), zk_lock_release('/regress/jobs');

-- names of all kinds
SELECT work() WHERE zk_xact_run_once('/regress/100%/ä%2F "x''y"', '2024-01-01Z');
SELECT path FROM jobs WHERE path LIKE '/regress/100%';
SELECT forget_all();
CALL all_is_gone();
SELECT count(*) FROM jobs;

DROP FUNCTION fails(text), fail(), work(), forget_all();
DROP PROCEDURE nightly(), job_says(text, text);
DROP TABLE ran;
DROP VIEW jobs;
