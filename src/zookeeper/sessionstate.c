/*-------------------------------------------------------------------------
 *
 * sessionstate.c
 *	  The state of the ZooKeeper session, and why there is no connection.
 *
 * src/zookeeper/sessionstate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "zookeeper/sessionint.h"

ZklSessionState zkl_session_state = {.fd = -1};

/* Keep the first reason, which the client's own message would replace. */
void
zkl_session_note_failure(bool is_mistrusted, const char *format,...)
{
	va_list		arguments;

	if (zkl_session_state.closing || zkl_session_state.gave_up)
		return;
	va_start(arguments, format);
	vsnprintf(zkl_session_state.error, sizeof(zkl_session_state.error), format, arguments);
	va_end(arguments);
	zkl_session_state.has_error = zkl_session_state.gave_up = true;
	if (is_mistrusted &&
		zoo_state(zkl_session_state.handle) != ZOO_CONNECTED_STATE)
	{
		strlcpy(zkl_session_state.mistrust, zkl_session_state.error,
				sizeof(zkl_session_state.mistrust));
		zkl_session_state.mistrusts++;
	}
}

/*
 * Users do not know the client's error numbers.  And if a server has closed
 * the connection, the client says "Host is down", which misleads.
 */
void
zkl_session_note_client_error(const char *text)
{
	const char *numbers = strstr(text, "zk retcode=");
	char		reason[128];
	int			rc;
	int			code;

	if (numbers == NULL ||
		sscanf(numbers, "zk retcode=%d, errno=%d", &rc, &code) != 2)
	{
		zkl_session_state.has_error = true;
		snprintf(zkl_session_state.error, sizeof(zkl_session_state.error),
				 "%.*s", (int) strcspn(text, "\n"), text);
		return;
	}
	/* An expiry is no failure of the connection.  An event reports it. */
	if (rc == ZSESSIONEXPIRED)
		return;
	zkl_session_state.has_error = true;
	if (rc == ZRUNTIMEINCONSISTENCY)
		strlcpy(reason, "does not answer in the order of the requests", sizeof(reason));
	else
		zkl_session_describe_errno(code, reason, sizeof(reason));
	snprintf(zkl_session_state.error, sizeof(zkl_session_state.error),
			 "server %s %s", zkl_session_state.server, reason);
}

void
zkl_session_describe_errno(int code, char *reason, size_t size)
{
	if (code == ECONNREFUSED)
		strlcpy(reason, "refused the connection", size);
	else if (code == 0 || code == EHOSTDOWN || code == ECONNRESET || code == EPIPE)
		strlcpy(reason, "closed the connection", size);
	else if (code == ETIMEDOUT)
		strlcpy(reason, "did not answer in time", size);
	else
		snprintf(reason, size, "cannot be reached: %s", strerror(code));
}

const char *
zkl_session_take_error(void)
{
	bool		is_new = zkl_session_state.has_error;

	zkl_session_state.has_error = false;
	return is_new ? zkl_session_state.error : NULL;
}

const char *
zkl_session_mistrust(void)
{
	return zkl_session_state.mistrust[0] ? zkl_session_state.mistrust : NULL;
}
