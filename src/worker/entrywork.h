/*-------------------------------------------------------------------------
 *
 * entrywork.h
 *	  The entries that the worker is to look at, and what it finds to do.
 *
 * Functions lock the entry's partition themselves, so the caller holds none.
 * No function raises an error.
 *
 * Called only by the worker, for entries of its own session.
 *
 * src/worker/entrywork.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRYWORK_H
#define ZKL_ENTRYWORK_H

#include "shared/locktable.h"

/*
 * What the worker has to do about an entry.  If nothing is set, the entry may
 * be gone.
 */
typedef struct ZklWork
{
	bool		want;			/* get the ticket */
	bool		unwant;			/* give it up */
	bool		downgrade;		/* let other servers read, too */
	bool		watch;			/* watch the znode */
	bool		look;			/* list the znodes behind it, for the first
								 * time */
	bool		retry;			/* delete the stuck znodes of its leases */
	bool		recheck;		/* look whether it is still contended */
	bool		describe;		/* write the present holder into the znode */
	bool		standby;		/* note whether it stands by */
	int64		timer_at;		/* when to look again; 0: no need */
} ZklWork;

/* A worker starts: take over what its predecessor was asked to do. */
extern void zkl_entry_work_adopt(void);

/*
 * Take the next entry that the worker was asked to look at; NULL: none.  And: is
 * there one?
 */
extern ZklEntry *zkl_entry_work_next(void);
extern bool zkl_entry_work_any(void);

/* What has to be done about the entry, now that the worker was asked? */
extern ZklWork zkl_entry_work_look(ZklEntry *entry);

/* The same if its timer has fired. */
extern ZklWork zkl_entry_work_timer_fired(ZklEntry *entry);

#endif							/* ZKL_ENTRYWORK_H */
