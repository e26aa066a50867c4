/*-------------------------------------------------------------------------
 *
 * commandrun.c
 *	  One command of a backend: its requests, and what their answers mean.
 *
 * src/worker/commandrun.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "protocol/jobrecord.h"
#include "protocol/waitrecord.h"
#include "settings.h"
#include "worker/commandrun.h"
#include "worker/sessionnews.h"

/*
 * A larger answer is of no use, and the backend has to keep it in memory, too.
 */
#define ANSWER_MAX		(64 * 1024 * 1024)
#define ITEMS_AT_FIRST	64

static char prefix[ZKL_ROOT_SIZE];

static void begin_items(ZklCommandRun *run);
static void add_item(ZklCommandRun *run, ZklItemKind kind, ZklWhere where,
					 int node);
static const char *directory_of(const ZklCommandRun *run, ZklWhere where);
static ZklCommandOutcome outcome_of(const ZklSessionEvent *event);
static void note_children(ZklCommandRun *run, ZklWhere where,
						  const ZklSessionEvent *event);
static void add_node(ZklCommandRun *run, ZklWhere where, const char *name);
static bool still_expected(const ZklCommandRun *run,
						   const ZklSessionEvent *event);
static void note_old_data(ZklCommandRun *run, const ZklSessionEvent *event);
static void note_node(ZklCommandRun *run, int number,
					  const ZklSessionEvent *event);

void
zkl_command_run_set_prefix(const char *directory_prefix)
{
	strlcpy(prefix, directory_prefix, sizeof(prefix));
}

void
zkl_command_run_begin(ZklCommandRun *run)
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

void
zkl_command_run_note_refusal(ZklCommandRun *run)
{
	run->refused_version = run->version;
	run->refused_czxid = run->czxid;
}

/*
 * The items that are known from the start.  The answers to some of them add
 * more.
 */
static void
begin_items(ZklCommandRun *run)
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
				add_item(run, ZKL_ITEM_QUORUM, ZKL_WHERE_LOCK, -1);
			add_item(run, ZKL_ITEM_DIRECTORY_DATA, ZKL_WHERE_LOCK, -1);

			/*
			 * Whatever kind of lock the path is, its znodes are in one of
			 * these.
			 */
			for (int where = 0; where < ZKL_NWHERE; where++)
				add_item(run, ZKL_ITEM_CHILDREN, where, -1);
			break;
		case ZKL_COMMAND_WRITE:
			add_item(run, ZKL_ITEM_WRITE, ZKL_WHERE_LOCK, -1);
			break;
		case ZKL_COMMAND_REVOKE:
			/* The write follows when the present text is known. */
			add_item(run, ZKL_ITEM_OLD_DATA, ZKL_WHERE_LOCK, -1);
			break;
		case ZKL_COMMAND_DELETE:
		case ZKL_COMMAND_FORGET:
			add_item(run, ZKL_ITEM_DELETE, ZKL_WHERE_LOCK, -1);
			break;
		case ZKL_COMMAND_READ:
		case ZKL_COMMAND_JOB:
			/* The name is known, so the node is there before its data. */
			add_node(run, ZKL_WHERE_LOCK, run->command.child);
			add_item(run, ZKL_ITEM_NODE_DATA, ZKL_WHERE_LOCK, 0);
			break;
		case ZKL_COMMAND_JOBS:
		case ZKL_COMMAND_WAITS:
			add_item(run, ZKL_ITEM_QUORUM, ZKL_WHERE_LOCK, -1);
			add_item(run, ZKL_ITEM_CHILDREN, ZKL_WHERE_LOCK, -1);
			break;
	}
}

static void
add_item(ZklCommandRun *run, ZklItemKind kind, ZklWhere where, int node)
{
	ZklItem		item = {kind, where, node};

	if (run->nitems == run->max_items)
	{
		int			max_items = Max(ITEMS_AT_FIRST, 2 * run->max_items);
		ZklItem    *items = MemoryContextAllocHuge(run->context,
												   max_items * sizeof(ZklItem));

		if (run->nitems > 0)
		{
			memcpy(items, run->items, run->nitems * sizeof(ZklItem));
			pfree(run->items);
		}
		run->items = items;
		run->max_items = max_items;
	}
	run->items[run->nitems++] = item;
}

