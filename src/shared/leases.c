/*-------------------------------------------------------------------------
 *
 * leases.c
 *	  The leases of a semaphore that this server has.
 *
 * Grants are safe without the inner mutex.  A lease is owned only after a list
 * has shown that fewer znodes than the semaphore's limit go before its own, or
 * that there are no more znodes at all than the limit.  The owners of all
 * leases owned before were among those znodes (see recipe.h).  One list may
 * show so for many leases, because it was sent after the creates of all of
 * them (see sendqueue.c).
 *
 * The mutex gives the order, and lets only one client have more znodes than
 * the limit allows.  Two such clients would wait for one another for ever.
 *
 * src/shared/leases.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/entry.h"
#include "shared/leases.h"

static bool is_used_up(const ZklEntry *lease);
static bool is_usable(const ZklEntry *lease, uint64 epoch);
static void give_up_used_up(ZklEntry *semaphore);
static void withdraw_others(ZklEntry *semaphore);
static void withdraw_surplus(ZklEntry *semaphore);
static bool may_serve_next(const ZklEntry *lease);
static void retire_lease(ZklEntry *lease, void *arg);
static ZklEntry *make_lease(ZklEntry *semaphore);
static int	count_pending(const ZklEntry *semaphore);
static int	count_wanted(const ZklEntry *semaphore);

int
zkl_leases_usable(ZklEntry *semaphore, uint64 epoch)
{
	dlist_iter	iter;
	int			usable = 0;

	Assert(zkl_lock_table_is_mine(semaphore));
	dlist_foreach(iter, &semaphore->idle)
	{
		if (is_usable(dlist_container(ZklEntry, lease_link, iter.cur), epoch))
			usable++;
	}
	return usable;
}

/*
 * A lease of an older epoch ended with its session, even if the worker has not
 * processed the expiry yet.
 */
static bool
is_usable(const ZklEntry *lease, uint64 epoch)
{
	return !is_used_up(lease) && lease->epoch == epoch;
}

/*
 * A revoked lease goes to the client that requested its release.  A lease that
 * has no numbers left for tokens, or that is retired, can serve no claim.
 */
static bool
is_used_up(const ZklEntry *lease)
{
	return lease->revoked || lease->claim_number >= ZKL_CLAIM_NUMBER_MAX;
}

/*
 * hold() has set the claim's epoch: only leases of that epoch are taken.  A
 * claim has one token, so it is the greatest of its leases' tokens.
 */
void
zkl_leases_take(ZklClaim *claim, int64 now)
{
	ZklEntry   *semaphore = claim->entry;
	dlist_mutable_iter iter;

	Assert(zkl_lock_table_is_mine(claim->entry));
	Assert(claim->nleases == 0);
	dlist_foreach_modify(iter, &semaphore->idle)
	{
		ZklEntry   *lease = dlist_container(ZklEntry, lease_link, iter.cur);

		if (claim->nleases == claim->quantity)
			break;
		if (!is_usable(lease, claim->epoch))
			continue;
		dlist_delete(&lease->lease_link);
		dlist_push_tail(&claim->leases, &lease->lease_link);
		claim->nleases++;
		lease->holder = claim;
		zkl_entry_count_claim(lease, now);
		claim->token = Max(claim->token, zkl_entry_token(lease));
	}
	Assert(claim->nleases == claim->quantity);
}

/*
 * The head of the idle list is taken first.  So the leases that were used last
 * are used again, and the others linger until the worker gives them up.  A
 * claim that was lost has no leases any more; then this function does nothing.
 */
void
zkl_leases_put_back(ZklClaim *claim, int quantity, int64 now)
{
	Assert(zkl_lock_table_is_mine(claim->entry));
	while (quantity-- > 0 && !dlist_is_empty(&claim->leases))
	{
		ZklEntry   *lease = dlist_tail_element(ZklEntry, lease_link,
											   &claim->leases);

		Assert(lease->holder == claim);
		dlist_delete(&lease->lease_link);
		dlist_push_head(&claim->entry->idle, &lease->lease_link);
		claim->nleases--;
		lease->holder = NULL;
		lease->idle_at = now;
	}
}

