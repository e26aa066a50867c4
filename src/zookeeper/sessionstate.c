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
		/* The queue is empty: the next event becomes its first. */
		if (zkl_session_state.first == NULL)
			zkl_session_state.last = &zkl_session_state.first;
	}
	return event;
}

void
zkl_session_free_event(ZklSessionEvent *event)
{
	free((void *) event->reply.children);	/* one piece, with its texts */
	free(unconstify(char *, event->reply.name));
	free(event->data);
	free(event->path);
	free(event);
}

/*
 * A callback cannot report that memory is out, and the client itself aborts
 * when it is.
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
