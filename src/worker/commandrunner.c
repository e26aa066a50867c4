/*-------------------------------------------------------------------------
 *
 * commandrunner.c
 *	  Carries out the commands of backends.
 *
 * A command that is carried out is a RUN; there is one for each slot of the
 * mailbox.  It makes several asks, and their answers may lead to more.  When
 * all its asks have answers, the run is finished.  If a reply was lost with
 * the connection, or if the data to replace have changed, the whole run begins
 * again.
 *
 * src/worker/commandrunner.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/memutils.h"

#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/listing.h"
#include "shared/locktable.h"
#include "shared/mailbox.h"
#include "worker/commandrunner.h"
#include "worker/request/ask.h"
#include "worker/request/sessionlog.h"

/*
 * The largest result: a larger one is of no use, and the backend would have
 * to keep it in memory as well.
 */
#define ANSWER_MAX		(64 * 1024 * 1024)
#define NODES_AT_FIRST	64

/*
 * Users are not shown longer queues.  The directories of locks below a lock
 * are also in the lock's directory, and any role may create as many of these
 * as it likes.
 */
#define CHILDREN_MAX	10000

/*
 * A command may itself be the reason why connections end.  So it ends after
 * this many connections; otherwise it would disturb all others for ever.
 */
#define LOST_MAX		5

/* What an ask of a run is for. */
typedef enum ItemKind
{
	ITEM_QUORUM,				/* a check by a quorum, before the reads */
	ITEM_DIRECTORY_DATA,		/* from here to CHILDREN, the number is a
								 * ZklWhere */
	ITEM_DIRECTORY_STAT,
	ITEM_CHILDREN,				/* children of the directory */
	ITEM_WALKED_STAT,			/* from here to NODE_STAT, the number is an
								 * index in the survey */
	ITEM_WALKED,				/* children */
	ITEM_NODE_DATA,
	ITEM_NODE_STAT,				/* of a znode whose data may not be read */
	ITEM_OLD_DATA,				/* REVOKE, QUERY: of the child */
	ITEM_OLD_STAT,				/* LIMIT: of the child */
	ITEM_WRITE,
	ITEM_DELETE
} ItemKind;

/* A run of a command.  Only the worker's process uses it, without a lock. */
typedef struct Run
{
	bool		active;
	uint32		serial;			/* of the slot */
	ZklAsker	asker;
	bool		again;			/* an earlier attempt may have done it already */
	int			nlost;			/* attempts that ended with the connection */
	ZklCommand	command;

	MemoryContext context;		/* context of all fields below; reset at each
								 * attempt */
	ZklListing	survey;
	int			max_nodes;
	Size		size;			/* approximate size of the survey */
	const char *text;			/* to write */
	int			version;		/* version of the data to overwrite; -1: any */
	int64		czxid;			/* of the znode, once its data were read */
	int			refused_version;	/* the version that an earlier attempt
									 * read before its write was refused; -1:
									 * none */
	int64		refused_czxid;
	ZklCommandOutcome outcome;	/* the worst outcome so far */
} Run;

static Run	runs[ZKL_COMMANDS];
static char prefix[ZKL_ROOT_SIZE];

static void take_command(const ZklTakenCommand *taken);
static void on_answer(ZklAsker *asker, int what, int64 number,
					  const ZklSessionEvent *answer);
static void finish(Run *run);
static void stop(Run *run);
static void begin(Run *run);
static void note_answer(Run *run, ItemKind kind, int64 number,
						const ZklSessionEvent *event);
static void pack(Run *run, StringInfo packed);
static void ask_first(Run *run);
static void ask_directories(Run *run);
static const char *target_of(const Run *run);
static char *copy_data(const Run *run, const ZklSessionEvent *event);
static void note_old_stat(Run *run, const ZklSessionEvent *event);
static bool is_walk(const Run *run);
static const char *path_of(const Run *run, int number);
static void ask_node(Run *run, ItemKind kind, int number);
static void ask_write(Run *run);
static const char *directory_of(const Run *run, ZklWhere where);
static ZklCommandOutcome outcome_of(const ZklSessionEvent *event);
static void note_directory(Run *run, ZklWhere where,
						   const ZklSessionEvent *event);
