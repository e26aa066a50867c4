/*-------------------------------------------------------------------------
 *
 * sessionrecords.c
 *	  The requests about the records of jobs.
 *
 * What becomes of a request is in sessionreply.c.
 *
 * src/zookeeper/sessionrecords.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "zookeeper/sessionint.h"

static ZklSessionCall *begin_call(ZklSessionAsk ask);
static void create(ZklSessionCall *call, const char *path, const char *data,
				   int mode);
static void on_created(int rc, const char *path, const struct Stat *stat,
					   const void *data);

static ZklSessionCall *
begin_call(ZklSessionAsk ask)
{
	ZklSessionCall *call = zkl_session_begin_call(ZKL_SESSION_ANSWER, ask.tag,
												  ask.attempt);

	call->item = ask.item;
	return call;
}

void
zkl_session_create_directory(ZklSessionAsk ask, const char *path)
{
	ZklSessionCall *call = begin_call(ask);

	zkl_session_offer_above(call, path);
	create(call, path, "", ZOO_CONTAINER);
}

void
zkl_session_create_record(ZklSessionAsk ask, const char *path,
						  const char *data, bool with_parents)
{
	ZklSessionCall *call = begin_call(ask);

	if (with_parents)
		zkl_session_offer_above(call, path);
	create(call, path, data, ZOO_PERSISTENT);
}

static void
create(ZklSessionCall *call, const char *path, const char *data, int mode)
{
	zkl_session_sent(call, zoo_acreate2(zkl_session_state.handle, path, data,
										strlen(data), &ZOO_OPEN_ACL_UNSAFE,
										mode, on_created, call));
}

/* That the znode exists counts as a change, too. */
static void
on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
	const ZklSessionCall *call = data;

	if (rc == ZNONODE && call->refusal != ZOK)
		rc = call->refusal;
	zkl_session_on_stat(rc == ZNODEEXISTS ? ZBADVERSION : rc, stat, data);
}
