-- the views of statistics: their shapes, what they count, and who sees what
SELECT attrelid::regclass AS view, attname, atttypid::regtype
FROM pg_attribute
WHERE attrelid IN ('zk_stat'::regclass, 'zk_stat_locks'::regclass) AND attnum > 0
ORDER BY attrelid::regclass::text, attnum;
\pset tuples_only
\pset format unaligned
SELECT has_table_privilege('public', 'zk_stat', 'SELECT') AS zk_stat,
	   has_table_privilege('public', 'zk_stat_locks', 'SELECT') AS zk_stat_locks,
	   has_table_privilege('public', 'zk_stat', 'INSERT, UPDATE, DELETE') AS written,
	   has_function_privilege('public', 'zk_stat_reset()', 'EXECUTE') AS zk_stat_reset;

SELECT zk_stat_reset();
SELECT count(*) FROM zk_stat_locks;
SELECT stats_reset BETWEEN now() - interval '1 minute' AND clock_timestamp() AS stats_reset,
	   creates, expirations, reconnects, paths_discarded, doubt_time FROM zk_stat;

-- acquires, and times
CREATE VIEW counted AS
SELECT path, acquired, acquired_locally, waited, wait_time > 0 AS wait_time, hold_time > 0 AS hold_time,
	   timeouts, lost, deadlocks, handed_over, stats_since BETWEEN now() - interval '1 minute' AND clock_timestamp() AS since
FROM zk_stat_locks WHERE path LIKE '/regress/stat%' ORDER BY path COLLATE "C";
SELECT zk_lock_acquire('/regress/stat');
\pset tuples_only off
SELECT * FROM counted;
\pset tuples_only on
SELECT zk_lock_acquire('/regress/stat'), zk_lock_release('/regress/stat');	-- is no grant
SELECT zk_lock_release('/regress/stat');
SELECT * FROM counted;

-- while the server keeps the lock, it is granted without ZooKeeper
DO $$
BEGIN
	FOR i IN 1..10 LOOP
		PERFORM zk_lock_acquire('/regress/stat'), zk_lock_release('/regress/stat');
	END LOOP;
END $$;
SELECT acquired, acquired_locally > 0 AS locally FROM zk_stat_locks WHERE path = '/regress/stat';

-- one row for a semaphore, whatever it takes; and for each path of a multilock
SELECT zk_semaphore_acquire('/regress/stat/semaphore', 3, quantity => 2), zk_semaphore_release('/regress/stat/semaphore', 2);
SELECT zk_multilock_acquire('{/regress/stat/m1, /regress/stat/m2}'), zk_multilock_release('{/regress/stat/m1, /regress/stat/m2}');
SELECT zk_read_lock_acquire('/regress/stat/rw'), zk_read_lock_release('/regress/stat/rw');
SELECT path, acquired, hold_time, timeouts FROM counted WHERE path LIKE '/regress/stat/%';

-- a lease time that passes is a loss
SET zklock.on_lost = notice;
SET client_min_messages = error;
SELECT zk_lock_acquire('/regress/stat/lost', lease_time => '100 ms');
CALL wait_until($c$ (SELECT lost = 1 FROM zk_stat_locks WHERE path = '/regress/stat/lost') $c$);
SELECT zk_lock_release('/regress/stat/lost');
RESET client_min_messages;
RESET zklock.on_lost;
SELECT acquired, lost, hold_time > 0 AS hold_time FROM zk_stat_locks WHERE path = '/regress/stat/lost';

-- zk_stat has the sums
SELECT bool_and(s.acquired = l.acquired AND s.timeouts = l.timeouts AND s.lost = l.lost AND s.lost = 1) AS sums
FROM zk_stat AS s, (SELECT sum(acquired) AS acquired, sum(timeouts) AS timeouts, sum(lost) AS lost FROM zk_stat_locks) AS l;

-- requests by kind, and the histogram of the answers
SELECT count(*) FROM zk_lock_queue('/regress/stat/none');
SELECT array_length(answer_bounds, 1) AS bounds, array_length(answer_buckets, 1) AS buckets,
	   answer_bounds[1] AS first, answer_bounds[14] AS last,
	   (SELECT bool_and(n <= m) FROM unnest(answer_buckets, answer_buckets[2:]) AS b (n, m)) AS grow,
	   answer_buckets[14] <= answers AS inf, answer_time > 0 AS answer_time,
	   creates > 0 AS creates, lists > 0 AS lists, deletes > 0 AS deletes, checks > 0 AS checks
FROM zk_stat;

-- a path belongs to a role until another one has used it
SET client_min_messages = warning;
CREATE ROLE regress_zklock_stat;
SET ROLE regress_zklock_stat;
SELECT zk_lock_acquire('/regress/stat/mine'), zk_lock_release('/regress/stat/mine');
SELECT path, acquired FROM zk_stat_locks WHERE path IS NOT NULL;
SELECT count(*) FILTER (WHERE path IS NULL) >= 6 AS hidden, bool_and(acquired >= 1) AS counts FROM zk_stat_locks;
SELECT count(*) FROM zk_stat;
SELECT zk_stat_reset();
RESET ROLE;
SELECT zk_lock_acquire('/regress/stat/mine'), zk_lock_release('/regress/stat/mine');
SET ROLE regress_zklock_stat;
SELECT path FROM zk_stat_locks WHERE path IS NOT NULL;
RESET ROLE;
GRANT pg_read_all_stats TO regress_zklock_stat;
SET ROLE regress_zklock_stat;
SELECT path, acquired FROM zk_stat_locks WHERE path = '/regress/stat/mine';
RESET ROLE;
DROP ROLE regress_zklock_stat;
RESET client_min_messages;

-- a reset takes all rows, also of locks that are held; they begin again
SELECT zk_lock_acquire('/regress/stat');
SELECT zk_stat_reset();
SELECT count(*) FROM zk_stat_locks;
SELECT zk_lock_release('/regress/stat');
SELECT path, acquired, hold_time FROM counted;
DROP VIEW counted;
CALL all_is_gone();
