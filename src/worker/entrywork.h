/*-------------------------------------------------------------------------
 *
 * entrywork.h
 *	  The worker's changes of entries: one function for each arrow.
 *
 * The states and the arrows are in locktable.h.  Functions lock the entry's
 * partition themselves, so the caller holds none.  No function raises an
 * error.
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
	int64		timer_at;		/* when to look again; 0: no need */
} ZklWork;

/* A worker starts: take over what its predecessor was asked to do. */
extern void zkl_entry_adopt_work(void);

/* Take the next entry that the worker was asked to look at; NULL: none. */
extern ZklEntry *zkl_entry_next_work(void);

/* What has to be done about the entry, now that the worker was asked? */
extern ZklWork zkl_entry_look(ZklEntry *entry);

/* The same if its timer has fired. */
extern ZklWork zkl_entry_timer_fired(ZklEntry *entry);

/*
 * WANTED -> QUEUED, unless the ticket is unwanted by now.  If the entry is
 * QUEUED already, note whether the ticket still asks the one before it.
 */
extern void zkl_entry_set_queued(ZklEntry *entry);

/* WANTED, QUEUED -> OWNED.  False if the ticket is unwanted by now. */
extern bool zkl_entry_set_owned(ZklEntry *entry, bool contended);

/*
 * Another client queues behind the ticket.  If the ticket lingered, OWNED ->
 * RELEASING and true.
 */
extern bool zkl_entry_set_contended(ZklEntry *entry);

/*
 * Has the znode to say that the lock is in use?  From then on the lock is in
 * use until the ticket's end, because a ticket that has answered never
 * lingers.
 */
extern bool zkl_entry_shall_answer(ZklEntry *entry);

/*
 * Does the ticket's znode say that the ticket serves no superuser?  Locks
 * nothing.
 */
extern bool zkl_entry_says_plain(const ZklEntry *entry);

/*
 * The backend that an owned ticket's znode has to name.  False: the entry is not
 * OWNED any more.
 */
extern bool zkl_entry_copy_about(ZklEntry *entry, char about[ZKL_ABOUT_SIZE]);

/*
 * Do the znode's data name the backend that they have to name?  True also if
 * the entry is not OWNED any more.
 */
extern bool zkl_entry_is_described(ZklEntry *entry, const char *data,
								   int length);

/* No other client queues behind the ticket any more. */
extern void zkl_entry_set_uncontended(ZklEntry *entry);

/* The downgrade is done: the ticket is a reader's now. */
extern void zkl_entry_set_downgraded(ZklEntry *entry);

/*
 * The release of the lock has been requested.  If the ticket lingered, OWNED
 * -> RELEASING and true.
 */
extern bool zkl_entry_set_revoked(ZklEntry *entry);

/*
 * The znode is gone: -> NONE or WANTED; true if the ticket is wanted again.
 * For this function and the next two, the caller has disarmed the entry's
 * timer, if no ticket is left.
 */
extern bool zkl_entry_set_gone(ZklEntry *entry);

/* OWNED -> NONE.  The entry may be gone afterwards. */
extern void zkl_entry_set_lost(ZklEntry *entry, ZklLoss loss);

/*
 * The lock cannot be had: tell the claims that wait.  -> RELEASING if a znode
 * is left, else NONE; then the entry may be gone afterwards.
 */
extern void zkl_entry_set_failed(ZklEntry *entry, ZklFailure failure,
								 bool znode_left);

/*
 * The connection is gone or back.  Wake all claims, so that those look again
 * that wait for a ticket, or for one that is in doubt.
 */
extern void zkl_entry_wake_all(void);

/* Does any claim hold a lock whose ticket is in this ZooKeeper session? */
extern bool zkl_entry_any_held(void);

#endif							/* ZKL_ENTRYWORK_H */
