/*-------------------------------------------------------------------------
 *
 * claimstatus.c
 *	  Whether a claim is good, in doubt or lost; and facts about its lock.
 *
 * src/shared/claimstatus.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/claimstatus.h"
#include "shared/entry.h"
#include "shared/leases.h"

/* What to look for, and what was found. */
typedef struct Description
{
	const char *znode;
	bool		found;
	char	   *about;
} Description;

/* The znode with which a claim waits. */
typedef struct Ticket
{
	bool		blocked;		/* it certainly has to wait, and so do all
								 * others */
	int64		czxid;			/* 0 if there is none yet */
	char	   *znode;
} Ticket;

static void describe_if_found(ZklEntry *entry, void *arg);
static const ZklClaim *first_waiting(const ZklEntry *entry);
static void note_ticket(ZklEntry *entry, void *arg);
static void disown_if_deleted(ZklEntry *entry, void *znode);

ZklClaimStatus
zkl_claim_status(ZklClaim *claim, int64 margin)
{
	int64		until = PG_INT64_MAX;

	return zkl_claim_status_until(claim, margin, &until);
}

ZklClaimStatus
zkl_claim_status_until(ZklClaim *claim, int64 margin, int64 *until)
{
	ZklEntry   *entry = claim->entry;
	ZklClaimStatus standing = ZKL_STATUS_GOOD;
	int64		needed;
	int64		good_until;

	/*
	 * Read the clock while the partition is locked, so that no wait can make
	 * the reading old.
	 */
	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	needed = zkl_now() + margin;

	/*
	 * After an expiry, the worker first raises the epoch, and marks each
	 * claim later.
	 */
	good_until = zkl_session_info_until(claim->epoch, entry->session);
	if (good_until <= needed)
		standing = ZKL_STATUS_DOUBT;

	/*
	 * A claim counts as lost from the moment of its hold limit, or from the
	 * moment at which this server has deleted its znode, even if the worker
	 * has not marked it yet.
	 */
	if (claim->lease_until != 0)
		good_until = Min(good_until, claim->lease_until);
	if (claim->state != ZKL_CLAIM_HELD || claim->epoch == ZKL_EPOCH_NONE ||
		(claim->lease_until != 0 && claim->lease_until <= needed))
		standing = ZKL_STATUS_LOST;
	LWLockRelease(zkl_lock_table_partition(entry->hash));

	if (standing == ZKL_STATUS_GOOD)
		*until = Min(*until, good_until);
	return standing;
}

/*
 * If the worker has not marked the claim, either this server has deleted its
 * znode, or its hold limit has passed.
 */
ZklLoss
zkl_claim_status_loss(ZklClaim *claim, int64 *lost_at)
{
	ZklLoss		loss = ZKL_LOSS_LEASE_TIME;

	LWLockAcquire(zkl_lock_table_partition(claim->entry->hash), LW_SHARED);
	*lost_at = claim->lease_until;
	if (claim->state == ZKL_CLAIM_LOST)
	{
		loss = claim->loss;
		*lost_at = claim->lost_at;
	}
	else if (claim->epoch == ZKL_EPOCH_NONE)
	{
		loss = ZKL_LOSS_DELETED;
		*lost_at = zkl_now();
	}
	LWLockRelease(zkl_lock_table_partition(claim->entry->hash));
	return loss;
}

/*
 * A claim on leases has a znode for each of them, and other clients can
 * request the release of each.
 */
bool
zkl_claim_status_is_revoked(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	bool		revoked = false;
	dlist_iter	iter;

	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	if (claim->state == ZKL_CLAIM_HELD)
	{
		revoked = entry->revoked;
		dlist_foreach(iter, &claim->leases)
			revoked |= dlist_container(ZklEntry, lease_link, iter.cur)->revoked;
	}
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	return revoked;
}

bool
zkl_claim_status_is_surveyed(ZklClaim *claim)
{
	ZklEntry   *semaphore = claim->entry;
	bool		surveyed;

	zkl_entry_lock(semaphore);
	surveyed = semaphore->surveyed;
	zkl_entry_unlock(semaphore->hash);
	return surveyed;
}

/*
 * If the claim was lost, its leases were lost as well.  Then other clients
 * may have made the path another kind of lock since the survey.
 */
void
zkl_claim_status_set_surveyed(ZklClaim *claim)
{
	zkl_entry_lock(claim->entry);
	if (claim->state == ZKL_CLAIM_HELD)
		claim->entry->surveyed = true;
	zkl_entry_unlock(claim->entry->hash);
}

bool
zkl_claim_status_is_settled(ZklClaim *claim)
{
	ZklEntry   *entry = claim->entry;
	bool		settled;

	zkl_entry_lock(entry);

	/*
	 * Look and mark under one lock.  If the znode goes after the look, the
	 * worker finds the mark and sets the latch.
	 */
	settled = !zkl_entry_is_releasing(entry);
	zkl_entry_set_needs_ticket(claim, !settled);
	zkl_entry_unlock(entry->hash);
	return settled;
}

bool
zkl_claim_status_is_releasing(const char *path)
{
	uint32		hash = zkl_lock_table_hash(path);
	const ZklEntry *entry;
	bool		releasing;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	entry = zkl_lock_table_find(path, hash);
	releasing = entry != NULL && zkl_entry_is_releasing(entry);
	LWLockRelease(zkl_lock_table_partition(hash));
	return releasing;
}

