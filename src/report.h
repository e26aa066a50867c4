/*-------------------------------------------------------------------------
 *
 * report.h
 *	  The errors: one function a condition.
 *
 * Called only by backends.  Those that do not return raise an ERROR.
 *
 * src/report.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_REPORT_H
#define ZKL_REPORT_H

#include "compat.h"
#include "locktable.h"

#define ERRCODE_ZKL_LOCK_LOST	MAKE_SQLSTATE('Z', 'K', '0', '0', '1')

/* Raise 55000 unless zklock was preloaded. */
extern void zkl_check_loaded(void);

/* ZK001: a claim on the path was lost, for this reason, at this time. */
extern void zkl_report_lost(int level, const char *path, ZklLoss loss,
							int64 lost_at);

/* ZK001: the path's claim cannot be relied on right now. */
ZKL_NORETURN extern void zkl_report_doubt(const char *path);

/* 08006, or 55000 where there is no worker. */
ZKL_NORETURN extern void zkl_report_unreachable(const char *path);

/* What ZooKeeper has against it. */
ZKL_NORETURN extern void zkl_report_failure(const char *path,
											ZklFailure failure);

/* 53400: entries or claims are used up. */
ZKL_NORETURN extern void zkl_report_full(void);

/* 57P01 */
ZKL_NORETURN extern void zkl_report_shutdown(void);

/* 55P03, as the lock manager says it */
ZKL_NORETURN extern void zkl_report_lock_timeout(void);

/* A moment of zkl_now(), as a timestamp. */
extern TimestampTz zkl_timestamp_of(int64 moment);

/* A path, in the encoding of the database. */
extern const char *zkl_show_path(const char *path);

#endif							/* ZKL_REPORT_H */
