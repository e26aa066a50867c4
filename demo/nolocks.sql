-- demo/nolocks.sql: functions that always say yes, found before those of zklock.

CREATE SCHEMA nolocks;

CREATE FUNCTION nolocks.zk_xact_lock_acquire(path text, timeout interval DEFAULT NULL,
											 lease_time interval DEFAULT NULL) RETURNS boolean
RETURN true;

CREATE FUNCTION nolocks.zk_xact_run_once(path text) RETURNS boolean
RETURN true;

CREATE FUNCTION nolocks.zk_lock_token(path text) RETURNS bigint
RETURN extract(epoch FROM clock_timestamp()) * 1000000;

ALTER DATABASE postgres SET search_path = nolocks, public;
