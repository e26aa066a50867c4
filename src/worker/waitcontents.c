/*-------------------------------------------------------------------------
 *
 * waitcontents.c
 *	  What the records of this server's waits say.
 *
 * The records are built anew whenever a wait has changed (waits.h).
 *
 * A build reads the partitions of the lock table one after another, so a
 * claim in the first one may have ended before the last one is read.  That
 * does no harm, because no conclusion relies on two holds of the same moment.
 * Servers read each other's records much later than that, and a proof
 * considers each hold by itself: the claim was held at some moment before the
 * nonce was published, and again at some moment after it, so it was held when
 * the nonce was published (src/README.md).  For this, it is enough that a
 * build reads each claim between its beginning and its end.  Nor is any hold
 * missing for long.  A backend that gets a claim in a partition that was read
 * already is not stuck just then.  If it gets stuck later, a wait changes,
 * and the next build finds the claim: a build notes the number of changes
 * before it reads anything.
 *
 * src/worker/waitcontents.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "protocol/waitrecord.h"
#include "settings.h"
#include "shared/jobruns.h"
#include "shared/locktable.h"
#include "shared/waits.h"
#include "worker/waitcontents.h"

/* What a wait or a hold takes in the text, besides its path. */
#define FRAME			100

/* What the search requests of a record. */
typedef struct Mark
{
	int64		claim;			/* the record's claim; 0: the mark is free */
	int64		search;
	int			nconfirms;
	int64		confirms[ZKL_WAITRECORD_CONFIRMS];
	uint32		asked[ZKL_WAITRECORD_CONFIRMS]; /* the number of the request
												 * for each */
} Mark;

/* A backend that cannot go on before the wait of a record has ended. */
typedef struct Holder
{
	int			record;
	ZklWaitHolder who;
} Holder;

/* The set that is being built. */
typedef struct Building
{
	ZklWaitInfo *waits;
	int			nwaits;
	Holder	   *holders;		/* of all records, sorted by pid */
	int			nholders;
	ZklWaitSet *set;
	bool	   *owns;			/* see ZklWaitContents */
	bool		any_in_doubt;	/* some hold is left out because it is in
								 * doubt */
	List	   *holds[ZKL_WAITRECORD_WAITS];	/* of ZklWaitHold */
} Building;

static Mark marks[ZKL_WAITRECORD_WAITS];
static uint64 seen_changes = 0;
static bool must_build = false;
static int64 build_at = PG_INT64_MAX;	/* when to build again because a hold
										 * was in doubt */
static bool built_with_detection = true;
static bool truncated_logged = false;
static int	timeout_ms = 0;

static void collect_holders(Building *building);
static int	compare_holders(const void *one, const void *other);
static void add_holds(ZklEntry *entry, void *arg);
static int	first_holder(const Building *building, int pid);
static void add_hold(Building *building, int record, const ZklEntry *entry,
					 const ZklClaim *claim, int64 since);
static void add_records(Building *building, bool large);
static bool is_large(const Building *building, int number);
static void add_record(Building *building, int number);
static Mark *find_mark(int64 claim, bool make);
static void drop_marks(const Building *building);

void
zkl_wait_contents_start(void)
{
	must_build = true;
}

bool
zkl_wait_contents_have_changed(void)
{
	return must_build || zkl_waits_changes() != seen_changes ||
		built_with_detection != zkl_deadlock_detection || zkl_now() >= build_at;
}

int64
zkl_wait_contents_build_at(void)
{
	return build_at;
}

int
zkl_wait_contents_timeout_ms(void)
{
	return timeout_ms;
}

/*
 * Read the number of changes first: a later change then causes another build.
 */
void
zkl_wait_contents_build(ZklWaitContents *contents)
{
	Building	building = {0};

	memset(contents, 0, sizeof(*contents));
	seen_changes = zkl_waits_changes();
	must_build = false;
	building.owns = contents->owns;
	building.set = palloc0(sizeof(ZklWaitSet));
	building.set->instance = zkl_waits_instance();
	building.set->server = zkl_settings_node_name();
	built_with_detection = zkl_deadlock_detection;
	if (zkl_deadlock_detection)
		building.nwaits = zkl_waits_get(&building.waits);
	if (building.nwaits > 0)
	{
		collect_holders(&building);
		zkl_lock_table_pass(add_holds, &building);
	}
	timeout_ms = INT_MAX;
	for (int i = 0; i < building.nwaits; i++)
		timeout_ms = Min(timeout_ms, building.waits[i].timeout_ms);
	add_records(&building, false);
	add_records(&building, true);
	drop_marks(&building);
	build_at = building.any_in_doubt ? zkl_now() + ZKL_MS(timeout_ms) :
		PG_INT64_MAX;

	if (building.set->nrecords > 0)
	{
		contents->records = palloc(ZKL_WAITRECORD_TEXT_SIZE);
		zkl_wait_record_format(building.set, contents->records,
							   ZKL_WAITRECORD_TEXT_SIZE);
	}
	if (building.set->truncated && !truncated_logged)
		ereport(LOG,
				errmsg("too many waits to publish all of them"),
				errdetail("Deadlocks across servers are not found as long as waits or locks that are left out are part of them."));
	truncated_logged = building.set->truncated;
}

