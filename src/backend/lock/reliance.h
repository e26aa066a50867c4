/*-------------------------------------------------------------------------
 *
 * reliance.h
 *	  The leaderships on which this transaction relies: it was told of some of
 *	  them, and every commit requires the others (zklock.commit_requires).
 *
 * Called only by backends.  A function raises an error only if its comment
 * says so.
 *
 * src/backend/lock/reliance.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_RELIANCE_H
#define ZKL_RELIANCE_H

#include "settings.h"

/*
 * The transaction relies on the leadership with this token, until it ends,
 * whatever savepoint it rolls back to.  True if it did not before.  Raises
 * ZK001 if it relies on an earlier leadership of the path, and 54000 if there
 * are too many.
 */
extern bool zkl_reliance_note(const char *path, int64 token);
extern bool zkl_reliance_any(void);

/*
 * The token of the leadership.  False if the transaction does not rely on it.
 * Raises ZK001 as zkl_reliance_check() does.
 */
extern bool zkl_reliance_token(const char *path, int64 *token);

/*
 * The transaction uses a detached claim on this path, so the lock must not be
 * given up at the end of the lease time while the transaction commits.  Apart
 * from that, the transaction relies only on its own claim.
 */
extern void zkl_reliance_note_use(const char *path);

/*
 * The bits of the paths of the leaderships and detached claims on which the
 * transaction relies, for a pass (passes.h).
 */
extern uint64 zkl_reliance_bits(void);

/*
 * Raise ZK001 unless the server still leads with the same tokens, and
 * certainly will for "margin" more microseconds.  Returns the moment up to
 * which all are certain; PG_INT64_MAX if there are none.
 */
extern int64 zkl_reliance_check(int64 margin);

/* The transaction has ended. */
extern void zkl_reliance_forget(void);

/*
 * Does this process need any leadership for what it writes?  Mostly one load.
 */
extern bool zkl_reliance_is_required_here(void);

static inline bool
zkl_reliance_is_required(void)
{
	return zkl_commit_requires[0] != '\0' && zkl_reliance_is_required_here();
}

/* The bits of the required paths. */
extern uint64 zkl_reliance_required_bits(void);

/*
 * Raise 25006 unless this server leads all required paths, and certainly will
 * for "margin" more microseconds; 55000 if it does not stand for one of them;
 * 22023 if the setting is not valid.  With zklock.not_leading = terminate,
 * FATAL with 57P01 takes the place of 25006.  Returns the moment up to which
 * all are certain.  Call only where any is required.
 */
extern int64 zkl_reliance_check_required(int64 margin);
extern bool zkl_reliance_has_required(int64 margin);	/* raises no error */

/*
 * The path of a leadership that was good at the last check, and by now has
 * ended, was replaced by another one, or is in doubt; NULL: there is none.
 * of_required: look at those that every commit requires, else at those that
 * the transaction was told of.  This raises no error.
 */
extern const char *zkl_reliance_find_uncertain(bool of_required);

#endif							/* ZKL_RELIANCE_H */
