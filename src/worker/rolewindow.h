/*-------------------------------------------------------------------------
 *
 * rolewindow.h
 *	  How many requests may be on their way while several roles need
 *	  ZooKeeper.
 *
 * ZooKeeper answers the requests of a session in the order of sending.  So a
 * backend's request for a lock waits for all requests that were sent before
 * it, for whatever role.  While only one role needs ZooKeeper, its requests
 * may all be sent, which is fastest.  When a second role needs it, each role
 * has a window: so few requests are on their way that the roles hardly delay
 * each other.
 *
 * Roles are distinguished by their OID modulo ZKL_ROLE_WINDOWS.  Only the
 * worker calls these functions, so they need no lock.  No function raises an
 * error.
 *
 * src/worker/rolewindow.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ROLEWINDOW_H
#define ZKL_ROLEWINDOW_H

#define ZKL_ROLE_WINDOWS	256

/*
 * So many requests of one kind or of one role may be on their way while roles
 * share.
 */
#define ZKL_ROLE_WINDOW		4

/* A backend of this role waits for something that is to be sent. */
extern void zkl_role_window_note(Oid role, int64 now);

/* Did two roles have something to send recently? */
extern bool zkl_role_window_is_shared(int64 now);

/* The create of this role's ticket is sent. */
extern void zkl_role_window_sent(Oid role);

/* Its reply came, or is lost. */
extern void zkl_role_window_answered(Oid role);

/*
 * A create of this role was refused, so all that were sent together with it were
 * not done.  Has that happened of late?
 */
extern void zkl_role_window_note_spoiler(Oid role, int64 now);
extern bool zkl_role_window_is_spoiler(Oid role, int64 now);

/* Does this role already have its share of creates on their way? */
extern bool zkl_role_window_is_full(Oid role, int64 now);

#endif							/* ZKL_ROLEWINDOW_H */