static bool may_walk(Run *run, int nchildren);
static void note_walked(Run *run, ItemKind kind, int number,
						const ZklSessionEvent *event);
static bool is_leaf(const Run *run, int directory, ZklWhere where,
					const char *name);
static void note_children(Run *run, ZklWhere where,
						  const ZklSessionEvent *event);
static bool add_node(Run *run, ZklWhere where, const char *name);
static bool note_size(Run *run, Size size);
static bool still_expected(const Run *run,
						   const ZklSessionEvent *event);
static void note_old_data(Run *run, const ZklSessionEvent *event);
static bool takes_marks(const Run *run, const ZklSessionEvent *event);
static void note_node(Run *run, ItemKind kind, int number,
					  const ZklSessionEvent *event);

void
zkl_command_runner_start(const char *directory_prefix)
{
	strlcpy(prefix, directory_prefix, sizeof(prefix));
	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		runs[i].asker.owner = &runs[i];
		runs[i].asker.answered = on_answer;
		runs[i].context = AllocSetContextCreate(TopMemoryContext,
												"zklock command",
												ALLOCSET_START_SMALL_SIZES);
	}

	/*
	 * The replies to an earlier worker are lost, so its commands begin again.
	 */
	zkl_mailbox_adopt();
}

void
zkl_command_runner_take(void)
{
	ZklTakenCommand taken;

	while (zkl_mailbox_take(&taken))
		take_command(&taken);

	/*
	 * A backend may have given its slot back meanwhile, for instance because
	 * it was cancelled.  Then the requests still to be sent for it are
	 * useless.
	 */
	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		if (runs[i].active && !zkl_mailbox_is_wanted(i, runs[i].serial))
			stop(&runs[i]);
		else if (runs[i].active && zkl_session_log_is_away() &&
				 runs[i].command.patience != ZKL_PATIENCE_WAIT)
		{
			/*
			 * Only a command that an acquire needs goes on, as long as the
			 * acquire waits.  For any other command, a reply will certainly
			 * not come.
			 */
			zkl_mailbox_finish(i, runs[i].serial, ZKL_COMMAND_AWAY, NULL, 0);
			stop(&runs[i]);
		}
	}
}

/* If the slot has a newer serial, stop the run for the earlier one. */
static void
take_command(const ZklTakenCommand *taken)
{
	Run		   *run = &runs[taken->slot];

	ZKL_FAULT_POINT("command-taken");
	stop(run);
	run->active = true;
	run->serial = taken->serial;
	run->asker.role = taken->role;
	/* An earlier worker may already have done the deletes. */
	run->again = taken->again;
	run->nlost = 0;
	run->command = taken->command;
	run->refused_version = -1;
	begin(run);
}

static void
on_answer(ZklAsker *asker, int what, int64 number,
		  const ZklSessionEvent *answer)
{
	Run		   *run = asker->owner;

	/* Each of these commands may be done twice; mailbox.h says why. */
	if (run->command.kind != ZKL_COMMAND_REPLACE &&
		(answer->reply.outcome == ZKL_OUTCOME_UNKNOWN ||
		 answer->reply.outcome == ZKL_OUTCOME_CHANGED))
	{
		run->again = true;
		if (answer->reply.outcome == ZKL_OUTCOME_CHANGED)
		{
			run->refused_version = run->version;
			run->refused_czxid = run->czxid;
		}
		else if (++run->nlost >= LOST_MAX)
		{
			run->outcome = ZKL_COMMAND_AWAY;
			finish(run);
			return;
		}
		begin(run);
		return;
	}

	/*
	 * Let the backend see that its command makes progress, so that it goes on
	 * waiting.
	 */
	zkl_mailbox_note_heard(run - runs, run->serial);

	/*
	 * This may make more asks, so check only afterwards whether all are
	 * answered.
	 */
	note_answer(run, what, number, answer);
	if (asker->outstanding == 0)
		finish(run);
}

