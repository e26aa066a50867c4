/*-------------------------------------------------------------------------
 *
 * commandrunner.c
 *	  The worker's side of the commands of backends.
 *
 * A command that runs is a RUN: a list of items.  Each item is one request,
 * and they are sent in their order as the window allows.  Answers may append
 * items.  When the last one is answered, the run is finished.  If an answer
 * was lost with the connection, or if the data to replace have changed, the
 * whole run begins anew.
 *
 * There is one run for each slot (see mailbox.h).  An answer names the attempt
 * that it belongs to, so answers to an earlier attempt are recognized.
 *
 * src/worker/commandrunner.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "faultpoint.h"
#include "settings.h"
#include "shared/locktable.h"
#include "shared/mailbox.h"
#include "shared/snapshot.h"
#include "worker/commandrunner.h"

/*
 * A smaller window than that of sendqueue.c, so that tickets never wait for a
 * long survey.  But a few requests may always be on their way, however busy
 * the tickets are.
 */
#define WINDOW			64
#define ALWAYS			8

/*
 * A larger answer is of no use, and the backend has to keep it in memory, too.
 */
#define ANSWER_MAX		(64 * 1024 * 1024)
#define ITEMS_AT_FIRST	64

typedef enum ItemKind
{
	ITEM_QUORUM,
	ITEM_DIRECTORY_DATA,
	ITEM_CHILDREN,
	ITEM_NODE_DATA,
	ITEM_NODE_STAT,				/* if its data may not be read */
	ITEM_OLD_DATA,				/* REVOKE: of the child */
	ITEM_WRITE,
	ITEM_DELETE
} ItemKind;

typedef struct Item
{
	ItemKind	kind;
	ZklWhere	where;			/* CHILDREN */
	int			node;			/* NODE_...: index in the survey */
} Item;

typedef struct Run
{
	bool		active;
	uint32		generation;		/* of the slot */
	uint32		attempt;
	bool		again;			/* it may have been done already */
	ZklCommand	command;

	MemoryContext context;		/* of what follows; emptied at each attempt */
	Item	   *items;
	int			nitems;
	int			max_items;
	int			nsent;
	int			nanswered;
	ZklSnapshot survey;
	int			max_nodes;
	Size		size;			/* of the survey, about */
	const char *text;			/* to write ... */
	int			version;		/* ... instead of data with this; -1: any */
	ZklCommandOutcome outcome;	/* the worst so far */
} Run;

static Run	runs[ZKL_COMMANDS];
static int	next_run = 0;		/* the run whose turn it is to send */
static int	in_flight = 0;		/* requests on their way, those of runs that
								 * were stopped too */
static char prefix[ZKL_ROOT_SIZE];

static void take_commands(void);
static void begin_attempt(Run *run);
static void begin_items(Run *run);
static void add_item(Run *run, ItemKind kind, ZklWhere where, int node);
static bool may_send(void);
static bool send_next(Run *run);
static void send_item(Run *run, int number);
static const char *directory_of(const Run *run, ZklWhere where);
static void note_answer(Run *run, const Item *item,
						const ZklSessionEvent *event);
static ZklCommandOutcome outcome_of(const ZklSessionEvent *event);
static void note_children(Run *run, ZklWhere where,
						  const ZklSessionEvent *event);
static void add_node(Run *run, ZklWhere where, const char *name);
static void note_old_data(Run *run, const ZklSessionEvent *event);
static void note_node(Run *run, int number, const ZklSessionEvent *event);
static void finish(Run *run);
static void stop(Run *run);

void
zkl_command_runner_start(const char *directory_prefix)
{
	strlcpy(prefix, directory_prefix, sizeof(prefix));
	for (int i = 0; i < ZKL_COMMANDS; i++)
		runs[i].context = AllocSetContextCreate(TopMemoryContext,
												"zklock command",
												ALLOCSET_START_SMALL_SIZES);

	/*
	 * The replies to an earlier worker are lost, so its commands begin anew.
	 */
	zkl_mailbox_adopt();
}

void
zkl_command_runner_restarted(void)
{
	in_flight = 0;
	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		if (!runs[i].active)
			continue;
		/* What was sent may have been done, although its answer is lost. */
		runs[i].again |= runs[i].nsent > 0;
		begin_attempt(&runs[i]);
	}
}

