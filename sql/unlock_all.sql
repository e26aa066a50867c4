-- pg_advisory_unlock_all() and DISCARD ALL take PostgreSQL's locks of session
-- level away; zklock's claims go with them, at the end of the transaction or as
-- soon as zklock is called.
\pset tuples_only
\pset format unaligned
\set session 'zk_lock_acquire(\'/regress/a\')'
\set xact 'zk_xact_lock_acquire(\'/regress/a\')'
\set release 'zk_lock_release(\'/regress/a\')'
\set unlock_all 'pg_advisory_unlock_all() IS NOT NULL'

-- outside of a transaction
SELECT :session, zk_lock_acquire('/regress/b'), :session;
SELECT :unlock_all;
SELECT claims();
SELECT :release;

-- inside
BEGIN;
SELECT :session, zk_lock_acquire('/regress/b');
SELECT :unlock_all;
COMMIT;
SELECT claims();
SELECT :session;
BEGIN;
SELECT :unlock_all;
ROLLBACK;
SELECT claims();
SELECT :session;
BEGIN;
SELECT :unlock_all;
SELECT 1/0;
ROLLBACK;
SELECT claims();

-- seen by the next call
BEGIN;
SELECT :session, zk_lock_acquire('/regress/b');
SELECT :unlock_all;
SELECT zk_lock_is_held('/regress/b'), claims();
SELECT :release;
SELECT failure($$SELECT zk_lock_token('/regress/a')$$);
SELECT zk_lock_release_all();
COMMIT;

-- transaction-level claims stay
BEGIN;
SELECT :xact, zk_lock_acquire('/regress/b');
SELECT :unlock_all;
SELECT zk_lock_is_held('/regress/a'), zk_lock_is_held('/regress/b');
SELECT claims();
COMMIT;
SELECT claims();

-- both levels on one path: the transaction-level part is left
BEGIN;
SELECT :session, :xact, :session;
SELECT :unlock_all;
SELECT zk_lock_is_held('/regress/a'), claims();
COMMIT;
SELECT claims();
BEGIN;
SELECT :xact, :session;
SELECT :unlock_all;
COMMIT;
SELECT claims();

-- acquired again in the same transaction
BEGIN;
SELECT :session;
SELECT :unlock_all, :session;
SELECT claims();
COMMIT;
SELECT zk_lock_is_held('/regress/a'), claims();
BEGIN;
SELECT :unlock_all, :xact;
SELECT claims();
SELECT :session;
SELECT :unlock_all, :xact, :session;
SELECT claims();
COMMIT;
SELECT claims();
SELECT :release, claims();

-- with savepoints
BEGIN;
SELECT :session;
SAVEPOINT s;
SELECT :xact, zk_xact_lock_acquire('/regress/b');
SELECT :unlock_all;
ROLLBACK TO s;
SELECT zk_lock_is_held('/regress/a'), claims();
COMMIT;
BEGIN;
SELECT :xact;
SAVEPOINT s;
SELECT :session, :unlock_all;
ROLLBACK TO s;
SELECT zk_lock_is_held('/regress/a'), claims();
SAVEPOINT s2;
SELECT :session, :xact, :unlock_all, :xact;
RELEASE s2;
SELECT zk_lock_is_held('/regress/a'), claims();
ROLLBACK;
SELECT claims();

-- PostgreSQL's own locks and zklock's do not disturb each other
SELECT pg_advisory_lock(1) IS NOT NULL, :session;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(2);
SELECT claims();

-- DISCARD ALL
DISCARD ALL;
SELECT claims();
SELECT :session;
DISCARD TEMP;
DISCARD PLANS;
DISCARD SEQUENCES;
SELECT claims();
DISCARD ALL;
SELECT zk_lock_is_held('/regress/a'), claims();

CALL all_is_gone();
