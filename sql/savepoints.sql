-- A transaction-level claim ends with the rollback of its savepoint, and moves to the
-- parent when that is released.
\pset tuples_only
\pset format unaligned
\set session 'zk_lock_acquire(\'/regress/a\')'
\set xact 'zk_xact_lock_acquire(\'/regress/a\')'
\set release 'zk_lock_release(\'/regress/a\')'

BEGIN;
SAVEPOINT s;
SELECT :xact;
ROLLBACK TO s;
SELECT claims();
SELECT :xact;
RELEASE s;
SELECT claims();
COMMIT;
SELECT claims();

-- counts belong to the savepoint in which they were made
BEGIN;
SELECT :xact;
SAVEPOINT s;
SELECT :xact, :xact;
SELECT claims();
ROLLBACK TO s;
SELECT claims();
SELECT :xact;
RELEASE s;
SELECT claims();
ROLLBACK;
SELECT claims();

-- nested ones
BEGIN;
SAVEPOINT s1;
SELECT :xact, zk_xact_lock_acquire('/regress/b');
SAVEPOINT s2;
SELECT :xact;
SAVEPOINT s3;
SELECT :xact, zk_xact_lock_acquire('/regress/c');
SELECT claims();
RELEASE s3;
SELECT claims();
SAVEPOINT s4;
SELECT zk_xact_lock_acquire('/regress/c'), zk_xact_lock_acquire('/regress/d');
SELECT claims();
ROLLBACK TO s4;
SELECT claims();
RELEASE s2;
SELECT claims();
ROLLBACK TO s1;
SELECT claims();
COMMIT;

-- release of several levels at once, rollback of several levels at once
BEGIN;
SAVEPOINT s1;
SELECT zk_xact_lock_acquire('/regress/b');
SAVEPOINT s2;
SELECT :xact;
SAVEPOINT s3;
SELECT :xact, zk_xact_lock_acquire('/regress/c');
RELEASE s1;
SELECT claims();
SAVEPOINT s1;
SELECT :xact;
SAVEPOINT s2;
SAVEPOINT s3;
SELECT :xact, zk_xact_lock_acquire('/regress/d');
ROLLBACK TO s1;
SELECT claims();
COMMIT;
SELECT claims();

-- moved up, then rolled back with the parent
BEGIN;
SAVEPOINT s1;
SAVEPOINT s2;
SELECT :xact;
RELEASE s2;
ROLLBACK TO s1;
SELECT claims();
COMMIT;

-- an error in a savepoint
BEGIN;
SELECT :xact;
SAVEPOINT s;
SELECT zk_xact_lock_acquire('/regress/b');
SELECT 1/0;
ROLLBACK TO s;
SELECT claims();
COMMIT;

-- a session-level claim knows no savepoints
BEGIN;
SAVEPOINT s;
SELECT :session;
ROLLBACK TO s;
SELECT claims();
SAVEPOINT s;
SELECT :release;
ROLLBACK TO s;
SELECT claims();
COMMIT;

-- both levels: the session-level part stays
BEGIN;
SAVEPOINT s;
SELECT :xact;
SELECT :session;
ROLLBACK TO s;
SELECT claims();
SELECT :xact;
SELECT :release;
SELECT claims();
ROLLBACK TO s;
SELECT claims();
COMMIT;

BEGIN;
SELECT :session;
SAVEPOINT s;
SELECT :xact;
SELECT :release;
SELECT claims();
RELEASE s;
SELECT claims();
COMMIT;
SELECT claims();

BEGIN;
SELECT :xact;
SAVEPOINT s;
SELECT :session, :xact;
SELECT :release;
SELECT claims();
ROLLBACK TO s;
SELECT claims();
SELECT :session;
ROLLBACK;
SELECT claims();
SELECT :release, claims();

-- a wait with a limit uses a savepoint of its own, inside
BEGIN;
SAVEPOINT s;
SELECT zk_xact_lock_acquire('/regress/a', '1 hour');
RELEASE s;
SELECT claims();
COMMIT;

CALL all_is_gone();