/* A claim on leases has no ticket, so nothing is known about other clients. */
ZklObstacle
zkl_claim_status_obstacle(const ZklClaim *claim)
{
	const ZklEntry *entry = claim->entry;
	const ZklClaim *holder = NULL;
	ZklObstacle obstacle = {0};

	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	if (entry->state == ZKL_ENTRY_QUEUED)
	{
		obstacle.holds = entry->front_is_next;
		strlcpy(obstacle.about, entry->before, sizeof(obstacle.about));
		strlcpy(obstacle.front, entry->front, sizeof(obstacle.front));
	}
	else if (entry->state == ZKL_ENTRY_OWNED)
		holder = zkl_entry_holder(entry);
	if (holder != NULL)
	{
		obstacle.holds = true;
		strlcpy(obstacle.about, holder->about, sizeof(obstacle.about));
	}
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	return obstacle;
}

bool
zkl_claim_status_describe(const char *path, const char *znode,
						  char about[ZKL_ABOUT_SIZE])
{
	uint32		hash = zkl_lock_table_hash(path);
	Description description = {znode, false, about};
	ZklEntry   *entry;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	entry = zkl_lock_table_find(path, hash);
	if (entry != NULL)
	{
		/*
		 * The leases are in the semaphore's partition, which is locked, too.
		 */
		describe_if_found(entry, &description);
		zkl_leases_visit(entry, describe_if_found, &description);
	}
	LWLockRelease(zkl_lock_table_partition(hash));
	return description.found;
}

/*
 * A queued znode is for the claim that waits, and an owned one for the claim
 * that holds.  A ticket that lingers or is given up is for no backend.
 */
static void
describe_if_found(ZklEntry *entry, void *arg)
{
	Description *description = arg;
	const ZklClaim *claim;

	if (strcmp(entry->znode, description->znode) != 0)
		return;
	description->found = true;
	claim = entry->state == ZKL_ENTRY_QUEUED ?
		first_waiting(entry->semaphore ? entry->semaphore : entry) :
		entry->state == ZKL_ENTRY_OWNED ? zkl_entry_holder(entry) : NULL;
	strlcpy(description->about, claim ? claim->about : "", ZKL_ABOUT_SIZE);
}

/*
 * The first claim that needs the ticket.  Claims that wait are in the order in which
 * they began.
 */
static const ZklClaim *
first_waiting(const ZklEntry *entry)
{
	dlist_iter	iter;

	dlist_foreach(iter, &unconstify(ZklEntry *, entry)->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->needs_ticket)
			return claim;
	}
	return NULL;
}

void
zkl_claim_status_note_deleted(const char *path, const char *znode)
{
	uint32		hash = zkl_lock_table_hash(path);
	ZklEntry   *entry;

	LWLockAcquire(zkl_lock_table_partition(hash), LW_EXCLUSIVE);
	entry = zkl_lock_table_find(path, hash);
	if (entry != NULL)
	{
		/*
		 * The leases are in the semaphore's partition, which is locked, too.
		 */
		disown_if_deleted(entry, unconstify(char *, znode));
		zkl_leases_visit(entry, disown_if_deleted, unconstify(char *, znode));
	}
	zkl_entry_unlock(hash);
}

/*
 * Mark the claims, and then raise the count of losses.  If a commit guard
 * found a claim good before this, it has read the old count, and will look
 * again: see lose_claim() in entrystate.c.
 */
static void
disown_if_deleted(ZklEntry *entry, void *znode)
{
	dlist_iter	iter;

	if (entry->state != ZKL_ENTRY_OWNED || strcmp(entry->znode, znode) != 0)
		return;
	entry->epoch = ZKL_EPOCH_NONE;
	if (entry->holder != NULL)
		entry->holder->epoch = ZKL_EPOCH_NONE;
	dlist_foreach(iter, &entry->claims)
		dlist_container(ZklClaim, link, iter.cur)->epoch = ZKL_EPOCH_NONE;
	pg_atomic_fetch_add_u64(&zkl_lock_table->losses, 1);
	zkl_entry_ask_worker(entry);
}

/*
 * The pending leases of a semaphore are those that its waiting claim
 * requests.  If this server already has all leases, none is pending, and the
 * claim waits for other claims of this server.
 */
ZklTicketStatus
zkl_claim_status_ticket(ZklClaim *claim, int64 *czxid,
						char znode[ZKL_ZNODE_SIZE])
{
	ZklEntry   *entry = claim->entry;
	Ticket		ticket = {true, 0, znode};
	bool		in_touch;
	dlist_iter	iter;

	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	if (claim->mode != ZKL_MODE_LEASE)
		note_ticket(entry, &ticket);
	else
	{
		dlist_foreach(iter, &entry->pending)
			note_ticket(dlist_container(ZklEntry, lease_link, iter.cur), &ticket);
		if (dlist_is_empty(&entry->pending))
			zkl_leases_visit(entry, note_ticket, &ticket);
	}
	/* An idle session may have expired without notice. */
	in_touch = zkl_session_info_is_in_touch(entry->session, zkl_now()) &&
		zkl_session_info_is_safe(entry->session, zkl_now());
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	*czxid = ticket.czxid;
	if (!in_touch)
		return ZKL_TICKET_DOUBT;
	return ticket.blocked && ticket.czxid != 0 ? ZKL_TICKET_WAITS :
		ZKL_TICKET_SOON;
}

/* On an owned ticket, a claim may also wait for claims of its own server. */
static void
note_ticket(ZklEntry *entry, void *arg)
{
	Ticket	   *ticket = arg;

	if (entry->state != ZKL_ENTRY_OWNED &&
		(entry->state != ZKL_ENTRY_QUEUED || !entry->blocked))
		ticket->blocked = false;
	else if (entry->czxid > ticket->czxid)
	{
		ticket->czxid = entry->czxid;
		strlcpy(ticket->znode, entry->znode, ZKL_ZNODE_SIZE);
	}
}
