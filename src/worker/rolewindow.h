/*-------------------------------------------------------------------------
 *
 * rolewindow.h
 *	  How much may be on its way while several roles need ZooKeeper.
 *
 * ZooKeeper answers a session in the order of sending.  So a lock that a backend
 * waits for waits for all that was sent before it, whoever requested that.  As long
 * as one role alone needs ZooKeeper, as much is on the way as makes it fastest.
 * When a second one does, only as much is as hardly makes the others wait.
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

/* A backend of this role waits for something that is to be sent. */
extern void zkl_role_window_note(Oid role, int64 now);

/* Did two roles have something to send of late? */
extern bool zkl_role_window_is_shared(int64 now);

/* Then this is how many requests of a kind, or of a role, may be on their way. */
extern int	zkl_role_window_size(void);

/* The create of this role's ticket is sent. */
extern void zkl_role_window_sent(Oid role);

/* It was answered after this time; -1: not known, or the answer is lost. */
extern void zkl_role_window_answered(Oid role, int64 took, int64 now);

/* Has this role its share of creates on their way? */
extern bool zkl_role_window_is_full(Oid role, int64 now);

#endif							/* ZKL_ROLEWINDOW_H */
