-- Values outside of the range of a setting.  PostgreSQL writes units into the message from
-- version 17 on: see both expected files.
SET zklock.connection_timeout = 0;
SET zklock.connection_timeout = '-1';
SET zklock.commit_margin = -1;
ALTER SYSTEM SET zklock.session_timeout = '10ms';
ALTER SYSTEM SET zklock.tenure = '-1';
ALTER SYSTEM SET zklock.linger = '2h';
