/*-------------------------------------------------------------------------
 *
 * claimstatus.c
 *	  How a claim stands: good, in doubt or lost; and facts about its lock.
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

/* What is looked for, and what is found. */
typedef struct Description
{
	const char *znode;
	bool		found;
	char	   *about;
} Description;

/* The znode by which a claim waits. */
typedef struct Ticket
{
	bool		blocked;		/* it has to wait, and so do all others */
	int64		czxid;			/* 0: none yet */
	char	   *znode;
} Ticket;

static void describe_if_found(ZklEntry *entry, void *arg);
static const ZklClaim *first_waiting(const ZklEntry *entry);
static void note_ticket(ZklEntry *entry, void *arg);

ZklClaimStatus
zkl_claim_status(ZklClaim *claim, int64 margin)
{
	ZklEntry   *entry = claim->entry;
	ZklClaimStatus standing = ZKL_STATUS_GOOD;
	int64		until;

	/* The clock is read when no wait can make the reading old any more. */
	LWLockAcquire(zkl_lock_table_partition(entry->hash), LW_SHARED);
	until = zkl_now() + margin;

	/*
	 * A claim counts as lost from the moment of its hold limit, whether or
	 * not the worker has marked it by then.
	 */
	if (claim->state != ZKL_CLAIM_HELD ||
		(claim->lease_until != 0 && claim->lease_until <= until))
		standing = ZKL_STATUS_LOST;

	/* The worker raises the epoch first, then comes to mark each claim. */
	else if (zkl_session_info_is_in_doubt(claim->epoch, entry->session, until))
		standing = ZKL_STATUS_DOUBT;
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	return standing;
}

/* If the worker has not marked the claim yet, its hold limit has passed. */
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
	LWLockRelease(zkl_lock_table_partition(claim->entry->hash));
	return loss;
}

/*
 * A claim on leases has a znode for each of them.  Other clients can request
 * the release of each.
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
 * If the claim was lost, so was its lease, and other clients may have made the
 * path another kind of lock since the survey.
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
	 * Look and mark under one lock: if the znode goes after the look, the
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

/* A claim on leases has no ticket, so nothing is known of other clients. */
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
		/* The leases are in the semaphore's partition, which is locked. */
		describe_if_found(entry, &description);
		zkl_leases_visit(entry, describe_if_found, &description);
	}
	LWLockRelease(zkl_lock_table_partition(hash));
	return description.found;
}

/*
 * A znode in the queue is for the claim that waits, and an owned one for the
 * claim that holds.  A ticket that lingers or is given up is for no backend.
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

/* Claims are in the order in which they began. */
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

/*
 * A semaphore's pending leases are those that its waiting claim requests.  If
 * this server has all leases already, there are none; then the claim waits for
 * other claims of this server.
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
	/* An idle session may have expired unnoticed. */
	in_touch = zkl_session_info_is_in_touch(entry->session, zkl_now()) &&
		zkl_session_info_is_safe(entry->session, zkl_now());
	LWLockRelease(zkl_lock_table_partition(entry->hash));
	*czxid = ticket.czxid;
	if (!in_touch)
		return ZKL_TICKET_DOUBT;
	return ticket.blocked && ticket.czxid != 0 ? ZKL_TICKET_WAITS :
		ZKL_TICKET_SOON;
}

/* A claim may also wait for claims of its own server, on an owned ticket. */
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
