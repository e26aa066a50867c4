-- every function and view, as documented
SELECT p.oid::regprocedure AS function, pg_get_function_result(p.oid) AS result,
	   provolatile, proparallel, proisstrict, prosecdef,
	   has_function_privilege('public', p.oid, 'EXECUTE') AS public
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid
	 JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND e.extname = 'zklock'
	  AND proname NOT IN ('zk_jobs', 'zk_locks', 'zk_sessions', 'zk_stat', 'zk_stat_locks', 'zk_status', 'zk_waits')
ORDER BY proname COLLATE "C";

SELECT oid::regprocedure AS function, provolatile, proparallel, proretset,
	   has_function_privilege('public', oid, 'EXECUTE') AS public
FROM pg_proc WHERE proname IN ('zk_jobs', 'zk_locks', 'zk_sessions', 'zk_stat', 'zk_stat_locks', 'zk_status', 'zk_waits') ORDER BY proname;

SELECT proname, pg_get_function_arguments(oid)
FROM pg_proc WHERE proname IN ('zk_lock_acquire', 'zk_xact_lock_acquire') ORDER BY proname;

SELECT attrelid::regclass AS view, attname, atttypid::regtype
FROM pg_attribute
WHERE attrelid IN ('zk_jobs'::regclass, 'zk_locks'::regclass, 'zk_sessions'::regclass, 'zk_status'::regclass, 'zk_waits'::regclass) AND attnum > 0
ORDER BY attrelid::regclass::text, attnum;

SELECT has_table_privilege('public', 'zk_locks', 'SELECT') AS zk_locks,
	   has_table_privilege('public', 'zk_status', 'SELECT') AS zk_status,
	   has_table_privilege('public', 'zk_sessions', 'SELECT') AS zk_sessions,
	   has_table_privilege('public', 'zk_locks', 'INSERT, UPDATE, DELETE') AS written;

\pset tuples_only
\pset format unaligned
-- a comment on each of them
SELECT pg_describe_object(classid, objid, 0) AS "has no comment"
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND extname = 'zklock'
	  AND classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
	  AND obj_description(objid, classid::regclass::name) IS NULL;
SELECT obj_description(oid, 'pg_extension') IS NOT NULL AS "the extension has one"
FROM pg_extension WHERE extname = 'zklock';

-- What the planner expects is near to what there is on a usual server.  A new function that returns rows has its
-- ROWS here, and a view must not be compiled with JIT, also not in a join.
SELECT p.proname, p.prorows, p.procost
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND e.extname = 'zklock' AND (p.proretset OR p.procost > 1)
ORDER BY p.prorows, p.proname COLLATE "C";
CREATE FUNCTION pg_temp.planned(query text, options text DEFAULT 'COSTS') RETURNS json LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (FORMAT JSON, %s) %s', options, query) INTO plan;
	RETURN plan->0;
END $$;
CREATE TEMP VIEW views AS
SELECT objid::regclass::text AS name
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid JOIN pg_class c ON c.oid = d.objid
WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e' AND e.extname = 'zklock' AND c.relkind = 'v';
SELECT name, pg_temp.planned('TABLE ' || name)->'Plan'->'Plan Rows' AS rows FROM views ORDER BY name COLLATE "C";
SELECT format('%s, %s, %s', a.name, b.name, c.name) AS "costs too much"
FROM views a, views b, views c
WHERE a.name < b.name AND b.name < c.name
	  AND (pg_temp.planned(format('SELECT * FROM %s a, %s b, %s c', a.name, b.name, c.name))->'Plan'->>'Total Cost')::float
		  > current_setting('jit_above_cost')::float;
SET jit = on;
SELECT name AS "is compiled" FROM views
WHERE pg_temp.planned('SELECT * FROM ' || name, 'ANALYZE')->'JIT' IS NOT NULL;
RESET jit;

-- status
SELECT state IN ('connected', 'idle') AS state, safe, worker_pid > 0 AS worker, session_id IS NOT NULL AS session,
	   session_timeout > '0' AS timeout, coalesce(safe_until > now(), state = 'idle') AS safe_until,
	   connected_since < clock_timestamp() AS since, epoch >= 0 AS epoch,
	   node_name <> '' AS node, server ~ ':\d+$' AS server
FROM zk_status;
SELECT s.session, (SELECT count(*) FROM zk_sessions) AS rows,
	   s.worker_pid = t.worker_pid AS worker, s.session_id = t.session_id AS session_id,
	   s.server = t.server AS server, s.state IN ('connected', 'idle') AS state, s.safe, s.ephemeral_bytes <= t.ephemeral_bytes AS bytes
FROM zk_sessions AS s, zk_status AS t WHERE s.session = 1;

-- what a lock looks like
SELECT zk_lock_acquire('/regress/interface');
SELECT path, kind, mode, claim, granted, pid = pg_backend_pid() AS mine,
	   datname = current_database() AS here, usename = current_user AS me,
	   session_count, xact_count, ticket, contended
FROM zk_locks WHERE path LIKE '/regress/%';
SELECT l.token = zk_lock_token(l.path) AS token, l.znode ~ '-lock-\d{10}$' AS znode,
	   l.claim_since <= clock_timestamp() AS claim_since, l.owned_since <= clock_timestamp() AS owned_since,
	   a.backend_type
FROM zk_locks l JOIN pg_stat_activity a USING (pid) WHERE path LIKE '/regress/%';
SELECT locktype, database, objsubid >= 3 AS objsubid, virtualxid IS NULL AS no_xid, mode, granted, fastpath
FROM pg_locks WHERE locktype = 'advisory';

-- it is not to be mistaken for a lock of PostgreSQL's own functions
SELECT pg_advisory_unlock((classid::bigint << 32) + objid::bigint) FROM pg_locks WHERE locktype = 'advisory';
SELECT claims();
SELECT zk_lock_release('/regress/interface');
CALL all_is_gone();
