-- demo/picture.sql: a server's part of the live picture, one column a job.
--
--	chunk-7					holds it, and works
--	chunk-7 ... report		holds the first, waits for the second
--	chunk-7 + report		holds both

SELECT rtrim(string_agg(rpad(doing, 24), '' ORDER BY job))
FROM (SELECT a.application_name AS job,
			 coalesce(string_agg(CASE WHEN l.granted THEN '+ ' ELSE '... ' END ||
								 replace(l.path, '/nightly/', ''), ' '
								 ORDER BY l.granted DESC, l.path), '-') AS doing
	  FROM pg_stat_activity AS a
		   LEFT JOIN zk_locks AS l USING (pid)
	  WHERE a.application_name LIKE 'job _'
	  GROUP BY a.application_name) AS jobs;
