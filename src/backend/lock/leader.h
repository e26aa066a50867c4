/*-------------------------------------------------------------------------
 *
 * leader.h
 *	  The leaderships of this server, for the claims process.
 *
 * A leadership is a claim (lockentry.h) for a path in zklock.leader_of.  Like
 * a detached claim, it may be in the list of claims that are due, and waits
 * for its turn.  But it has no number and no lease time, and counts in no
 * role's quota.
 *
 * Called only by the claims process.  An error about one leadership ends at
 * most that one.
 *
 * src/backend/lock/leader.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LEADER_H
#define ZKL_LEADER_H

#include "shared/claim.h"

/*
 * start: read zklock.leader_of.  read_setting: read it again.  tend: do what
 * is due for the leadership with this claim, if it is not NULL, and for all
 * others whose moment has come; return when to look again.  end: the process
 * exits, so end all leaderships.  This waits for commits that rely on them.
 */
extern void zkl_leader_start(void);
extern void zkl_leader_read_setting(void);
extern int64 zkl_leader_tend(const ZklClaim *due);
extern void zkl_leader_end(void);

#endif							/* ZKL_LEADER_H */
