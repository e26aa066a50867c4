-- Which server did what?
SELECT server, count(*) AS begun, count(ended) AS finished
FROM work WHERE path LIKE '/nightly/chunk-%' GROUP BY server ORDER BY server;

-- The periods of work.  One that a killed server left open ended when the server was
-- dead, at the latest; any other that is open has no end.
CREATE VIEW period AS
SELECT w.*, tstzrange(began, coalesce(ended, o.not_after), '[]') AS during
FROM work AS w
     LEFT JOIN outage AS o ON ended IS NULL AND o.server = w.server AND o.not_after > began;

-- 1. Was anything worked on twice at the same time?
CREATE VIEW overlap AS
SELECT a.path, a.server, a.during, b.server AS other_server, b.during AS other_during
FROM period AS a JOIN period AS b ON a.path = b.path AND a.id < b.id
WHERE a.during && b.during;

-- 2. Was every chunk finished, and once?
CREATE VIEW wrong_chunk AS
SELECT c.id, c.done, count(w.ended) AS times_finished
FROM chunk AS c LEFT JOIN work AS w ON w.path = '/nightly/chunk-' || c.id
GROUP BY c.id HAVING NOT c.done OR count(w.ended) <> 1;

-- 3. Is the report right?  Jobs on all servers read its total and wrote it back.
CREATE VIEW wrong_report AS
SELECT total, (SELECT sum(amount) FROM chunk) AS expected
FROM report WHERE total <> (SELECT sum(amount) FROM chunk);

-- 4. Did the tokens of every lock grow from holder to holder?
CREATE VIEW wrong_token AS
SELECT path, server, token, token_before
FROM (SELECT *, lag(token) OVER (PARTITION BY path ORDER BY began) AS token_before
      FROM work) AS w
WHERE token <= token_before;

-- 5. What the killed server held: which job took it over, and how long after the kill?
--    ZooKeeper waits for the session timeout.  Then a job that waits for the lock gets
--    it at once, and a job that only tries gets it at its next try.
CREATE VIEW takeover AS
SELECT w.path, w.server || ', ' || w.job AS held_by,
       n.server || ', ' || n.job AS taken_over_by, n.began - o.not_before AS after
FROM work AS w JOIN outage AS o ON o.server = w.server AND o.not_after > w.began
     LEFT JOIN LATERAL (SELECT * FROM work
                        WHERE path = w.path AND id > w.id ORDER BY id LIMIT 1) AS n ON true
WHERE w.ended IS NULL;

SELECT path, held_by, taken_over_by, round(extract(epoch FROM after), 2) AS seconds
FROM takeover ORDER BY after;
