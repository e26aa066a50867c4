/*-------------------------------------------------------------------------
 *
 * sessionstate.c
 *	  What the files of the session share: its state, and its queue of events.
 *
 * Callbacks append events; the worker's loop takes them.  Both run in the same
 * process, one after the other.
 *
 * src/zookeeper/sessionstate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "zookeeper/sessionint.h"

ZklSessionState zkl_session_state = {
	.last = &zkl_session_state.first,.fd = -1
};

ZklSessionEvent *
zkl_session_next_event(void)
{
	ZklSessionEvent *event = zkl_session_state.first;

	if (event != NULL)
	{
		zkl_session_state.first = event->next;
		/* The queue is empty, so the next event will be its first. */
		if (zkl_session_state.first == NULL)
			zkl_session_state.last = &zkl_session_state.first;
	}
	return event;
}

void
zkl_session_free_event(ZklSessionEvent *event)
{
	free((void *) event->reply.children);	/* one allocation, with its texts */
	free(unconstify(char *, event->reply.name));
	free(event->data);
	free(event->path);
	free(event);
}

/*
 * A callback cannot report that it is out of memory; the client itself aborts
 * then.
 */
void *
zkl_session_allocate(size_t size)
{
	void	   *result = calloc(1, size);

	if (result == NULL)
		abort();
	return result;
}

char *
zkl_session_copy(const char *text)
{
	size_t		size = strlen(text) + 1;

	return memcpy(zkl_session_allocate(size), text, size);
}

ZklSessionEvent *
zkl_session_append_event(ZklSessionEventKind kind)
{
	ZklSessionEvent *event = zkl_session_allocate(sizeof(ZklSessionEvent));

	event->kind = kind;
	*zkl_session_state.last = event;
	zkl_session_state.last = &event->next;
	return event;
}

void
zkl_session_void_events(void)
{
	ZklSessionEvent *event = zkl_session_state.first;

	zkl_session_state.first = NULL;
	zkl_session_state.last = &zkl_session_state.first;
	while (event != NULL)
	{
		ZklSessionEvent *next = event->next;

		event->next = NULL;
		if (event->kind == ZKL_SESSION_REPLY || event->kind == ZKL_SESSION_ANSWER)
		{
			event->reply.outcome = ZKL_OUTCOME_UNKNOWN;
			event->reply.failure = ZKL_FAILURE_NONE;
			event->reply.nchildren = 0;
			*zkl_session_state.last = event;
			zkl_session_state.last = &event->next;
		}
		else
			zkl_session_free_event(event);
		event = next;
	}
}

void
zkl_session_count_sent(ZklTraffic traffic)
{
	zkl_session_state.outstanding++;
	zkl_session_state.requests++;
	zkl_session_state.on_sent(traffic);
}

ZklOutcome
zkl_session_outcome_of(int rc, ZklFailure *failure)
{
	switch (rc)
	{
		case ZOK:
			return ZKL_OUTCOME_OK;
		case ZNONODE:
			return ZKL_OUTCOME_ABSENT;
		case ZBADVERSION:
			return ZKL_OUTCOME_CHANGED;

			/*
			 * After these codes, the request may or may not have been done.
			 * If ZooKeeper refuses this client's credentials, the next handle
			 * finds out.
			 */
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT:
		case ZRUNTIMEINCONSISTENCY:
		case ZSESSIONEXPIRED:
		case ZSESSIONMOVED:
		case ZSESSIONCLOSEDREQUIRESASLAUTH:
		case ZAUTHFAILED:
		case ZCLOSING:
		case ZINVALIDSTATE:
		case ZTHROTTLEDOP:
			return ZKL_OUTCOME_UNKNOWN;
		case ZNOAUTH:
			*failure = ZKL_FAILURE_PERMISSION;
			return ZKL_OUTCOME_REFUSED;
		case ZINVALIDACL:
			*failure = ZKL_FAILURE_ACL;
			return ZKL_OUTCOME_REFUSED;
		case ZNOCHILDRENFOREPHEMERALS:
			*failure = ZKL_FAILURE_EPHEMERAL_PARENT;
			return ZKL_OUTCOME_REFUSED;
		default:
			*failure = ZKL_FAILURE_REFUSED;
			return ZKL_OUTCOME_REFUSED;
	}
}

/*
 * The quorum has also decided about an error that a multi finds in the tree.
 */
bool
zkl_session_is_answer(int rc)
{
	switch (rc)
	{
		case ZOK:
		case ZNONODE:
		case ZNOAUTH:
		case ZBADVERSION:
		case ZNODEEXISTS:
		case ZNOTEMPTY:
			return true;
		default:
			return false;
	}
}

/*
 * The client reports the refusal by the state of its handle, and the server
 * by the code of a reply.  Both may come, so report only the first.
 */
void
zkl_session_note_refused(void)
{
	if (zkl_session_state.auth_refused)
		return;
	zkl_session_state.auth_refused = true;
	zkl_session_append_event(ZKL_SESSION_REFUSED);
}