/* The tickets stay as they are, so ZooKeeper need not know of the move. */
void
zkl_leases_move(ZklClaim *to, ZklClaim *from)
{
	Assert(zkl_lock_table_is_mine(to->entry) && to->entry == from->entry);
	while (!dlist_is_empty(&from->leases))
	{
		ZklEntry   *lease = dlist_head_element(ZklEntry, lease_link,
											   &from->leases);

		dlist_delete(&lease->lease_link);
		dlist_push_tail(&to->leases, &lease->lease_link);
		lease->holder = to;
		from->nleases--;
		to->nleases++;
	}
	to->token = Max(to->token, from->token);

	/* If the leases of either claim are lost, so is the merged claim. */
	to->epoch = Min(to->epoch, from->epoch);
}

/*
 * While no lease has a znode, request only one: its create makes the
 * directory, which then stays.
 */
bool
zkl_leases_ask(const ZklClaim *claim, uint64 epoch)
{
	ZklEntry   *semaphore = claim->entry;
	int			missing;
	int			limit;

	Assert(zkl_lock_table_is_mine(claim->entry));

	/*
	 * These calls lower nleases, so make them before the comparison with the
	 * limit.
	 */
	give_up_used_up(semaphore);
	if (claim->only_tries)
		withdraw_others(semaphore);
	missing = claim->quantity - count_pending(semaphore) -
		zkl_leases_usable(semaphore, epoch);
	if (semaphore->nleases == count_wanted(semaphore))
		missing = Min(missing, 1 - semaphore->nleases);

	/*
	 * Request one lease even if the limit is 0.  If no limit is known,
	 * request one more lease than are owned: the worker then reads the limit.
	 */
	limit = zkl_leases_limit(semaphore);
	limit = limit == ZKL_LIMIT_NONE ? semaphore->nowned + 1 : Max(1, limit);
	while (missing-- > 0 && semaphore->nleases < limit)
	{
		ZklEntry   *lease = make_lease(semaphore);

		if (lease == NULL)
			return false;
		zkl_entry_note_asker(lease, claim);
		zkl_entry_want(lease, ZKL_MODE_LEASE);
	}
	return true;
}

/*
 * Give up leases that no claim may take any more.  That makes room for other
 * leases.
 */
static void
give_up_used_up(ZklEntry *semaphore)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &semaphore->idle)
	{
		ZklEntry   *lease = dlist_container(ZklEntry, lease_link, iter.cur);

		if (is_used_up(lease))
			zkl_entry_give_up(lease);
	}
}

/*
 * Only the znode of a try queries the leases before it.  So a try takes no
 * lease that was requested for another claim.  The caller has seen that no
 * other claim needs leases.
 */
static void
withdraw_others(ZklEntry *semaphore)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &semaphore->pending)
	{
		ZklEntry   *lease = dlist_container(ZklEntry, lease_link, iter.cur);

		if (!lease->only_tries)
			zkl_entry_withdraw(lease);
	}
}

/*
 * The number makes the entry's path unique in the lock table.  It is in the
 * semaphore's partition, which the caller has locked.
 */
static ZklEntry *
make_lease(ZklEntry *semaphore)
{
	char		path[ZKL_PATH_SIZE];
	ZklEntry   *lease;

	snprintf(path, sizeof(path), "%s%c" UINT64_FORMAT, semaphore->path,
			 ZKL_LEASE_MARK, ++semaphore->last_lease);
	lease = zkl_lock_table_make(path, zkl_lock_table_hash(path));
	if (lease == NULL)
		return NULL;
	lease->lock = semaphore;
	dlist_push_tail(&semaphore->pending, &lease->lease_link);
	semaphore->nleases++;
	semaphore->nlinked++;
	return lease;
}