/* Pass the result to the backend. */
static void
finish(Run *run)
{
	StringInfoData packed = {0};

	pack(run, &packed);
	ZKL_FAULT_POINT("command-answered");
	zkl_mailbox_finish(run - runs, run->serial, run->outcome, packed.data,
					   packed.len);
	stop(run);
}

/* End the run.  Its slot of the mailbox stays as it is. */
static void
stop(Run *run)
{
	run->active = false;
	zkl_ask_cancel(&run->asker);
	MemoryContextReset(run->context);
}

/*
 * One run: its requests, and what their answers mean
 */

/*
 * Begin an attempt.  All that the previous attempt has learnt is forgotten,
 * except what was refused.
 */
static void
begin(Run *run)
{
	zkl_ask_cancel(&run->asker);
	MemoryContextReset(run->context);
	memset(&run->survey, 0, sizeof(run->survey));
	run->survey.data = "";
	run->max_nodes = NODES_AT_FIRST;
	run->survey.nodes = MemoryContextAlloc(run->context,
										   NODES_AT_FIRST * sizeof(ZklListingNode));
	run->size = 0;
	run->text = run->command.data;
	/* Write over any version, until the run has read the present one. */
	run->version = -1;
	run->outcome = ZKL_COMMAND_OK;
	ask_first(run);
}

/*
 * Make the asks that are known from the start.  The answers to some of them
 * lead to more.
 */
static void
ask_first(Run *run)
{
	ZklAsker   *asker = &run->asker;

	switch (run->command.kind)
	{
		case ZKL_COMMAND_SURVEY:
		case ZKL_COMMAND_LIST:
			ask_directories(run);
			break;
		case ZKL_COMMAND_WRITE:
			ask_write(run);
			break;
		case ZKL_COMMAND_REPLACE:
			zkl_ask_put(asker, ITEM_WRITE, target_of(run), run->text,
						strlen(run->text), run->command.version);
			break;
		case ZKL_COMMAND_REVOKE:
		case ZKL_COMMAND_QUERY:
			/* The write follows when the run has read the present text. */
			zkl_ask_data(asker, ITEM_OLD_DATA, 0, target_of(run),
						 ZKL_LISTING_DATA_SIZE);
			break;
		case ZKL_COMMAND_LIMIT:
			/* The write follows when the run has read the present version. */
			zkl_ask_stat(asker, ITEM_OLD_STAT, 0, target_of(run));
			break;
		case ZKL_COMMAND_DELETE:
			zkl_ask_delete(asker, ITEM_DELETE, target_of(run));
			break;
		case ZKL_COMMAND_READ_NEWEST:
			zkl_ask_check(asker, ITEM_QUORUM);
			pg_fallthrough;
		case ZKL_COMMAND_READ:
			/* The name is known, so add the node before its data come. */
			(void) add_node(run, ZKL_WHERE_LOCK, run->command.child);
			ask_node(run, ITEM_NODE_DATA, 0);
			break;
		case ZKL_COMMAND_JOBS:
		case ZKL_COMMAND_WAITS:
			zkl_ask_check(asker, ITEM_QUORUM);
			zkl_ask_stat(asker, ITEM_DIRECTORY_STAT, ZKL_WHERE_LOCK,
						 directory_of(run, ZKL_WHERE_LOCK));
			break;
		case ZKL_COMMAND_SERVERS:
		case ZKL_COMMAND_WALK:
			zkl_ask_check(asker, ITEM_QUORUM);
			(void) add_node(run, ZKL_WHERE_LOCK, run->command.path);
			run->survey.nodes[0].is_directory = true;
			ask_node(run, ITEM_WALKED_STAT, 0);
			break;
	}
}

/*
 * The path may be any kind of lock; its znodes are in one of the lock's
 * directories.  The run lists a directory when it knows how long the list
 * will be.
 */
