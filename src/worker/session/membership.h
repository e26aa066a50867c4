/*-------------------------------------------------------------------------
 *
 * membership.h
 *	  This server's record among those of all servers (serverrecord.h).
 *
 * The worker makes the record once for each ZooKeeper session, and then
 * only watches the directory of its own name.  So an idle server causes no
 * traffic for this, however many servers there are.
 *
 * Called only by the worker, in its turn.  An error ends the worker
 * (worker.c).
 *
 * src/worker/session/membership.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_MEMBERSHIP_H
#define ZKL_MEMBERSHIP_H

/* A worker starts.  "prefix" precedes the path of each lock. */
extern void zkl_membership_start(const char *prefix);

/* The configuration was reloaded: if ZooKeeper has refused the record, try again now. */
extern void zkl_membership_reload(void);

/* Send what is due. */
extern void zkl_membership_send(void);

/* When to call send without an event; PG_INT64_MAX: not at all. */
extern int64 zkl_membership_wake_at(void);

/*
 * ZooKeeper's data seem to be older than what this server has seen.  This is
 * reported as soon as it is certain that they are not the data of another
 * ensemble.
 */
extern void zkl_membership_note_older(void);

/*
 * The children of this directory have changed.  False: the directory is not
 * one of this file's.
 */
extern bool zkl_membership_note_change(const char *path);

#endif							/* ZKL_MEMBERSHIP_H */
