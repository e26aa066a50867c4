/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  The changes of an entry and its ticket: one function for each change.
 *
 * lockentry.h has the states and their changes.  Callers hold the entry's
 * partition, exclusively, unless the comment of a function says otherwise.
 * No function raises an error.
 *
 * src/shared/entry.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRY_H
#define ZKL_ENTRY_H

#include "shared/locktable.h"

/*
 * Lock an entry's partition, exclusively, and unlock it.  The caller holds no
 * partition before the first.  zkl_entry_unlock takes the hash, because the
 * entry may be gone by then.  It also sets the latches of the processes that
 * the functions below wake.
 */
extern void zkl_entry_lock(const ZklEntry *entry);
extern void zkl_entry_unlock(uint32 hash);

/* NONE -> WANTED, for a ticket of this mode.  Wakes the worker. */
extern void zkl_entry_want(ZklEntry *entry, ZklMode mode);

/*
 * The claim whose backend the ticket's znode must name.  If the znode names a
 * backend that holds the lock, this is that backend's claim; else the first
 * claim that holds the lock; NULL if there is none.  A shared lock on the
 * partition is enough.
 */
extern const ZklClaim *zkl_entry_holder(const ZklEntry *entry);

/*
 * Remember which claim requested the ticket, and the text about its backend
 * for the znode.  If the claim is not a superuser's, the ticket may serve no
 * superuser.  If its backend has requested other tickets at the same time,
 * this one goes behind the tickets for which other backends wait.
 */
extern void zkl_entry_note_asker(ZklEntry *entry, const ZklClaim *claim);

/*
 * May the ticket serve this claim?  The ticket's mode must fit.  If its znode
 * says that the ticket serves no superuser, the ticket must not serve one,
 * because zk_lock_force_release() trusts that text.
 */
extern bool zkl_entry_serves(const ZklEntry *entry, const ZklClaim *claim);

/* -> RELEASING.  Wakes the worker, which deletes the znode. */
extern void zkl_entry_give_up(ZklEntry *entry);

/* WANTED, QUEUED -> RELEASING or NONE.  The entry may be gone afterwards. */
extern void zkl_entry_withdraw(ZklEntry *entry);

/*
 * A claim needs a ticket of another mode, or one that does not only try.  If
 * the worker has not looked at the entry yet, this changes the wanted mode.
 * Otherwise it gives the ticket up, unless a claim holds the lock; the caller
 * calls again when that claim has ended.
 */
extern void zkl_entry_change_mode(ZklEntry *entry, ZklMode mode);

/*
 * No claim of this server writes any more, so let other servers read.  Does
 * nothing unless the server owns a writer's ticket.
 */
extern void zkl_entry_downgrade(ZklEntry *entry);

/*
 * A claim that excluded readers is not held any more, or does not exclude them
 * any more.  If no other claim that is held excludes readers, let readers
 * join, also readers of other servers.
 */
extern void zkl_entry_stop_excluding(ZklEntry *entry);

/*
 * A claim has ended.  If other claims wait, wake them; else decide what
 * becomes of the ticket.  The entry may be gone afterwards.
 */
extern void zkl_entry_settle(ZklEntry *entry, int64 now);

/* Settle an owned ticket that no claim holds: let it linger, or give it up. */
extern void zkl_entry_settle_idle(ZklEntry *entry);

/*
 * May one more claim share the lock with its present holders?  It may not if
 * other clients have waited for the ticket's tenure.  In that case, this
 * makes the worker check whether they still wait.
 */
extern bool zkl_entry_may_join(ZklEntry *entry, int64 now);

/* The ticket serves one more claim. */
extern void zkl_entry_count_claim(ZklEntry *entry, int64 now);

/*
 * note_release: a claim releases the lock.  comes_back: was the last release
 * less than zklock.linger ago?
 */
extern void zkl_entry_note_release(ZklEntry *lock, int64 now);
extern bool zkl_entry_comes_back(const ZklEntry *lock, int64 now);

/*
 * The record (comeback.h) whether it pays that the entry's tickets linger.
 * NULL: there is none, or the entry is a lease.
 */
extern ZklComeback *zkl_entry_comeback(const ZklEntry *entry);

/* Like zkl_entry_comeback, but begins a record if there is none.  Not for a lease. */
extern ZklComeback *zkl_entry_begin_comeback(const ZklEntry *entry);
extern int64 zkl_entry_token(const ZklEntry *entry);

/*
 * The first function notes that a claim waits for the ticket, or no longer
 * waits.  The second wakes all claims that wait.
 */
extern void zkl_entry_set_needs_ticket(ZklClaim *claim, bool needs_ticket);
extern void zkl_entry_wake_needing(ZklEntry *entry);

/*
 * The claim of the claims process that is next to hold the lock, or NULL.
 * take_turn: one more such claim waits.  pass_turn: one waits no longer, so
 * wake the claim that is now next.
 */
extern ZklClaim *zkl_entry_first_detached(const ZklEntry *entry);
extern void zkl_entry_take_turn(ZklEntry *entry);
extern void zkl_entry_pass_turn(ZklEntry *entry);

/* Make the worker look at the entry.  The entry stays until it has looked. */
extern void zkl_entry_ask_worker(ZklEntry *entry);

/*
 * Note that ZooKeeper has refused to delete the ticket's znode, or that the
 * znode is gone after all.
 */
extern void zkl_entry_set_stuck(ZklEntry *entry, bool stuck);

/*
 * Is a znode of the lock, or of its leases, on its way to be deleted, and not
 * stuck?  A shared lock on the partition is enough.
 */
extern bool zkl_entry_is_releasing(const ZklEntry *entry);

/*
 * Remove the entry, unless a claim, a ticket or the worker still needs it.
 * True if it is gone.
 */
extern bool zkl_entry_remove_if_unused(ZklEntry *entry);

/*
 * Also used by entrystate.c
 */

/*
 * Does no claim hold the lock or wait for it?  If so, an owned ticket
 * lingers.
 */
extern bool zkl_entry_is_idle(const ZklEntry *entry);

/*
 * Must the server let other clients go first?  It must if the release of the
 * ticket was requested: then the lock goes to the client that requested it.
 */
extern bool zkl_entry_tenure_is_over(const ZklEntry *entry, int64 now);

/*
 * -> RELEASING, and the caller has the znode deleted; -> NONE, and the caller removes
 * the entry if it is unused.
 */
extern void zkl_entry_become_releasing(ZklEntry *entry);
extern void zkl_entry_become_none(ZklEntry *entry);

#endif							/* ZKL_ENTRY_H */
