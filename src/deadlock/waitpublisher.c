/*-------------------------------------------------------------------------
 *
 * waitpublisher.c
 *	  Publishes this server's waits, for the search for deadlocks.
 *
 * The znode has at most one request under way.  Later changes are sent when
 * its reply has come.  So ZooKeeper's speed bounds the number of writes,
 * however many waits come and go.
 *
 * If the last reply about the znode was lost, the znode may or may not exist,
 * and may have the old or the new text.  Then the worker writes or deletes the
 * znode again.
 *
 * The records are built anew whenever a wait has changed (waits.h).
 *
 * A build reads the partitions of the lock table one after another, so a
 * claim in the first partition may have ended before the last partition is
 * read.  That does no harm, because no conclusion relies on two holds of the
 * same moment.  Servers read each other's records much later than that, and a
 * proof considers each hold by itself: the claim was held at some moment
 * before the nonce was published, and again at some moment after it, so it
 * was held when the nonce was published (src/README.md).  For this, it is
 * enough that a build reads each claim between its beginning and its end.
 * Nor is any hold missing for long.  A backend that gets a claim in a
 * partition that was read already is not stuck just then.  If it gets stuck
 * later, a wait changes, and the next build finds the claim: a build notes
 * the number of changes before it reads anything.
 *
 * src/deadlock/waitpublisher.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "deadlock/waitpublisher.h"
#include "deadlock/waits.h"
#include "faultpoint.h"
#include "protocol/sessiontext.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/request/ask.h"

/* The pause after ZooKeeper has refused a request. */
#define AGAIN_AFTER		ZKL_MS(5000)

/* The bytes that a wait or a hold takes in the text, besides its path. */
#define FRAME			100

#define NODE_PATH_SIZE	(ZKL_ROOT_SIZE + sizeof(ZKL_PATH_WAITS) + ZKL_SESSION_TEXT_NAME_SIZE + 1)

typedef enum Step
{
	STEP_CREATE,
	STEP_WRITE,
	STEP_DELETE
} Step;

/* The znode of this server's session. */
static struct
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];	/* if it exists or may
													 * exist; else empty */
	char	   *wanted;			/* the text that it should have; NULL: it
								 * should not exist */
	char	   *sent;			/* the text that is under way */
	char	   *written;		/* the text that was acknowledged; NULL if not
								 * known */
	ZklAsker	asker;			/* has one ask at most */
	int64		again_at;		/* after a refusal: when to try again; else 0 */
}			node;

/* What the search for deadlocks wants one record to say. */
typedef struct Mark
{
	int64		claim;			/* the record's claim; 0: the mark is free */
	int64		search;
	int			nconfirms;
	int64		confirms[ZKL_WAITRECORD_CONFIRMS];
	uint32		asked[ZKL_WAITRECORD_CONFIRMS]; /* for each nonce: the number
												 * of the request to confirm
												 * it */
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
	List	   *holds[ZKL_WAITRECORD_WAITS];	/* of ZklWaitHold */
} Building;

static char directory[ZKL_ROOT_SIZE + sizeof(ZKL_PATH_WAITS)];
static uint64 acknowledged = 0; /* how many writes of the records were
								 * acknowledged */
static bool refusal_logged = false;

static Mark marks[ZKL_WAITRECORD_WAITS];
static uint64 seen_changes = 0;
static bool must_build = true;
static bool built_with_detection = true;
static bool truncated_logged = false;
static int	timeout_ms = 0;

static bool is_due(void);
static bool is_of_session(void);
static void send_next(void);
static void begin_step(Step step);
static void on_written(ZklAsker *asker, int what, int64 number,
					   const ZklSessionEvent *event);
static void note_written(void);
static void set_text(char **text, const char *value);
static char *build_records(void);
static void collect_holders(Building *building);
static int	compare_holders(const void *one, const void *other);
static void add_holds(ZklEntry *entry, void *arg);
static void add_hold(Building *building, int record, const ZklEntry *entry,
					 const ZklClaim *claim, int64 since);
static void add_records(Building *building, bool large);
static bool is_large(const Building *building, int number);
static void add_record(Building *building, int number);
static Mark *find_mark(int64 claim, bool make);
static void drop_marks(const Building *building);