/*
 * Send the request that the item stands for.  Strings are in the context of
 * the worker's turn; the client copies them.  The answer comes back with run,
 * attempt and number, and so finds its item.
 */
void
zkl_command_run_send(ZklCommandRun *run)
{
	int			number = run->nsent++;
	const ZklItem *item = &run->items[number];
	ZklSessionAsk ask = {run, run->attempt, number};
	const char *directory = directory_of(run, item->where);
	const char *child = run->command.child;

	switch (item->kind)
	{
		case ZKL_ITEM_QUORUM:
			zkl_session_ask_quorum(ask);
			break;
		case ZKL_ITEM_DIRECTORY_DATA:
			zkl_session_ask_data(ask, directory, ZKL_SNAPSHOT_DATA_SIZE);
			break;
		case ZKL_ITEM_CHILDREN:
			zkl_session_ask_children(ask, directory);
			break;
		case ZKL_ITEM_NODE_DATA:
			zkl_session_ask_data(ask, psprintf("%s/%s", directory,
											   run->survey.nodes[item->node].name),
								 run->command.kind == ZKL_COMMAND_WAITS ?
								 ZKL_WAITRECORD_TEXT_SIZE :
								 ZKL_SNAPSHOT_DATA_SIZE);
			break;
		case ZKL_ITEM_NODE_STAT:
			zkl_session_ask_stat(ask, psprintf("%s/%s", directory,
											   run->survey.nodes[item->node].name));
			break;
		case ZKL_ITEM_OLD_DATA:
			zkl_session_ask_data(ask, psprintf("%s/%s", directory, child),
								 ZKL_SNAPSHOT_DATA_SIZE);
			break;
		case ZKL_ITEM_WRITE:
			zkl_session_ask_write(ask, child[0] == '\0' ? directory :
								  psprintf("%s/%s", directory, child),
								  run->text, run->version);
			break;
		case ZKL_ITEM_DELETE:
			zkl_session_ask_delete(ask, psprintf("%s/%s", directory, child));
			break;
	}
}

static const char *
directory_of(const ZklCommandRun *run, ZklWhere where)
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
	if (run->command.kind == ZKL_COMMAND_WAITS)
		return psprintf("%s" ZKL_WAITRECORD_DIRECTORY, prefix);
	return psprintf("%s%s%s", prefix, run->command.path, below[where]);
}

void
zkl_command_run_note(ZklCommandRun *run, const ZklSessionEvent *event)
{
	const ZklItem *item = &run->items[event->item];
	ZklCommandOutcome outcome = outcome_of(event);

	switch (item->kind)
	{
		case ZKL_ITEM_NODE_DATA:
		case ZKL_ITEM_NODE_STAT:
			note_node(run, item->node, event);
			return;
		case ZKL_ITEM_CHILDREN:
			if (outcome == ZKL_COMMAND_OK)
				note_children(run, item->where, event);
			break;
		case ZKL_ITEM_DIRECTORY_DATA:
			run->survey.exists = outcome == ZKL_COMMAND_OK;
			if (outcome == ZKL_COMMAND_OK)
			{
				run->survey.data = memcpy(MemoryContextAllocZero(run->context, event->data_length + 1),
										  event->data, event->data_length);
				run->survey.data_length = event->data_length;
			}
			break;
		case ZKL_ITEM_DELETE:

			/*
			 * An earlier attempt has deleted the znode, and its answer was
			 * lost.
			 */
			if (outcome == ZKL_COMMAND_ABSENT && run->again)
				outcome = ZKL_COMMAND_OK;
			run->outcome = outcome;
			return;
		case ZKL_ITEM_OLD_DATA:
			note_old_data(run, event);
			return;
		case ZKL_ITEM_WRITE:
			/* The write is the last request of its run. */
			run->outcome = outcome;
			return;
		case ZKL_ITEM_QUORUM:
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
note_children(ZklCommandRun *run, ZklWhere where, const ZklSessionEvent *event)
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
			run->command.kind == ZKL_COMMAND_WAITS ||
			(run->command.kind == ZKL_COMMAND_SURVEY &&
			 (where == ZKL_WHERE_LEASES || zkl_recipe_parse(name, &contender))))
			add_item(run, ZKL_ITEM_NODE_DATA, where, run->survey.nnodes - 1);
	}
}

