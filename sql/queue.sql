-- The queue of a lock: reading it, requesting a release, releasing by force.
\pset tuples_only
\pset format unaligned
SET client_min_messages = warning;

CREATE VIEW queue AS
SELECT position, znode ~ '^_c_[-0-9a-f]{36}-lock-\d{10}$' AS znode, kind, mode, holds, client,
	   server = (SELECT node_name FROM zk_status) AS server, pid = pg_backend_pid() AS pid,
	   database = current_database() AS database, role = current_user AS role,
	   application, age(clock_timestamp(), since) < '1 hour' AS since, data
FROM zk_lock_queue('/regress/queue');

-- an empty queue
SELECT count(*) FROM zk_lock_queue('/regress/queue/nobody');
SELECT zk_lock_revoke('/regress/queue/nobody'), zk_lock_force_release('/regress/queue/nobody');

-- a claim of this session, of whose backend everything is shown
SET application_name = 'x = 1%, y ';
SELECT zk_lock_acquire('/regress/queue');
SELECT * FROM queue;
RESET application_name;
SELECT q.znode = l.znode FROM zk_lock_queue('/regress/queue') q, zk_locks l WHERE l.path = '/regress/queue';

-- a release is requested
SELECT zk_lock_revoke('/regress/queue');
SELECT holds, client, server, pid, data FROM queue;
SELECT zk_lock_is_held('/regress/queue'), zk_lock_release('/regress/queue');
CALL all_is_gone();
SELECT zk_lock_revoke('/regress/queue');

-- taken away, which cancels what the holder does, each time at another moment
SET client_min_messages = error;
SELECT zk_lock_acquire('/regress/queue');
SELECT split_part(failure($$SELECT zk_lock_force_release('/regress/queue'), pg_sleep(180)$$), ' / ', 1);
SELECT zk_lock_is_held('/regress/queue');
SELECT count(*) FROM zk_lock_queue('/regress/queue');
SELECT zk_lock_release('/regress/queue');
SET client_min_messages = warning;
CALL all_is_gone();

-- in a transaction, and in a subtransaction that fails
BEGIN;
SELECT zk_xact_lock_acquire('/regress/queue');
SAVEPOINT s;
SELECT count(*), 1 / (count(*) - 1) FROM zk_lock_queue('/regress/queue');
ROLLBACK TO s;
SELECT count(*) FROM zk_lock_queue('/regress/queue');
COMMIT;

-- cancelled, while it asks again and again
SET statement_timeout = '100ms';
SELECT count(*) FROM generate_series(1, 1000000) n, zk_lock_queue('/regress/queue' || left(n::text, 0));
RESET statement_timeout;

-- bad input
SELECT failure($$SELECT * FROM zk_lock_queue('a')$$);
SELECT failure($$SELECT * FROM zk_lock_queue(NULL)$$);
SELECT failure($$SELECT zk_lock_revoke('/a/')$$);
SELECT failure($$SELECT zk_lock_revoke(NULL)$$);
SELECT failure($$SELECT zk_lock_force_release('')$$);
SELECT failure($$SELECT zk_lock_force_release(NULL)$$);

-- privileges
SELECT zk_lock_acquire('/regress/queue');
CREATE ROLE regress_zklock_a;
SET ROLE regress_zklock_a;
SELECT count(*) FROM zk_lock_queue('/regress/queue');
SELECT failure($$SELECT zk_lock_revoke('/regress/queue')$$);
SELECT failure($$SELECT zk_lock_force_release('/regress/queue')$$);
RESET ROLE;
GRANT pg_signal_backend TO regress_zklock_a;
SET ROLE regress_zklock_a;
SET client_min_messages = error;
SELECT split_part(failure($$SELECT zk_lock_force_release('/regress/queue'), pg_sleep(180)$$), ' / ', 1);
RESET ROLE;
SELECT zk_lock_is_held('/regress/queue');
SELECT zk_lock_release('/regress/queue');

DROP VIEW queue;
DROP ROLE regress_zklock_a;
CALL all_is_gone();