int
zkl_leases_limit(const ZklEntry *semaphore)
{
	if (semaphore->stored != ZKL_LIMIT_NONE)
		return semaphore->stored;
	return semaphore->limit > 0 ? semaphore->limit : ZKL_LIMIT_NONE;
}

/*
 * When the limit is lowered, no lease may be handed on within the server: more
 * than the new limit may be held, and only a list shows how many are.
 */
void
zkl_leases_set_stored(ZklEntry *semaphore, int stored)
{
	int			before = zkl_leases_limit(semaphore);

	Assert(zkl_session_info_is_worker() && zkl_lock_table_is_mine(semaphore));
	if (stored == semaphore->stored)
		return;
	semaphore->stored = stored;
	if (zkl_leases_limit(semaphore) < before)
		zkl_leases_retire(semaphore);
	else
		zkl_entry_wake_needing(semaphore);
}

void
zkl_leases_retire(ZklEntry *semaphore)
{
	zkl_leases_visit(semaphore, retire_lease, NULL);
	zkl_leases_settle(semaphore);
}

/* The lease's tokens are in the claims that it serves. */
static void
retire_lease(ZklEntry *lease, void *arg)
{
	if (lease->state == ZKL_ENTRY_OWNED)
		lease->claim_number = ZKL_CLAIM_NUMBER_MAX;
}

static int
count_pending(const ZklEntry *semaphore)
{
	return semaphore->nleases - semaphore->nowned;
}

/* A pending lease is WANTED, and has no answer yet, or QUEUED. */
static int
count_wanted(const ZklEntry *semaphore)
{
	dlist_iter	iter;
	int			nwanted = 0;

	dlist_foreach(iter, &unconstify(ZklEntry *, semaphore)->pending)
		nwanted += dlist_container(ZklEntry, lease_link, iter.cur)->state ==
		ZKL_ENTRY_WANTED;
	return nwanted;
}

bool
zkl_leases_answered(const ZklEntry *semaphore)
{
	Assert(zkl_lock_table_is_mine(semaphore));
	return count_wanted(semaphore) == 0;
}

bool
zkl_leases_asking(ZklEntry *semaphore)
{
	dlist_iter	iter;

	Assert(zkl_lock_table_is_mine(semaphore));
	dlist_foreach(iter, &semaphore->pending)
	{
		if (dlist_container(ZklEntry, lease_link, iter.cur)->place.asking)
			return true;
	}
	return false;
}

/*
 * A claim that was first before may have requested more leases.  It has ended,
 * but the next claim had begun to wait by then.
 */
static void
withdraw_surplus(ZklEntry *semaphore)
{
	int			surplus = count_pending(semaphore);
	dlist_iter	iter;
	dlist_mutable_iter pending;

	dlist_foreach(iter, &semaphore->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		/* This claim still needs as many leases as it requested. */
		if (claim->needs_ticket)
			surplus -= claim->quantity;
	}

	/* Withdrawing a lease takes it off this list, and may free its entry. */
	dlist_foreach_modify(pending, &semaphore->pending)
	{
		if (surplus-- <= 0)
			break;
		zkl_entry_withdraw(dlist_container(ZklEntry, lease_link, pending.cur));
	}
}

/*
 * If the worker has taken up the request, and other claims wait, the next claim
 * may take the lease.  While many backends take turns, a claim often requests a
 * lease and then gets one that another claim puts back.  If the worker deleted
 * the requested lease, the next claim would wait for ZooKeeper to create
 * another one.
 */
static bool
may_serve_next(const ZklEntry *lease)
{
	return lease->state == ZKL_ENTRY_WANTED && lease->seen && !lease->only_tries &&
		lease->lock->nwaiting > 0;
}