static void
ask_directories(Run *run)
{
	/*
	 * The connected ZooKeeper server may not know yet what other sessions
	 * have already seen.
	 */
	if (run->command.kind == ZKL_COMMAND_SURVEY)
		zkl_ask_check(&run->asker, ITEM_QUORUM);
	zkl_ask_data(&run->asker, ITEM_DIRECTORY_DATA, 0,
				 directory_of(run, ZKL_WHERE_LOCK), ZKL_LISTING_DATA_SIZE);
	for (int where = ZKL_WHERE_LOCK + 1; where < ZKL_NWHERE; where++)
		zkl_ask_stat(&run->asker, ITEM_DIRECTORY_STAT, where,
					 directory_of(run, where));
}

/* Read what the survey says about a znode, besides its name. */
static void
ask_node(Run *run, ItemKind kind, int number)
{
	const char *path = path_of(run, number);

	if (kind == ITEM_WALKED)
		zkl_ask_children(&run->asker, kind, number, path, false);
	else if (kind == ITEM_NODE_STAT || kind == ITEM_WALKED_STAT)
		zkl_ask_stat(&run->asker, kind, number, path);
	else
		zkl_ask_data(&run->asker, kind, number, path,
					 run->command.kind == ZKL_COMMAND_WAITS ?
					 ZKL_PATH_WAITS_SIZE : ZKL_LISTING_DATA_SIZE);
}

/* Does the command go down into directories? */
static bool
is_walk(const Run *run)
{
	return run->command.kind == ZKL_COMMAND_SERVERS ||
		run->command.kind == ZKL_COMMAND_WALK;
}

/* The path of a znode in the survey.  A root that is "/" has no prefix. */
static const char *
path_of(const Run *run, int number)
{
	const ZklListingNode *node = &run->survey.nodes[number];

	if (!is_walk(run))
		return psprintf("%s/%s", directory_of(run, node->where), node->name);
	return prefix[0] == '\0' && node->name[0] == '\0' ? "/" :
		psprintf("%s%s", prefix, node->name);
}

/* Write the text over the version that the run has read. */
static void
ask_write(Run *run)
{
	zkl_ask_write(&run->asker, ITEM_WRITE, target_of(run), run->text, run->version);
}

/*
 * The path of the znode that the command names: a child of the directory, or
 * the directory itself.
 */
static const char *
target_of(const Run *run)
{
	const char *directory = directory_of(run, ZKL_WHERE_LOCK);
	const char *child = run->command.child;

	return child[0] == '\0' ? directory : psprintf("%s/%s", directory, child);
}

static const char *
directory_of(const Run *run, ZklWhere where)
{
	static const char *const below[] = {
		[ZKL_WHERE_LOCK] = "",
		[ZKL_WHERE_LEASES] = "/" ZKL_LEASES,
		[ZKL_WHERE_LOCKS] = "/" ZKL_LOCKS,
	};

	return psprintf("%s%s%s", prefix, run->command.path, below[where]);
}

static void
note_answer(Run *run, ItemKind kind, int64 number,
			const ZklSessionEvent *event)
{
	ZklCommandOutcome outcome = outcome_of(event);

	switch (kind)
	{
		case ITEM_NODE_DATA:
		case ITEM_NODE_STAT:
			note_node(run, kind, number, event);
			return;
		case ITEM_CHILDREN:
			if (outcome == ZKL_COMMAND_OK)
				note_children(run, number, event);
			break;
		case ITEM_WALKED_STAT:
		case ITEM_WALKED:
			if (outcome == ZKL_COMMAND_OK)
				note_walked(run, kind, number, event);
			/* Some directories below the start may be unreadable. */
			if (outcome == ZKL_COMMAND_DENIED && number > 0)
				return;
			break;
		case ITEM_DIRECTORY_STAT:
			note_directory(run, number, event);
			break;
		case ITEM_DIRECTORY_DATA:
			note_directory(run, number, event);
			run->survey.exists = outcome == ZKL_COMMAND_OK;
			if (outcome == ZKL_COMMAND_OK)
			{
				run->survey.data = copy_data(run, event);
				run->survey.data_length = event->data_length;
			}
			break;
		case ITEM_DELETE:

			/*
			 * An earlier attempt has deleted the znode, and its reply was
			 * lost.
			 */
			if (outcome == ZKL_COMMAND_ABSENT && run->again)
				outcome = ZKL_COMMAND_OK;
			run->outcome = outcome;
			return;
		case ITEM_OLD_DATA:
			note_old_data(run, event);
			return;
		case ITEM_OLD_STAT:
			note_old_stat(run, event);
			return;
		case ITEM_WRITE:
			/* The write is the last request of its run. */
			run->outcome = outcome;
			return;
		case ITEM_QUORUM:
			break;
	}

	/* An absent directory has no children; that is a valid result. */
	if (outcome != ZKL_COMMAND_ABSENT)
		run->outcome = Max(run->outcome, outcome);
}