void
zkl_wait_publisher_start(const char *prefix)
{
	snprintf(directory, sizeof(directory), "%s" ZKL_PATH_WAITS,
			 prefix);

	/*
	 * The previous worker may have left a znode in the session that this
	 * worker continues.
	 */
	node.asker.answered = on_written;
	node.asker.urgent = true;
	if (zkl_session_info->id != 0)
		zkl_session_text_name(zkl_session_info->id, node.name);
}

const char *
zkl_wait_publisher_directory(void)
{
	return directory;
}

const char *
zkl_wait_publisher_text(uint64 *serial)
{
	*serial = acknowledged;
	return is_of_session() ? node.written : NULL;
}

static void
set_text(char **text, const char *value)
{
	if (*text !=NULL)
		pfree(*text);
	*text = value ? MemoryContextStrdup(TopMemoryContext, value) : NULL;
}

void
zkl_wait_publisher_send(void)
{
	if (!zkl_session_is_usable())
		return;
	if (must_build || zkl_waits_changes() != seen_changes ||
		built_with_detection != zkl_deadlock_detection)
		set_text(&node.wanted, build_records());
	if (is_due())
		send_next();
}

int64
zkl_wait_publisher_wake_at(void)
{
	return node.again_at != 0 ? node.again_at : PG_INT64_MAX;
}

/* Is there something to send for the znode? */
static bool
is_due(void)
{
	if (node.asker.outstanding > 0 ||
		(node.again_at != 0 && zkl_now() < node.again_at))
		return false;
	if (node.wanted == NULL)
		return node.name[0] != '\0';
	return node.written == NULL ||
		strcmp(node.wanted, node.written) != 0 || !is_of_session();
}

/* Is the znode one of the present session? */
static bool
is_of_session(void)
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];

	zkl_session_text_name(zkl_session_info->id, name);
	return strcmp(node.name, name) == 0;
}

/*
 * In a new session, the znode has another name.  Delete the znode with the
 * old name first, because the old session may not have ended in ZooKeeper.
 */
static void
send_next(void)
{
	node.again_at = 0;
	if (node.name[0] != '\0' &&
		(node.wanted == NULL || !is_of_session()))
		begin_step(STEP_DELETE);
	else if (node.name[0] != '\0')
		begin_step(STEP_WRITE);
	else
	{
		zkl_session_text_name(zkl_session_info->id, node.name);
		begin_step(STEP_CREATE);
	}
}

static void
begin_step(Step step)
{
	char		path[NODE_PATH_SIZE];

	snprintf(path, sizeof(path), "%s/%s", directory, node.name);
	set_text(&node.sent, node.wanted);
	switch (step)
	{
		case STEP_CREATE:
			zkl_ask_create(&node.asker, step, path, node.wanted,
						   ZKL_CREATE_EPHEMERAL);
			break;
		case STEP_WRITE:
			zkl_ask_write(&node.asker, step, path, node.wanted, -1);
			break;
		case STEP_DELETE:
			zkl_ask_delete(&node.asker, step, path);
			break;
	}
	zkl_ask_send_urgent(&node.asker);
	ZKL_FAULT_POINT("waits-sent");
}

/*
 * ABSENT after a write means that the znode is gone, with the session that
 * created it.
 */
static void
on_written(ZklAsker *asker, int what, int64 number,
		   const ZklSessionEvent *event)
{
	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			if (what == STEP_DELETE)
				node.name[0] = '\0';
			note_written();
			break;
		case ZKL_OUTCOME_ABSENT:
			node.name[0] = '\0';
			set_text(&node.sent, NULL);
			note_written();
			break;
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
		case ZKL_OUTCOME_UNDONE:

			/* The znode exists, or may exist. */
			set_text(&node.written, NULL);
			break;
		case ZKL_OUTCOME_REFUSED:
			set_text(&node.written, NULL);
			if (!refusal_logged)
				ereport(LOG,
						errmsg("could not publish waits in ZooKeeper"),
						errdetail("Deadlocks across servers are not found."));
			refusal_logged = true;
			node.again_at = zkl_now() + AGAIN_AFTER;
			break;
	}
}

/* The text that was sent last is acknowledged; NULL: there is no znode. */
static void
note_written(void)
{
	refusal_logged = false;
	set_text(&node.written, node.sent);
	acknowledged++;
	ZKL_FAULT_POINT("waits-acknowledged");
}

/*
 * The records
 */

/*
 * Build the text of the records as they are now; NULL if there are none.
 * Read the number of changes first: a later change then causes another build.
 */
