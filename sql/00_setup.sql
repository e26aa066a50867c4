-- What the other files need.  They sort behind this one.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS zklock;
RESET client_min_messages;

-- wait for a state, never for a time
CREATE PROCEDURE wait_until(condition text) LANGUAGE plpgsql AS $$
DECLARE
	is_so boolean;
	last_try timestamptz := clock_timestamp() + '3 minutes';
BEGIN
	LOOP
		EXECUTE 'SELECT ' || condition INTO is_so;
		EXIT WHEN is_so;
		IF clock_timestamp() > last_try THEN
			RAISE 'waited in vain until %', condition;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;

-- the error that a command raises: "SQLSTATE: message / detail / hint"
CREATE FUNCTION failure(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE command;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' / ', SQLSTATE || ': ' || message,
					 nullif(detail, ''), nullif(hint, ''));
END $$;

-- this backend's claims, "path session count + transaction count", and on how
-- many paths it has PostgreSQL's own lock
CREATE FUNCTION claims() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT coalesce(string_agg(format('%s %s+%s%s', path, session_count, xact_count,
											  CASE WHEN NOT granted THEN ' ' || claim END),
									   ', ' ORDER BY path COLLATE "C"), 'none')
			FROM zk_locks WHERE pid = pg_backend_pid())
		|| '; local locks: '
		|| (SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND database = 0 AND granted
			AND pid = pg_backend_pid());
END $$;

-- wait until nothing is left of the tests' locks, in the whole server
CREATE PROCEDURE all_is_gone() LANGUAGE plpgsql AS $$
BEGIN
	CALL wait_until($c$ NOT EXISTS (SELECT FROM zk_locks WHERE path LIKE '/regress/%') $c$);
	CALL wait_until($c$ NOT EXISTS (SELECT FROM pg_locks
									WHERE locktype = 'advisory' AND database = 0) $c$);
END $$;

CALL wait_until('safe FROM zk_status');
