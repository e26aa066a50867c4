-- What the benchmark wants in each server.

CREATE EXTENSION zklock;

-- A table of locks, as people make one.
CREATE TABLE lock (path text PRIMARY KEY);
INSERT INTO lock SELECT 'w2/' || i FROM generate_series(1, 1000) AS i;
INSERT INTO lock VALUES ('w1'), ('w1x'), ('w3');
VACUUM ANALYZE lock;

-- The critical section of a round that checks: read a number, and write it back plus one,
-- with nothing that protects it but the lock.  A file, because servers share it.
CREATE FUNCTION bench_section(file text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT %s) TO %L', pg_read_file(file)::bigint + 1, file);
END $$;

CREATE SEQUENCE written MINVALUE 0 START 0;
SELECT nextval('written');

-- How many may be inside at a time.
CREATE SEQUENCE entered MINVALUE 0 START 0;
CREATE SEQUENCE has_left MINVALUE 0 START 0;
SELECT nextval('entered'), nextval('has_left');

CREATE FUNCTION bench_enter(n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	mine bigint := nextval('entered');
BEGIN
	-- A client that has left meanwhile is not counted, so this never finds more than there were.
	IF mine - (SELECT last_value FROM has_left) > n THEN
		RAISE 'more than % are inside', n;
	END IF;
	PERFORM nextval('has_left');
END $$;