/* The data of a znode, as a string. */
static char *
copy_data(const Run *run, const ZklSessionEvent *event)
{
	return memcpy(MemoryContextAllocZero(run->context, event->data_length + 1),
				  event->data, event->data_length);
}

/*
 * What a reply means for the backend.  The caller has dealt with lost replies
 * and changed data.
 */
static ZklCommandOutcome
outcome_of(const ZklSessionEvent *event)
{
	if (event->reply.outcome == ZKL_OUTCOME_OK)
		return ZKL_COMMAND_OK;
	if (event->reply.outcome == ZKL_OUTCOME_ABSENT)
		return ZKL_COMMAND_ABSENT;
	return event->reply.failure == ZKL_FAILURE_PERMISSION ? ZKL_COMMAND_DENIED :
		event->reply.failure == ZKL_FAILURE_QUOTA ? ZKL_COMMAND_QUOTA :
		event->reply.failure == ZKL_FAILURE_TOO_LONG ? ZKL_COMMAND_TOO_LARGE :
		ZKL_COMMAND_REFUSED;
}

/*
 * The Stat gives the number of children before the run reads them.  A very
 * long list would hold up the requests of other clients, and be of no use to
 * a reader.  A command that acquires a semaphore needs it nevertheless.
 */
static void
note_directory(Run *run, ZklWhere where,
			   const ZklSessionEvent *event)
{
	if (outcome_of(event) != ZKL_COMMAND_OK || event->numchildren == 0)
		return;
	if (run->command.kind == ZKL_COMMAND_SURVEY &&
		event->numchildren > CHILDREN_MAX)
	{
		run->outcome = ZKL_COMMAND_TOO_LARGE;
		return;
	}
	zkl_ask_children(&run->asker, ITEM_CHILDREN, where,
					 directory_of(run, where), false);
}

/*
 * Add a child.  If it is a record, a semaphore's limit, or may be a contender,
 * read its znode as well.
 */
static void
note_children(Run *run, ZklWhere where, const ZklSessionEvent *event)
{
	ZklContender contender;

	for (int i = 0; i < event->reply.nchildren; i++)
	{
		const char *name = event->reply.children[i];

		if (!add_node(run, where, name))
			return;
		if (run->command.kind == ZKL_COMMAND_JOBS ||
			run->command.kind == ZKL_COMMAND_WAITS ||
			(where == ZKL_WHERE_LOCK && strcmp(name, ZKL_LIMIT) == 0) ||
			(run->command.kind == ZKL_COMMAND_SURVEY &&
			 (where == ZKL_WHERE_LEASES || zkl_recipe_parse(name, &contender))))
			ask_node(run, ITEM_NODE_DATA, run->survey.nnodes - 1);
	}
}

/*
 * May the walk go on with this many more znodes?  The walk checks before it
 * lists, because a very long list would hold up the requests of other clients.
 */
static bool
may_walk(Run *run, int nchildren)
{
	if (run->survey.nnodes + nchildren <= ZKL_WALK_MAX)
		return true;
	run->outcome = ZKL_COMMAND_TOO_MANY;
	zkl_ask_cancel(&run->asker);
	return false;
}

/*
 * In a walk, the run reads each child that is a record or a contender, and
 * lists every other child as a directory in turn.  It also reads a
 * semaphore's directory, because its text has the number of leases.
 */
