/*-------------------------------------------------------------------------
 *
 * use.h
 *	  The use of a lock that another session holds (zklock.commit_under).
 *
 * A command under zklock-run has connections of its own, which hold no lock.
 * zklock.commit_under tells their sessions under which lock they commit: it
 * names a path, and perhaps the token of one session of this server that
 * holds the lock.  A transaction of such a session that has written has a USE
 * of the lock, from its commit guard to its end.  The use is a claim of this
 * backend on the holder's ticket (lockentry.h), with the holder's mode, epoch
 * and token.
 *
 *		from -> to			by				when
 *		(none) -> HELD		this backend	its guard runs, or it begins what
 *											takes effect at once.  The hold
 *											must be good, and the ticket may
 *											serve this session: the look and
 *											the link are under one lock of the
 *											partition
 *		HELD -> LOST		worker			the ticket was lost, as any claim
 *		HELD, LOST ->		this backend	its transaction has committed or
 *		(none)								aborted, by FATAL, too (on_xact);
 *											or else it exits
 *
 * No other process ends a use, nor does a savepoint or a release.  It has no
 * hold limit.
 *
 * What keeps the ticket: the server does not give a ticket up, or hand the
 * lock on, while a claim on it is HELD (zkl_entry_settle), and as long as a
 * claim that is HELD excludes readers, none join (zkl_entry_stop_excluding).
 * So whatever becomes of the holder between the guard and the commit record -
 * its session is killed, releases, downgrades, or its lease time ends - the
 * next holder comes after the record.  Only what takes the ticket from the
 * server comes before: the ZooKeeper session expires, or another client
 * deletes the znode.  Then the commit is late, and is reported.  After the end
 * of the hold no use begins, so the ticket goes with the last one.
 *
 * The use belongs to no local claim: it counts no acquire, has no advisory lock,
 * and begins without zkl_local_claim_begin_hook, which would move the guard in
 * PostgreSQL's list of callbacks while that list is walked.  It waits for
 * nothing.  Without a count, its backend gets no signal about a loss, which
 * might end the wait of its commit for a synchronous standby.  Each process
 * has a place for one use, so no commit fails for want of one.
 *
 * Called only by backends, which hold no LWLock.  A function raises an error
 * only if its comment says so.
 *
 * src/backend/lock/use.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_USE_H
#define ZKL_USE_H

#include "settings.h"

/*
 * Must what this process writes be committed under another session's lock?
 * Mostly one load.  An apply worker does not depend on a lock, nor does what
 * needs no leadership (reliance.h).  zkl_use_here is true once the answer was
 * yes, because the answer then stays the same in this process.
 */
extern bool zkl_use_here;
extern bool zkl_use_is_required_here(void);

static inline bool
zkl_use_is_required(void)
{
	return zkl_commit_under[0] != '\0' && (zkl_use_here || zkl_use_is_required_here());
}

/*
 * Does the setting name no token?  Then it means the holder's token at the
 * beginning of the first statement of the transaction that writes.
 * note_holder: a statement begins, and the transaction has not written yet.
 * This reads catalogs, and so may raise an error.
 */
extern bool zkl_use_has_no_token(void);
extern void zkl_use_note_holder(void);

/*
 * Raise an error unless the transaction could commit now: ZK001 or ZK002 if
 * the lock is not held with the token, certainly for zklock.commit_margin
 * more; 42501 if this session may not use the path, or may not depend on the
 * hold; 22023 if the setting is not valid, or names a semaphore.  Looks once
 * in a transaction.
 */
extern void zkl_use_require(void);

/*
 * Begin the use.  Raises the errors of zkl_use_require; then no use has begun.
 * If the transaction has a use of this hold already, only check that.
 */
extern void zkl_use_begin(void);
extern bool zkl_use_any(void);

/*
 * Raise ZK001 or ZK002 if the transaction has a use that is not good for
 * "margin" more.  Returns the moment up to which the use is good, or
 * PG_INT64_MAX.
 */
extern int64 zkl_use_check(int64 margin);

/*
 * A transaction commits that has not written.  The first such transaction
 * after a change of the setting counts as a use of the hold, if the lock is
 * held.  So the holder learns that the setting has reached a session.  This
 * reads catalogs, and so may raise an error.
 */
extern void zkl_use_note_reader(void);

/* The path of the use, if the use is lost or in doubt; else NULL.  Raises no error. */
extern const char *zkl_use_find_uncertain(void);

/* The transaction has ended. */
extern void zkl_use_end(void);

#endif							/* ZKL_USE_H */
