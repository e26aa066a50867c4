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
		 * Copy the place: the loop moves places that are in no queue to the
		 * end.
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

/* Returns false if the place is in no queue. */
static bool
describe(ZklPlace *place, bool semaphore)
{
	ZklContender contender = {ZKL_MODE_LEASE, ZKL_CLIENT_UNKNOWN, NULL};
	bool		is_contender = zkl_recipe_parse(place->name, &contender);

	if (place->where == ZKL_WHERE_LEASES)
	{
		/*
		 * Without a semaphore, the directory belongs to another lock below
		 * this one.
		 */
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
 * A "__lock__" znode of kazoo is a mutex.  But if other znodes in the queue
 * read or write, it is a writer.
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
 * Sort by directory, and within a directory by key, as all clients compare
 * keys.  Leases are sorted by czxid, because other clients may give them any
 * names.
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
 * A znode holds the lock if, by the rule of recipe.h, it waits for no znode
 * that came before it.
 */
static void
judge_queue(ZklPlace *places, int nplaces)
{
	bool		came[ZKL_MODES] = {false};

	for (int i = 0; i < nplaces; i++)
	{
		ZklPlace   *place = &places[i];

		place->holds = true;
		for (int mode = 0; mode < ZKL_MODES; mode++)
		{
			if (came[mode] &&
				zkl_recipe_relation(place->mode, (ZklMode) mode) == ZKL_RELATION_RIVAL)
				place->holds = false;
		}
		came[place->mode] = true;
	}
}

/*
 * The newest leases above the limit wait.  The first client in the queue of
 * "locks" is still collecting leases.  So it holds none of the leases that it
 * has made since it came to the front, unless all leases are known to be
 * within the limit.
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

bool
zkl_queue_order_is_in_way(const ZklPlace *place, ZklWhere where, ZklMode mode,
						  const char *key)
{
	if (place->where != where)
		return false;
	if (where == ZKL_WHERE_LEASES)
		return place->holds;
	if (zkl_recipe_relation(mode, place->mode) == ZKL_RELATION_NONE)
		return false;
	return key == NULL || strcmp(place->key, key) <= 0;
}

const char *
zkl_queue_order_mode_name(const ZklPlace *place)
{
	if (place->where == ZKL_WHERE_LOCKS)
		return "acquiring";

	/*
	 * settle_kazoo() has already decided between a mutex and a read-write
	 * lock.
	 */
	if (place->mode == ZKL_MODE_KAZOO_LOCK && place->kind == ZKL_KIND_READ_WRITE)
		return zkl_recipe_mode_name(ZKL_MODE_WRITE);
	return zkl_recipe_mode_name(place->mode);
}

const char *
zkl_queue_order_client_name(ZklClient client)
{
	static const char *const names[] = {
		[ZKL_CLIENT_ZKLOCK] = "zklock",
		[ZKL_CLIENT_CURATOR] = "curator",
		[ZKL_CLIENT_KAZOO] = "kazoo",
		[ZKL_CLIENT_GO] = "go-zookeeper",
		[ZKL_CLIENT_UNKNOWN] = "unknown"
	};

	return names[client];
}
