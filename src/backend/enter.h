/*-------------------------------------------------------------------------
 *
 * enter.h
 *	  What comes before everything that depends on this backend's claims.
 *
 * Called only by backends.
 *
 * src/backend/enter.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTER_H
#define ZKL_ENTER_H

#include "backend/claims.h"

/*
 * Every function that depends on this backend's claims calls this first.  It
 * brings the claims up to date, and raises a NOTICE for those whose release
 * has been requested.  Raises 55000 unless zklock was preloaded, 25000 during
 * a parallel operation.
 */
extern void zkl_enter(void);

/*
 * The same where the transaction matters, but not the claims: only the errors.
 */
extern void zkl_enter_without_claims(void);

/*
 * The same; returns this backend's claim on the wanted lock, or NULL.  Raises
 * ZK003 if it is a claim of another kind.
 */
extern ZklLocalClaim *zkl_enter_to_acquire(const ZklWish *wish);

#endif							/* ZKL_ENTER_H */
