/*-------------------------------------------------------------------------
 *
 * leadership.h
 *	  Does this server lead?  The claim of the leader process, as backends see it.
 *
 * All functions lock the entry's partition themselves, so the caller holds
 * none.  None raises an error.
 *
 * src/shared/leadership.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LEADERSHIP_H
#define ZKL_LEADERSHIP_H

#include "shared/claimstatus.h"

/* What the server was when it resigned. */
typedef enum ZklResignation
{
	ZKL_RESIGN_NO_CANDIDATE,
	ZKL_RESIGN_QUEUED,
	ZKL_RESIGN_LED
} ZklResignation;

/* From now on this claim, of no role, stands for the leadership of its path. */
extern void zkl_leadership_begin(ZklClaim *claim);

/*
 * The leader process has no local lock, so it lets the backend of this server
 * go first that has the local lock and came before.
 */
extern bool zkl_leadership_is_its_turn(ZklClaim *claim);

/*
 * How does the leadership of this path stand?  LOST also if the server never
 * had it; otherwise this writes the token of its claim.  Good means for at
 * least "margin" more microseconds.
 */
extern ZklClaimStatus zkl_leadership_standing(const char *path, int64 margin,
											  int64 *token);

/*
 * Resign, and do not stand again before "until", of zkl_now().  From here on
 * the server does not lead, although the leader process still has to end its
 * claim.
 */
extern ZklResignation zkl_leadership_resign(const char *path, int64 until);
extern bool zkl_leadership_has_resigned(ZklClaim *claim, int64 *until);

#endif							/* ZKL_LEADERSHIP_H */
