/*-------------------------------------------------------------------------
 *
 * queueorder.c
 *	  The queue of a lock: its znodes, their order, and the holders.
 *
 * src/protocol/queueorder.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/queueorder.h"

#include <stdlib.h>
#include <string.h>

static bool any_lease(const ZklPlace *places, int nplaces);
static bool describe(ZklPlace *place, bool semaphore);
static void settle_kazoo(ZklPlace *places, int nplaces);
static int	compare(const void *a, const void *b);
static void judge_queue(ZklPlace *places, int nplaces);
static void judge_leases(ZklPlace *leases, int nleases, int limit,
						 const ZklPlace *acquiring);

int
zkl_queue_order(ZklPlace *places, int nplaces, int limit)
{
	int			count[ZKL_NWHERE] = {0};
	int			nqueued = 0;
	bool		semaphore = limit > 0 || any_lease(places, nplaces);
	ZklPlace   *leases;
	ZklPlace   *locks;

	for (int i = 0; i < nplaces; i++)
	{
		/*
		 * A copy, because the places change: those that are in no queue move
		 * behind the others.
		 */
		ZklPlace	place = places[i];

		if (!describe(&place, semaphore))
			continue;
		places[i] = places[nqueued];
		places[nqueued++] = place;
		count[place.where]++;
	}
	qsort(places, nqueued, sizeof(ZklPlace), compare);

	/*
	 * The order puts one directory after the other, so each queue is a part
	 * of the array.
	 */
	leases = places + count[ZKL_WHERE_LOCK];
	locks = leases + count[ZKL_WHERE_LEASES];
	settle_kazoo(places, count[ZKL_WHERE_LOCK]);
	judge_queue(places, count[ZKL_WHERE_LOCK]);
	judge_leases(leases, count[ZKL_WHERE_LEASES], limit,
				 count[ZKL_WHERE_LOCKS] > 0 ? locks : NULL);
	return nqueued;
}

static bool
any_lease(const ZklPlace *places, int nplaces)
{
	for (int i = 0; i < nplaces; i++)
	{
		if (places[i].where == ZKL_WHERE_LEASES &&
			zkl_recipe_any_lease(&places[i].name, 1))
			return true;
	}
	return false;
}

/* False if it is in no queue. */
static bool
describe(ZklPlace *place, bool semaphore)
{
	ZklContender contender = {ZKL_MODE_LEASE, ZKL_CLIENT_UNKNOWN, NULL};
	bool		is_contender = zkl_recipe_parse(place->name, &contender);

	if (place->where == ZKL_WHERE_LEASES)
	{
		/* The directory belongs to another lock below this one. */
		if (!semaphore)
			return false;
		contender.mode = ZKL_MODE_LEASE;
	}
	else if (!is_contender || contender.mode == ZKL_MODE_LEASE)
		return false;

	place->mode = contender.mode;
	place->client = contender.client;
	place->key = contender.key;
	place->kind = place->where == ZKL_WHERE_LOCK ?
		zkl_recipe_kind(place->mode) : ZKL_KIND_SEMAPHORE;
	place->holds = false;
	return true;
}

/*
 * kazoo's __lock__ is a mutex; but if other znodes read or write, it writes.
 */
static void
settle_kazoo(ZklPlace *places, int nplaces)
{
	bool		read_write = false;

	for (int i = 0; i < nplaces; i++)
		read_write |= places[i].kind == ZKL_KIND_READ_WRITE;
	for (int i = 0; i < nplaces && read_write; i++)
	{
		if (places[i].mode == ZKL_MODE_KAZOO_LOCK)
			places[i].kind = ZKL_KIND_READ_WRITE;
	}
}

/*
 * By directory, and in each by key, as all clients compare keys.  Leases go by
 * czxid, because their names may be anything.
 */
static int
compare(const void *a, const void *b)
{
	const ZklPlace *one = a;
	const ZklPlace *other = b;
	int			order = (int) one->where - (int) other->where;

	if (order != 0)
		return order;
	if (one->where == ZKL_WHERE_LEASES)
		order = (one->czxid > other->czxid) - (one->czxid < other->czxid);
	else
		order = strcmp(one->key, other->key);
	return order != 0 ? order : strcmp(one->name, other->name);
}

