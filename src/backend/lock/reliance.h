/*-------------------------------------------------------------------------
 *
 * reliance.h
 *	  The leaderships on which this transaction relies.
 *
 * Called only by backends.
 *
 * src/backend/lock/reliance.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_RELIANCE_H
#define ZKL_RELIANCE_H

/*
 * The transaction relies on the leadership with this token, until it ends,
 * whatever savepoint it rolls back to.  True if it did not before.  Raises
 * ZK001 if it relies on an earlier leadership of the path, and 54000 if there
 * are too many.
 */
extern bool zkl_reliance_note(const char *path, int64 token);
extern bool zkl_reliance_any(void);

/*
 * The token of the leadership.  False if the transaction does not rely on
 * that; ZK001 as from zkl_reliance_check().
 */
extern bool zkl_reliance_token(const char *path, int64 *token);

/*
 * The transaction uses a detached claim on this path, so the lock must not be given up
 * at the end of the lease time while the transaction commits.  The claim by which it
 * uses that one is all else that it relies on.
 */
extern void zkl_reliance_note_use(const char *path);

/* The bits of their paths, for a pass (passes.h). */
extern uint64 zkl_reliance_bits(void);

/*
 * Raise ZK001 unless the server still leads with the same tokens, and
 * certainly will for "margin" more microseconds.  Returns the moment up to which
 * all are certain; PG_INT64_MAX if there are none.
 */
extern int64 zkl_reliance_check(int64 margin);

/*
 * The path of a leadership that has ended or is in doubt by now; NULL: there is
 * none.  This raises no error.
 */
extern const char *zkl_reliance_find_uncertain(void);

/* The transaction has ended. */
extern void zkl_reliance_forget(void);

#endif							/* ZKL_RELIANCE_H */