static char *
build_records(void)
{
	Building	building = {0};
	char	   *text = NULL;

	seen_changes = zkl_waits_changes();
	must_build = false;
	building.set = palloc0(sizeof(ZklWaitSet));
	building.set->instance = zkl_session_info->instance;
	building.set->server = zkl_settings_node_name();
	built_with_detection = zkl_deadlock_detection;
	if (zkl_deadlock_detection)
		building.nwaits = zkl_waits_get(&building.waits);
	if (building.nwaits > 0)
	{
		collect_holders(&building);
		zkl_lock_table_visit(LW_SHARED, add_holds, &building);
	}
	timeout_ms = INT_MAX;
	for (int i = 0; i < building.nwaits; i++)
		timeout_ms = Min(timeout_ms, building.waits[i].timeout_ms);
	add_records(&building, false);
	add_records(&building, true);
	drop_marks(&building);

	if (building.set->nrecords > 0)
	{
		text = palloc(ZKL_PATH_WAITS_SIZE);

		zkl_wait_record_format(building.set, text, ZKL_PATH_WAITS_SIZE);
	}
	if (building.set->truncated && !truncated_logged)
		ereport(LOG,
				errmsg("too many waits to publish all of them"),
				errdetail("Deadlocks across servers are not found as long as waits or locks that are left out are part of them."));
	truncated_logged = building.set->truncated;
	return text;
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
	return ((const Holder *) one)->who.pid - ((const Holder *) other)->who.pid;
}

/* The entry's partition is locked, so only copy here. */
static void
add_holds(ZklEntry *entry, void *arg)
{
	Building   *building = arg;
	dlist_iter	iter;

	if (zkl_lock_entry_is_lease(entry))
		return;
	dlist_foreach(iter, &entry->claims)
	{
		const ZklClaim *claim = dlist_container(ZklClaim, link, iter.cur);
		Holder		key = {.who.pid = claim->pid};
		Holder	   *holder;

		holder = claim->state != ZKL_CLAIM_HELD ? NULL :
			bsearch(&key, building->holders, building->nholders,
					sizeof(Holder), compare_holders);
		if (holder == NULL)
			continue;
		/* Several holders may have this pid; begin with the first. */
		while (holder > building->holders && holder[-1].who.pid == claim->pid)
			holder--;
		for (; holder < building->holders + building->nholders &&
			 holder->who.pid == claim->pid; holder++)
			add_hold(building, holder->record, entry, claim, holder->who.since);
	}
}

/*
 * The claim may be in doubt.  If the claim is lost, the session has expired,
 * and no later write of this session can publish the claim.
 */
static void
add_hold(Building *building, int record, const ZklEntry *entry,
		 const ZklClaim *claim, int64 since)
{
	const ZklWaitInfo *wait = &building->waits[record];
	ZklWaitHold *hold;

	if (!zkl_waits_hold_up(wait->mode, wait->path, claim))
		return;
	hold = palloc(sizeof(ZklWaitHold));
	hold->claim = claim->token;
	hold->pid = claim->pid;
	hold->is_use = claim->is_use;
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
}

/*
 * Put waits that take more than their share of the room last, so that a
 * single wait does not keep all others out.
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

/* Estimate with the lengths of the texts before encoding; few have to be encoded. */
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
		strlen(building->waits[number].owner_text);
	return length > ZKL_PATH_WAITS_SIZE / ZKL_WAITRECORD_WAITS ||
		list_length(building->holds[number]) > ZKL_WAITRECORD_HOLDS / ZKL_WAITRECORD_WAITS;
}

/*
 * If the holders of a wait have released everything meanwhile, the wait holds
 * nothing up.  Its backend withdraws the wait at its next look.
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
	record->since = wait->since + ZKL_POSTGRES_EPOCH;
	record->owner_text = wait->owner_text;
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
 * The marks that the search wants in records
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

int
zkl_wait_publisher_timeout_ms(void)
{
	return timeout_ms;
}

void
zkl_wait_publisher_set_search(int64 claim, int64 nonce)
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
zkl_wait_publisher_set_confirms(int64 claim, const int64 *nonces, int nnonces)
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
zkl_wait_publisher_forget_searches(void)
{
	for (int i = 0; i < lengthof(marks); i++)
	{
		if (marks[i].claim != 0)
			must_build = true;
		marks[i].claim = 0;
	}
}
