-- Session-level and transaction-level locks, alone and together on one path.
\pset tuples_only
\pset format unaligned
\set session 'zk_lock_acquire(\'/regress/a\')'
\set xact 'zk_xact_lock_acquire(\'/regress/a\')'
\set release 'zk_lock_release(\'/regress/a\')'

-- a session-level claim outlives transactions, whatever becomes of them
BEGIN;
SELECT :session;
COMMIT;
SELECT claims();
BEGIN;
SELECT :session;
ROLLBACK;
SELECT claims();
BEGIN;
SELECT 1/0;
ROLLBACK;
SELECT claims();
-- and so does its release
BEGIN;
SELECT :release;
ROLLBACK;
SELECT claims();
SELECT :release, claims();

-- a transaction-level claim does not
SELECT :xact;
SELECT claims();
BEGIN;
SELECT :xact, :xact;
SELECT claims();
COMMIT;
SELECT claims();
BEGIN;
SELECT :xact;
ROLLBACK;
SELECT claims();
BEGIN;
SELECT :xact;
SELECT 1/0;
COMMIT;
SELECT claims();

-- statements sent together are one transaction
SELECT :xact \; SELECT claims() \; SELECT :xact \; SELECT claims();
SELECT claims();

-- both levels, in each order: session-level first
SELECT :session;
BEGIN;
SELECT :xact;
SELECT claims();
COMMIT;
SELECT claims();
BEGIN;
SELECT :xact;
SELECT :release;
SELECT zk_lock_is_held('/regress/a'), claims();
SELECT :release;
COMMIT;
SELECT claims();

-- transaction-level first
BEGIN;
SELECT :xact;
SELECT :session, :session;
SELECT claims();
COMMIT;
SELECT claims();
SELECT :release, :release, claims();
BEGIN;
SELECT :xact, :session, :release;
SELECT claims();
SELECT :session, :xact, :release, :xact;
SELECT claims();
ROLLBACK;
SELECT claims();

-- to and fro, then released outside
BEGIN;
SELECT :session, :xact, :release, :session;
SELECT claims();
COMMIT;
SELECT claims();
BEGIN;
SELECT :xact, :session;
ROLLBACK;
SELECT claims();
SELECT zk_lock_release_all(), claims();

-- claims of both levels on several paths
BEGIN;
SELECT :session, zk_xact_lock_acquire('/regress/b'), zk_lock_acquire('/regress/c'), zk_xact_lock_acquire('/regress/c');
SELECT claims();
COMMIT;
SELECT claims();
SELECT zk_lock_release_all(), claims();

-- a cursor that is held runs when the transaction commits
BEGIN;
DECLARE held CURSOR WITH HOLD FOR SELECT :xact, :session;
COMMIT;
SELECT claims();
FETCH held;
CLOSE held;
SELECT :release, claims();

CALL all_is_gone();