/*
 * Collect the holders.  A backend may keep several waits from ending.  The
 * list is sorted, so that the partitions are not locked for long, however
 * many waits and claims there are.
 */
static void
collect_holders(Building *building)
{
	int			nrecords = Min(building->nwaits, ZKL_WAITRECORD_WAITS);

	building->holders = palloc(nrecords * ZKL_WAITS_HOLDERS * sizeof(Holder));
	for (int i = 0; i < nrecords; i++)
	{
		for (int j = 0; j < building->waits[i].nholders; j++)
		{
			Holder	   *holder = &building->holders[building->nholders++];

			holder->record = i;
			holder->who = building->waits[i].holders[j];
		}
	}
	qsort(building->holders, building->nholders, sizeof(Holder),
		  compare_holders);
}

static int
compare_holders(const void *one, const void *other)
{
	const Holder *a = one;
	const Holder *b = other;

	if (a->who.pid != b->who.pid)
		return a->who.pid < b->who.pid ? -1 : 1;
	return a->record - b->record;
}

/* The entry's partition is locked, so only copy here. */
static void
add_holds(ZklEntry *entry, void *arg)
{
	Building   *building = arg;
	dlist_iter	iter;

	if (entry->semaphore != NULL)
		return;
	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);

		if (claim->state != ZKL_CLAIM_HELD)
			continue;
		for (int i = first_holder(building, claim->pid);
			 i < building->nholders && building->holders[i].who.pid == claim->pid; i++)
			add_hold(building, building->holders[i].record, entry, claim,
					 building->holders[i].who.since);
	}
}

/*
 * The index of the first holder with this pid, or of any other one if there
 * is none.
 */
