/*-------------------------------------------------------------------------
 *
 * use.h
 *	  The use of a lock that another session holds (zklock.commit_under).
 *
 * A command under zklock-run has connections of its own, which hold no lock.
 * zklock.commit_under tells their sessions under which lock they commit: that
 * at a path, held by a session of this server, with one token.  A transaction
 * of such a session that has written has a USE of the lock, from its commit
 * guard to its end.  The use is a claim of this backend on the holder's
 * ticket (lockentry.h), with the holder's mode, epoch and token.
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
 * Called only by backends.
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
 * needs no leadership (reliance.h).  "here" is true once that is known to be
 * so, because it then stays so.
 */
extern bool zkl_use_here;
extern bool zkl_use_is_required_here(void);

static inline bool
zkl_use_is_required(void)
{
	return zkl_commit_under[0] != '\0' && (zkl_use_here || zkl_use_is_required_here());
}

/*
 * Does the setting name no token?  Then it means the one that the holder had
 * at the beginning of the statement with which the transaction began to write.
 * note_holder: a statement begins, and the transaction has not written yet.
 */
extern bool zkl_use_has_no_token(void);
extern void zkl_use_note_holder(void);

/*
 * Raise an error unless the transaction could commit now: ZK001 or ZK002 if
 * the lock is not held with the token, certainly for zklock.commit_margin
 * more; 42501 if this session may not depend on the hold; 22023 for a
 * semaphore.  Looks once in a transaction.
 */
extern void zkl_use_require(void);

/*
 * Begin the use, with the same errors; or, if the transaction has one, only
 * look at that.
 */
extern void zkl_use_begin(void);
extern bool zkl_use_any(void);

/*
 * ZK001 unless the transaction's use, if it has one, is good for "margin"
 * more.  Returns the moment up to which it is, or PG_INT64_MAX.
 */
extern int64 zkl_use_check(int64 margin);

/*
 * A transaction that has only read commits.  The first one since the setting
 * was set counts as a use of the hold, if there is one: the holder can tell
 * then that the setting has reached a session.
 */
extern void zkl_use_note_reader(void);

/* The path of the use, if it is lost or in doubt; else NULL.  No error. */
extern const char *zkl_use_find_uncertain(void);

/* The transaction has ended. */
extern void zkl_use_end(void);

#endif							/* ZKL_USE_H */