/*
 * The runs take turns, one request each, so that a long survey does not keep
 * other runs waiting.
 */
void
zkl_command_runner_send(void)
{
	int			idle = 0;

	take_commands();

	/*
	 * A backend may have given its slot back meanwhile, because it was
	 * cancelled, say.  What is still to be sent for it would be in vain.
	 */
	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		if (runs[i].active && !zkl_mailbox_is_wanted(i, runs[i].generation))
			stop(&runs[i]);
	}
	/* Until a whole round of runs has nothing to send. */
	while (idle < ZKL_COMMANDS && may_send())
	{
		idle = send_next(&runs[next_run]) ? 0 : idle + 1;
		next_run = (next_run + 1) % ZKL_COMMANDS;
	}
}

int
zkl_command_runner_outstanding(void)
{
	return in_flight;
}

/* A run for an earlier generation of the slot is stopped. */
static void
take_commands(void)
{
	int			slot;
	uint32		generation;
	bool		again;
	ZklCommand	command;

	while (zkl_mailbox_take(&slot, &generation, &command, &again))
	{
		Run		   *run = &runs[slot];

		ZKL_FAULT_POINT("command-taken");
		stop(run);
		run->active = true;
		run->generation = generation;
		/* The deletes of an earlier worker may have been done. */
		run->again = again;
		run->command = command;
		begin_attempt(run);
	}
}

/*
 * Begin from the first item.  Answers to the attempt before are ignored from
 * now on, and what they told is forgotten.
 */
static void
begin_attempt(Run *run)
{
	MemoryContextReset(run->context);
	run->attempt++;
	run->items = NULL;
	run->nitems = run->max_items = 0;
	run->nsent = run->nanswered = 0;
	memset(&run->survey, 0, sizeof(run->survey));
	run->survey.data = "";
	run->max_nodes = 0;
	run->size = 0;
	run->text = run->command.data;
	/* Any version, until the present one has been read. */
	run->version = -1;
	run->outcome = ZKL_COMMAND_OK;
	begin_items(run);
}

/*
 * The items that are known from the start.  The answers to some of them add
 * more.
 */
static void
begin_items(Run *run)
{
	switch (run->command.kind)
	{
		case ZKL_COMMAND_SURVEY:
		case ZKL_COMMAND_LIST:

			/*
			 * The ZooKeeper server of this session may not know yet what
			 * other sessions have seen.
			 */
			if (run->command.kind == ZKL_COMMAND_SURVEY || zkl_sessions > 1)
				add_item(run, ITEM_QUORUM, ZKL_WHERE_LOCK, -1);
			add_item(run, ITEM_DIRECTORY_DATA, ZKL_WHERE_LOCK, -1);

			/*
			 * Whatever kind of lock the path is, its znodes are in one of
			 * these.
			 */
			for (int where = 0; where < ZKL_NWHERE; where++)
				add_item(run, ITEM_CHILDREN, where, -1);
			break;
		case ZKL_COMMAND_WRITE:
			add_item(run, ITEM_WRITE, ZKL_WHERE_LOCK, -1);
			break;
		case ZKL_COMMAND_REVOKE:
			/* The write follows when the present text is known. */
			add_item(run, ITEM_OLD_DATA, ZKL_WHERE_LOCK, -1);
			break;
		case ZKL_COMMAND_DELETE:
		case ZKL_COMMAND_FORGET:
			add_item(run, ITEM_DELETE, ZKL_WHERE_LOCK, -1);
			break;
		case ZKL_COMMAND_JOB:
			/* The name is known, so the node is there before its data. */
			add_node(run, ZKL_WHERE_LOCK, run->command.child);
			add_item(run, ITEM_NODE_DATA, ZKL_WHERE_LOCK, 0);
			break;
		case ZKL_COMMAND_JOBS:
			add_item(run, ITEM_QUORUM, ZKL_WHERE_LOCK, -1);
			add_item(run, ITEM_CHILDREN, ZKL_WHERE_LOCK, -1);
			break;
	}
}

