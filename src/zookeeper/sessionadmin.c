/*-------------------------------------------------------------------------
 *
 * sessionadmin.c
 *	  The requests that are no ticket's.
 *
 * What becomes of a request is in sessionreply.c.
 *
 * src/zookeeper/sessionadmin.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "zookeeper/sessionint.h"

static ZklSessionCall *begin_call(ZklSessionAsk ask);
static void on_quorum(int rc, const void *data);

static ZklSessionCall *
begin_call(ZklSessionAsk ask)
{
	ZklSessionCall *call = zkl_session_begin_call(ZKL_SESSION_ANSWER, ask.tag,
												  ask.attempt);

	call->item = ask.item;
	return call;
}

/*
 * ZooKeeper's sync would not do: a leader that has lost its quorum answers a
 * sync until it notices, while another leader may have been elected.
 */
void
zkl_session_ask_quorum(ZklSessionAsk ask)
{
	ZklSessionCall *call = begin_call(ask);

	zkl_session_sent(call, zkl_session_check_quorum(call->results, on_quorum,
													call));
}

static void
on_quorum(int rc, const void *data)
{
	zkl_session_on_done(zkl_session_is_from_quorum(rc) ? ZOK : rc, data);
}

void
zkl_session_ask_children(ZklSessionAsk ask, const char *path)
{
	ZklSessionCall *call = begin_call(ask);

	zkl_session_sent(call, zoo_aget_children(zkl_session_state.handle, path, 0,
											 zkl_session_on_children, call));
}

void
zkl_session_ask_data(ZklSessionAsk ask, const char *path, int data_size)
{
	ZklSessionCall *call = begin_call(ask);

	call->data_size = data_size;
	zkl_session_sent(call, zoo_aget(zkl_session_state.handle, path, 0,
									zkl_session_on_data, call));
}

void
zkl_session_ask_stat(ZklSessionAsk ask, const char *path)
{
	ZklSessionCall *call = begin_call(ask);

	zkl_session_sent(call, zoo_aexists(zkl_session_state.handle, path, 0,
									   zkl_session_on_stat, call));
}

void
zkl_session_ask_write(ZklSessionAsk ask, const char *path, const char *data,
					  int version)
{
	zkl_session_set(begin_call(ask), path, data, version);
}

void
zkl_session_ask_delete(ZklSessionAsk ask, const char *path)
{
	ZklSessionCall *call = begin_call(ask);

	zkl_session_sent(call, zoo_adelete(zkl_session_state.handle, path, -1,
									   zkl_session_on_done, call));
}
