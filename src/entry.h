/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  What becomes of an entry and its ticket: one function an arrow.
 *
 * The states and the arrows are in locktable.h.  Callers hold the entry's
 * partition, exclusively; no function raises an error.
 *
 * src/entry.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRY_H
#define ZKL_ENTRY_H

#include "locktable.h"

/* Lock an entry's partition, exclusively, and unlock it: the entry may be gone. */
extern void zkl_entry_lock(const ZklEntry *entry);
extern void zkl_entry_unlock(uint32 hash);

/* NONE -> WANTED */
extern void zkl_entry_want(ZklEntry *entry, ZklMode mode);

/*
 * The claim that the znode shall name: that of the backend it names already, if
 * that one holds the lock; else the first that holds it; NULL: none does.
 */
extern const ZklClaim *zkl_entry_holder(const ZklEntry *entry);

/*
 * Remember who asked for the ticket; its znode will say so.  "plain" is a ticket
 * for one who is no superuser.
 */
extern void zkl_entry_note_asker(ZklEntry *entry, bool only_tries, bool plain,
								 const char *about);

/*
 * May the ticket serve this claim?  Once its znode says that it serves no
 * superuser, whoever may take locks from others only relies on that.
 */
extern bool zkl_entry_serves(const ZklEntry *entry, const ZklClaim *claim);

/* -> RELEASING */
extern void zkl_entry_give_up(ZklEntry *entry);

/* WANTED, QUEUED -> RELEASING or NONE.  The entry may be gone afterwards. */
extern void zkl_entry_withdraw(ZklEntry *entry);

/*
 * The ticket has, or shall have, another mode than a claim needs: see to it that
 * it gets one, as soon as no other claim is in the way.
 */
extern void zkl_entry_change_mode(ZklEntry *entry, ZklMode mode);

/* Nobody writes any more: let others read, too. */
extern void zkl_entry_downgrade(ZklEntry *entry);

/*
 * A claim has ended: wake who is next, or decide what becomes of the ticket.
 * The entry may be gone afterwards.
 */
extern void zkl_entry_settle(ZklEntry *entry, int64 now);

/* The same for one that is owned, and that nobody holds or waits for. */
extern void zkl_entry_settle_idle(ZklEntry *entry);

/*
 * May one more share the lock with those who hold it, or do others wait?  Then
 * the worker looks whether they still do.
 */
extern bool zkl_entry_may_join(ZklEntry *entry, int64 now);

/* Its ticket serves one more claim on the lock, which for a lease is another entry. */
extern void zkl_entry_count_claim(ZklEntry *entry, const ZklEntry *lock,
								  int64 now);
extern int64 zkl_entry_token(const ZklEntry *entry);

/* Note that a claim waits for the ticket, or does not any more. */
extern void zkl_entry_set_needs_ticket(ZklClaim *claim, bool needs_ticket);
extern void zkl_entry_wake_needing(ZklEntry *entry);

/* Let the worker look at it. */
extern void zkl_entry_ask_worker(ZklEntry *entry);

/* A znode that is to be deleted cannot be; or is gone after all. */
extern void zkl_entry_set_stuck(ZklEntry *entry, bool stuck);

/* Is a znode on its way to be deleted, and not stuck? */
extern bool zkl_entry_is_releasing(const ZklEntry *entry);

/* An entry stays while a claim, a ticket or the worker needs it. */
extern bool zkl_entry_remove_if_unused(ZklEntry *entry);

/*
 * For entrywork.c, too
 */

/* Nobody holds it or waits for it; if it is owned, it lingers. */
extern bool zkl_entry_is_idle(const ZklEntry *entry);

/*
 * Is it the turn of others?  Who was asked for the lock passes it to nobody but
 * who asks.
 */
extern bool zkl_entry_tenure_is_over(const ZklEntry *entry, int64 now);

/* -> NONE; the caller sees to it that an unused entry is removed. */
extern void zkl_entry_become_none(ZklEntry *entry);

#endif							/* ZKL_ENTRY_H */
