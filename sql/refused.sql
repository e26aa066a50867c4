-- Where locks are refused: two-phase commit and parallel workers.
\pset tuples_only
\pset format unaligned
\set SHOW_CONTEXT never

-- two-phase commit, with session-level and transaction-level locks; what could be prepared would keep
-- the locks for good
BEGIN;
SELECT zk_xact_lock_acquire('/regress/a');
PREPARE TRANSACTION 'zklock';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK PREPARED 'zklock';
SELECT claims();
SELECT zk_lock_acquire('/regress/a');
BEGIN;
PREPARE TRANSACTION 'zklock';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK PREPARED 'zklock';
SELECT claims();
SELECT count(*) FROM pg_prepared_xacts;
SELECT zk_lock_release('/regress/a');

-- a function that lies about itself
CREATE FUNCTION lies(path text) RETURNS boolean LANGUAGE sql PARALLEL SAFE
RETURN zk_lock_acquire(path);
CREATE FUNCTION xact_lies(path text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE
AS $$ BEGIN RETURN zk_xact_lock_acquire(path, '0'); END $$;
SELECT name AS parallel FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel = on;
SELECT lies('/regress/a');
\echo :LAST_ERROR_SQLSTATE
SELECT xact_lies('/regress/a');
\echo :LAST_ERROR_SQLSTATE
RESET :parallel;
SELECT claims();

-- a parallel query in a transaction that holds locks
BEGIN;
SELECT zk_lock_acquire('/regress/a'), zk_xact_lock_acquire('/regress/b');
SET LOCAL :parallel = on;
SELECT count(*) FROM pg_class WHERE relname = 'pg_class';
SAVEPOINT s;
SELECT lies('/regress/a');
ROLLBACK TO s;
SELECT zk_lock_is_held('/regress/a'), zk_lock_is_held('/regress/b');
COMMIT;
SELECT claims();

-- every function of the extension, called by one that lies: what depends on the
-- session's own locks is refused, for a parallel worker has none
CREATE FUNCTION lies_about(command text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE
AS $$ DECLARE result text; BEGIN EXECUTE command INTO result; RETURN result; END $$;
CREATE VIEW calls AS
SELECT p.proname, format('SELECT lies_about(%L)', format(CASE p.prokind WHEN 'p' THEN 'CALL %s(%s)' ELSE 'SELECT %s(%s)::text' END, p.oid::regproc,
	   (SELECT string_agg(format('%L::%s', CASE format_type(type, NULL)
											   WHEN 'text' THEN '/regress/lies' WHEN 'text[]' THEN '{/regress/lies}'
											   WHEN 'interval' THEN '1 s'
											   WHEN 'timestamp with time zone' THEN '2024-01-01Z' ELSE '1' END,
								 format_type(type, NULL)), ', ' ORDER BY n)
		FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, n)))) AS call
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	 JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
WHERE d.deptype = 'e' AND e.extname = 'zklock';
SET :parallel = on;
SELECT proname, split_part(failure(call), ' / ', 1) FROM calls ORDER BY proname COLLATE "C";
RESET :parallel;
SELECT claims();

-- the lock functions themselves are never run in parallel
SET :parallel = on;
SELECT zk_lock_acquire('/regress/a'), zk_lock_release('/regress/a'), count(*) > 0 FROM zk_locks;
RESET :parallel;
SELECT zk_lock_release_all();

DROP VIEW calls;
DROP FUNCTION lies, xact_lies, lies_about;
CALL all_is_gone();