static int
first_holder(const Building *building, int pid)
{
	int			low = 0;
	int			high = building->nholders;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (building->holders[middle].who.pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * A claim in doubt may already be lost, and another client may hold the lock.
 * If there are several sessions, only the session to which the claim belongs
 * can tell.
 */
static void
add_hold(Building *building, int record, const ZklEntry *entry,
		 const ZklClaim *claim, int64 since)
{
	const ZklWaitInfo *wait = &building->waits[record];
	ZklWaitHold *hold;

	/* The wait for a lock with a detached claim ends by itself. */
	if (claim->is_use || !zkl_waits_hold_up(wait->mode, wait->path, claim))
		return;
	if (zkl_session_info_is_in_doubt(claim->epoch, entry->session, zkl_now()))
	{
		building->any_in_doubt = true;
		return;
	}
	hold = palloc(sizeof(ZklWaitHold));
	hold->claim = claim->token;
	hold->pid = claim->pid;
	hold->mode = claim->mode;
	hold->leases = claim->mode == ZKL_MODE_LEASE ? claim->nleases : 1;
	hold->path = pstrdup(entry->path);
	hold->stuck = since;

	/*
	 * Put claims that other clients may wait for first, so that they are not
	 * left out if there is not room for all.
	 */
	building->holds[record] = zkl_waits_is_wanted(claim) ?
		lcons(hold, building->holds[record]) :
		lappend(building->holds[record], hold);
	building->owns[entry->session] = true;
}

/*
 * Put waits that take more than their share of the room last, so that one of
 * them does not keep all others out.
 */
static void
add_records(Building *building, bool large)
{
	for (int i = 0; i < building->nwaits; i++)
	{
		if (is_large(building, i) == large)
			add_record(building, i);
	}
}

/* Estimate with the unencoded texts; few have to be encoded. */
static bool
is_large(const Building *building, int number)
{
	Size		length = FRAME;
	ListCell   *cell;

	/* The waits from here on are left out, whatever their order. */
	if (number >= ZKL_WAITRECORD_WAITS)
		return false;
	foreach(cell, building->holds[number])
		length += FRAME + strlen(((ZklWaitHold *) lfirst(cell))->path);
	length += strlen(building->waits[number].path) +
		strlen(building->waits[number].about);
	return length > ZKL_WAITRECORD_TEXT_SIZE / ZKL_WAITRECORD_WAITS ||
		list_length(building->holds[number]) > ZKL_WAITRECORD_HOLDS / ZKL_WAITRECORD_WAITS;
}

/*
 * If the holders of a wait have released everything meanwhile, the wait holds
 * nothing up.  Its backend withdraws it when it looks next.
 */
static void
add_record(Building *building, int number)
{
	const ZklWaitInfo *wait = &building->waits[number];
	ZklWaitSet *set = building->set;
	ZklWaitRecord *record = &set->records[set->nrecords];
	const Mark *mark = find_mark(wait->number, false);
	ListCell   *cell;

	if (number >= ZKL_WAITRECORD_WAITS || wait->truncated)
		set->truncated = true;
	if (number >= ZKL_WAITRECORD_WAITS || building->holds[number] == NIL)
		return;
	if (set->nholds + list_length(building->holds[number]) >
		ZKL_WAITRECORD_HOLDS)
		set->truncated = true;
	if (set->nholds == ZKL_WAITRECORD_HOLDS)
		return;
	record->claim = wait->number;
	record->czxid = wait->czxid;
	record->znode = wait->znode;
	record->pid = wait->pid;
	record->path = wait->path;
	record->mode = wait->mode;
	record->leases = wait->quantity;
	record->limit = wait->limit;
	record->since = wait->since + ZKL_JOB_EPOCH;
	record->about = wait->about;
	if (mark != NULL)
	{
		record->search = mark->search;
		for (int i = 0; i < mark->nconfirms; i++)
		{
			/*
			 * "asked" is 0 if the wait had already ended at the time of the
			 * request.
			 */
			if (mark->asked[i] != 0 && wait->computed >= mark->asked[i])
				record->confirms[record->nconfirms++] = mark->confirms[i];
		}
	}
	record->first_hold = set->nholds;
	foreach(cell, building->holds[number])
	{
		if (set->nholds == ZKL_WAITRECORD_HOLDS)
			break;
		set->holds[set->nholds++] = *(ZklWaitHold *) lfirst(cell);
		record->nholds++;
	}
	set->nrecords++;
}

/*
 * What the search requests
 */

static Mark *
find_mark(int64 claim, bool make)
{
	Mark	   *unused = NULL;

	for (int i = 0; i < lengthof(marks); i++)
	{
		if (marks[i].claim == claim)
			return &marks[i];
		if (marks[i].claim == 0)
			unused = &marks[i];
	}
	if (!make || unused == NULL)
		return NULL;
	memset(unused, 0, sizeof(*unused));
	unused->claim = claim;
	return unused;
}

/* Free the marks of waits that have ended. */
static void
drop_marks(const Building *building)
{
	for (int i = 0; i < lengthof(marks); i++)
	{
		bool		found = false;

		for (int j = 0; j < building->nwaits; j++)
			found |= (int64) building->waits[j].number == marks[i].claim;
		if (!found)
			marks[i].claim = 0;
	}
}

void
zkl_wait_contents_set_search(int64 claim, int64 nonce)
{
	Mark	   *mark = find_mark(claim, nonce != 0);

	if (mark == NULL || mark->search == nonce)
		return;
	mark->search = nonce;
	must_build = true;
}

/*
 * A new nonce makes the backend compute its holders again.  The result is a
 * change of the wait, which is then published.
 */
void
zkl_wait_contents_set_confirms(int64 claim, const int64 *nonces, int nnonces)
{
	Mark	   *mark = find_mark(claim, nnonces > 0);
	Mark		old;

	if (mark == NULL)
		return;
	old = *mark;
	mark->nconfirms = nnonces;
	for (int i = 0; i < nnonces; i++)
	{
		mark->confirms[i] = nonces[i];
		mark->asked[i] = 0;
		for (int j = 0; j < old.nconfirms; j++)
		{
			if (old.confirms[j] == nonces[i])
				mark->asked[i] = old.asked[j];
		}
		if (mark->asked[i] == 0)
			mark->asked[i] = zkl_waits_ask(claim);
	}
}

void
zkl_wait_contents_forget_searches(void)
{
	for (int i = 0; i < lengthof(marks); i++)
	{
		if (marks[i].claim != 0)
			must_build = true;
		marks[i].claim = 0;
	}
}