/*
 * A znode holds the lock if no other goes before it.  Readers before a reader
 * do not count, nor do znodes of another kind.
 */
static void
judge_queue(ZklPlace *places, int nplaces)
{
	bool		lock = false;	/* what came before */
	bool		write = false;
	bool		read = false;
	bool		kazoo_lock = false;
	bool		kazoo_read = false;

	for (int i = 0; i < nplaces; i++)
	{
		ZklPlace   *place = &places[i];

		switch (place->mode)
		{
			case ZKL_MODE_LOCK:
				place->holds = !lock && !kazoo_lock && !kazoo_read;
				lock = true;
				break;
			case ZKL_MODE_WRITE:
				place->holds = !write && !read && !kazoo_lock && !kazoo_read;
				write = true;
				break;
			case ZKL_MODE_READ:
				place->holds = !write && !kazoo_lock;
				read = true;
				break;
			case ZKL_MODE_KAZOO_LOCK:

				/* kazoo's Lock waits for every znode before it. */
				place->holds = i == 0;
				kazoo_lock = true;
				break;
			case ZKL_MODE_KAZOO_READ:
				place->holds = !lock && !write && !kazoo_lock;
				kazoo_read = true;
				break;
			case ZKL_MODE_LEASE:
				break;
		}
	}
}

/*
 * The newest leases above the limit wait.  The client in front of the queue in
 * "locks" is still collecting, so it holds none of the leases that it has made
 * since it came, unless all leases are known to be within the limit.
 */
static void
judge_leases(ZklPlace *leases, int nleases, int limit,
			 const ZklPlace *acquiring)
{
	int			nwaiting = limit > 0 && nleases > limit ? nleases - limit : 0;
	bool		complete = limit > 0 && nwaiting == 0;

	for (int i = 0; i < nleases; i++)
	{
		leases[i].holds = i < nleases - nwaiting;
		if (!complete && acquiring != NULL && acquiring->owner != 0 &&
			acquiring->owner == leases[i].owner &&
			acquiring->czxid < leases[i].czxid)
			leases[i].holds = false;
	}
}

/* As zkl_recipe_judge() decides it: of two readers, none waits for the other. */
bool
zkl_queue_order_is_in_way(const ZklPlace *place, ZklWhere where, ZklMode mode,
						  const char *key)
{
	if (place->where != where)
		return false;
	if (where == ZKL_WHERE_LEASES)
		return place->holds;
	if (mode == ZKL_MODE_READ && (place->mode == ZKL_MODE_READ ||
								  place->mode == ZKL_MODE_KAZOO_READ))
		return false;
	return key == NULL || strcmp(place->key, key) <= 0;
}

const char *
zkl_queue_order_mode_name(const ZklPlace *place)
{
	if (place->where == ZKL_WHERE_LOCKS)
		return "acquiring";
	switch (place->mode)
	{
		case ZKL_MODE_LOCK:
			return "lock";
		case ZKL_MODE_WRITE:
			return "write";
		case ZKL_MODE_READ:
		case ZKL_MODE_KAZOO_READ:
			return "read";
		case ZKL_MODE_LEASE:
			return "lease";

			/* settle_kazoo() has decided which of the two this is. */
		case ZKL_MODE_KAZOO_LOCK:
			break;
	}
	return place->kind == ZKL_KIND_READ_WRITE ? "write" : "lock";
}

const char *
zkl_queue_order_kind_name(ZklKind kind)
{
	switch (kind)
	{
		case ZKL_KIND_MUTEX:
			break;
		case ZKL_KIND_READ_WRITE:
			return "read-write";
		case ZKL_KIND_SEMAPHORE:
			return "semaphore";
	}
	return "mutex";
}

const char *
zkl_queue_order_client_name(ZklClient client)
{
	switch (client)
	{
		case ZKL_CLIENT_ZKLOCK:
			return "zklock";
		case ZKL_CLIENT_CURATOR:
			return "curator";
		case ZKL_CLIENT_KAZOO:
			return "kazoo";
		case ZKL_CLIENT_UNKNOWN:
			break;
	}
	return "unknown";
}
