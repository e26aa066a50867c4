/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  Every change of an entry or a claim: one function an arrow.
 *
 * The states and the arrows are in locktable.h.  All functions lock the
 * entry's partition themselves; none raises an error.
 *
 * src/entry.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRY_H
#define ZKL_ENTRY_H

#include "locktable.h"

/* What a claim that wants to hold its lock is told. */
typedef enum ZklAnswer
{
	ZKL_ANSWER_HELD,			/* it does now */
	ZKL_ANSWER_STALE,			/* its local lock is of an old generation */
	ZKL_ANSWER_QUEUED,			/* somebody else holds the lock */
	ZKL_ANSWER_NONE,			/* ZooKeeper was asked; no answer yet */
	ZKL_ANSWER_DOUBT,			/* the server's ticket is in doubt */
	ZKL_ANSWER_FAILED,			/* it cannot be had; see claim->failure */
	ZKL_ANSWER_SHUTDOWN			/* nothing is granted any more */
} ZklAnswer;

/* What became of a claim that was held. */
typedef enum ZklStanding
{
	ZKL_STANDING_GOOD,
	ZKL_STANDING_DOUBT,			/* good again if the session comes back */
	ZKL_STANDING_LOST
} ZklStanding;

/* What the worker shall do with an entry. */
typedef enum ZklWork
{
	ZKL_WORK_NOTHING,			/* the entry may be gone */
	ZKL_WORK_WANT,				/* get the ticket */
	ZKL_WORK_UNWANT,			/* give it up */
	ZKL_WORK_TIMER				/* look again at the time given */
} ZklWork;

/*
 * Called by backends
 */

/* Begin to acquire.  NULL when entries or claims are used up. */
extern ZklClaim *zkl_entry_begin(const char *path);

/*
 * The generation of the local lock to take now.  The claim waits in this
 * generation until it asks again.
 */
extern uint32 zkl_entry_generation(ZklClaim *claim);

/*
 * Hold the lock, if the server owns it; otherwise see to it that the worker
 * gets it.  The caller has the local lock of the claim's generation, and
 * calls again when its latch was set.
 *
 * "about" is what the ticket's znode shall say.  It takes a while to write,
 * so the caller may first try with NULL: then the worker is not asked.
 */
extern ZklAnswer zkl_entry_hold(ZklClaim *claim, bool only_tries,
								const char *about);

/*
 * How does a claim stand that was held?  Good means: until the session has
 * "margin" microseconds more to live, at least.
 */
extern ZklStanding zkl_entry_standing(ZklClaim *claim, int64 margin);

/* End a claim, in whatever state; frees it. */
extern void zkl_entry_end(ZklClaim *claim);

/*
 * The same for a backend that wants to see the znode gone: true if it has to
 * wait, on its latch, until zkl_entry_is_released says so, and then to call
 * zkl_entry_leave.  False: the claim is gone already.
 */
extern bool zkl_entry_end_and_stay(ZklClaim *claim);
extern bool zkl_entry_is_released(ZklClaim *claim);
extern void zkl_entry_leave(ZklClaim *claim);

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

/* OWNED -> NONE or WANTED; true if it is wanted again. */
extern bool zkl_entry_set_lost(ZklEntry *entry, ZklLoss loss);

/* The lock cannot be had: tell who waits.  -> RELEASING or NONE. */
extern void zkl_entry_set_failed(ZklEntry *entry, ZklFailure failure,
								 bool znode_left);

/* Let all who wait for a ticket look again (connection gone or back). */
extern void zkl_entry_wake_all(void);

/* Is any claim of this server held? */
extern bool zkl_entry_any_held(void);

#endif							/* ZKL_ENTRY_H */
