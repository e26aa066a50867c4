/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Only a server with the newest history of the database may lead.
 *
 * After a failover, the old primary may still run, and the new one may stop.  Then
 * the old one gets the leadership again, and would commit beside what the new one
 * has committed.  So for each path in zklock.leader_of there is a record in
 * ZooKeeper: the HISTORY of the server that led last, which is a database system, a
 * timeline, and the position in WAL at which that timeline began to lead.  Where
 * zklock.commit_requires names the path, a server leads only if that is a part of its own
 * history, and if the record has its history then.
 *
 * Called only by the claims process, except for forget.
 *
 * src/backend/lock/history.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HISTORY_H
#define ZKL_HISTORY_H

#include "shared/locktable.h"

typedef enum ZklHistoryAnswer
{
	ZKL_HISTORY_PENDING,		/* ZooKeeper has not answered yet */
	ZKL_HISTORY_MAY_LEAD,
	ZKL_HISTORY_REFUSED
} ZklHistoryAnswer;

/* One leadership's look at the record.  All zeroes: it has not begun. */
typedef struct ZklHistoryLook
{
	int			slot;			/* of the mailbox, plus 1; 0: none */
	bool		replaces;		/* the slot writes */
} ZklHistoryLook;

/*
 * May this server lead the path, whose lock it has?  Call again when the latch is
 * set, or after a while, until the answer is not PENDING.  For REFUSED, "why" is a
 * sentence.  end gives the look up at any stage.  May raise an error if memory is
 * short; the caller must end the look then.
 */
extern ZklHistoryAnswer zkl_history_look(ZklHistoryLook *look, const char *path,
										 char why[ZKL_WHY_SIZE]);
extern void zkl_history_end(ZklHistoryLook *look);

/*
 * From now on, any history may lead the path.  False if there is no record.  Raises
 * errors as the functions of znodes.h.
 */
extern bool zkl_history_forget(const char *path);

#endif							/* ZKL_HISTORY_H */
