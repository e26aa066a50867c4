-- demo/cron.sql: the same schedule for pg_cron on several servers, but each minute is
-- closed once.
--
-- A lock alone does not do it: pg_cron of the second server may call a moment later,
-- when the first has already finished and released.  So what was done is marked
-- where all the servers see it, and the lock keeps the others off from the look at
-- the mark until it is set.
--
-- The second server waits for the lock, instead of only trying: if the first dies
-- over it, the second gets the lock, finds no mark and does the work.
--
-- The mark names the minute that is meant, to the nearest: the clocks of two servers
-- never agree to the second.

CREATE EXTENSION pg_cron;

CREATE FUNCTION close_minute() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	minute		text := date_trunc('minute', now() + interval '30 seconds');
	server		text := current_setting('cluster_name');
	call		bigint;
	cron_work	bigint;
BEGIN
	call := ledger('SELECT begin_call(%L, %L)', minute, server);	-- only for the proof

	PERFORM zk_xact_lock_acquire('/cron/close-minute');

	IF NOT ledger('SELECT EXISTS (SELECT FROM closed_minute WHERE minute = %L)', minute)::boolean
	THEN
		cron_work := begin_work('/cron/close-minute');
		PERFORM pg_sleep(0.5);			-- whatever there is to do
		PERFORM ledger('SELECT finish_minute(%L, %L, %L)', minute, server, cron_work::text);
	END IF;

	PERFORM ledger('SELECT end_call(%L)', call::text);
END;
$$;

SELECT cron.schedule('close the minute', '* * * * *', 'SELECT close_minute()') \g /dev/null