/* Append a znode to the survey, by name.  Its details may follow. */
static void
add_node(ZklCommandRun *run, ZklWhere where, const char *name)
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
note_node(ZklCommandRun *run, int number, const ZklSessionEvent *event)
{
	ZklSnapshotNode *node = &run->survey.nodes[number];
	ZklItemKind kind = run->items[event->item].kind;

	switch (outcome_of(event))
	{
		case ZKL_COMMAND_OK:
			break;
		case ZKL_COMMAND_ABSENT:
			node->name = NULL;
			return;
		default:
			if (kind == ZKL_ITEM_NODE_DATA)
				add_item(run, ZKL_ITEM_NODE_STAT, node->where, number);
			return;
	}

	/* From here on the backend gets what the Stat says. */
	node->detailed = true;
	node->czxid = event->reply.czxid;
	node->version = event->reply.version;
	node->ctime_ms = event->ctime_ms;
	node->owner = event->owner;
	if (kind == ZKL_ITEM_NODE_STAT)
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
 * ZooKeeper has refused the write because of the version of the data, and shows
 * that version now.  ticket.h says why that cannot be, unless its servers differ.
 */
static bool
still_expected(const ZklCommandRun *run, const ZklSessionEvent *event)
{
	return run->refused_version >= 0 &&
		event->reply.version == run->refused_version &&
		event->reply.czxid == run->refused_czxid;
}

/*
 * For Curator, the text must be equal to its word.  A znode of zklock keeps
 * its own text, which names the holder, and a mark is added.  If the holder
 * writes meanwhile, this write finds other data than it read, and the run
 * begins anew.
 */
static void
note_old_data(ZklCommandRun *run, const ZklSessionEvent *event)
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
		if (still_expected(run, event))
		{
			zkl_session_news_difference(psprintf("%s/%s", directory_of(run, ZKL_WHERE_LOCK),
												 run->command.child));
			run->outcome = ZKL_COMMAND_DIFFERS;
			return;
		}
		run->version = event->reply.version;
		run->czxid = event->reply.czxid;
		if (zkl_recipe_is_zklock(name ? name + 1 : run->command.child, &only_tries) &&
			event->data_length > 0 && event->data_length <= ZKL_TEXT_SIZE)
			run->text = MemoryContextStrdup(run->context,
											psprintf("%s" ZKL_REQUESTED, event->data));
	}
	add_item(run, ZKL_ITEM_WRITE, ZKL_WHERE_LOCK, -1);
}

/*
 * Znodes that vanished during the run have no name, and are left out.
 */
void
zkl_command_run_pack(ZklCommandRun *run, StringInfo packed)
{
	ZklSnapshot *survey = &run->survey;
	int			nnodes = 0;

	if (run->outcome != ZKL_COMMAND_OK ||
		(run->command.kind != ZKL_COMMAND_LIST &&
		 run->command.kind != ZKL_COMMAND_SURVEY &&
		 run->command.kind != ZKL_COMMAND_READ &&
		 run->command.kind != ZKL_COMMAND_JOB &&
		 run->command.kind != ZKL_COMMAND_JOBS &&
		 run->command.kind != ZKL_COMMAND_WAITS))
		return;
	for (int i = 0; i < survey->nnodes; i++)
	{
		if (survey->nodes[i].name != NULL)
			survey->nodes[nnodes++] = survey->nodes[i];
	}
	survey->nnodes = nnodes;
	initStringInfo(packed);
	zkl_snapshot_pack(survey, packed);
}
