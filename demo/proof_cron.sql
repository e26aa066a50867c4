-- 6. Which servers did pg_cron call, and which of them closed the minute?
CREATE VIEW cron_minute AS
SELECT minute,
       ARRAY(SELECT server FROM cron_call AS c WHERE c.minute = m.minute ORDER BY server) AS called,
       ARRAY(SELECT server FROM closed_minute AS c WHERE c.minute = m.minute) AS closed_by
FROM (SELECT DISTINCT minute FROM cron_call) AS m;

SELECT to_char(minute, 'HH24:MI') AS minute, called, closed_by FROM cron_minute ORDER BY 1;

-- 7. Who led the servers before and after a kill -9, and how long was there no leader?
SELECT killed, leads, after FROM leader_change;

-- The answers
CREATE VIEW answer (claim, looked_at, wrong) AS
SELECT '1. nothing was worked on twice at the same time',
       format('%s periods, %s locks', count(*), count(DISTINCT path)),
       (SELECT count(*) FROM overlap) FROM work
UNION ALL
SELECT '2. every chunk was finished, and once', count(*) || ' chunks',
       (SELECT count(*) FROM wrong_chunk) FROM chunk
UNION ALL
SELECT '3. the report is right',
       format('%s, expected %s', total, (SELECT sum(amount) FROM chunk)),
       (SELECT count(*) FROM wrong_report) FROM report
UNION ALL
SELECT '4. tokens grow from holder to holder', count(*) || ' tokens',
       (SELECT count(*) FROM wrong_token) FROM work
UNION ALL
SELECT '5. taken over within twice the session timeout', count(*) || ' locks',
       CASE WHEN count(*) = 0 THEN 1			-- then this run shows nothing
            ELSE count(*) FILTER (WHERE (after < '8 s') IS NOT TRUE) END FROM takeover
UNION ALL
SELECT '6. each minute was closed by one of the servers called', count(*) || ' minute(s)',
       count(*) FILTER (WHERE cardinality(closed_by) <> 1) FROM cron_minute
HAVING count(*) > 0						-- nothing is said of it without pg_cron
UNION ALL
SELECT '7. another server led within twice the session timeout', count(*) || ' change',
       CASE WHEN count(*) = 0 THEN 1
            ELSE count(*) FILTER (WHERE killed = leads OR after > '8 s') END FROM leader_change;

SELECT * FROM answer ORDER BY claim;

SELECT CASE WHEN every(wrong = 0) THEN 'PROVED' ELSE 'NOT PROVED' END AS verdict FROM answer;
