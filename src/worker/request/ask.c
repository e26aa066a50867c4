/*-------------------------------------------------------------------------
 *
 * ask.c
 *	  The worker's requests to ZooKeeper that do not belong to a ticket.
 *
 * src/worker/request/ask.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "settings.h"
#include "shared/locktable.h"
#include "worker/request/ask.h"
#include "worker/request/rolewindow.h"

/*
 * This many asks may be on their way, however busy the tickets are.  While
 * several roles need ZooKeeper, fewer of the asks for roles may be: any role
 * may read long queues in a loop.
 */
#define WINDOW			32

typedef enum Operation
{
	CHECK,
	SYNC,
	CHILDREN,
	DATA,
	STAT,
	WRITE,
	CREATE,
	DELETE
} Operation;

typedef struct Ask
{
	dlist_node	node;			/* in one of its asker's lists */
	ZklAsker   *asker;			/* NULL if cancelled */
	int			what;
	int64		number;
	bool		urgent;
	bool		for_role;
	Operation	operation;
	char	   *path;
	char	   *data;			/* WRITE, CREATE */
	int			data_length;
	bool		watch;			/* CHILDREN */
	int			data_size;		/* DATA */
	int			version;		/* WRITE */
	ZklCreateMode mode;			/* CREATE */
	ZklParents	parents;		/* NONE at first; another mode after a failure */
} Ask;

static MemoryContext context;
static dlist_head askers = DLIST_STATIC_INIT(askers);
static int	on_the_way = 0;		/* asks on their way that are not urgent */
static int	for_roles = 0;		/* asks for roles among these */

static Ask *add(ZklAsker *asker, int what, Operation operation,
				const char *path);
static Ask *add_data(ZklAsker *asker, int what, Operation operation,
					 const char *path, const char *data, int length);
static void wait_to_be_sent(Ask *ask);
static ZklAsker *next_asker(void);
static bool may_send(const ZklAsker *asker);
static Ask *take_first(ZklAsker *asker);
static void send_it(Ask *ask);
static void finish(Ask *ask, const ZklSessionEvent *answer);
static void send_with_parents(Ask *ask);
static void free_ask(Ask *ask);

void
zkl_ask_start(void)
{
	context = AllocSetContextCreate(TopMemoryContext, "zklock asks",
									ALLOCSET_DEFAULT_SIZES);
}

/*
 * Making asks
 */

void
zkl_ask_check(ZklAsker *asker, int what)
{
	(void) add(asker, what, CHECK, NULL);
}

void
zkl_ask_sync(ZklAsker *asker, int what)
{
	(void) add(asker, what, SYNC, NULL);
}

void
zkl_ask_children(ZklAsker *asker, int what, int64 number, const char *path,
				 bool watched)
{
	Ask		   *ask = add(asker, what, CHILDREN, path);

	ask->number = number;
	ask->watch = watched;
}

void
zkl_ask_data(ZklAsker *asker, int what, int64 number, const char *path,
			 int data_size)
{
	Ask		   *ask = add(asker, what, DATA, path);

	ask->number = number;
	ask->data_size = data_size;
}

void
zkl_ask_stat(ZklAsker *asker, int what, int64 number, const char *path)
{
	add(asker, what, STAT, path)->number = number;
}

void
zkl_ask_write(ZklAsker *asker, int what, const char *path, const char *data,
			  int version)
{
	add_data(asker, what, WRITE, path, data, strlen(data))->version = version;
}

void
zkl_ask_create(ZklAsker *asker, int what, const char *path, const char *data,
			   ZklCreateMode mode)
{
	add_data(asker, what, CREATE, path, data, strlen(data))->mode = mode;
}

void
zkl_ask_put(ZklAsker *asker, int what, const char *path, const char *data,
			int length, int version)
{
	Ask		   *ask = add_data(asker, what, version < 0 ? CREATE : WRITE, path,
							   data, length);

	ask->version = version;
	ask->mode = ZKL_CREATE_PERSISTENT;
}

static Ask *
add_data(ZklAsker *asker, int what, Operation operation, const char *path,
		 const char *data, int length)
{
	Ask		   *ask = add(asker, what, operation, path);

	ask->data = memcpy(MemoryContextAlloc(context, length + 1), data, length);
	ask->data_length = length;
	return ask;
}

void
zkl_ask_delete(ZklAsker *asker, int what, const char *path)
{
	(void) add(asker, what, DELETE, path);
}

static Ask *
add(ZklAsker *asker, int what, Operation operation, const char *path)
{
	Ask		   *ask = MemoryContextAllocZero(context, sizeof(Ask));

	ask->asker = asker;
	ask->what = what;
	ask->urgent = asker->urgent;
	ask->for_role = OidIsValid(asker->role);
	ask->operation = operation;
	if (path != NULL)
		ask->path = MemoryContextStrdup(context, path);
	asker->outstanding++;
	wait_to_be_sent(ask);
	return ask;
}

/* An asker with waiting asks has a place among those that take turns. */
static void
wait_to_be_sent(Ask *ask)
{
	ZklAsker   *asker = ask->asker;

	if (!asker->urgent && dlist_is_empty(&asker->waiting))
		dlist_push_tail(&askers, &asker->turn);
	dlist_push_tail(&asker->waiting, &ask->node);
}

