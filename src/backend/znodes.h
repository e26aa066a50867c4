/*-------------------------------------------------------------------------
 *
 * znodes.h
 *	  What a backend makes the worker do once: read znodes, or change one.
 *
 * Called only by backends of a server with zklock preloaded.  Each function
 * waits for ZooKeeper, can be cancelled, and raises an error:
 *
 *		08006, 55000	if ZooKeeper is silent for
 *						zklock.connection_timeout, or there is no worker
 *		28000			if ZooKeeper refuses this server, or its access control
 *						forbids it
 *		53000, 53200, 54000	 if too many commands wait, or the answer
 *						is too large
 *		53400, XX001	if a quota in ZooKeeper is used up, or its servers do
 *						not agree about the znode
 *
 * ZklPatience says how long a command waits if no ZooKeeper server can be
 * reached.  Commands that take no such argument look, unless they say so.
 *
 * The caller holds no LWLock.  After an error, the worker may still carry the
 * command out.
 *
 * src/backend/znodes.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ZNODES_H
#define ZKL_ZNODES_H

#include "shared/listing.h"
#include "shared/mailbox.h"

/*
 * Read several znodes, in the current memory context.  Of the kinds in
 * mailbox.h:
 *
 * 		LIST		the lock's directory, and its children "leases" and "locks":
 * 					names only, at least as new as what this server's sessions
 * 					have seen
 * 		SURVEY		as LIST, and contenders and all children of "leases" have
 * 					their details; it shows every change that any client made
 * 					before the call
 * 		WALK		the znodes of all locks at the path and below it ("" for all
 * 					locks), including directories
 * 		JOBS, WAITS, SERVERS	the records in the directory that their header names
 *
 * What is read never shows a single moment.
 *
 * Returns NULL, without an error, if the answer is not complete by this moment
 * of zkl_now().  ZKL_FOREVER sets no limit.
 */
extern ZklListing *zkl_znodes_list(ZklCommandKind kind, const char *path,
								   int64 until, ZklPatience patience);

/*
 * SURVEY without a limit.  If ZooKeeper's access control forbids it, this
 * returns NULL instead of raising an error.
 */
extern ZklListing *zkl_znodes_survey_if_allowed(const char *path);

/*
 * Read one child; NULL if there is no such znode, or if the time is over
 * before the reply.  Its data is NULL if it may not be read.  It may be older
 * than what another session has written.
 */
extern const ZklListingNode *zkl_znodes_node(const char *path, const char *child,
											 int64 until, ZklPatience patience);

/* Read only the data of one child, or NULL.  Waits as long as an acquire does. */
extern const char *zkl_znodes_read(const char *path, const char *child,
								   int64 until);

/*
 * Write the data of a child of the lock's directory, such as "leases/_c_...",
 * or of the directory itself if "child" is empty.  Returns false if there is
 * no such znode, or if the time is over.
 */
extern bool zkl_znodes_write(const char *path, const char *child,
							 const char *data, int64 until, ZklPatience patience);

/*
 * Write the limit of a semaphore.  False: another client has deleted the znode
 * meanwhile, so the caller calls again.
 */
extern bool zkl_znodes_write_limit(const char *path, int limit);

/*
 * DELETE a child.  Or REVOKE: request the release of the lock that it holds; a
 * znode of zklock keeps its text, which names the holder.  False if there is
 * no such znode.
 */
extern bool zkl_znodes_end(ZklCommandKind kind, const char *path, const char *child);

/*
 * QUERY a znode of zklock: its server deletes the znode if the ticket lingers,
 * and writes into it otherwise that the lock is in use.  Returns false if
 * ZooKeeper forbids that.
 */
extern bool zkl_znodes_query(const char *path, const char *child, int64 until,
							 ZklPatience patience);

#endif							/* ZKL_ZNODES_H */