void
zkl_leases_settle(ZklEntry *semaphore)
{
	dlist_mutable_iter iter;

	Assert(zkl_lock_table_is_mine(semaphore));
	Assert(!zkl_lock_entry_is_lease(semaphore));
	/* Keep the semaphore's entry: the end of the last lease may remove it. */
	semaphore->nlinked++;

	/* A claim that needs leases holds the inner mutex, or only tries. */
	if (semaphore->nneeding > 0)
	{
		withdraw_surplus(semaphore);
		semaphore->nlinked--;
		zkl_entry_wake_needing(semaphore);
		return;
	}

	/* No claim needs the leases that are still requested. */
	dlist_foreach_modify(iter, &semaphore->pending)
	{
		ZklEntry   *lease = dlist_container(ZklEntry, lease_link, iter.cur);

		if (!may_serve_next(lease))
			zkl_entry_withdraw(lease);
	}

	/*
	 * Without a survey, the path may be another kind of lock for other
	 * clients.  Leases that lingered would delay those clients.
	 */
	if (!semaphore->surveyed)
		zkl_leases_give_up(semaphore);
	dlist_foreach_modify(iter, &semaphore->idle)
		zkl_entry_settle_idle(dlist_container(ZklEntry, lease_link, iter.cur));
	semaphore->nlinked--;
	zkl_entry_remove_if_unused(semaphore);
}

void
zkl_leases_give_up(ZklEntry *semaphore)
{
	dlist_mutable_iter iter;

	Assert(zkl_lock_table_is_mine(semaphore));
	dlist_foreach_modify(iter, &semaphore->idle)
		zkl_entry_give_up(dlist_container(ZklEntry, lease_link, iter.cur));
}

void
zkl_leases_set_owned(ZklEntry *lease)
{
	ZklEntry   *semaphore = lease->lock;

	Assert(zkl_session_info_is_worker() && zkl_lock_table_is_mine(lease));
	Assert(lease->state == ZKL_ENTRY_OWNED && lease->holder == NULL);

	/* The lease lingers from now on, until a claim takes it. */
	lease->idle_at = lease->owned_at;
	lease->comes_back = zkl_entry_comes_back(semaphore, lease->owned_at);
	semaphore->nowned++;
	dlist_delete(&lease->lease_link);
	dlist_push_tail(&semaphore->idle, &lease->lease_link);

	/*
	 * If no claim needs the lease any more, it lingers only where other
	 * leases would.
	 */
	if (semaphore->nneeding == 0 &&
		(lease->contended || !lease->comes_back || !semaphore->surveyed))
		zkl_entry_give_up(lease);
}

static void
mark_contended(ZklEntry *lease, void *arg)
{
	if (lease->state != ZKL_ENTRY_OWNED || lease->contended)
		return;
	lease->contended = true;
	zkl_entry_ask_worker(lease);	/* it arms the timer */
}

/*
 * A client that waits for a lease can take any lease, so it makes all of them
 * contended.  Idle leases that no claim collects are given up.
 */
void
zkl_leases_set_contended(ZklEntry *semaphore)
{
	zkl_leases_visit(semaphore, mark_contended, NULL);
	zkl_leases_settle(semaphore);
}

/*
 * A lease that is being released is in none of the lists below.  The visitor
 * takes no lease off its list.
 */
void
zkl_leases_visit(ZklEntry *semaphore, ZklVisitor visitor, void *arg)
{
	dlist_iter	iter;
	dlist_iter	held;

	Assert(LWLockHeldByMe(zkl_lock_table_partition(semaphore->hash)));
	dlist_foreach(iter, &semaphore->pending)
		visitor(dlist_container(ZklEntry, lease_link, iter.cur), arg);
	dlist_foreach(iter, &semaphore->idle)
		visitor(dlist_container(ZklEntry, lease_link, iter.cur), arg);
	dlist_foreach(iter, &semaphore->claims)
	{
		ZklClaim   *claim = dlist_container(ZklClaim, link, iter.cur);

		dlist_foreach(held, &claim->leases)
			visitor(dlist_container(ZklEntry, lease_link, held.cur), arg);
	}
}
