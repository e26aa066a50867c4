/*-------------------------------------------------------------------------
 *
 * reliance.h
 *	  The leaderships on which this transaction relies.
 *
 * Called only by backends.
 *
 * src/backend/reliance.h
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
 * Raise ZK001 unless the server still leads with the same tokens, and
 * certainly will for "margin" more microseconds.
 */
extern void zkl_reliance_check(int64 margin);
extern void zkl_reliance_forget(void);

#endif							/* ZKL_RELIANCE_H */
