-- Fencing: an older token is refused.
\pset tuples_only
\pset format unaligned
\set VERBOSITY verbose
\set SHOW_CONTEXT never

SELECT zk_fence('thing', 10);
SELECT zk_fence('thing', 10);
SELECT zk_fence('thing', 11);
SELECT failure($$SELECT zk_fence('thing', 10)$$);
SELECT zk_fence('another', 1);
SELECT * FROM zk_fences ORDER BY resource;

-- it is part of the transaction
BEGIN;
SELECT zk_fence('thing', 20);
ROLLBACK;
SELECT zk_fence('thing', 12);
BEGIN;
SAVEPOINT s;
SELECT zk_fence('thing', 30);
ROLLBACK TO s;
SELECT zk_fence('thing', 13);
COMMIT;
SELECT * FROM zk_fences WHERE resource = 'thing';

-- of rows that are written, PostgreSQL counts neither those that the trigger keeps nor those that it skips
INSERT INTO zk_fences VALUES ('written', 5), ('thing', 1);
\echo :ROW_COUNT
SELECT * FROM zk_fences WHERE resource IN ('written', 'thing') ORDER BY resource;
DELETE FROM zk_fences WHERE resource = 'written';

-- with tokens of a lock
SELECT zk_lock_acquire('/regress/a');
SELECT zk_lock_token('/regress/a') AS first \gset
SELECT zk_fence('guarded', :first);
SELECT zk_lock_release('/regress/a'), zk_lock_acquire('/regress/a');
SELECT zk_fence('guarded', :first);
SELECT zk_fence('guarded', zk_lock_token('/regress/a'));
SELECT left(failure(format($$SELECT zk_fence('guarded', %s)$$, :first)), 5);
SELECT zk_lock_release('/regress/a');

-- wrong use
SELECT failure($$SELECT zk_fence(NULL, 1)$$);
SELECT failure($$SELECT zk_fence('thing', NULL)$$);
SELECT failure($$SELECT zk_fence('thing', 0)$$);
SELECT failure($$SELECT zk_fence('thing', -1)$$);
BEGIN READ ONLY;
SELECT failure($$SELECT zk_fence('thing', 99)$$);
COMMIT;
SELECT zk_fence('', 9223372036854775807);
SELECT zk_fence(repeat('x', 2000), 1);

-- a role that may call it cannot change the table otherwise, nor what its query means
CREATE ROLE regress_zklock_a;
GRANT EXECUTE ON FUNCTION zk_fence TO regress_zklock_a;
CREATE SCHEMA regress_zklock_evil;
GRANT ALL ON SCHEMA regress_zklock_evil TO regress_zklock_a;
SET ROLE regress_zklock_a;
CREATE FUNCTION regress_zklock_evil.evil(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE 'called as %', current_user;
END $$;
CREATE OPERATOR regress_zklock_evil.<= (FUNCTION = regress_zklock_evil.evil, LEFTARG = bigint, RIGHTARG = bigint);
SET search_path = regress_zklock_evil, public, pg_catalog;
SELECT zk_fence('thing', 14);
SELECT public.failure($$SELECT public.zk_fence('thing', 13)$$);
SELECT public.failure($$UPDATE public.zk_fences SET token = 1$$);
RESET search_path;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA regress_zklock_evil CASCADE;
REVOKE EXECUTE ON FUNCTION zk_fence FROM regress_zklock_a;
DROP ROLE regress_zklock_a;

TRUNCATE zk_fences;
CALL all_is_gone();
