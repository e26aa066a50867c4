/*-------------------------------------------------------------------------
 *
 * entrywork.h
 *	  What the worker does to entries: one function an arrow.
 *
 * The states and the arrows are in locktable.h.  Functions lock the entry's
 * partition themselves; none raises an error.
 *
 * Called only by the worker.
 *
 * src/entrywork.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRYWORK_H
#define ZKL_ENTRYWORK_H

#include "locktable.h"

/*
 * What the worker shall do with an entry.  Where it shall do nothing, the entry
 * may be gone.
 */
typedef struct ZklWork
{
	bool		want;			/* get the ticket */
	bool		unwant;			/* give it up */
	bool		downgrade;		/* let others read, too */
	bool		watch;			/* watch the znode */
	bool		look;			/* see who queues, for the first time */
	bool		retry;			/* delete what is stuck of its leases */
	bool		recheck;		/* look whether it is contended still */
	bool		describe;		/* write down who holds the lock now */
	int64		timer_at;		/* look again then; 0: no need */
} ZklWork;

/* A worker starts: take over what the last one was asked. */
extern void zkl_entry_adopt_work(void);

/* The next entry that the worker was asked to look at; NULL: none. */
extern ZklEntry *zkl_entry_next_work(void);

/* What is to be done with it? */
extern ZklWork zkl_entry_look(ZklEntry *entry);

/* The same when its timer has fired. */
extern ZklWork zkl_entry_timer_fired(ZklEntry *entry);

/*
 * WANTED -> QUEUED, unless it is unwanted by now; or, QUEUED, it does not ask
 * any more.
 */
extern void zkl_entry_set_queued(ZklEntry *entry);

/* WANTED, QUEUED -> OWNED.  False if it is unwanted by now. */
extern bool zkl_entry_set_owned(ZklEntry *entry, bool contended);

/* Somebody queues behind; OWNED -> RELEASING and true if it lingered. */
extern bool zkl_entry_set_contended(ZklEntry *entry);

/*
 * Shall its znode say that it is in use?  From then on it is, to its end: it does
 * not linger any more.
 */
extern bool zkl_entry_shall_answer(ZklEntry *entry);

/* Does its znode say that the ticket serves no superuser? */
extern bool zkl_entry_says_plain(const ZklEntry *entry);

/* The backend that an owned ticket's znode shall name; false: it is not owned. */
extern bool zkl_entry_copy_about(ZklEntry *entry, char about[ZKL_ABOUT_SIZE]);

/* Do the znode's data name the backend that the entry says they name? */
extern bool zkl_entry_is_described(ZklEntry *entry, const char *data,
								   int length);

/* Nobody queues behind any more. */
extern void zkl_entry_set_uncontended(ZklEntry *entry);

/* The ticket is a reader's now. */
extern void zkl_entry_set_downgraded(ZklEntry *entry);

/* Somebody asks for the lock; OWNED -> RELEASING and true if it lingered. */
extern bool zkl_entry_set_revoked(ZklEntry *entry);

/*
 * No znode any more: -> NONE or WANTED; true if it is wanted again.  Here and
 * for the next two, the entry's timer is disarmed already, if no ticket is left.
 */
extern bool zkl_entry_set_gone(ZklEntry *entry);

/* OWNED -> NONE.  The entry may be gone afterwards. */
extern void zkl_entry_set_lost(ZklEntry *entry, ZklLoss loss);

/* The lock cannot be had: tell who waits.  -> RELEASING or NONE. */
extern void zkl_entry_set_failed(ZklEntry *entry, ZklFailure failure,
								 bool znode_left);

/*
 * Let all look again who wait for a ticket, or for one that is in doubt: the
 * connection is gone or back.
 */
extern void zkl_entry_wake_all(void);

/* Is any claim held whose ticket is in this session? */
extern bool zkl_entry_any_held(void);

#endif							/* ZKL_ENTRYWORK_H */
