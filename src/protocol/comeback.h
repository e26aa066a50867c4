/*-------------------------------------------------------------------------
 *
 * comeback.h
 *	  Does it pay to keep the ticket of a path for the path's next lock?
 *
 * A server that keeps a ticket saves a round trip if the path's next lock is
 * its own, and costs another server one more round trip if it is not.
 * ZooKeeper numbers the znodes of a queue.  So where the number of a server's
 * ticket follows the number of its last ticket, no other client was there in
 * between.  The worth of keeping the ticket grows with each such lock, and
 * falls with each lock that another client wanted.  Where servers share a
 * path, one of them often gets it two or three times in a row by chance.  So
 * one such lock more or less does not change the verdict, unless the path is
 * at the border anyway.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/comeback.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_COMEBACK_H
#define ZKL_COMEBACK_H

#include <stdbool.h>

typedef struct ZklComeback
{
	int			worth;			/* 0 to 7; it pays from 4 on */
	int			number;			/* of the server's last ticket; -1: not known */
} ZklComeback;

/* Begin with a ticket of the server's, which has this name. */
extern void zkl_comeback_start(ZklComeback *comeback, const char *name);

/* The server owns the lock by its next ticket, which has this name. */
extern void zkl_comeback_owned(ZklComeback *comeback, const char *name);

/* A ticket that was kept is used again; or another client wants the lock. */
extern void zkl_comeback_used(ZklComeback *comeback);
extern void zkl_comeback_taken(ZklComeback *comeback);

/* A downgrade uses up a number. */
extern void zkl_comeback_downgraded(ZklComeback *comeback);

extern bool zkl_comeback_pays(const ZklComeback *comeback);

#endif							/* ZKL_COMEBACK_H */
