/*-------------------------------------------------------------------------
 *
 * authfile.c
 *	  The credentials of this server, from the file zklock.auth_file.
 *
 * src/worker/authfile.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "protocol/credentials.h"
#include "settings.h"
#include "worker/authfile.h"
#include "worker/secretfile.h"
#include "zookeeper/session.h"

#define MAX_SIZE		8192

typedef struct AuthText
{
	int			length;
	char		lines[MAX_SIZE];
} AuthText;

static AuthText in_use;

static bool read_text(AuthText *auth, const char **error);

bool
zkl_auth_file_load(bool *changed, const char **error)
{
	static AuthText other;
	bool		result;

	*changed = false;
	result = read_text(&other, error);
	if (result)
	{
		*changed = other.length != in_use.length ||
			memcmp(other.lines, in_use.lines, other.length) != 0;
		in_use = other;
	}
	explicit_bzero(&other, sizeof(other));
	return result;
}

void
zkl_auth_file_show(void)
{
	const char *at = in_use.lines;
	ZklCredentials credentials;

	while (zkl_credentials_next(&at, in_use.lines + in_use.length,
								&credentials))
	{
		if (!zkl_session_add_auth(credentials.scheme, credentials.data,
								  credentials.length))
			elog(ERROR, "could not give the ZooKeeper client its credentials");
	}
}

/* Without the setting there are no credentials. */
static bool
read_text(AuthText *auth, const char **error)
{
	ZklSecretFile file = {"zklock.auth_file", zkl_auth_file, false};
	const char *fault;
	int			line;

	auth->length = 0;
	if (zkl_auth_file[0] == '\0')
		return true;
	auth->length = zkl_secret_file_read(&file, auth->lines, MAX_SIZE, error);
	if (auth->length < 0)
		return false;
	fault = zkl_credentials_fault(auth->lines, auth->length, &line);
	if (fault == NULL)
		return true;
	if (line > 0)
		*error = psprintf("line %d of \"%s\": %s", line, file.setting, fault);
	else
		*error = zkl_secret_file_error(&file, fault);
	return false;
}

void
zkl_auth_file_forget(void)
{
	explicit_bzero(&in_use, sizeof(in_use));
}
