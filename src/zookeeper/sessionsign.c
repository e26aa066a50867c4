/*-------------------------------------------------------------------------
 *
 * sessionsign.c
 *	  Signs of life: requests that keep the session alive, or prove that it lives.
 *
 * Only one is under way at a time.  session.h says which kinds there are.
 *
 * src/zookeeper/sessionsign.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "settings.h"
#include "zookeeper/sessionint.h"

static int	send_sign(ZklSign sign);
static void on_proof(int rc, const void *data);
static void on_echo(int rc, const char *path, const void *data);
static void on_read(int rc, const struct Stat *stat, const void *data);
static void on_sign(int rc);

void
zkl_session_sign(ZklSign sign)
{
	if (!zkl_session_may_sign())
		return;

	zkl_session_state.sign_sent = zkl_now();
	zkl_session_state.sign_provable = zkl_session_state.provable;
	if (send_sign(sign) != ZOK)
		return;
	zkl_session_state.sign = sign;
	if (sign != ZKL_SIGN_PROOF)
	{
		zkl_session_count_sent(ZKL_TRAFFIC_SIGN);
		return;
	}
	/* The barrier is sent, so tickets may send requests. */
	zkl_session_state.barrier_sent = true;
	zkl_session_count_sent(ZKL_TRAFFIC_HEARTBEAT);
	ZKL_FAULT_POINT("heartbeat-sent");
}

/* The leader replies to a sync, but a sync is not a write. */
static int
send_sign(ZklSign sign)
{
	static zoo_op_result_t result;

	switch (sign)
	{
		case ZKL_SIGN_READ:
			return zoo_aexists(zkl_session_state.handle, "/", 0, on_read, NULL);
		case ZKL_SIGN_ECHO:
			return zoo_async(zkl_session_state.handle, "/", on_echo, NULL);
		case ZKL_SIGN_PROOF:
			return zkl_session_check_quorum(&result, on_proof, NULL);
		case ZKL_SIGN_NONE:
			break;
	}
	return ZBADARGUMENTS;
}

/*
 * A multi goes through the quorum although it changes nothing, and even if
 * this client may not read "/".  A follower does not refuse it by itself, as
 * it may refuse other writes (enableEagerACLCheck).  The client copies the
 * operation.
 */
int
zkl_session_check_quorum(zoo_op_result_t *result,
						 void_completion_t completion, const void *data)
{
	zoo_op_t	op;

	zoo_check_op_init(&op, "/", -1);
	return zoo_amulti(zkl_session_state.handle, 1, &op, result, completion,
					  data);
}

bool
zkl_session_may_sign(void)
{
	return zkl_session_state.sign == ZKL_SIGN_NONE && zkl_session_is_connected();
}

int64_t
zkl_session_sign_sent(void)
{
	return zkl_session_state.sign == ZKL_SIGN_NONE ? 0 : zkl_session_state.sign_sent;
}

void
zkl_session_set_provable(int64_t provable)
{
	zkl_session_state.provable = provable;
}

static void
on_proof(int rc, const void *data)
{
	ZKL_FAULT_POINT("heartbeat-answered");

	/*
	 * Only this reply shows that the connection is of use, so the next
	 * attempts to connect may be made at full speed.
	 */
	if (!zkl_session_state.closing && zkl_session_is_answer(rc))
	{
		zkl_session_state.attempts = 0;
		zkl_session_state.on_answered(zkl_now() - zkl_session_state.sign_sent);
	}
	on_sign(rc);
}

static void
on_echo(int rc, const char *path, const void *data)
{
	on_sign(rc);
}

static void
on_read(int rc, const struct Stat *stat, const void *data)
{
	on_sign(rc);
}

static void
on_sign(int rc)
{
	ZklSign		sign = zkl_session_state.sign;
	ZklFailure	failure;

	zkl_session_state.sign = ZKL_SIGN_NONE;
	zkl_session_state.outstanding--;
	/* This is not a reply: the handle is being closed. */
	if (zkl_session_state.closing)
		return;
	if (zkl_session_is_answer(rc))
	{
		ZklSessionEvent *event = zkl_session_append_event(ZKL_SESSION_SIGN);

		event->sign = sign;
		event->sent = zkl_session_state.sign_sent;
		event->provable = zkl_session_state.sign_provable;
	}
	else if (rc == ZSESSIONCLOSEDREQUIRESASLAUTH)
		zkl_session_note_refused();
	else if (zkl_session_outcome_of(rc, &failure) == ZKL_OUTCOME_REFUSED &&
			 !zkl_session_state.refusal_logged)
	{
		zkl_session_state.refusal_logged = true;
		elog(LOG, "ZooKeeper refuses the heartbeat: %s", zerror(rc));
	}
}