static void
note_walked(Run *run, ItemKind kind, int number, const ZklSessionEvent *event)
{
	const char *const *children = event->reply.children;
	int			nchildren = event->reply.nchildren;
	const char *above = run->survey.nodes[number].name;
	ZklWhere	where = run->survey.nodes[number].where;
	bool		has_leases = false;

	if (kind == ITEM_WALKED_STAT)
	{
		if (event->numchildren > 0 && may_walk(run, event->numchildren))
			ask_node(run, ITEM_WALKED, number);
		return;
	}
	if (!may_walk(run, nchildren))
		return;
	/* The directory belongs to a lock of that name, and contains no leases. */
	if (where == ZKL_WHERE_LEASES && !zkl_recipe_any_lease(children, nchildren))
		where = ZKL_WHERE_LOCK;
	for (int i = 0; i < nchildren; i++)
		has_leases |= strcmp(children[i], ZKL_LEASES) == 0;
	if (has_leases && run->command.kind == ZKL_COMMAND_WALK)
		ask_node(run, ITEM_NODE_DATA, number);

	for (int i = 0; i < nchildren; i++)
	{
		const char *name = psprintf("%s/%s", above, children[i]);
		bool		leaf = is_leaf(run, number, where, children[i]);
		ZklWhere	inside = !has_leases ? ZKL_WHERE_LOCK :
		strcmp(children[i], ZKL_LEASES) == 0 ? ZKL_WHERE_LEASES :
		strcmp(children[i], ZKL_LOCKS) == 0 ? ZKL_WHERE_LOCKS : ZKL_WHERE_LOCK;

		/* These directories belong to no lock. */
		if (strcmp(name, "/" ZKL_PATH_RESERVED) == 0 ||
			(prefix[0] == '\0' && strcmp(name, "/zookeeper") == 0))
			continue;
		if (!add_node(run, leaf ? where : inside, name))
			return;
		run->survey.nodes[run->survey.nnodes - 1].is_directory = !leaf;
		ask_node(run, leaf ? ITEM_NODE_DATA : ITEM_WALKED_STAT,
				 run->survey.nnodes - 1);
	}
}

/* The records of servers are two levels below the start. */
static bool
is_leaf(const Run *run, int directory, ZklWhere where,
		const char *name)
{
	ZklContender contender;

	if (run->command.kind == ZKL_COMMAND_SERVERS)
		return directory > 0;
	return where == ZKL_WHERE_LEASES || zkl_recipe_parse(name, &contender);
}

/*
 * Append a znode to the survey, by its name.  Its details may follow.  False if
 * the result becomes too large.
 */
static bool
add_node(Run *run, ZklWhere where, const char *name)
{
	ZklListing *survey = &run->survey;
	ZklListingNode *node;

	if (!note_size(run, strlen(name) + sizeof(ZklListingNode)))
		return false;
	if (survey->nnodes == run->max_nodes)
	{
		run->max_nodes *= 2;
		survey->nodes = repalloc_huge(survey->nodes,
									  run->max_nodes * sizeof(ZklListingNode));
	}
	node = &survey->nodes[survey->nnodes++];
	memset(node, 0, sizeof(*node));
	node->where = where;
	node->name = MemoryContextStrdup(run->context, name);
	return true;
}

/*
 * The asks that are under way still run to their end; then the backend gets the
 * error.
 */
static bool
note_size(Run *run, Size size)
{
	run->size += size;
	if (run->size > ANSWER_MAX)
		run->outcome = ZKL_COMMAND_TOO_LARGE;
	return run->size <= ANSWER_MAX;
}

/*
 * If a znode has vanished meanwhile, clear its name, so that it is not in the
 * result.  Before 3.8.4 and 3.9.2, ZooKeeper gives the Stat of a znode also to
 * a client that may not read its data.
 */
static void
note_node(Run *run, ItemKind kind, int number,
		  const ZklSessionEvent *event)
{
	ZklListingNode *node = &run->survey.nodes[number];

	switch (outcome_of(event))
	{
		case ZKL_COMMAND_OK:
			break;
		case ZKL_COMMAND_ABSENT:
			node->name = NULL;
			return;
		default:
			if (kind == ITEM_NODE_DATA)
				ask_node(run, ITEM_NODE_STAT, number);
			return;
	}

	/* From here on, the result has what the Stat says. */
	node->detailed = true;
	node->czxid = event->reply.czxid;
	node->version = event->reply.version;
	node->ctime_ms = event->ctime_ms;
	node->owner = event->owner;
	if (kind == ITEM_NODE_STAT)
		return;
	node->data = copy_data(run, event);
	node->data_length = event->data_length;
	(void) note_size(run, node->data_length);
}

