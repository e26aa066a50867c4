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

static ZklSessionCall *begin_call(ZklSessionAsk ask, ZklTraffic traffic);
static void create(ZklSessionAsk ask, const char *path, const char *data,
				   int mode, bool with_parents);
static void on_created(int rc, const char *path, const struct Stat *stat,
					   const void *data);
static void on_quorum(int rc, const void *data);
static void on_synced(int rc, const char *path, const void *data);

/*
 * A call whose reply is an answer to a command, or to the writer of jobs'
 * records.
 */
static ZklSessionCall *
begin_call(ZklSessionAsk ask, ZklTraffic traffic)
{
	ZklSessionCall *call = zkl_session_begin_call(ZKL_SESSION_ANSWER, ask.tag,
												  ask.attempt, traffic);

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
	ZklSessionCall *call = begin_call(ask, ZKL_TRAFFIC_CHECK);

	zkl_session_sent(call, zkl_session_check_quorum(call->results, on_quorum,
													call));
}

/* What the check itself found does not matter: a quorum has answered. */
static void
on_quorum(int rc, const void *data)
{
	zkl_session_on_done(zkl_session_is_answer(rc) ? ZOK : rc, data);
}

void
zkl_session_ask_sync(ZklSessionAsk ask)
{
	ZklSessionCall *call = begin_call(ask, ZKL_TRAFFIC_READ);

	zkl_session_sent(call, zoo_async(zkl_session_state.handle, "/", on_synced,
									 call));
}

static void
on_synced(int rc, const char *path, const void *data)
{
	zkl_session_on_done(rc, data);
}

void
zkl_session_ask_children(ZklSessionAsk ask, const char *path)
{
	ZklSessionCall *call = begin_call(ask, ZKL_TRAFFIC_LIST);

	zkl_session_sent(call, zoo_aget_children(zkl_session_state.handle, path, 0,
											 zkl_session_on_children, call));
}

void
zkl_session_ask_data(ZklSessionAsk ask, const char *path, int data_size)
{
	ZklSessionCall *call = begin_call(ask, ZKL_TRAFFIC_READ);

	call->data_size = data_size;
	zkl_session_sent(call, zoo_aget(zkl_session_state.handle, path, 0,
									zkl_session_on_data, call));
}

void
zkl_session_ask_stat(ZklSessionAsk ask, const char *path)
{
	ZklSessionCall *call = begin_call(ask, ZKL_TRAFFIC_READ);

	zkl_session_sent(call, zoo_aexists(zkl_session_state.handle, path, 0,
									   zkl_session_on_stat, call));
}

void
zkl_session_ask_write(ZklSessionAsk ask, const char *path, const char *data,
					  int version)
{
	zkl_session_set(begin_call(ask, ZKL_TRAFFIC_WRITE), path, data, version);
}

void
zkl_session_ask_delete(ZklSessionAsk ask, const char *path)
{
	ZklSessionCall *call = begin_call(ask, ZKL_TRAFFIC_DELETE);

	zkl_session_sent(call, zoo_adelete(zkl_session_state.handle, path, -1,
									   zkl_session_on_done, call));
}

/*
 * A write of the directory itself, after those above it: its Stat tells
 * ZooKeeper's time.
 */
void
zkl_session_create_directory(ZklSessionAsk ask, const char *path)
{
	create(ask, path, "", ZOO_CONTAINER, true);
}

void
zkl_session_create_record(ZklSessionAsk ask, const char *path,
						  const char *data, bool with_parents)
{
	create(ask, path, data, ZOO_PERSISTENT, with_parents);
}

void
zkl_session_create_ephemeral(ZklSessionAsk ask, const char *path,
							 const char *data, bool with_parents)
{
	create(ask, path, data, ZOO_EPHEMERAL, with_parents);
}

static void
create(ZklSessionAsk ask, const char *path, const char *data, int mode,
	   bool with_parents)
{
	ZklSessionCall *call = begin_call(ask, ZKL_TRAFFIC_CREATE);

	if (with_parents)
		zkl_session_offer_above(call, path);
	zkl_session_sent(call, zoo_acreate2(zkl_session_state.handle, path, data,
										strlen(data), zkl_session_acl(),
										mode, on_created, call));
}

/* That the znode exists counts as a change, too. */
static void
on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
	const ZklSessionCall *call = data;

	/* ZooKeeper refused to make a directory above.  That is the reason. */
	if (rc == ZNONODE && call->refusal != ZOK)
		rc = call->refusal;
	zkl_session_on_stat(rc == ZNODEEXISTS ? ZBADVERSION : rc, stat, data);
}
