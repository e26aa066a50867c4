/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Only a server with the newest history of the database may lead.
 *
 * After a failover, the old primary may still run, and the new one may stop.
 * Then the old one gets the leadership again, and would commit beside what the
 * new one has committed.  So for each path in zklock.leader_of there is a
 * record in ZooKeeper: the HISTORY of the server that led last, which is a
 * database system, a timeline, and the position in WAL at which that timeline
 * began to lead.  Where zklock.commit_requires names the path, a server leads
 * only if that is a part of its own history, and if the record has its history
 * then.
 *
 * A copy of a data directory has the history of its original.  So the record
 * also has a token, which the server keeps in a file, and which changes when a
 * leadership begins, each minute while it lasts, and when it ends.  See
 * history.c.
 *
 * Called only by the claims process, except for forget.
 *
 * src/backend/lock/history.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HISTORY_H
#define ZKL_HISTORY_H

#include "access/xlogdefs.h"

#include "shared/locktable.h"

typedef enum ZklHistoryAnswer
{
	ZKL_HISTORY_PENDING,		/* ZooKeeper has not answered yet */
	ZKL_HISTORY_MAY_LEAD,		/* the record has a new token of this server */
	ZKL_HISTORY_REFUSED
} ZklHistoryAnswer;

#define ZKL_HISTORY_TOKEN_SIZE	33

/* What a server keeps in a file.  All zeroes: nothing. */
typedef struct ZklHistoryProof
{
	TimeLineID	timeline;		/* the timeline of the tokens */
	char		token[ZKL_HISTORY_TOKEN_SIZE];
	char		replaced[ZKL_HISTORY_TOKEN_SIZE];	/* the previous token;
													 * "-": none */
	int64		made_at;		/* of GetCurrentTimestamp() */
	bool		is_original;	/* this server has written it */
} ZklHistoryProof;

/* One leadership's looks at the record.  All zeroes: it has not begun. */
typedef struct ZklHistoryLook
{
	int			slot;			/* slot of the mailbox, plus 1; 0: none */
	bool		replaces;		/* the command in the slot writes */
	bool		leads;			/* what the record is to say */
	bool		has_led;		/* the answer was MAY_LEAD */
	int64		due;			/* when the next look is due */
	ZklHistoryProof proof;
} ZklHistoryLook;

/*
 * May this server lead the path, whose lock it has?  Call again when the
 * latch is set, or after a while, until the answer is not PENDING.  After
 * MAY_LEAD, call again at look->due.  For REFUSED, "why" is a sentence.
 *
 * leads = false: record that the leadership has ended in order.  The caller
 * still has the lock, and no transaction that requires the leadership can
 * commit any more.  REFUSED also means that ZooKeeper is away; then the
 * record does not say that the leadership has ended, and a copy of this
 * server will not lead.
 *
 * look may raise an error if memory is short, or if the server's file cannot
 * be written; the caller must then call end, which gives the look up at any
 * stage and raises no error.
 */
extern ZklHistoryAnswer zkl_history_look(ZklHistoryLook *look, const char *path,
										 bool leads, char why[ZKL_WHY_SIZE]);
extern void zkl_history_end(ZklHistoryLook *look);

/*
 * From now on, any history may lead the path.  False if there is no record.
 * Raises the errors of znodes.h.  Called by any backend.
 */
extern bool zkl_history_forget(const char *path);

#endif							/* ZKL_HISTORY_H */