/*
 * Did ZooKeeper refuse the write because of the data's version, although it
 * shows the same version now?  ticket.h says why that happens only if its
 * servers differ.
 */
static bool
still_expected(const Run *run, const ZklSessionEvent *event)
{
	return run->refused_version >= 0 &&
		event->reply.version == run->refused_version &&
		event->reply.czxid == run->refused_czxid;
}

/*
 * Curator requires the text to be exactly its word.  A znode of zklock keeps
 * its own text, which names the holder, and gets a mark.  If the holder
 * writes meanwhile, the version is no longer the one that was read, and the
 * run begins again.
 */
static void
note_old_data(Run *run, const ZklSessionEvent *event)
{
	bool		revokes = run->command.kind == ZKL_COMMAND_REVOKE;
	ZklCommandOutcome outcome = outcome_of(event);

	/*
	 * ZooKeeper may forbid reading the text and still allow writing it.  Then
	 * the write takes any version.
	 */
	run->outcome = outcome == ZKL_COMMAND_DENIED && revokes ? ZKL_COMMAND_OK : outcome;
	if (run->outcome != ZKL_COMMAND_OK)
		return;
	run->text = ZKL_REVOKE;
	if (outcome == ZKL_COMMAND_OK)
	{
		const char *mark = revokes ? ZKL_REQUESTED : ZKL_QUERY;

		/* The text has the mark or the request already: the run ends here. */
		if (zkl_recipe_has_mark(event->data, event->data_length, mark) ||
			(revokes && zkl_recipe_is_revoked(event->data, event->data_length)))
			return;
		if (still_expected(run, event))
		{
			zkl_session_log_difference(target_of(run));
			run->outcome = ZKL_COMMAND_DIFFERS;
			return;
		}
		run->version = event->reply.version;
		run->czxid = event->reply.czxid;
		if (takes_marks(run, event))
			run->text = MemoryContextStrdup(run->context,
											psprintf("%s%s", event->data, mark));
		else if (!revokes)
			return;				/* the release has been requested */
	}
	ask_write(run);
}

/* Is this the text of a znode of zklock, and not Curator's request? */
static bool
takes_marks(const Run *run, const ZklSessionEvent *event)
{
	const char *name = strrchr(run->command.child, '/');
	bool		only_tries;

	return zkl_recipe_is_zklock(name ? name + 1 : run->command.child, &only_tries) &&
		event->data_length > 0 && event->data_length <= ZKL_TEXT_SIZE &&
		strcmp(event->data, ZKL_REVOKE) != 0;
}

/* Write the limit over the version that was found, or create it. */
static void
note_old_stat(Run *run, const ZklSessionEvent *event)
{
	bool		found = outcome_of(event) == ZKL_COMMAND_OK;

	run->outcome = outcome_of(event);
	if (run->outcome == ZKL_COMMAND_ABSENT)
		run->outcome = ZKL_COMMAND_OK;
	if (run->outcome == ZKL_COMMAND_OK)
		zkl_ask_put(&run->asker, ITEM_WRITE, target_of(run),
					run->command.data, ZKL_LIMIT_SIZE,
					found ? event->reply.version : -1);
}

/* Leave out znodes that vanished during the run: they have no name. */
static void
pack(Run *run, StringInfo packed)
{
	ZklListing *survey = &run->survey;
	int			nnodes = 0;

	if (run->outcome != ZKL_COMMAND_OK)
		return;
	for (int i = 0; i < survey->nnodes; i++)
	{
		if (survey->nodes[i].name != NULL)
			survey->nodes[nnodes++] = survey->nodes[i];
	}
	survey->nnodes = nnodes;
	initStringInfo(packed);
	zkl_listing_pack(survey, packed);
}