void
zkl_ask_cancel(ZklAsker *asker)
{
	dlist_mutable_iter iter;

	if (!asker->urgent && !dlist_is_empty(&asker->waiting))
		dlist_delete(&asker->turn);
	dlist_foreach_modify(iter, &asker->waiting)
		free_ask(dlist_container(Ask, node, iter.cur));
	dlist_foreach_modify(iter, &asker->sent)
		dlist_container(Ask, node, iter.cur)->asker = NULL;
	dlist_init(&asker->waiting);
	dlist_init(&asker->sent);
	asker->outstanding = 0;
}

/*
 * Sending
 */

/*
 * If the ask cannot be sent now, it is lost.  If it waited, the session might
 * expire before it is sent, and then it would be out of date.
 */
void
zkl_ask_send_urgent(ZklAsker *asker)
{
	const ZklSessionEvent lost = {.reply.outcome = ZKL_OUTCOME_UNKNOWN};

	Assert(asker->urgent);
	while (!dlist_is_empty(&asker->waiting))
	{
		Ask		   *ask = take_first(asker);

		if (zkl_session_is_usable())
			send_it(ask);
		else
			finish(ask, &lost);
	}
}

/*
 * The askers take turns, one ask each, so that one asker cannot keep the
 * others waiting.
 */
void
zkl_ask_send(void)
{
	ZklAsker   *asker;

	while ((asker = next_asker()) != NULL)
	{
		dlist_delete(&asker->turn);
		send_it(take_first(asker));
		/* If the asker has more, it goes to the end of the line. */
		if (!dlist_is_empty(&asker->waiting))
			dlist_push_tail(&askers, &asker->turn);
	}
}

/* The first asker that may send something now. */
static ZklAsker *
next_asker(void)
{
	dlist_iter	iter;

	/* On a new connection, nothing may be sent before the barrier. */
	if (!zkl_session_is_usable() || on_the_way >= WINDOW)
		return NULL;
	dlist_foreach(iter, &askers)
	{
		ZklAsker   *asker = dlist_container(ZklAsker, turn, iter.cur);

		if (may_send(asker))
			return asker;
	}
	return NULL;
}

static bool
may_send(const ZklAsker *asker)
{
	return !OidIsValid(asker->role) ||
		!zkl_role_window_is_shared(zkl_now()) ||
		for_roles < zkl_role_window_size();
}

/* Take the asker's next ask; from now on it waits for the reply. */
static Ask *
take_first(ZklAsker *asker)
{
	Ask		   *ask = dlist_container(Ask, node,
									  dlist_pop_head_node(&asker->waiting));

	dlist_push_tail(&asker->sent, &ask->node);
	on_the_way += !ask->urgent;
	for_roles += ask->for_role;
	if (ask->for_role)
		zkl_role_window_note(asker->role, zkl_now());
	return ask;
}

/*
 * The session copies what it needs.  The event comes back with the ask as its
 * tag.
 */
static void
send_it(Ask *ask)
{
	ZklSessionTag tag = {.kind = ZKL_SESSION_ANSWER,.owner = ask};

	switch (ask->operation)
	{
		case CHECK:
			zkl_session_check(tag);
			break;
		case SYNC:
			zkl_session_sync(tag);
			break;
		case CHILDREN:
			zkl_session_children(tag, ask->path, ask->watch);
			break;
		case DATA:
			zkl_session_data(tag, ask->path, ask->data_size, false);
			break;
		case STAT:
			zkl_session_stat(tag, ask->path);
			break;
		case WRITE:
			zkl_session_write(tag, ask->path, ask->data, ask->data_length,
							  ask->version);
			break;
		case CREATE:
			zkl_session_create(tag, ask->path, ask->data, ask->data_length,
							   ask->mode, ask->parents);
			break;
		case DELETE:
			zkl_session_delete(tag, ask->path);
			break;
	}
}

int
zkl_ask_on_the_way(void)
{
	return on_the_way;
}

/*
 * Replies
 */

void
zkl_ask_handle(const ZklSessionEvent *event)
{
	finish(event->tag, event);
}

/*
 * Remove the ask before its asker hears of it: the callback may cancel the
 * asker's asks, and may check whether any are outstanding.
 */
static void
finish(Ask *ask, const ZklSessionEvent *answer)
{
	ZklAsker   *asker = ask->asker;

	on_the_way -= !ask->urgent;
	for_roles -= ask->for_role;
	if (asker != NULL)
	{
		dlist_delete(&ask->node);
		if (answer->reply.outcome == ZKL_OUTCOME_ABSENT &&
			ask->operation == CREATE && ask->parents == ZKL_PARENTS_NONE)
		{
			send_with_parents(ask);
			return;
		}
		asker->outstanding--;
		if (asker->answered != NULL)
			asker->answered(asker, ask->what, ask->number, answer);
	}
	free_ask(ask);
}

/* The directories above the znode are missing, which is rare. */
static void
send_with_parents(Ask *ask)
{
	ask->parents = ZKL_PARENTS_ALL;
	wait_to_be_sent(ask);
	if (ask->urgent)
		zkl_ask_send_urgent(ask->asker);
}

static void
free_ask(Ask *ask)
{
	if (ask->path != NULL)
		pfree(ask->path);
	if (ask->data != NULL)
		pfree(ask->data);
	pfree(ask);
}