static void
add_item(Run *run, ItemKind kind, ZklWhere where, int node)
{
	Item		item = {kind, where, node};

	if (run->nitems == run->max_items)
	{
		int			max_items = Max(ITEMS_AT_FIRST, 2 * run->max_items);
		Item	   *items = MemoryContextAllocHuge(run->context,
												   max_items * sizeof(Item));

		if (run->nitems > 0)
		{
			memcpy(items, run->items, run->nitems * sizeof(Item));
			pfree(run->items);
		}
		run->items = items;
		run->max_items = max_items;
	}
	run->items[run->nitems++] = item;
}

/*
 * Requests
 */

/* ALWAYS lets commands through while tickets fill the window. */
static bool
may_send(void)
{
	return zkl_session_is_usable() &&
		(zkl_session_outstanding() < WINDOW || in_flight < ALWAYS);
}

/* False if there is nothing to send. */
static bool
send_next(Run *run)
{
	if (!run->active || run->nsent == run->nitems)
		return false;

	/* Each request gets exactly one answer, which takes it off again. */
	in_flight++;
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
	send_item(run, run->nsent++);
	return true;
}

/*
 * Send the request that the item stands for.  Strings are in the context of
 * the worker's turn; the client copies them.  The answer comes back with run,
 * attempt and number, and so finds its item.
 */
static void
send_item(Run *run, int number)
{
	const Item *item = &run->items[number];
	ZklSessionAsk ask = {run, run->attempt, number};
	const char *directory = directory_of(run, item->where);
	const char *child = run->command.child;

	switch (item->kind)
	{
		case ITEM_QUORUM:
			zkl_session_ask_quorum(ask);
			break;
		case ITEM_DIRECTORY_DATA:
			zkl_session_ask_data(ask, directory, ZKL_SNAPSHOT_DATA_SIZE);
			break;
		case ITEM_CHILDREN:
			zkl_session_ask_children(ask, directory);
			break;
		case ITEM_NODE_DATA:
			zkl_session_ask_data(ask, psprintf("%s/%s", directory,
											   run->survey.nodes[item->node].name),
								 ZKL_SNAPSHOT_DATA_SIZE);
			break;
		case ITEM_NODE_STAT:
			zkl_session_ask_stat(ask, psprintf("%s/%s", directory,
											   run->survey.nodes[item->node].name));
			break;
		case ITEM_OLD_DATA:
			zkl_session_ask_data(ask, psprintf("%s/%s", directory, child),
								 ZKL_SNAPSHOT_DATA_SIZE);
			break;
		case ITEM_WRITE:
			zkl_session_ask_write(ask, child[0] == '\0' ? directory :
								  psprintf("%s/%s", directory, child),
								  run->text, run->version);
			break;
		case ITEM_DELETE:
			zkl_session_ask_delete(ask, psprintf("%s/%s", directory, child));
			break;
	}
}

static const char *
directory_of(const Run *run, ZklWhere where)
{
	static const char *const below[] = {
		[ZKL_WHERE_LOCK] = "",
		[ZKL_WHERE_LEASES] = "/" ZKL_LEASES,
		[ZKL_WHERE_LOCKS] = "/" ZKL_LOCKS,
	};

	/* The records of all jobs are in one directory. */
	if (run->command.kind == ZKL_COMMAND_JOB ||
		run->command.kind == ZKL_COMMAND_JOBS ||
		run->command.kind == ZKL_COMMAND_FORGET)
		return psprintf("%s" ZKL_JOBRECORD_DIRECTORY, prefix);
	return psprintf("%s%s%s", prefix, run->command.path, below[where]);
}

/*
 * Answers
 */

void
zkl_command_runner_handle(const ZklSessionEvent *event)
{
	Run		   *run = event->tag;

	/*
	 * The answer may be for a run that was stopped, or for an earlier
	 * attempt. It still frees its place in the window.
	 */
	in_flight--;
	if (!run->active || event->attempt != run->attempt)
		return;
	/* Each command may be done twice; mailbox.h says why. */
	if (event->reply.outcome == ZKL_OUTCOME_UNKNOWN ||
		event->reply.outcome == ZKL_OUTCOME_CHANGED)
	{
		run->again = true;
		begin_attempt(run);
		return;
	}

	/* The backend sees that its command makes progress, and waits on. */
	zkl_mailbox_note_heard(run - runs, run->generation);
	run->nanswered++;

	/*
	 * This may add items, so only then it is clear whether all are answered.
	 */
	note_answer(run, &run->items[event->item], event);
	if (run->nanswered == run->nitems)
		finish(run);
}

