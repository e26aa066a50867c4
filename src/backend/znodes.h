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
 *		53000, 53200, 54000	 if too many backends ask, or the answer
 *						is too large
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

#include "shared/jobruns.h"
#include "shared/listing.h"

/*
 * Read the lock's directory, and its children "leases" and "locks", in the
 * current memory context.
 *
 * With ZKL_ZNODES_NAMES the nodes have names only, and the survey is at least as
 * new as what this server's sessions have seen.  With ZKL_ZNODES_DETAILS,
 * contenders and all children of "leases" have their details, and the survey
 * shows every change that any client made before the call.  A survey never
 * shows a single moment.
 */
typedef enum ZklZnodesDepth
{
	ZKL_ZNODES_NAMES,
	ZKL_ZNODES_DETAILS
} ZklZnodesDepth;

/*
 * Returns NULL, without an error, if the survey is not complete by this
 * moment of zkl_now().  ZKL_FOREVER sets no limit.
 */
extern ZklListing *zkl_znodes_survey(const char *path, ZklZnodesDepth depth,
									 int64 until);

/*
 * The same with details and without a limit.  If ZooKeeper's access control
 * forbids it, this returns NULL instead of raising an error.
 */
extern ZklListing *zkl_znodes_survey_if_allowed(const char *path);

/*
 * Read the data of one child.  NULL if there is no such znode, if it may not
 * be read, or if the time is over before the reply.
 */
extern const char *zkl_znodes_read(const char *path, const char *child,
								   int64 until);

/*
 * Write the data of a child of the lock's directory, such as "leases/_c_...",
 * or of the directory itself if "child" is empty; or delete a child.  Returns
 * false if there is no such znode or, for the write, if the time is over.
 */
extern bool zkl_znodes_write(const char *path, const char *child,
							 const char *data, int64 until);
extern bool zkl_znodes_delete(const char *path, const char *child);

/*
 * Write the limit of a semaphore.  The caller writes again if that is false:
 * another client has deleted the znode meanwhile.
 */
extern bool zkl_znodes_write_limit(const char *path, int limit);

/*
 * Request the release of the lock that a child holds.  A znode of zklock keeps
 * its text, which names the holder.  False if there is no such znode.
 */
extern bool zkl_znodes_revoke(const char *path, const char *child);

/*
 * The records of jobs: read one, read all, or delete one (false if there is
 * none).  The record may be older than what another session has written.
 */
extern void zkl_znodes_job(const char *path, ZklJobZnode *znode);
extern ZklListing *zkl_znodes_jobs(void);
extern bool zkl_znodes_forget(const char *path);

/* The znodes with the records of waits of all servers (waitrecord.h). */
extern ZklListing *zkl_znodes_waits(void);

/*
 * The znodes with the records of all servers (serverrecord.h); and the znodes
 * of all locks at a path and below it ("" for all locks), including
 * directories.
 */
extern ZklListing *zkl_znodes_servers(void);
extern ZklListing *zkl_znodes_walk(const char *below);

#endif							/* ZKL_ZNODES_H */
