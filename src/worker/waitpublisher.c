/*-------------------------------------------------------------------------
 *
 * waitpublisher.c
 *	  Publishes this server's waits, for the search for deadlocks.
 *
 * What the records say is built anew whenever a wait has changed (waits.h).
 * Each znode has at most one request under way.  What has changed meanwhile
 * goes out when that is answered, so the number of writes is bounded by the
 * speed of ZooKeeper, however many waits come and go.
 *
 * A znode whose last answer was lost may exist or not, and say anything.  Then
 * it is written again, or deleted again.
 *
 * src/worker/waitpublisher.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "faultpoint.h"
#include "settings.h"
#include "shared/jobruns.h"
#include "shared/locktable.h"
#include "shared/waits.h"
#include "worker/waitpublisher.h"

/* After ZooKeeper has refused a request. */
#define AGAIN_AFTER		ZKL_MS(5000)

/* What a wait or a hold takes in the text, besides its path. */
#define FRAME			100

#define NODE_PATH_SIZE	(ZKL_ROOT_SIZE + sizeof(ZKL_WAITRECORD_DIRECTORY) + ZKL_WAITRECORD_NAME_SIZE + 1)

typedef enum Step
{
	STEP_NONE,					/* no request is under way */
	STEP_CREATE,
	STEP_WRITE,
	STEP_DELETE
} Step;

/* The znode of one of this server's sessions. */
typedef struct Znode
{
	char		name[ZKL_WAITRECORD_NAME_SIZE]; /* it exists, or may; empty:
												 * it does not exist */
	char	   *wanted;			/* its text; NULL: it shall not exist */
	char	   *sent;			/* under way */
	char	   *written;		/* as acknowledged; NULL: not known */
	Step		step;
	uint32		attempt;		/* tags requests */
	bool		no_directory;	/* the directories must be made first */
	int64		again_at;		/* after a refusal: when to try again */
} Znode;

/* What the search wants of a record. */
typedef struct Mark
{
	int64		claim;			/* the record's; 0: the mark is free */
	int64		search;
	int			nconfirms;
	int64		confirms[ZKL_WAITRECORD_CONFIRMS];
	uint32		asked[ZKL_WAITRECORD_CONFIRMS]; /* the request for each */
} Mark;

static char directory[ZKL_ROOT_SIZE + sizeof(ZKL_WAITRECORD_DIRECTORY)];
static Znode nodes[ZKL_SESSIONS_MAX];	/* for each session */
static Mark marks[ZKL_WAITRECORD_WAITS];
static uint64 seen_changes = 0;
static bool must_build = false;
static int64 build_at = PG_INT64_MAX;	/* a hold was in doubt: look again */
static bool truncated_logged = false;
static int	timeout_ms = 0;

static uint64 acknowledged = 0; /* writes of the records */
static bool built_with_detection = true;
static bool refusal_logged = false;

/* The set that is being built. */
typedef struct Building
{
	ZklWaitInfo *waits;
	int			nwaits;
	ZklWaitSet *set;
	bool		sessions[ZKL_SESSIONS_MAX]; /* those that own what is held */
	bool		any_in_doubt;	/* a hold is left out because of that */
	List	   *holds[ZKL_WAITRECORD_WAITS];	/* of ZklWaitHold */
} Building;

static void build(void);
static void add_holds(ZklEntry *entry, void *arg);
static void add_hold(Building *building, int record, const ZklEntry *entry,
					 const ZklClaim *claim, int64 since);
static void add_records(Building *building, bool large);
static bool is_large(const Building *building, int number);
static void add_record(Building *building, int number);
static Mark *find_mark(int64 claim, bool make);
static void drop_marks(const Building *building);
static void want(int session, const char *text);
static bool is_due(const Znode *node);
static void send_next(Znode *node);
static void begin_step(Znode *node, Step step);
static void on_written(Znode *node, const ZklSessionEvent *event);
static void note_written(Znode *node);
static void set_text(char **text, const char *value);

void
zkl_wait_publisher_start(const char *prefix)
{
	snprintf(directory, sizeof(directory), "%s" ZKL_WAITRECORD_DIRECTORY,
			 prefix);

	/*
	 * The worker before this one may have left znodes of the session that is
	 * carried on.
	 */
	for (int i = 0; i < zkl_sessions; i++)
	{
		int64		id = zkl_lock_table->session[i].id;

		if (id != 0 && zkl_session_info_mine->id != 0)
			zkl_wait_record_name(id, nodes[i].name);
	}
	must_build = true;
}

