/*-------------------------------------------------------------------------
 *
 * ask.h
 *	  A backend asks the worker to look at znodes, or to change one.
 *
 * Called only by backends that zklock was loaded into.  Each of these waits
 * for ZooKeeper, can be cancelled, and raises an error
 *
 *		08006, 55000	where nothing is heard of ZooKeeper for
 *						zklock.connection_timeout, or there is no worker
 *		42501			where ZooKeeper's access control forbids it
 *		53000, 53200, 54000	 where too many ask, or the answer is too large
 *
 * No LWLock may be held.  What was asked for may still happen after an error.
 *
 * src/ask.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ASK_H
#define ZKL_ASK_H

#include "survey.h"

/*
 * What is in the lock's directory, in "leases" and in "locks", in the current
 * memory context.
 *
 * With ZKL_ASK_NAMES the nodes have names only, and what is seen is at least what
 * this server's sessions have seen.  With ZKL_ASK_DETAILS, contenders and
 * all of "leases" have their details, and nothing is missed that had happened
 * before, anywhere.  It is never a picture of one moment.
 */
typedef enum ZklAskDepth
{
	ZKL_ASK_NAMES,
	ZKL_ASK_DETAILS
} ZklAskDepth;

/*
 * NULL if that takes until this moment of zkl_now(), or ZKL_FOREVER: that is no
 * error.
 */
extern ZklSurvey *zkl_ask_survey(const char *path, ZklAskDepth depth,
								 int64 until);

/*
 * Write the data of a child of the lock's directory, such as
 * "leases/_c_...", or of the directory where child is empty; or delete one.
 * False if there is no such znode, or, for the write, if the time is over.
 */
extern bool zkl_ask_write(const char *path, const char *child,
						  const char *data, int64 until);
extern bool zkl_ask_delete(const char *path, const char *child);

/*
 * Request the release of the lock that a child holds.  zklock's own znodes go on
 * saying who holds it.  False if there is no such znode.
 */
extern bool zkl_ask_revoke(const char *path, const char *child);

#endif							/* ZKL_ASK_H */
