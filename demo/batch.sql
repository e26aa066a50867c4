-- demo/batch.sql: the nightly batch, as it runs on each server that has zklock.

CREATE EXTENSION zklock;
CREATE EXTENSION dblink;

-- The way to the ledger.  Through dblink because each statement is committed there
-- at once, and because it works on a hot standby too.
CREATE SERVER ledger FOREIGN DATA WRAPPER dblink_fdw
	OPTIONS (host :'ledger_host', port :'ledger_port', dbname 'postgres');
CREATE USER MAPPING FOR PUBLIC SERVER ledger OPTIONS (user 'postgres');

-- ledger(STATEMENT [, ARGUMENT...]): the one value that it returns
CREATE FUNCTION ledger(statement text, VARIADIC arguments text[] DEFAULT '{}') RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
	IF dblink_get_connections() IS NULL THEN
		PERFORM dblink_connect('ledger', 'ledger');
	END IF;
	RETURN (SELECT value
			FROM dblink('ledger', format(statement, VARIADIC arguments)) AS answer(value text));
END;
$$;

-- Tell the ledger that work under a lock begins.
CREATE FUNCTION begin_work(path text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT ledger('SELECT begin_work(%L, %L, %L, %L)',
				  path, current_setting('cluster_name'), current_setting('application_name'),
				  zk_lock_token(path)::text)::bigint;
$$;

-- Every job does this until nothing is left.  No job knows how many others there are,
-- or on which servers.
CREATE PROCEDURE nightly_batch()
LANGUAGE plpgsql AS $$
DECLARE
	undone	integer[];
	mine	integer;
BEGIN
	LOOP
		undone := ledger('SELECT array_agg(id ORDER BY id) FROM chunk WHERE NOT done');
		EXIT WHEN undone IS NULL;
		mine := lock_chunk(undone);

		-- Between the look at the list and the lock, another job may have done it.
		IF mine IS NOT NULL AND
			NOT ledger('SELECT done FROM chunk WHERE id = %L', mine::text)::boolean
		THEN
			CALL do_chunk(mine);
		END IF;
		COMMIT;							-- releases what the transaction locked
	END LOOP;
END;
$$;

CREATE FUNCTION lock_chunk(undone integer[]) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
	chunk	integer;
BEGIN
	-- The first that no other job has: only try, with a timeout of 0.
	FOREACH chunk IN ARRAY undone LOOP
		IF zk_xact_lock_acquire('/nightly/chunk-' || chunk, '0') THEN
			RETURN chunk;
		END IF;
	END LOOP;

	-- Other jobs work on all that is left.  Wait for the first: its server may die.
	IF zk_xact_lock_acquire('/nightly/chunk-' || undone[1], '1s') THEN
		RETURN undone[1];
	END IF;
	RETURN NULL;
END;
$$;

CREATE PROCEDURE do_chunk(chunk integer)
LANGUAGE plpgsql AS $$
DECLARE
	chunk_work	bigint;
	report_work	bigint;
	old_total	bigint;
BEGIN
	chunk_work := begin_work('/nightly/chunk-' || chunk);
	PERFORM pg_sleep(ledger('SELECT seconds FROM chunk WHERE id = %L', chunk::text)::numeric);

	-- The report takes one job at a time, whatever its server: wait for the turn.
	PERFORM zk_xact_lock_acquire('/nightly/report');
	report_work := begin_work('/nightly/report');
	old_total := ledger('SELECT total FROM report');
	PERFORM pg_sleep(0.1);
	PERFORM ledger('SELECT finish_chunk(id, %L + amount, %L, %L) FROM chunk WHERE id = %L',
				   old_total::text, chunk_work::text, report_work::text, chunk::text);
END;
$$;
