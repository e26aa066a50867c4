/*-------------------------------------------------------------------------
 *
 * entrystate.h
 *	  The worker's changes of an entry's state: one function for each change.
 *
 * lockentry.h has the states and their changes.  Functions lock the entry's
 * partition themselves, so the caller holds none, unless their comments say
 * otherwise.  No function raises an error.
 *
 * Called only by the worker, for entries of its own session.
 *
 * src/worker/entrystate.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRYSTATE_H
#define ZKL_ENTRYSTATE_H

#include "settings.h"
#include "shared/locktable.h"

/*
 * If a lock is held for this long, a client may request its release, so the
 * worker watches the znode.
 */
#define ZKL_WATCH_AFTER	ZKL_MS(100)

/*
 * WANTED -> QUEUED, unless the ticket is unwanted by now.  If the entry is
 * QUEUED already, note whether the ticket still queries the one before it,
 * and which znode owns the lock now.
 */
extern void zkl_entry_state_set_queued(ZklEntry *entry);

/* The ticket has read the znode that it waits for: note that znode's text. */
extern void zkl_entry_state_note_before(ZklEntry *entry, const char *data,
										int length);

/*
 * Note whether the ticket certainly has to wait.  It does not certainly wait
 * while it lists again, nor if it is a reader's and waits for a ticket that
 * only tries: such a ticket soon goes away by itself.
 */
extern void zkl_entry_state_note_blocked(ZklEntry *entry);

/* WANTED, QUEUED -> OWNED.  False if the ticket is unwanted by now. */
extern bool zkl_entry_state_set_owned(ZklEntry *entry, bool contended);

/*
 * Another client queues behind the ticket.  If the ticket lingered: OWNED ->
 * RELEASING, and true.
 */
extern bool zkl_entry_state_set_contended(ZklEntry *entry);

/*
 * Must the znode say that the lock is in use?  From then on the lock is in
 * use until the ticket's end, because a ticket that has answered never
 * lingers.
 */
extern bool zkl_entry_state_shall_answer(ZklEntry *entry);

/*
 * Does the ticket's znode say that the ticket serves no superuser?  Needs no
 * lock.
 */
extern bool zkl_entry_state_says_plain(const ZklEntry *entry);

/*
 * Copy the text about the backend that an owned ticket's znode must name.
 * False: the entry is no longer OWNED.
 */
extern bool zkl_entry_state_copy_about(ZklEntry *entry, char about[ZKL_ABOUT_SIZE]);

/*
 * Do the znode's data name the backend that they must name?  Also true if the
 * entry is no longer OWNED.
 */
extern bool zkl_entry_state_is_described(ZklEntry *entry, const char *data,
										 int length);

/* No other client queues behind the ticket any more. */
extern void zkl_entry_state_set_uncontended(ZklEntry *entry);

/* A downgrade is sent, which uses up a number in the ticket's directory. */
extern void zkl_entry_state_note_downgrade(ZklEntry *entry);

/* The downgrade is done: the ticket is a reader's now. */
extern void zkl_entry_state_set_downgraded(ZklEntry *entry);

/*
 * Another client has requested the release of the lock.  If the ticket
 * lingered: OWNED -> RELEASING, and true.
 */
extern bool zkl_entry_state_set_revoked(ZklEntry *entry);

/*
 * The znode is gone: -> NONE or WANTED.  True if the ticket is wanted again.
 * Before this function and the next two, the caller has disarmed the entry's
 * timer, if no ticket is left.
 */
extern bool zkl_entry_state_set_gone(ZklEntry *entry);

/* OWNED -> NONE.  The entry may be gone afterwards. */
extern void zkl_entry_state_set_lost(ZklEntry *entry, ZklLoss loss);

/*
 * The lock cannot be acquired: tell the claims that wait.  -> RELEASING if a
 * znode is left, else -> NONE, and then the entry may be gone.
 */
extern void zkl_entry_state_set_failed(ZklEntry *entry, ZklFailure failure,
									   bool znode_left);

/*
 * The connection was lost or is back.  Wake the claims that wait for a ticket
 * or whose ticket is in doubt, so that they look again.
 */
extern void zkl_entry_state_wake_all(void);

/* Does only the leader process wait for this ticket? */
extern bool zkl_entry_state_is_for_leader(ZklEntry *entry);

/* Does any claim hold a lock whose ticket is in this ZooKeeper session? */
extern bool zkl_entry_state_any_held(void);

/*
 * OWNED -> RELEASING, and true, if no claim holds the lock or waits for it.
 * The caller holds the partition exclusively.
 */
extern bool zkl_entry_state_give_up_if_idle(ZklEntry *entry);

/* The limit that is stored for a semaphore has been read. */
extern void zkl_entry_state_set_limit(ZklEntry *semaphore, int stored);

/*
 * Claims whose hold limit has passed become LOST.  True if there was one.
 * The caller holds the partition exclusively.
 */
extern bool zkl_entry_state_end_lease_times(ZklEntry *entry, int64 now);

#endif							/* ZKL_ENTRYSTATE_H */
