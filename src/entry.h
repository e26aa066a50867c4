/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  What becomes of an entry and its ticket: one function an arrow.
 *
 * The states and the arrows are in locktable.h.  Functions lock the
 * entry's partition themselves, where nothing else is said; none raises an
 * error.
 *
 * src/entry.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRY_H
#define ZKL_ENTRY_H

#include "locktable.h"

/* What the worker shall do with an entry. */
typedef enum ZklWork
{
	ZKL_WORK_NOTHING,			/* the entry may be gone */
	ZKL_WORK_WANT,				/* get the ticket */
	ZKL_WORK_UNWANT,			/* give it up */
	ZKL_WORK_TIMER				/* look again at the time given */
} ZklWork;

/* Lock an entry's partition, exclusively, and unlock it: the entry may be gone. */
extern void zkl_entry_lock(const ZklEntry *entry);
extern void zkl_entry_unlock(uint32 hash);

/*
 * Called with the partition locked, by sharedclaim.c
 */

/* NONE -> WANTED */
extern void zkl_entry_want(ZklEntry *entry);

/* -> RELEASING */
extern void zkl_entry_give_up(ZklEntry *entry);

/*
 * A claim has ended: wake who is next, or decide what becomes of the ticket.
 * The entry may be gone afterwards.
 */
extern void zkl_entry_settle(ZklEntry *entry, int64 now);

/* Note that a claim waits for the ticket, or does not any more. */
extern void zkl_entry_set_needs_ticket(ZklClaim *claim, bool needs_ticket);

/* An entry stays while a claim, a ticket or the worker needs it. */
extern bool zkl_entry_remove_if_unused(ZklEntry *entry);

/*
 * Called only by the worker
 */

/* A worker starts: take over what the last one was asked. */
extern void zkl_entry_adopt_work(void);

/* The next entry that the worker was asked to look at; NULL: none. */
extern ZklEntry *zkl_entry_next_work(void);

/* What is to be done with it? */
extern ZklWork zkl_entry_look(ZklEntry *entry, int64 *timer_at);

/* The same when its timer has fired. */
extern ZklWork zkl_entry_timer_fired(ZklEntry *entry, int64 *timer_at);

/* WANTED -> QUEUED, unless it is unwanted by now. */
extern void zkl_entry_set_queued(ZklEntry *entry);

/* WANTED, QUEUED -> OWNED.  False if it is unwanted by now. */
extern bool zkl_entry_set_owned(ZklEntry *entry, bool contended);

/* Somebody queues behind; OWNED -> RELEASING and true if it lingered. */
extern bool zkl_entry_set_contended(ZklEntry *entry);

/* No znode any more: -> NONE or WANTED; true if it is wanted again. */
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

/* Is any claim of this server held? */
extern bool zkl_entry_any_held(void);

#endif							/* ZKL_ENTRY_H */
