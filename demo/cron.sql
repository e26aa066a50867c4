-- demo/cron.sql: the same line for pg_cron on several servers, but each minute is closed
-- once in the whole cluster.
--
-- zk_xact_run_once() remembers in ZooKeeper that the minute was used up.  So it does not
-- matter that one server may be done before the other begins, and that their clocks
-- differ.  What the job writes is in the server that runs it.

CREATE EXTENSION pg_cron;

CREATE TABLE closed_minute (minute timestamptz NOT NULL, server text NOT NULL);

CREATE FUNCTION close_minute() RETURNS void
LANGUAGE sql AS $$
	INSERT INTO closed_minute VALUES (zk_tick(), current_setting('cluster_name'));
	SELECT pg_sleep(0.5);				-- whatever there is to do
$$;

SELECT cron.schedule('close the minute', '* * * * *',
	$$ SELECT close_minute() WHERE zk_xact_run_once('/jobs/close-minute') $$) \g /dev/null
