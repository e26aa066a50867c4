/*-------------------------------------------------------------------------
 *
 * report.h
 *	  The errors: one function for each condition.
 *
 * Called only by backends.  A function that does not return raises an ERROR.
 *
 * src/backend/report.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_REPORT_H
#define ZKL_REPORT_H

#include "compat.h"
#include "shared/locktable.h"
#include "shared/mailbox.h"
#include "shared/serverstat.h"

#define ERRCODE_ZKL_LOCK_LOST	MAKE_SQLSTATE('Z', 'K', '0', '0', '1')
#define ERRCODE_ZKL_LEASE_OVER	MAKE_SQLSTATE('Z', 'K', '0', '0', '2')
#define ERRCODE_ZKL_OTHER_KIND	MAKE_SQLSTATE('Z', 'K', '0', '0', '3')
#define ERRCODE_ZKL_LATE_COMMIT MAKE_SQLSTATE('0', '1', 'Z', 'K', '1')

/*
 * Count an error, as all functions below do; returns the SQLSTATE.  The array
 * has those that are counted.
 */
extern const int zkl_report_counted[ZKL_SERVER_STAT_ERRORS];
extern int	zkl_report_count(int sqlstate);

/* Raise 55000 unless zklock was preloaded.  May also read catalogs. */
extern void zkl_report_unless_loaded(void);

/* Raise 55000 unless zklock was preloaded, 25000 in a parallel operation. */
extern void zkl_report_unless_usable(void);

/*
 * ZK001: a claim was lost; ZK002 if its hold limit has passed.  "loss" and
 * "lost_at" are from zkl_claim_status_loss.  "release" is the SQL function
 * that releases the claim; NULL if the claim ends with the transaction;
 * ZKL_REPORT_CLAIM if there must be another detached claim; ZKL_REPORT_HOLDER
 * if another session holds the lock.
 */
#define ZKL_REPORT_CLAIM	""
#define ZKL_REPORT_HOLDER	" "
extern void zkl_report_loss(int level, const char *path, ZklLoss loss,
							int64 lost_at, const char *release);

/* Replace the text of another error by this one. */
extern void zkl_report_loss_instead(ErrorData *error, const char *path,
									ZklLoss loss, int64 lost_at,
									const char *release);

/*
 * For ereport, or for an error context: give the error that is being raised
 * this text.
 */
extern int	zkl_report_text(const ErrorData *error);

/*
 * The transaction has committed at "now", but the commit guard had relied on
 * the lock only up to "until".  Raises a WARNING with 01ZK1, for the client
 * and the log.  It raises no error, so it may be called after the commit.
 */
extern void zkl_report_late_commit(const char *path, int64 until, int64 now);

/* ZK001: the claim on this path is in doubt. */
ZKL_NORETURN extern void zkl_report_doubt(const char *path);

/*
 * 28000 if ZooKeeper refuses this server, 55000 where there is no worker, else
 * 08006.
 */
ZKL_NORETURN extern void zkl_report_unreachable(const char *path);

/*
 * Why ZooKeeper refuses the lock: 08006, 22023, 28000, 53400, 54000, 55000 or
 * ZK003.
 */
ZKL_NORETURN extern void zkl_report_failure(const char *path,
											ZklFailure failure);

/* 22023: a semaphore is in use with another limit than the one given */
ZKL_NORETURN extern void zkl_report_other_limit(const char *path, int in_use,
												int given);

/* ZK003: the path is in use as another kind of lock */
ZKL_NORETURN extern void zkl_report_other_kind(const char *path);

/* 53400: entries or claims are used up. */
ZKL_NORETURN extern void zkl_report_full(void);

/* 57P01: the server shuts down */
ZKL_NORETURN extern void zkl_report_shutdown(void);

/* 55P03, with the lock manager's message; NULL: there is no detail */
ZKL_NORETURN extern void zkl_report_lock_timeout(const char *detail);

/* 55P03: the time of a procedure is over.  "path": NULL for several locks. */
ZKL_NORETURN extern void zkl_report_not_acquired(const char *path);

/* A command got no reply: 08006, 28000 or 55000, as for zkl_report_unreachable */
ZKL_NORETURN extern void zkl_report_silence(const char *path);

/* Why a command failed: an error of znodes.h.  Not for OK and ABSENT. */
ZKL_NORETURN extern void zkl_report_command(const char *path,
											ZklCommandOutcome outcome);

#endif							/* ZKL_REPORT_H */
