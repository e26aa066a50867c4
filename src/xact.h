/*-------------------------------------------------------------------------
 *
 * xact.h
 *	  What transactions and savepoints do to claims, and the commit guard.
 *
 * Called only by backends.
 *
 * src/xact.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_XACT_H
#define ZKL_XACT_H

#include "claims.h"

/* Register the callbacks; once a backend. */
extern void zkl_xact_register(void);

/*
 * A claim is released that does not stand well.  What this transaction wrote
 * was not protected, so it shall not commit all the same.
 */
extern void zkl_xact_note_release(const ZklLocalClaim *claim,
								  ZklStanding standing);

#endif							/* ZKL_XACT_H */
