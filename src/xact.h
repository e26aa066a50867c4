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
#include "compat.h"

/*
 * Register the callbacks, or register them again.  What was registered last is
 * called first, and nobody shall commit anywhere else before the guard was
 * asked.
 */
extern void zkl_xact_register(void);

/*
 * A claim is released that does not stand well.  What this transaction wrote
 * was not protected, so it shall not commit all the same.  If the user
 * has been told, who only reads need not be told again.
 */
extern void zkl_xact_note_release(const ZklLocalClaim *claim,
								  ZklStanding standing, bool told);

/* Was one of them lost?  Then let an error tell it. */
extern bool zkl_xact_released_lost(void);
extern void zkl_xact_report_released_instead(ErrorData *error);

/*
 * This function acquired a lock with transaction scope, and is all that the
 * client's statement does.  The user is warned when it commits, unless something
 * else has been done in the transaction until then.
 */
extern void zkl_xact_note_alone(const char *function);

/* A claim gets a lease time: from now on the guard looks at each commit. */
extern void zkl_xact_note_lease_time(void);

#endif							/* ZKL_XACT_H */
