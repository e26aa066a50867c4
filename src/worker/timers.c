/*-------------------------------------------------------------------------
 *
 * timers.c
 *	  Timers: when the worker looks at an entry again.
 *
 * src/worker/timers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "worker/timers.h"

static pairingheap *timers = NULL;

/* Compare, so that the earliest timer is on top of the heap. */
static int
compare_timers(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		at_a = pairingheap_const_container(ZklEntry, timer, a)->timer_at;
	int64		at_b = pairingheap_const_container(ZklEntry, timer, b)->timer_at;

	return at_a < at_b ? 1 : at_a > at_b ? -1 : 0;
}

/*
 * The heap is allocated in the memory context of the worker's start, which
 * lives as long as the worker.
 */
void
zkl_timers_start(void)
{
	timers = pairingheap_allocate(compare_timers, NULL);
}

void
zkl_timers_arm(ZklEntry *entry, int64 at)
{
	/* An entry has one timer.  The heap cannot move a node in place. */
	if (entry->timer_set)
		pairingheap_remove(timers, &entry->timer);
	entry->timer_at = at;
	entry->timer_set = true;
	pairingheap_add(timers, &entry->timer);
}

void
zkl_timers_disarm(ZklEntry *entry)
{
	if (entry->timer_set)
		pairingheap_remove(timers, &entry->timer);
	entry->timer_set = false;
}

int64
zkl_timers_next(void)
{
	if (pairingheap_is_empty(timers))
		return PG_INT64_MAX;
	return pairingheap_container(ZklEntry, timer,
								 pairingheap_first(timers))->timer_at;
}

ZklEntry *
zkl_timers_take_any(void)
{
	ZklEntry   *entry;

	if (pairingheap_is_empty(timers))
		return NULL;
	entry = pairingheap_container(ZklEntry, timer,
								  pairingheap_remove_first(timers));
	/* The entry still exists: what ends a ticket also disarms its timer. */
	entry->timer_set = false;
	return entry;
}

/*
 * The caller passes the same moment until no timer is due.  So a timer that
 * is armed meanwhile for a later moment waits for the next turn.
 */
ZklEntry *
zkl_timers_take_due(int64 now)
{
	return zkl_timers_next() <= now ? zkl_timers_take_any() : NULL;
}
