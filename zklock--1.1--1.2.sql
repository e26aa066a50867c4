/* zklock--1.1--1.2.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.2'" to load this file. \quit

/*
 * How many rows the functions return, on a server with some locks.  The planner
 * would expect 1,000 from each: three such functions in a join cost it 10^9 rows,
 * for which it compiles the query with JIT each time.
 */

ALTER FUNCTION zk_sessions() ROWS 1;
ALTER FUNCTION zk_status() ROWS 1;
ALTER FUNCTION zk_cluster_status() ROWS 1;
ALTER FUNCTION zk_stat() ROWS 1;
ALTER FUNCTION zk_stat_transactions() ROWS 1;
