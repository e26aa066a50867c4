/*-------------------------------------------------------------------------
 *
 * report.h
 *	  The errors: one function for each condition.
 *
 * Called only by backends.  Those that do not return raise an ERROR.
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

#define ERRCODE_ZKL_LOCK_LOST	MAKE_SQLSTATE('Z', 'K', '0', '0', '1')
#define ERRCODE_ZKL_LEASE_OVER	MAKE_SQLSTATE('Z', 'K', '0', '0', '2')
#define ERRCODE_ZKL_OTHER_KIND	MAKE_SQLSTATE('Z', 'K', '0', '0', '3')

/* Raise 55000 unless zklock was preloaded. */
extern void zkl_report_unless_loaded(void);

/*
 * ZK001: a claim was lost; ZK002 if its hold limit has passed.  "loss" and
 * "lost_at" are from zkl_claim_status_loss.  "release" is the SQL function that
 * releases the claim; NULL if the claim ends with the transaction.
 */
extern void zkl_report_loss(int level, const char *path, ZklLoss loss,
							int64 lost_at, const char *release);

/* Replace the text of another error by this one. */
extern void zkl_report_loss_instead(ErrorData *error, const char *path,
									ZklLoss loss, int64 lost_at,
									const char *release);

/* ZK001: the claim on this path is in doubt. */
ZKL_NORETURN extern void zkl_report_doubt(const char *path);

/*
 * 28000 if ZooKeeper refuses this server, 55000 where there is no worker, else
 * 08006.
 */
ZKL_NORETURN extern void zkl_report_unreachable(const char *path,
												int session);

/* Why ZooKeeper does not allow the lock. */
ZKL_NORETURN extern void zkl_report_failure(const char *path,
											ZklFailure failure);

/* 22023: a semaphore is in use with another limit than the one given */
ZKL_NORETURN extern void zkl_report_other_limit(const char *path, int in_use,
												int given);

/* ZK003 */
ZKL_NORETURN extern void zkl_report_other_kind(const char *path);

/* 53400: entries or claims are used up. */
ZKL_NORETURN extern void zkl_report_full(void);

/* 57P01 */
ZKL_NORETURN extern void zkl_report_shutdown(void);

/* 55P03, as the lock manager says it; NULL: there is no detail */
ZKL_NORETURN extern void zkl_report_lock_timeout(const char *detail);

/* The same: a command was not answered. */
ZKL_NORETURN extern void zkl_report_silence(const char *path);

/* Why a command failed; not for OK and ABSENT. */
ZKL_NORETURN extern void zkl_report_command(const char *path,
											ZklCommandOutcome outcome);

#endif							/* ZKL_REPORT_H */
