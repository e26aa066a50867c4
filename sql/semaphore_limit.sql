-- The semaphore whose limit is stored in ZooKeeper.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never
\set path '\'/regress/limit\''
\set try 'zk_semaphore_acquire(\'/regress/limit\', NULL, \'0\')'
\set release 'zk_semaphore_release(\'/regress/limit\')'

-- none is stored
SELECT zk_semaphore_limit(:path) IS NULL;
SELECT failure($$SELECT zk_semaphore_acquire('/regress/limit')$$);
SELECT failure($$SELECT zk_xact_semaphore_acquire('/regress/limit')$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/limit', NULL, '0')$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/limit', timeout => '1 h', quantity => 2)$$);
SELECT count(*) FROM zk_locks WHERE path = '/regress/limit';

-- stored, read, changed, removed
SELECT zk_semaphore_set_limit(:path, 2), zk_semaphore_limit(:path);
SELECT zk_semaphore_set_limit(:path, 2147483647), zk_semaphore_limit(:path);
SELECT zk_semaphore_set_limit(:path, 0), zk_semaphore_limit(:path);
SELECT zk_semaphore_set_limit(:path, NULL), zk_semaphore_limit(:path) IS NULL;
SELECT zk_semaphore_set_limit(:path, NULL), zk_semaphore_limit(:path) IS NULL;

-- arguments
SELECT failure($$SELECT zk_semaphore_set_limit('/regress/limit', -1)$$);
SELECT left(failure($$SELECT zk_semaphore_set_limit('/regress/limit', 2147483648)$$), 5);
SELECT failure($$SELECT zk_semaphore_set_limit(NULL, 1)$$);
SELECT failure($$SELECT zk_semaphore_set_limit('regress', 1)$$);
SELECT failure($$SELECT zk_semaphore_limit(NULL)$$);
SELECT left(failure(format('SELECT zk_semaphore_set_limit(%L, 3)', '/regress/' || repeat('x', 224))), 50);

-- acquire by it
SELECT zk_semaphore_set_limit(:path, 2);
SELECT zk_semaphore_acquire(:path), zk_xact_semaphore_acquire(:path), :try;
SELECT :try, :try;
SELECT zk_semaphore_acquire(:path, NULL, '1 ms'), :release, zk_semaphore_acquire(:path, NULL, '1 h');
SELECT zk_lock_release_all();
SELECT zk_semaphore_acquire(:path, NULL, '0', 2), zk_lock_release_all();
-- one statement that acquires alone
SELECT zk_xact_semaphore_acquire(:path);

-- raised and lowered while leases are held; what is held stays
SELECT zk_semaphore_acquire(:path, NULL, NULL, 2), :try;
SELECT zk_semaphore_set_limit(:path, 4);
SELECT zk_semaphore_acquire(:path), zk_semaphore_acquire(:path), :try;
SELECT zk_semaphore_set_limit(:path, 2);
CALL wait_until($$ bool_and(contended) FROM zk_locks WHERE path = '/regress/limit' AND granted $$);
SELECT count(*) FROM zk_locks WHERE path = :path AND granted;
SELECT :release, :try;
SELECT :release, :try;
SELECT :release, :try;
SELECT :release, :release, zk_lock_is_held(:path);

-- 0 stops all grants, of leases that linger as well
SELECT zk_semaphore_acquire(:path), :release, zk_semaphore_acquire(:path), :release;
SELECT zk_semaphore_set_limit(:path, 0);
CALL wait_until($$ NOT zk_semaphore_acquire('/regress/limit', NULL, '0') $$);	-- the server has heard of it
SELECT zk_lock_release_all() IS NOT NULL;
SELECT :try, zk_semaphore_acquire(:path, NULL, '1 ms');
SELECT zk_semaphore_set_limit(:path, 1);
SELECT zk_semaphore_acquire(:path), :release;
-- more leases than the limit: it may be raised
SELECT zk_semaphore_acquire(:path, NULL, '0', 2), zk_semaphore_acquire(:path, NULL, '1 ms', 2);

-- calls that name the number
SELECT zk_semaphore_acquire(:path, 1, '1 h'), :try;
SELECT failure($$SELECT zk_semaphore_acquire('/regress/limit', 2, '0')$$);
SELECT failure($$SELECT zk_semaphore_acquire('/regress/limit', 2)$$);
SELECT :release;
SELECT failure($$SELECT zk_semaphore_acquire('/regress/limit', 2, '0')$$);
SELECT zk_semaphore_set_limit(:path, NULL);
CALL wait_until($$ NOT EXISTS (SELECT FROM zk_locks WHERE path = '/regress/limit') $$);
SELECT zk_semaphore_acquire(:path, 2, '0');
SELECT failure($$SELECT zk_semaphore_acquire('/regress/limit')$$);
-- the way from one to the other
SELECT zk_semaphore_set_limit(:path, 2);
SELECT zk_semaphore_acquire(:path), zk_semaphore_acquire(:path, 2, '0'), :try;
SELECT zk_lock_release_all();

-- arguments whose types are not known
PREPARE as_before AS SELECT zk_semaphore_acquire($1, $2), zk_semaphore_acquire($1, $2, $3), zk_semaphore_acquire($1, $2, $3, $4),
	zk_xact_semaphore_acquire($1, $2), zk_xact_semaphore_acquire($1, $2, $3), zk_xact_semaphore_acquire($1, $2, $3, $4);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'as_before';
PREPARE new AS SELECT zk_semaphore_acquire($1), zk_xact_semaphore_acquire($1, timeout => $3), zk_semaphore_limit($1), zk_semaphore_set_limit($1, $2);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'new';
SELECT zk_semaphore_acquire('/regress/limit', '2'), :release;
SELECT zk_semaphore_acquire(path => '/regress/limit', n => '2', timeout => '0'), :release;
DEALLOCATE ALL;

-- who may
CREATE ROLE regress_limit;
SET ROLE regress_limit;
SELECT failure($$SELECT zk_semaphore_set_limit('/regress/limit', 3)$$);
SELECT zk_semaphore_limit(:path), zk_semaphore_acquire(:path), :release;
RESET ROLE;
GRANT pg_signal_backend TO regress_limit;
SET ROLE regress_limit;
SELECT zk_semaphore_set_limit(:path, 3), zk_semaphore_limit(:path);
RESET ROLE;
DROP ROLE regress_limit;

SELECT zk_semaphore_set_limit(:path, NULL);
CALL all_is_gone();
CALL wait_until('entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
