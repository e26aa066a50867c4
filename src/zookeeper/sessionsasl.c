/*-------------------------------------------------------------------------
 *
 * sessionsasl.c
 *	  SASL with ZooKeeper, where the library of ZooKeeper's C client has it.
 *
 * The mechanism is DIGEST-MD5: the password does not go over the network.
 * The library authenticates at the beginning of each connection, before it
 * sends any request.
 *
 * src/zookeeper/sessionsasl.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "zookeeper/sessionint.h"

#ifdef ZKLOCK_SASL

#include <sasl/sasl.h>

/* The service name of ZooKeeper servers in this mechanism. */
#define SERVICE			"zookeeper"
#define HOST			"zk-sasl-md5"
#define MECHANISM		"DIGEST-MD5"

static struct
{
	bool		is_on;
	char		user[ZKL_SASL_PASSWORD_SIZE];
	union
	{
		sasl_secret_t secret;
		char		room[sizeof(sasl_secret_t) + ZKL_SASL_PASSWORD_SIZE];
	}			password;
}			sasl;

static bool start_library(void);
static int	on_sasl_log(void *context, int level, const char *message);
static int	tell_user(void *context, int id, const char **result,
					  unsigned *length);
static int	tell_password(struct sasl_conn *connection, void *context, int id,
						  struct sasl_secret **result);

/* Compilers take the type in the middle for any function. */
#define CALLBACK(function)	((int (*) (void)) (void (*) (void)) (function))

static const sasl_callback_t callbacks[] = {
	{SASL_CB_USER, CALLBACK(tell_user), NULL},
	{SASL_CB_AUTHNAME, CALLBACK(tell_user), NULL},
	{SASL_CB_PASS, CALLBACK(tell_password), NULL},
	{SASL_CB_LOG, CALLBACK(on_sasl_log), NULL},
	{SASL_CB_LIST_END, NULL, NULL}
};

const char *
zkl_session_set_sasl(const char *user, const char *password, bool *changed)
{
	size_t		length = strlen(password);

	if (strlen(user) >= sizeof(sasl.user))
		return "the user in \"zklock.sasl_user\" is too long";
	if (!start_library())
		return "Cyrus SASL could not be started";
	*changed |= !sasl.is_on || strcmp(user, sasl.user) != 0 ||
		length != sasl.password.secret.len ||
		memcmp(password, sasl.password.secret.data, length) != 0;
	strlcpy(sasl.user, user, sizeof(sasl.user));
	sasl.password.secret.len = length;
	memcpy(sasl.password.secret.data, password, length + 1);
	sasl.is_on = true;
	return NULL;
}

bool
zkl_session_end_sasl(void)
{
	bool		was_on = sasl.is_on;

	explicit_bzero(&sasl, sizeof(sasl));
	return was_on;
}

bool
zkl_session_init_sasl(zhandle_t **handle, const char *servers, int timeout_ms,
					  const clientid_t *client_id, watcher_fn on_watch,
					  log_callback_fn on_log)
{
	zoo_sasl_params_t params = {SERVICE, HOST, MECHANISM, callbacks};

	if (!sasl.is_on)
		return false;
	*handle = zookeeper_init_sasl(servers, on_watch, timeout_ms, client_id, NULL,
								  ZOO_NO_LOG_CLIENTENV, on_log, &params);
	return true;
}

/* Initialize Cyrus SASL once in a process. */
static bool
start_library(void)
{
	static bool is_started = false;

	if (!is_started)
		is_started = sasl_client_init(callbacks) == SASL_OK;
	return is_started;
}

/*
 * Without this callback, Cyrus SASL writes to syslog.  At its higher levels,
 * its messages may contain secrets.
 */
static int
on_sasl_log(void *context, int level, const char *message)
{
	if (level <= SASL_LOG_NOTE)
		elog(DEBUG1, "Cyrus SASL: %s", message);
	return SASL_OK;
}

static int
tell_user(void *context, int id, const char **result, unsigned *length)
{
	*result = sasl.user;
	if (length != NULL)
		*length = strlen(sasl.user);
	return SASL_OK;
}

static int
tell_password(struct sasl_conn *connection, void *context, int id,
			  struct sasl_secret **result)
{
	*result = &sasl.password.secret;
	return SASL_OK;
}

#else							/* ZKLOCK_SASL */

/* The settings cannot be set without SASL, so this is not reached. */
const char *
zkl_session_set_sasl(const char *user, const char *password, bool *changed)
{
	return "zklock was built without SASL";
}

bool
zkl_session_end_sasl(void)
{
	return false;
}

bool
zkl_session_init_sasl(zhandle_t **handle, const char *servers, int timeout_ms,
					  const clientid_t *client_id, watcher_fn on_watch,
					  log_callback_fn on_log)
{
	return false;
}

#endif							/* ZKLOCK_SASL */
