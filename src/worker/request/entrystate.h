/*-------------------------------------------------------------------------
 *
 * entrystate.h
 *	  The worker's side of an entry: when it looks at the entry, and each
 *	  change that it makes.
 *
 * lockentry.h has the states and their changes.  Functions lock the entry's
 * partition themselves, so the caller holds none.  No function raises an error.
 *
 * Called only by the worker, for entries of its own session.
 *
 * src/worker/request/entrystate.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ENTRYSTATE_H
#define ZKL_ENTRYSTATE_H

#include "settings.h"
#include "shared/locktable.h"

/*
 * What the worker must do about an entry.  If nothing is set, the entry may
 * be gone.
 */
#define ZKL_WORK_EVENTS		4

typedef struct ZklWork
{
	int			nevents;
	ZklTicketEventKind events[ZKL_WORK_EVENTS]; /* for the ticket, in this
												 * order */
	bool		retry;			/* delete the stuck znodes of the entry's
								 * leases */
	bool		standby;		/* note whether the ticket stands by */
} ZklWork;

/*
 * A worker starts, and takes over the list of its predecessor.  It must look at
 * all entries that have work, a timer or a ticket.
 */
extern void zkl_entry_state_adopt(void);

/* Is there an entry on the list of those that the worker must look at? */
extern bool zkl_entry_state_any_work(void);

/*
 * What must be done about the next entry on the list, or about the next one
 * whose timer is due at that moment?  NULL if there is none.  The caller passes
 * the same moment until no timer is due.  So a timer that is armed meanwhile
 * for a later moment waits for the next turn.
 */
extern ZklEntry *zkl_entry_state_next(ZklWork *work);
extern ZklEntry *zkl_entry_state_next_due(int64 until, ZklWork *work);

/* When the next timer fires; PG_INT64_MAX if none is armed. */
extern int64 zkl_entry_state_wake_at(void);

/* The settings from which the timers' moments follow have changed. */
extern void zkl_entry_state_reset_timers(void);

/*
 * WANTED -> QUEUED, unless the ticket is unwanted by now.  If the entry is
 * QUEUED already, note whether the ticket still queries the one before it,
 * and which znode owns the lock now.  A lease that no claim needs becomes
 * RELEASING.
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
extern bool zkl_entry_state_excludes_superuser(const ZklEntry *entry);

/*
 * Copy the text about the backend that an owned ticket's znode must name.
 * False: the entry is no longer OWNED.
 */
extern bool zkl_entry_state_copy_owner_text(ZklEntry *entry, char owner_text[ZKL_OWNER_TEXT_SIZE]);

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
 * Another client queries whether the lock is in use.  True if the ticket
 * lingered, and the caller must delete the znode.  Otherwise the caller lets
 * the ticket answer that the lock is in use, and the ticket does not linger.
 */
extern bool zkl_entry_state_set_queried(ZklEntry *entry);

/*
 * The znode is gone: -> NONE or WANTED.  True if the ticket is wanted again.
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

/* Does only a leadership wait for this ticket? */
extern bool zkl_entry_state_is_for_leader(ZklEntry *entry);

/* The limit that is stored for a semaphore has been read. */
extern void zkl_entry_state_set_limit(ZklEntry *semaphore, int stored);

#endif							/* ZKL_ENTRYSTATE_H */
