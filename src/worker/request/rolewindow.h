/*-------------------------------------------------------------------------
 *
 * rolewindow.h
 *	  How many requests may be on their way while several roles need
 *	  ZooKeeper.
 *
 * ZooKeeper answers the requests of a session in the order of sending.  So a
 * backend's request for a lock waits for all requests that were sent before
 * it, for whatever role.  While only one role needs ZooKeeper, its requests
 * may fill the whole window, which is fastest.  When a second role needs it,
 * the window shrinks: so few requests are on their way that the roles hardly
 * delay each other.
 *
 * Roles are distinguished by their OID modulo ZKL_ROLE_WINDOWS.  Only the
 * worker calls these functions, so they need no lock.  No function raises an
 * error.
 *
 * src/worker/request/rolewindow.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ROLEWINDOW_H
#define ZKL_ROLEWINDOW_H

#define ZKL_ROLE_WINDOWS	256

/* A worker starts. */
extern void zkl_role_window_start(void);

/* A backend of this role waits for something that is to be sent. */
extern void zkl_role_window_note(Oid role, int64 now);

/* Did two roles have something to send recently? */
extern bool zkl_role_window_is_shared(int64 now);

/*
 * If two roles had something to send recently, this many requests of one kind
 * or of one role may be on their way.
 */
extern int	zkl_role_window_size(void);

/* The create of this role's ticket is sent. */
extern void zkl_role_window_sent(Oid role);

/*
 * The reply to such a create came after this time; -1 if the time is not known
 * or the reply is lost.
 */
extern void zkl_role_window_answered(Oid role, int64 took, int64 now);

/*
 * A role is a spoiler if one of its creates was refused of late: such a
 * create spoils the batch in which it is sent.
 */
extern void zkl_role_window_note_spoiler(Oid role, int64 now);
extern bool zkl_role_window_is_spoiler(Oid role, int64 now);

/* Does this role already have its share of creates on their way? */
extern bool zkl_role_window_is_full(Oid role, int64 now);

#endif							/* ZKL_ROLEWINDOW_H */
