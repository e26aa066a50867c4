-- 6. Which servers did pg_cron call, and which of them closed the minute?
CREATE VIEW cron_minute AS
SELECT minute,
       ARRAY(SELECT server FROM cron_call AS c WHERE c.minute = m.minute ORDER BY id) AS called,
       ARRAY(SELECT server FROM closed_minute AS c WHERE c.minute = m.minute) AS closed_by
FROM (SELECT DISTINCT minute FROM cron_call) AS m;

SELECT to_char(minute, 'HH24:MI') AS minute, called, closed_by FROM cron_minute ORDER BY 1;

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
HAVING count(*) > 0;						-- nothing is said of it without pg_cron

SELECT * FROM answer ORDER BY claim;

SELECT CASE WHEN every(wrong = 0) THEN 'PROVED' ELSE 'NOT PROVED' END AS verdict FROM answer;
