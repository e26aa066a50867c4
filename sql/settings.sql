-- The settings zklock.*
SELECT name, boot_val, unit, vartype, context, min_val, max_val
FROM pg_settings WHERE name LIKE 'zklock.%' ORDER BY name COLLATE "C";
SELECT name AS "has no description" FROM pg_settings
WHERE name LIKE 'zklock.%' AND coalesce(short_desc, '') = '';
\pset tuples_only
\pset format unaligned

-- what every role may change
SET zklock.connection_timeout = '1min';
SHOW zklock.connection_timeout;
SET zklock.connection_timeout = 'soon';
SET zklock.connection_timeout = '100 GB';
RESET zklock.connection_timeout;
SET zklock.synchronous_release = 'perhaps';

-- what it may not change
SET zklock.hosts = '127.0.0.1:1';
SET zklock.tenure = 0;
SET zklock.linger = 0;
SET zklock.session_timeout = '1h';
SET zklock.root = '/elsewhere';
SET zklock.max_locks = 100;
SET zklock.node_name = 'x';

-- no other module defines settings with this prefix
SET zklock.nonsense = 1;

-- bad values do not get into the configuration
ALTER SYSTEM SET zklock.hosts = '';
ALTER SYSTEM SET zklock.hosts = 'a:0';
ALTER SYSTEM SET zklock.hosts = 'a:port';
ALTER SYSTEM SET zklock.hosts = '::1';
ALTER SYSTEM SET zklock.hosts = 'a:2181,,b:2181';
ALTER SYSTEM SET zklock.hosts = 'a b:2181';
ALTER SYSTEM SET zklock.hosts = 'a:2181/x/';
ALTER SYSTEM SET zklock.hosts = 'a:2181/x/../y';
ALTER SYSTEM SET zklock.root = '';
ALTER SYSTEM SET zklock.root = 'relative';
ALTER SYSTEM SET zklock.root = '/zookeeper';
ALTER SYSTEM SET zklock.node_name = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa';
ALTER SYSTEM SET zklock.max_locks = 15;
ALTER SYSTEM SET zklock.max_locks = 0;
SELECT count(*) FROM pg_file_settings WHERE name LIKE 'zklock.%' AND sourcefile LIKE '%auto.conf';

-- a synchronous release returns when the ticket is gone
SET zklock.synchronous_release = on;
SELECT zk_lock_acquire('/regress/sync'), zk_lock_release('/regress/sync');
SELECT count(*) FROM zk_locks WHERE path = '/regress/sync';
BEGIN;
SELECT zk_xact_lock_acquire('/regress/sync2');
COMMIT;
SELECT count(*) FROM zk_locks WHERE path = '/regress/sync2';
RESET zklock.synchronous_release;
CALL all_is_gone();
