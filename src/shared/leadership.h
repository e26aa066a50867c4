/*-------------------------------------------------------------------------
 *
 * leadership.h
 *	  Does this server lead?  A leadership's claim, as backends see it.
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

#include "shared/claim.h"

/* The state of the server when it resigned. */
typedef enum ZklResignation
{
	ZKL_RESIGN_NO_CANDIDATE,
	ZKL_RESIGN_QUEUED,			/* it waited for its turn, or its candidacy
								 * was paused */
	ZKL_RESIGN_LED
} ZklResignation;

/*
 * From now on this claim, which has no role and has not requested its lock
 * yet, represents the leadership of its path.  The server leads as soon as
 * the claim is held.  But where zklock.commit_requires names the path, the
 * server leads only after "allow" has said that its history may lead.  allow
 * is called when the server begins to lead, and when its history has been
 * judged since.
 */
extern void zkl_leadership_begin(ZklClaim *claim);
extern void zkl_leadership_allow(ZklClaim *claim, bool may_commit);

/*
 * Whether the leadership of this path is good, in doubt or lost.  LOST is
 * also returned if the server never had it; otherwise this writes the token
 * of its claim, and the moment up to which its session certainly lives.  Good
 * means for at least "margin" more microseconds.
 */
extern ZklClaimStatus zkl_leadership_status(const char *path, int64 margin,
											int64 *token, int64 *until);

/*
 * Does the claims process certainly hold the lock with this token?  Also true
 * if the leadership was resigned but has not ended yet.
 */
extern bool zkl_leadership_is_held(const char *path, int64 token);

/*
 * Resign, and do not stand again before "until", of zkl_now().  From here on
 * the server does not lead, although the claims process still has to end the
 * claim.  If the server already pauses, this moment replaces the end of the
 * pause; the claims process reads it again from time to time.  stop: the
 * claims process is about to end the claim, for any reason.
 *
 * After either call, no further transaction that relies on the leadership
 * passes the commit guard.  Transactions that have passed it rely on the
 * leadership up to a certain moment.  stop returns that moment, and resign
 * writes it if there is a claim.  Until that moment, the claim does not end
 * before their passes (passes.h).
 */
extern ZklResignation zkl_leadership_resign(const char *path, int64 until,
											int64 *relied_until);
extern int64 zkl_leadership_stop(ZklClaim *claim);

/*
 * Pauses.  refuse: do not stand before "until", nor before the end of the
 * present pause, because a user may just have resigned for an hour; "why" is
 * the reason for which the history of this server must not lead the path.
 * paused_until: when the last pause of this path ends; if that is not later
 * than now, the server may stand.  end_pause: the server may stand at once
 * when it wants this path again.  is_refused: is there a reason?  It stays
 * until the server leads the path, resigns, or no longer stands for it.
 */
extern void zkl_leadership_refuse(const char *path, int64 until, const char *why);
extern int64 zkl_leadership_paused_until(const char *path);
extern void zkl_leadership_end_pause(const char *path);
extern bool zkl_leadership_is_refused(const char *path, char why[ZKL_WHY_SIZE]);

#endif							/* ZKL_LEADERSHIP_H */
