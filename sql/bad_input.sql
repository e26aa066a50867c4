-- What is refused, with SQLSTATE, message, detail and hint.
\pset tuples_only
\pset format unaligned
SET client_min_messages = warning;

CREATE FUNCTION refusal(path text) RETURNS text LANGUAGE sql
AS $$ SELECT failure(format('SELECT zk_lock_acquire(%L)', path)) $$;

-- paths
SELECT refusal(NULL);
SELECT refusal('');
SELECT refusal('/');
SELECT refusal('a');
SELECT refusal('regress/a');
SELECT refusal(' /regress/a');
SELECT refusal('/regress/a/');
SELECT refusal('/regress//a');
SELECT refusal('//');
SELECT refusal('/regress/./a');
SELECT refusal('/regress/..');
SELECT refusal('/../regress');
SELECT refusal(E'/regress/\n');
SELECT refusal(E'/regress/\x7f');
SELECT refusal('/zookeeper');
SELECT refusal('/zookeeper/quota');
SELECT refusal('/regress/_c_2f1ee1a4-93ca-4b1f-bbd2-5ab3b4a9f2a1-lock-0000000001');
SELECT refusal('/regress/x__lock__0000000001/a');
SELECT refusal('/regress/lock-');

-- to the last byte
SELECT refusal('/regress/' || repeat('x', 247)) ~ '^22023: .* / The path is longer than 255 bytes\.$';
SELECT refusal('/regress/' || repeat('x', 100000)) ~ '^22023: .* / The path is longer than 255 bytes\.$';
SELECT refusal('/regress' || repeat('/x', 16)) ~ '^22023: .* / A path must not have more than 16 components\.$';
SELECT refusal('/regress' || repeat('/x', 120)) ~ '^22023: .* / A path must not have more than 16 components\.$';
SELECT zk_lock_acquire('/regress' || repeat('/x', 15)), zk_lock_release('/regress' || repeat('/x', 15));
SELECT zk_lock_acquire('/regress/' || repeat('x', 246));
SELECT zk_lock_release('/regress/' || repeat('x', 246));

-- what only looks bad
CREATE TABLE fine (path text);
INSERT INTO fine VALUES ('/regress/...'), ('/regress/.a'), ('/regress/a..'), ('/regress/ '),
	('/regress/zookeeper'), ('/regress/lock'), ('/regress/lock-1'), ('/regress/%s%n'), ('/regress/"''\'),
	('/regress/__REVOKE__'), ('/zookeeper-regress'), ('/regress/a:b=c,d;e');
SELECT count(*) FILTER (WHERE zk_lock_acquire(path)) = count(*) FROM fine;
SELECT path FROM zk_locks WHERE pid = pg_backend_pid() ORDER BY path COLLATE "C";
SELECT zk_lock_release_all();
CALL wait_until($$NOT EXISTS (SELECT FROM zk_locks WHERE path = '/zookeeper-regress')$$);

-- the same rules for every function
SELECT failure($$SELECT zk_xact_lock_acquire('a')$$);
SELECT failure($$SELECT zk_lock_release('a')$$);
SELECT failure($$SELECT zk_lock_is_held('a')$$);
SELECT failure($$SELECT zk_lock_token('a')$$);
SELECT failure($$SELECT zk_xact_lock_acquire(NULL)$$);
SELECT failure($$SELECT zk_lock_release(NULL)$$);
SELECT failure($$SELECT zk_lock_is_held(NULL)$$);
SELECT failure($$SELECT zk_lock_token(NULL)$$);

-- timeouts
SELECT failure($$SELECT zk_lock_acquire('/regress/a', '-1 ms')$$);
SELECT failure($$SELECT zk_lock_acquire('/regress/a', '-1 year')$$);
SELECT failure($$SELECT zk_lock_acquire('/regress/a', '1 hour -1 day')$$);
SELECT failure($$SELECT zk_xact_lock_acquire('/regress/a', '100 years')$$);
SELECT failure($$SELECT zk_xact_lock_acquire('/regress/a', '178000000 years')$$);
SELECT failure($$SELECT zk_xact_lock_acquire('/regress/a', '2147483648 ms')$$);
SELECT failure($$SELECT zk_lock_acquire('/regress/a', 'soon')$$);
SELECT zk_lock_acquire('/regress/a', '2147483647 ms'), zk_lock_acquire('/regress/a', NULL),
	   zk_lock_acquire('/regress/a', '1 day -23 hours'), zk_lock_acquire('/regress/a', '1 us');
SELECT zk_lock_release_all();

-- lease times
SELECT failure($$SELECT zk_lock_acquire('/regress/a', NULL, '-1 minute')$$);
SELECT failure($$SELECT zk_xact_lock_acquire('/regress/a', lease_time => '0')$$);
SELECT failure($$SELECT zk_xact_lock_acquire('/regress/a', lease_time => '2147483648 ms')$$);
SELECT zk_xact_lock_acquire('/regress/a', NULL, NULL);

-- the path is judged first, and nothing stays of a refusal
SELECT failure($$SELECT zk_lock_acquire('a', '-1 ms', '1 ms')$$);
SELECT failure($$SELECT zk_lock_acquire()$$) ~ '^42883';
SELECT claims();

DROP TABLE fine;
DROP FUNCTION refusal;
CALL all_is_gone();
