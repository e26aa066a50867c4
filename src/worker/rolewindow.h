/*-------------------------------------------------------------------------
 *
 * rolewindow.h
 *	  How much may be on its way while several roles need ZooKeeper.
 *
 * ZooKeeper answers a session in the order of sending.  So a lock that a backend
 * waits for waits for all that was sent before it, whoever requested that.  As long
 * as one role alone needs ZooKeeper, as much is on the way as makes it fastest.
 * When a second one does, only as much is as hardly makes the others wait, and what
 * one role sends beyond its share comes in bulk.
 *
 * A role is known by its number modulo ZKL_ROLE_WINDOWS.  Only the worker calls
 * these, so nothing is locked, and nothing raises an error.
 *
 * src/worker/rolewindow.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ROLEWINDOW_H
#define ZKL_ROLEWINDOW_H

#define ZKL_ROLE_WINDOWS	256

/* The worker starts, or all answers under way are dropped with the handle. */
extern void zkl_role_window_start(void);

/* A ticket that this role requested has something to send. */
extern void zkl_role_window_note(Oid role, int64 now);

/*
 * How many requests may be on their way, of a kind of which so many may be for one
 * role alone?
 */
extern int	zkl_role_window_limit(int alone, int64 now);

/* The create of this role's ticket is sent. */
extern void zkl_role_window_sent(Oid role);

/* It was answered after this time; -1: it was lost. */
extern void zkl_role_window_answered(Oid role, int64 took, int64 now);

/* Has this role its share of creates on their way? */
extern bool zkl_role_window_is_full(Oid role, int64 now);

#endif							/* ZKL_ROLEWINDOW_H */
