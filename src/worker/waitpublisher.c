/*-------------------------------------------------------------------------
 *
 * waitpublisher.c
 *	  Publishes this server's waits, for the search for deadlocks.
 *
 * waitcontents.h says what the records say.  Each znode has at most one request
 * under way.  What has changed meanwhile
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

#include "utils/memutils.h"

#include "faultpoint.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/waitcontents.h"
#include "worker/waitpublisher.h"

/* After ZooKeeper has refused a request. */
#define AGAIN_AFTER		ZKL_MS(5000)

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

static char directory[ZKL_ROOT_SIZE + sizeof(ZKL_WAITRECORD_DIRECTORY)];
static Znode nodes[ZKL_SESSIONS_MAX];	/* for each session */
static uint64 acknowledged = 0; /* writes of the records */
static bool refusal_logged = false;

static void build(void);
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
	zkl_wait_contents_start();
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

/* What the znodes shall say. */
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
