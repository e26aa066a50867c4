/*-------------------------------------------------------------------------
 *
 * entryqueue.h
 *	  The list of entries that the worker must look at, and what it must do
 *	  about each.
 *
 * Functions lock the entry's partition themselves, so the caller holds none.
 * No function raises an error.
 *
 * Called only by the worker, for entries of its own session.
 *
 * src/worker/entryqueue.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRYQUEUE_H
#define ZKL_ENTRYQUEUE_H

#include "shared/locktable.h"

/*
 * What the worker must do about an entry.  If nothing is set, the entry may
 * be gone.
 */
typedef struct ZklWork
{
	bool		want;			/* get the ticket */
	bool		unwant;			/* give it up */
	bool		downgrade;		/* downgrade it, so that readers of other
								 * servers can join */
	bool		watch;			/* watch the znode */
	bool		look;			/* list the znodes behind it, for the first
								 * time */
	bool		retry;			/* delete the stuck znodes of the entry's
								 * leases */
	bool		recheck;		/* list again, because it may no longer be
								 * contended */
	bool		deleted;		/* this server has deleted its znode */
	bool		describe;		/* write the present holder into the znode */
	bool		standby;		/* note whether it stands by */
	int64		timer_at;		/* when to look again; 0: not needed */
} ZklWork;

/* Take over the list of the predecessor when a worker starts. */
extern void zkl_entry_queue_adopt(void);

/*
 * The first function takes the next entry off the list; NULL if there is
 * none.  The second tells whether there is one.
 */
extern ZklEntry *zkl_entry_queue_next(void);
extern bool zkl_entry_queue_any(void);

/* What must be done about an entry that was on the list? */
extern ZklWork zkl_entry_queue_look(ZklEntry *entry);

/* What must be done about an entry whose timer has fired? */
extern ZklWork zkl_entry_queue_timer_fired(ZklEntry *entry);

#endif							/* ZKL_ENTRYQUEUE_H */