/*
 * Requests that were under way may have been done.  If the session has
 * expired, the znodes are gone; then a write or a delete finds none.
 */
void
zkl_wait_publisher_restarted(void)
{
	for (int i = 0; i < zkl_sessions; i++)
	{
		nodes[i].attempt++;
		nodes[i].step = STEP_NONE;
		set_text(&nodes[i].written, NULL);
	}
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
	return nodes[0].written;
}

int
zkl_wait_publisher_timeout_ms(void)
{
	return timeout_ms;
}

/*
 * What the records say
 */

/*
 * The number of changes is read first: what changes after that is built the
 * next time.
 */
static void
build(void)
{
	Building	building = {0};
	char	   *text = palloc(ZKL_WAITRECORD_TEXT_SIZE);
	char		name[ZKL_WAITRECORD_NAME_SIZE];

	seen_changes = zkl_waits_changes();
	must_build = false;
	building.set = palloc0(sizeof(ZklWaitSet));
	building.set->instance = zkl_waits_instance();
	building.set->server = zkl_settings_node_name();
	built_with_detection = zkl_deadlock_detection;
	if (zkl_deadlock_detection)
		building.nwaits = zkl_waits_get(&building.waits);
	if (building.nwaits > 0)
		zkl_lock_table_visit(ZKL_ALL_SESSIONS, LW_SHARED, add_holds, &building);
	timeout_ms = INT_MAX;
	for (int i = 0; i < building.nwaits; i++)
		timeout_ms = Min(timeout_ms, building.waits[i].timeout_ms);
	add_records(&building, false);
	add_records(&building, true);
	drop_marks(&building);
	build_at = building.any_in_doubt ? zkl_now() + ZKL_MS(timeout_ms) :
		PG_INT64_MAX;

	if (building.set->nrecords > 0)
		zkl_wait_record_format(building.set, text, ZKL_WAITRECORD_TEXT_SIZE);
	want(0, building.set->nrecords > 0 ? text : NULL);
	zkl_wait_record_name(zkl_session_info_mine->id, name);
	for (int i = 1; i < zkl_sessions; i++)
		want(i, building.set->nrecords > 0 && building.sessions[i] ?
			 psprintf(ZKL_WAIT_PUBLISHER_SEE "%s", name) : NULL);

	if (building.set->truncated && !truncated_logged)
		ereport(LOG,
				errmsg("too many waits to publish all of them"),
				errdetail("Deadlocks across servers are not found as long as the waits that are left out are part of them."));
	truncated_logged = building.set->truncated;
}

/* All partitions are locked, so this only copies. */
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
		for (int i = 0; i < Min(building->nwaits, ZKL_WAITRECORD_WAITS); i++)
		{
			const ZklWaitInfo *wait = &building->waits[i];

			for (int j = 0; j < wait->nholders; j++)
			{
				if (wait->holders[j].pid == claim->pid)
					add_hold(building, i, entry, claim, wait->holders[j].since);
			}
		}
	}
}

/*
 * A claim that is in doubt may be lost already, and another client may hold the
 * lock.  With a pool, only the session that carries the claim knows.
 */
static void
add_hold(Building *building, int record, const ZklEntry *entry,
		 const ZklClaim *claim, int64 since)
{
	ZklWaitHold *hold;

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
	building->holds[record] = lappend(building->holds[record], hold);
	building->sessions[entry->session] = true;
}

/*
 * The waits that take more than their share of the room come last, so that one of
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

/* Texts count as they are; few have to be encoded. */
static bool
is_large(const Building *building, int number)
{
	Size		length = FRAME;
	ListCell   *cell;

	/* These are left out, in whatever order. */
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
 * A wait whose holders have released everything meanwhile holds nothing up.
 * Its backend withdraws it at its next look.
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
	{
		set->truncated = true;
		return;
	}
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
			/* "asked" is 0 if the wait had ended when it was asked. */
			if (mark->asked[i] != 0 && wait->computed >= mark->asked[i])
				record->confirms[record->nconfirms++] = mark->confirms[i];
		}
	}
	record->first_hold = set->nholds;
	foreach(cell, building->holds[number])
	{
		set->holds[set->nholds++] = *(ZklWaitHold *) lfirst(cell);
		record->nholds++;
	}
	set->nrecords++;
}

