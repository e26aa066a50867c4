/*-------------------------------------------------------------------------
 *
 * waitpublisher.c
 *	  Publishes this server's waits, for the search for deadlocks.
 *
 * waitcontents.h makes the text of the records.  Each znode has at most one
 * request under way.  Later changes are sent when the reply to that has come.
 * So ZooKeeper's speed bounds the number of writes, however many waits come
 * and go.
 *
 * If the last reply about a znode was lost, the znode may or may not exist,
 * and may have the old or the new text.  Then it is written again, or deleted
 * again.
 *
 * src/worker/waitpublisher.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "faultpoint.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/ask.h"
#include "worker/waitcontents.h"
#include "worker/waitpublisher.h"

/* The pause after ZooKeeper has refused a request. */
#define AGAIN_AFTER		ZKL_MS(5000)

#define NODE_PATH_SIZE	(ZKL_ROOT_SIZE + sizeof(ZKL_WAITRECORD_DIRECTORY) + ZKL_WAITRECORD_NAME_SIZE + 1)

typedef enum Step
{
	STEP_CREATE,
	STEP_WRITE,
	STEP_DELETE
} Step;

/* The znode of one of this server's sessions. */
typedef struct Znode
{
	char		name[ZKL_WAITRECORD_NAME_SIZE]; /* if it exists or may exist;
												 * else empty */
	char	   *wanted;			/* the text that it should have; NULL: it
								 * should not exist */
	char	   *sent;			/* the text that is under way */
	char	   *written;		/* the text that was acknowledged; NULL if not
								 * known */
	ZklAsker	asker;			/* has one ask at most */
	bool		no_directory;	/* the directories must be created first */
	int64		again_at;		/* after a refusal: when to try again */
} Znode;

static char directory[ZKL_ROOT_SIZE + sizeof(ZKL_WAITRECORD_DIRECTORY)];
static Znode nodes[ZKL_SESSIONS_MAX];	/* for each session */
static uint64 acknowledged = 0; /* how many writes of the records were
								 * acknowledged */
static bool refusal_logged = false;

static void build(void);
static void want(int session, const char *text);
static bool is_due(const Znode *node);
static bool is_of_session(const Znode *node);
static void send_next(Znode *node);
static void begin_step(Znode *node, Step step);
static void on_written(ZklAsker *asker, int what, int64 number,
					   const ZklSessionEvent *event);
static void note_written(Znode *node);
static void set_text(char **text, const char *value);

void
zkl_wait_publisher_start(const char *prefix)
{
	snprintf(directory, sizeof(directory), "%s" ZKL_WAITRECORD_DIRECTORY,
			 prefix);

	/*
	 * The previous worker may have left znodes in the session that this
	 * worker continues.
	 */
	for (int i = 0; i < zkl_sessions; i++)
	{
		int64		id = zkl_session_info[i].id;

		nodes[i].asker.owner = &nodes[i];
		nodes[i].asker.answered = on_written;
		nodes[i].asker.urgent = true;
		if (id != 0 && zkl_session_info_mine->id != 0)
			zkl_wait_record_name(id, nodes[i].name);
	}
	zkl_wait_contents_start();
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
	return is_of_session(&nodes[0]) ? nodes[0].written : NULL;
}

/* Compute what the znodes should say. */
static void
build(void)
{
	ZklWaitContents contents;
	char		name[ZKL_WAITRECORD_NAME_SIZE];

	zkl_wait_contents_build(&contents);
	want(0, contents.records);
	zkl_wait_record_name(zkl_session_info_mine->id, name);
	for (int i = 1; i < zkl_sessions; i++)
		want(i, contents.records != NULL && contents.owns[i] ?
			 psprintf(ZKL_WAIT_PUBLISHER_SEE "%s", name) : NULL);
}

/* Set the text that the znode should have; NULL: it should not exist. */
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
	if (zkl_wait_contents_have_changed())
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
	int64		at = zkl_wait_contents_build_at();

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
	if (node->asker.outstanding > 0 ||
		(node->again_at != 0 && zkl_now() < node->again_at))
		return false;
	if (node->wanted == NULL)
		return node->name[0] != '\0';
	return node->written == NULL ||
		strcmp(node->wanted, node->written) != 0 || !is_of_session(node);
}

/*
 * Should the znode be deleted?  Not if its session has expired since: then it
 * is already gone.
 */
static bool
is_of_session(const Znode *node)
{
	char		name[ZKL_WAITRECORD_NAME_SIZE];

	zkl_wait_record_name(zkl_session_info[node - nodes].id, name);
	return strcmp(node->name, name) == 0;
}

/*
 * After a session has expired, its znode has another name.  Delete the znode
 * with the old name first: a further session's znode was created in the first
 * session, and so stays.
 */
static void
send_next(Znode *node)
{
	int64		id = zkl_session_info[node - nodes].id;

	node->again_at = 0;
	if (node->name[0] != '\0' &&
		(node->wanted == NULL || !is_of_session(node)))
		begin_step(node, STEP_DELETE);
	else if (node->name[0] != '\0')
		begin_step(node, STEP_WRITE);
	else if (id != 0)
	{
		zkl_wait_record_name(id, node->name);
		begin_step(node, STEP_CREATE);
	}
}

static void
begin_step(Znode *node, Step step)
{
	char		path[NODE_PATH_SIZE];

	snprintf(path, sizeof(path), "%s/%s", directory, node->name);
	set_text(&node->sent, node->wanted);
	switch (step)
	{
		case STEP_CREATE:
			zkl_ask_create(&node->asker, step, path, node->wanted,
						   ZKL_CREATE_EPHEMERAL, node->no_directory);
			break;
		case STEP_WRITE:
			zkl_ask_write(&node->asker, step, path, node->wanted, -1);
			break;
		case STEP_DELETE:
			zkl_ask_delete(&node->asker, step, path);
			break;
	}
	zkl_ask_send_urgent(&node->asker);
	ZKL_FAULT_POINT("waits-sent");
}

/*
 * ABSENT after a create means that the directory is missing.  After a write,
 * it means that the znode is gone, with the session that created it.
 */
static void
on_written(ZklAsker *asker, int what, int64 number,
		   const ZklSessionEvent *event)
{
	Znode	   *node = asker->owner;

	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			if (what == STEP_DELETE)
				node->name[0] = '\0';
			note_written(node);
			break;
		case ZKL_OUTCOME_ABSENT:
			node->no_directory = what == STEP_CREATE;
			node->name[0] = '\0';
			set_text(&node->sent, NULL);
			note_written(node);
			break;
		case ZKL_OUTCOME_CHANGED:
		case ZKL_OUTCOME_UNKNOWN:
		case ZKL_OUTCOME_UNDONE:

			/* The znode exists, or may exist. */
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

/* What was sent last is acknowledged; if that is NULL, there is no znode. */
static void
note_written(Znode *node)
{
	refusal_logged = false;
	set_text(&node->written, node->sent);
	if (node == nodes)
		acknowledged++;
	ZKL_FAULT_POINT("waits-acknowledged");
}
