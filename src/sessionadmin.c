/*-------------------------------------------------------------------------
 *
 * sessionadmin.c
 *	  The requests that are no ticket's, and their answers.
 *
 * As in sessioncalls.c, a completion only appends an event.
 *
 * src/sessionadmin.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sessionint.h"

/* A request on its way; what its completion is given. */
typedef struct Call
{
	ZklSessionAsk ask;
	int			data_size;
} Call;

static Call *begin_call(ZklSessionAsk ask);
static void sent(Call *call, int rc);
static ZklSessionEvent *finish_call(Call *call, int rc);
static void on_synced(int rc, const char *path, const void *data);
static void on_children(int rc, const struct String_vector *strings,
						const void *data);
static void on_data(int rc, const char *value, int value_length,
					const struct Stat *stat, const void *data);
static void on_stat(int rc, const struct Stat *stat, const void *data);
static void on_written(int rc, const struct Stat *stat, const void *data);
static void on_deleted(int rc, const void *data);

static Call *
begin_call(ZklSessionAsk ask)
{
	Call	   *call = zkl_session_allocate(sizeof(Call));

	call->ask = ask;
	return call;
}

/* A request that the client does not take gets no completion. */
static void
sent(Call *call, int rc)
{
	if (!zkl_session_note_sent(rc))
		finish_call(call, rc);
}

/* Returns the event, unless it would reach nobody. */
static ZklSessionEvent *
finish_call(Call *call, int rc)
{
	ZklSessionEvent *event = NULL;
	ZklFailure	failure = ZKL_FAILURE_NONE;
	ZklOutcome	outcome = zkl_session_note_done(rc, &failure);

	if (!zkl_session_state.closing)
	{
		event = zkl_session_append_event(ZKL_SESSION_ANSWER);
		event->tag = call->ask.tag;
		event->attempt = call->ask.attempt;
		event->item = call->ask.item;
		event->reply.outcome = outcome;
		event->reply.failure = failure;
	}
	free(call);
	return event;
}

void
zkl_session_ask_sync(ZklSessionAsk ask, const char *path)
{
	Call	   *call = begin_call(ask);

	sent(call, zoo_async(zkl_session_state.handle, path, on_synced, call));
}

static void
on_synced(int rc, const char *path, const void *data)
{
	finish_call(unconstify(void *, data), rc);
}

void
zkl_session_ask_children(ZklSessionAsk ask, const char *path)
{
	Call	   *call = begin_call(ask);

	sent(call, zoo_aget_children(zkl_session_state.handle, path, 0,
								 on_children, call));
}

static void
on_children(int rc, const struct String_vector *strings, const void *data)
{
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);

	if (event != NULL && rc == ZOK)
		zkl_session_set_children(event, strings);
}

void
zkl_session_ask_data(ZklSessionAsk ask, const char *path, int data_size)
{
	Call	   *call = begin_call(ask);

	call->data_size = data_size;
	sent(call, zoo_aget(zkl_session_state.handle, path, 0, on_data, call));
}

static void
note_stat(ZklSessionEvent *event, const struct Stat *stat)
{
	event->reply.czxid = stat->czxid;
	event->ctime_ms = stat->ctime;
	event->owner = stat->ephemeralOwner;
}

/* The client says -1 for the length of data that are null. */
static void
on_data(int rc, const char *value, int value_length, const struct Stat *stat,
		const void *data)
{
	int			data_size = ((const Call *) data)->data_size;
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);

	if (event == NULL || rc != ZOK)
		return;
	note_stat(event, stat);
	event->data_length = Min(Max(value_length, 0), data_size);
	event->data = zkl_session_allocate(event->data_length + 1);
	if (event->data_length > 0)
		memcpy(event->data, value, event->data_length);
}

void
zkl_session_ask_stat(ZklSessionAsk ask, const char *path)
{
	Call	   *call = begin_call(ask);

	sent(call, zoo_aexists(zkl_session_state.handle, path, 0, on_stat, call));
}

static void
on_stat(int rc, const struct Stat *stat, const void *data)
{
	ZklSessionEvent *event = finish_call(unconstify(void *, data), rc);

	if (event != NULL && rc == ZOK)
		note_stat(event, stat);
}

void
zkl_session_ask_write(ZklSessionAsk ask, const char *path, const char *data)
{
	Call	   *call = begin_call(ask);

	sent(call, zoo_aset(zkl_session_state.handle, path, data, strlen(data), -1,
						on_written, call));
}

static void
on_written(int rc, const struct Stat *stat, const void *data)
{
	finish_call(unconstify(void *, data), rc);
}

void
zkl_session_ask_delete(ZklSessionAsk ask, const char *path)
{
	Call	   *call = begin_call(ask);

	sent(call, zoo_adelete(zkl_session_state.handle, path, -1, on_deleted,
						   call));
}

static void
on_deleted(int rc, const void *data)
{
	finish_call(unconstify(void *, data), rc);
}
