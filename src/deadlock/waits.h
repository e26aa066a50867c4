/*-------------------------------------------------------------------------
 *
 * waits.h
 *	  The waits of this server that may be part of a deadlock across servers.
 *
 * Each backend has a SLOT in shared memory.  A backend that has waited for
 * its server's ticket for deadlock_timeout puts the wait into its slot, if
 * any lock cannot be released before the wait ends.  The slot names the
 * backends that hold such locks: the waiter itself, or local backends that
 * wait for it, directly or through others.  The lock table says which locks
 * they hold.  The worker publishes the contents of the slots, and searches
 * for deadlocks in what all servers have published (src/README.md).
 *
 *		from -> to				by			when
 *		EMPTY -> WAITING		backend		it has waited for deadlock_timeout,
 *											and something cannot be released
 *		WAITING -> WAITING		backend		it has computed the holders again;
 *											or the worker has requested that
 *		WAITING -> EMPTY		backend		the wait has ended, in whatever way;
 *											or nothing depends on it any more
 *		WAITING -> SENTENCED	worker		the wait is part of a deadlock, and
 *											this server has to break it
 *		SENTENCED -> WAITING	backend		it has read the sentence, and is about
 *											to cancel the holder, or itself
 *		SENTENCED -> EMPTY		backend		the wait has ended
 *
 * A wait has a number that no other wait of this server ever gets.  So a
 * request of the worker for one wait cannot affect the backend's next wait.
 * The slots outlive workers: a worker that starts finds them as they are.
 *
 * A slot also has a NOTICE for its backend as the holder of a lock: another
 * backend of this server cancels its local wait, because of a deadlock.  That
 * may also be the wait of a parallel worker.  The notice names the process
 * that waits, and its wait by the WAIT_START, so it cannot hit a later one:
 * the moment at which the wait began, as PostgreSQL has noted it, or else the
 * number of the process's transaction.
 *
 * A sentence and a notice soon expire: if a process was suspended in between,
 * other waits of the deadlock may have ended meanwhile.
 *
 * Locks.  One LWLock protects all slots, except for the fields that say
 * otherwise.  A process may take it while it holds a partition of the lock
 * table, and takes no other lock of zklock after it.  No function raises an
 * error, except get for lack of memory.
 *
 * src/deadlock/waits.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITS_H
#define ZKL_WAITS_H

#include "datatype/timestamp.h"
#include "storage/lwlock.h"

#include "protocol/path.h"
#include "protocol/recipe.h"
#include "shared/lockentry.h"

/*
 * A wait lists at most this many holders, and this many processes in its
 * report.
 */
#define ZKL_WAITS_HOLDERS		32
#define ZKL_WAITS_PROCESSES		16
#define ZKL_WAITS_DETAIL_SIZE	2048

/*
 * A backend that cannot go on before the wait ends.  "since" identifies the
 * chain of local waits from this backend to the waiter: it is the latest
 * wait_start of these waits; 0 for the waiter itself.
 */
typedef struct ZklWaitHolder
{
	int			pid;
	int64		since;
} ZklWaitHolder;

/* A wait, as its backend describes it. */
typedef struct ZklWaitInfo
{
	uint64		number;			/* number of the wait; 0: the slot is EMPTY */
	int			pid;
	Oid			role;			/* the role that logged in */
	int			turn;			/* set by zkl_waits_get: how many older waits
								 * this role has */
	char		path[ZKL_PATH_SIZE];	/* path of the lock; for leases, of
										 * the semaphore */
	ZklMode		mode;
	int			limit;			/* of a semaphore */
	int			quantity;		/* leases that are requested */
	int64		czxid;			/* of the queued znode; of several leases, the
								 * newest */
	char		znode[ZKL_ZNODE_SIZE];
	TimestampTz since;			/* when the wait began */
	int			timeout_ms;		/* deadlock_timeout of the backend, at least
								 * ZKL_LOOK_INTERVAL */
	uint32		computed;		/* the worker's last request before the
								 * holders were computed */
	bool		truncated;		/* not all holders are listed */
	int			nholders;
	ZklWaitHolder holders[ZKL_WAITS_HOLDERS];
	char		owner_text[ZKL_OWNER_TEXT_SIZE];	/* the backend */
} ZklWaitInfo;