static void
note_answer(Run *run, const Item *item, const ZklSessionEvent *event)
{
	ZklCommandOutcome outcome = outcome_of(event);

	switch (item->kind)
	{
		case ITEM_NODE_DATA:
		case ITEM_NODE_STAT:
			note_node(run, item->node, event);
			return;
		case ITEM_CHILDREN:
			if (outcome == ZKL_COMMAND_OK)
				note_children(run, item->where, event);
			break;
		case ITEM_DIRECTORY_DATA:
			run->survey.exists = outcome == ZKL_COMMAND_OK;
			if (outcome == ZKL_COMMAND_OK)
			{
				run->survey.data = memcpy(MemoryContextAllocZero(run->context, event->data_length + 1),
										  event->data, event->data_length);
				run->survey.data_length = event->data_length;
			}
			break;
		case ITEM_DELETE:

			/*
			 * An earlier attempt has deleted the znode, and its answer was
			 * lost.
			 */
			if (outcome == ZKL_COMMAND_ABSENT && run->again)
				outcome = ZKL_COMMAND_OK;
			run->outcome = outcome;
			return;
		case ITEM_OLD_DATA:
			note_old_data(run, event);
			return;
		case ITEM_WRITE:
			/* The write is the last request of its run. */
			run->outcome = outcome;
			return;
		case ITEM_QUORUM:
			break;
	}

	/* A directory that is absent has no children, and that is an answer. */
	if (outcome != ZKL_COMMAND_ABSENT)
		run->outcome = Max(run->outcome, outcome);
}

/*
 * What an answer means for the backend.  The caller has dealt with lost
 * answers and changed data.
 */
static ZklCommandOutcome
outcome_of(const ZklSessionEvent *event)
{
	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			return ZKL_COMMAND_OK;
		case ZKL_OUTCOME_ABSENT:
			return ZKL_COMMAND_ABSENT;
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
		case ZKL_OUTCOME_REFUSED:
			break;
	}
	return event->reply.failure == ZKL_FAILURE_PERMISSION ?
		ZKL_COMMAND_DENIED : ZKL_COMMAND_REFUSED;
}

/* For a record, or a child that may be a contender, the znode is read too. */
static void
note_children(Run *run, ZklWhere where, const ZklSessionEvent *event)
{
	ZklContender contender;

	for (int i = 0; i < event->reply.nchildren; i++)
	{
		const char *name = event->reply.children[i];

		run->size += strlen(name) + sizeof(ZklSnapshotNode);

		/*
		 * The items that are there already run to their end; the backend then
		 * gets the error.
		 */
		if (run->size > ANSWER_MAX)
		{
			run->outcome = ZKL_COMMAND_TOO_LARGE;
			return;
		}
		add_node(run, where, name);
		if (run->command.kind == ZKL_COMMAND_JOBS ||
			(run->command.kind == ZKL_COMMAND_SURVEY &&
			 (where == ZKL_WHERE_LEASES || zkl_recipe_parse(name, &contender))))
			add_item(run, ITEM_NODE_DATA, where, run->survey.nnodes - 1);
	}
}

/* Append a znode to the survey, by name.  Its details may follow. */
static void
add_node(Run *run, ZklWhere where, const char *name)
{
	ZklSnapshot *survey = &run->survey;
	ZklSnapshotNode *node;

	if (survey->nnodes == run->max_nodes)
	{
		int			max_nodes = Max(ITEMS_AT_FIRST, 2 * run->max_nodes);
		ZklSnapshotNode *nodes = MemoryContextAllocHuge(run->context,
														max_nodes * sizeof(ZklSnapshotNode));

		if (survey->nnodes > 0)
		{
			memcpy(nodes, survey->nodes, survey->nnodes * sizeof(ZklSnapshotNode));
			pfree(survey->nodes);
		}
		survey->nodes = nodes;
		run->max_nodes = max_nodes;
	}
	node = &survey->nodes[survey->nnodes++];
	memset(node, 0, sizeof(*node));
	node->where = where;
	node->name = MemoryContextStrdup(run->context, name);
}