/*
 * What the search wants
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

/* Waits that have ended need none any more. */
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
zkl_wait_publisher_set_search(int64 claim, int64 nonce)
{
	Mark	   *mark = find_mark(claim, nonce != 0);

	if (mark == NULL || mark->search == nonce)
		return;
	mark->search = nonce;
	must_build = true;
}

/*
 * A nonce that is new makes the backend compute again; its answer is a change
 * of the wait, which is then published.
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

/*
 * The znodes
 */

/* Make a text what the znode shall say; NULL: it shall not exist. */
static void
want(int session, const char *text)
{
	set_text(&nodes[session].wanted, text);
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
		built_with_detection != zkl_deadlock_detection || zkl_now() >= build_at)
		build();
	for (int i = 0; i < zkl_sessions; i++)
	{
		if (is_due(&nodes[i]))
			send_next(&nodes[i]);
	}
}

int64
zkl_wait_publisher_wake_at(void)
{
	int64		at = build_at;

	for (int i = 0; i < zkl_sessions; i++)
	{
		if (nodes[i].again_at != 0)
			at = Min(at, nodes[i].again_at);
	}
	return at;
}

/* Is there something to send for this znode? */
static bool
is_due(const Znode *node)
{
	if (node->step != STEP_NONE ||
		(node->again_at != 0 && zkl_now() < node->again_at))
		return false;
	if (node->wanted == NULL)
		return node->name[0] != '\0';
	return node->written == NULL || strcmp(node->wanted, node->written) != 0;
}

/*
 * A session that has expired has another name now.  The znode of its old name
 * goes first: a further session's znode is the first session's, and stays.
 */
static void
send_next(Znode *node)
{
	char		name[ZKL_WAITRECORD_NAME_SIZE];
	int64		id = zkl_lock_table->session[node - nodes].id;

	zkl_wait_record_name(id, name);
	node->again_at = 0;
	if (node->name[0] != '\0' &&
		(node->wanted == NULL || strcmp(node->name, name) != 0))
		begin_step(node, STEP_DELETE);
	else if (node->name[0] != '\0')
		begin_step(node, STEP_WRITE);
	else if (id != 0)
	{
		strlcpy(node->name, name, sizeof(node->name));
		begin_step(node, STEP_CREATE);
	}
}

static void
begin_step(Znode *node, Step step)
{
	ZklSessionAsk ask = {node, ++node->attempt, step};
	char		path[NODE_PATH_SIZE];

	snprintf(path, sizeof(path), "%s/%s", directory, node->name);
	node->step = step;
	set_text(&node->sent, node->wanted);
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
	switch (step)
	{
		case STEP_NONE:
			break;
		case STEP_CREATE:
			zkl_session_create_ephemeral(ask, path, node->wanted,
										 node->no_directory);
			break;
		case STEP_WRITE:
			zkl_session_ask_write(ask, path, node->wanted, -1);
			break;
		case STEP_DELETE:
			zkl_session_ask_delete(ask, path);
			break;
	}
	ZKL_FAULT_POINT("waits-sent");
}

bool
zkl_wait_publisher_handle(const ZklSessionEvent *event)
{
	Znode	   *node = event->tag;

	if (node < nodes || node >= nodes + lengthof(nodes))
		return false;
	if (event->attempt == node->attempt)
		on_written(node, event);
	return true;
}

/*
 * ABSENT after a create means that the directory is missing; after a write,
 * that the znode is, with the session that made it.
 */
static void
on_written(Znode *node, const ZklSessionEvent *event)
{
	Step		step = node->step;

	node->step = STEP_NONE;
	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			if (step == STEP_DELETE)
				node->name[0] = '\0';
			note_written(node);
			break;
		case ZKL_OUTCOME_ABSENT:
			node->no_directory = step == STEP_CREATE;
			node->name[0] = '\0';
			set_text(&node->sent, NULL);
			note_written(node);
			break;
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:

			/* It exists, or may exist. */
			set_text(&node->written, NULL);
			break;
		case ZKL_OUTCOME_REFUSED:
			set_text(&node->written, NULL);
			if (!refusal_logged)
				ereport(LOG,
						errmsg("could not publish waits in ZooKeeper"),
						errdetail("Deadlocks across servers are not found."));
			refusal_logged = true;
			node->again_at = zkl_now() + AGAIN_AFTER;
			break;
	}
}

/* What was sent last is acknowledged; NULL: that there is no znode. */
static void
note_written(Znode *node)
{
	refusal_logged = false;
	set_text(&node->written, node->sent);
	if (node == nodes)
		acknowledged++;
	ZKL_FAULT_POINT("waits-acknowledged");
}