/*
 * How to break a deadlock: cancel the backend "pid", which holds the lock
 * "path" with this token, before the moment "until" of zkl_now().
 */
typedef struct ZklWaitSentence
{
	int64		until;
	int			pid;
	char		path[ZKL_PATH_SIZE];
	int64		token;
	char		detail[ZKL_WAITS_DETAIL_SIZE];	/* for the error message */
	int			nprocesses;		/* processes of this server that are part of
								 * the deadlock */
	int			processes[ZKL_WAITS_PROCESSES];
} ZklWaitSentence;

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_waits_size(void);
extern void zkl_waits_attach(void *memory, LWLockPadded *locks, bool is_new);

/*
 * For the backend that waits:
 *
 * new_number: the number of a new wait.  put: fill in this backend's slot.
 * "computed" is the request that look returned before the holders were
 * computed.  Wakes the worker if something has changed, or if the worker has
 * requested this.  end: the slot becomes EMPTY, if it is not.
 *
 * look: the number of the worker's last request, and whether the wait is
 * sentenced.  If it is, *sentence is filled in, and the slot is WAITING
 * again.  If the slot is EMPTY, the results are 0 and false.
 */
extern uint64 zkl_waits_new_number(void);
extern void zkl_waits_put(const ZklWaitInfo *wait);
extern void zkl_waits_end(void);
extern bool zkl_waits_look(uint32 *asked, ZklWaitSentence *sentence);

/*
 * is_held: is the claim that the sentence names certainly held?  "is_use": is
 * it a transaction's use of a detached claim?  cancel: if it is held, cancel
 * its backend, which is not this one.  That backend, or its parallel worker,
 * is the process "waiter", and is in the local wait with this wait_start.
 * These functions lock the claim's partition, so the caller holds none.
 */
extern bool zkl_waits_is_held(const ZklWaitSentence *sentence, bool *is_use);
extern void zkl_waits_cancel(const ZklWaitSentence *sentence, int waiter,
							 TimestampTz wait_start);

/*
 * For the backend that is cancelled:
 *
 * has_notice: is there a notice?  notice_at: if so, when did it come?
 * accept_notice: is it for the local wait of this backend, or of a parallel
 * worker of its statement?  In any case, this removes the notice.  A signal
 * handler may call has_notice and accept_notice.  read_notice: what the last
 * notice said; this also removes the notice.
 */
extern bool zkl_waits_has_notice(void);
extern TimestampTz zkl_waits_notice_at(void);
extern bool zkl_waits_accept_notice(void);
extern void zkl_waits_read_notice(ZklWaitSentence *sentence);

/*
 * As far as the worker knows, may waits for a ticket depend on this claim?
 * If there is no room for all claims, such claims go first.  The caller holds
 * the partition, unless the claim is its own: then what it reads may be a
 * moment old.
 */
extern bool zkl_waits_is_wanted(const ZklClaim *claim);

/*
 * Does a wait of this mode for this path delay the release of this claim, for
 * which other clients may wait?  A backend that waits for leases holds the
 * inner mutex meanwhile.  The inner mutex counts only while other clients
 * queue for it: otherwise each wait for leases would be published, and a
 * search would read all leases repeatedly.  Local backends that wait for the
 * inner mutex count only by their own claims.
 */
extern bool zkl_waits_hold_up(ZklMode mode, const char *path,
							  const ZklClaim *held);

/*
 * For the worker:
 *
 * changes: grows with each change that must be published, and with each
 * answer to a request by ask.  get: copies of all waits, in the current
 * memory context: the oldest of each role, then the second oldest of each,
 * and so on.  So if one role has very many waits, they do not displace the
 * waits of others.  ask: request that the backend computes the holders again;
 * returns the number of the request, or 0 if the wait has ended.  sentence:
 * WAITING -> SENTENCED, and wakes the backend; nothing if the wait has ended.
 */
extern uint64 zkl_waits_changes(void);
extern int	zkl_waits_get(ZklWaitInfo **waits);
extern uint32 zkl_waits_ask(uint64 number);
extern void zkl_waits_sentence(uint64 number, const ZklWaitSentence *sentence);

#endif							/* ZKL_WAITS_H */