/*
 * A znode that has vanished meanwhile loses its name, and so is not in the
 * answer.  A znode whose data may not be read still has a Stat, which every
 * client may read.
 */
static void
note_node(Run *run, int number, const ZklSessionEvent *event)
{
	ZklSnapshotNode *node = &run->survey.nodes[number];
	ItemKind	kind = run->items[event->item].kind;

	switch (outcome_of(event))
	{
		case ZKL_COMMAND_OK:
			break;
		case ZKL_COMMAND_ABSENT:
			node->name = NULL;
			return;
		default:
			if (kind == ITEM_NODE_DATA)
				add_item(run, ITEM_NODE_STAT, node->where, number);
			return;
	}

	/* From here on the backend gets what the Stat says. */
	node->detailed = true;
	node->czxid = event->reply.czxid;
	node->version = event->reply.version;
	node->ctime_ms = event->ctime_ms;
	node->owner = event->owner;
	if (kind == ITEM_NODE_STAT)
		return;
	node->data = memcpy(MemoryContextAllocZero(run->context, event->data_length + 1),
						event->data, event->data_length);
	node->data_length = event->data_length;
	run->size += node->data_length;
	/* The outcome says so; the answer itself is not packed. */
	if (run->size > ANSWER_MAX)
		run->outcome = ZKL_COMMAND_TOO_LARGE;
}

/*
 * For Curator, the text must be equal to its word.  A znode of zklock keeps
 * its own text, which names the holder, and a mark is added.  If the holder
 * writes meanwhile, this write finds other data than it read, and the run
 * begins anew.
 */
static void
note_old_data(Run *run, const ZklSessionEvent *event)
{
	ZklCommandOutcome outcome = outcome_of(event);
	const char *name = strrchr(run->command.child, '/');
	bool		only_tries;

	/*
	 * ZooKeeper may forbid to read the text and still allow to write it. Then
	 * the write takes any version.
	 */
	run->outcome = outcome == ZKL_COMMAND_DENIED ? ZKL_COMMAND_OK : outcome;
	if (run->outcome != ZKL_COMMAND_OK)
		return;
	run->text = ZKL_REVOKE;
	if (outcome == ZKL_COMMAND_OK)
	{
		/* The release has been requested already, so the run ends here. */
		if (zkl_recipe_is_revoked(event->data, event->data_length))
			return;
		run->version = event->reply.version;
		if (zkl_recipe_is_zklock(name ? name + 1 : run->command.child, &only_tries) &&
			event->data_length > 0 && event->data_length <= ZKL_TEXT_SIZE)
			run->text = MemoryContextStrdup(run->context,
											psprintf("%s" ZKL_REQUESTED, event->data));
	}
	add_item(run, ITEM_WRITE, ZKL_WHERE_LOCK, -1);
}

/*
 * Hand the result to the backend.  Znodes that vanished during the run have no
 * name, and are left out.
 */
static void
finish(Run *run)
{
	StringInfoData packed = {0};
	ZklSnapshot *survey = &run->survey;
	int			nnodes = 0;

	if (run->outcome == ZKL_COMMAND_OK &&
		(run->command.kind == ZKL_COMMAND_LIST ||
		 run->command.kind == ZKL_COMMAND_SURVEY ||
		 run->command.kind == ZKL_COMMAND_JOB ||
		 run->command.kind == ZKL_COMMAND_JOBS))
	{
		for (int i = 0; i < survey->nnodes; i++)
		{
			if (survey->nodes[i].name != NULL)
				survey->nodes[nnodes++] = survey->nodes[i];
		}
		survey->nnodes = nnodes;
		initStringInfo(&packed);
		zkl_snapshot_pack(survey, &packed);
	}
	ZKL_FAULT_POINT("command-answered");
	zkl_mailbox_finish(run - runs, run->generation, run->outcome, packed.data,
					   packed.len);
	stop(run);
}

/*
 * The run ends, and late answers find another attempt.  Its slot of the
 * mailbox is not touched.
 */
static void
stop(Run *run)
{
	run->active = false;
	run->attempt++;
	MemoryContextReset(run->context);
}
