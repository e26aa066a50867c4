-- demo/ledger.sql: the database that all the servers work for.  It is a plain
-- PostgreSQL, without zklock.
--
-- It writes down what the servers say, with the time by its own clock, and judges
-- nothing: no constraint and no lock here keeps two of them apart.

-- The nightly batch.
CREATE TABLE chunk (
	id		integer PRIMARY KEY,
	amount	bigint NOT NULL,			-- what the chunk adds to the report
	seconds	numeric NOT NULL,			-- how long it takes
	done	boolean NOT NULL DEFAULT false
);

SELECT setseed(0.5) \g /dev/null
INSERT INTO chunk (id, amount, seconds)
	SELECT id, 1 + id * 37 % 100, round((0.5 + 2 * random())::numeric, 2)
	FROM generate_series(1, :chunks) AS id;

-- The report has a single figure.  It is read in one statement and written back
-- in another, so two jobs that do this at the same time spoil it.
CREATE TABLE report (total bigint NOT NULL);
INSERT INTO report VALUES (0);

-- The history: what was done under which lock.  A period lies within the time for
-- which the lock was held, and the work lies within the period.
CREATE TABLE work (
	id		bigserial PRIMARY KEY,
	path	text NOT NULL,
	server	text NOT NULL,
	job		text NOT NULL,
	token	bigint NOT NULL,
	began	timestamptz NOT NULL DEFAULT clock_timestamp(),
	ended	timestamptz
);

-- The demo kills a server after "not_before", and it is dead by "not_after".
CREATE TABLE outage (
	server		text NOT NULL,
	not_before	timestamptz NOT NULL,
	not_after	timestamptz
);

-- pg_cron: which servers it called, and which of them closed a minute.  The demo collects
-- this from the servers afterwards; nothing there depends on it.
CREATE TABLE cron_call (minute timestamptz NOT NULL, server text NOT NULL);
CREATE TABLE closed_minute (minute timestamptz NOT NULL, server text NOT NULL);

-- The leader of the servers, before and after it was killed
CREATE TABLE leader_change (
	killed	text NOT NULL,
	leads	text NOT NULL,
	after	interval NOT NULL
);

-- What the servers call.  Each call is a transaction of its own, so what was
-- written stays when the server that wrote it dies.
CREATE FUNCTION begin_work(path text, server text, job text, token bigint) RETURNS bigint
LANGUAGE sql AS $$
	INSERT INTO work (path, server, job, token) VALUES ($1, $2, $3, $4) RETURNING id;
$$;

CREATE FUNCTION end_work(VARIADIC works bigint[]) RETURNS void
LANGUAGE sql AS $$
	UPDATE work SET ended = clock_timestamp() WHERE id = ANY ($1);
$$;

CREATE FUNCTION finish_chunk(chunk integer, new_total bigint,
							 chunk_work bigint, report_work bigint) RETURNS void
LANGUAGE sql AS $$
	UPDATE report SET total = $2;
	UPDATE chunk SET done = true WHERE id = $1;
	SELECT end_work($3, $4);
$$;

-- Wait until the server is at the report, when jobs of other servers soon wait for it,
-- and note that from now on it may be dead.
CREATE PROCEDURE begin_outage(server text)
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..1000 LOOP
		EXIT WHEN EXISTS (SELECT FROM work AS w
						  WHERE path = '/nightly/report' AND w.server = $1 AND ended IS NULL);
		PERFORM pg_sleep(0.01);
	END LOOP;
	INSERT INTO outage VALUES ($1, clock_timestamp());
END;
$$;

CREATE PROCEDURE end_outage(server text)
LANGUAGE sql AS $$
	UPDATE outage SET not_after = clock_timestamp() WHERE server = $1;
$$;

-- For the live picture
CREATE VIEW progress AS
	SELECT format('[%s%s] %s of %s chunks', repeat('#', done * 30 / total),
				  repeat('.', 30 - done * 30 / total), done, total)
	FROM (SELECT count(*) FILTER (WHERE done)::integer AS done, count(*)::integer AS total
		  FROM chunk) AS c;
