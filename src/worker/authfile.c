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

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "protocol/credentials.h"
#include "settings.h"
#include "worker/authfile.h"
#include "zookeeper/session.h"

#define MAX_SIZE		8192

typedef struct AuthText
{
	int			length;
	char text[	MAX_SIZE];
} AuthText;

static AuthText in_use;
static bool is_loaded = false;

static bool read_file(AuthText *auth, const char **error);
static const char *permissions_fault(int fd);

bool
zkl_auth_file_load(const char **error)
{
	if (!is_loaded)
		is_loaded = read_file(&in_use, error);
	return is_loaded;
}

bool
zkl_auth_file_reload(void)
{
	static AuthText other;
	const char *error;
	bool		changed = false;

	/* The next attempt to open a session reads the file. */
	if (!is_loaded)
		return false;
	if (read_file(&other, &error))
	{
		changed = other.length != in_use.length ||
			memcmp(other.text, in_use.text, other.length) != 0;
		in_use = other;
	}
	else
		ereport(LOG,
				errmsg("credentials for ZooKeeper were not reloaded: %s", error));
	explicit_bzero(&other, sizeof(other));
	return changed;
}

void
zkl_auth_file_show(void)
{
	const char *at = in_use.text;
	ZklCredentials credentials;

	while (zkl_credentials_next(&at, in_use.text +in_use.length,
								&credentials))
	{
		if (!zkl_session_add_auth(credentials.scheme, credentials.data,
								  credentials.length))
			elog(ERROR, "could not give the ZooKeeper client its credentials");
	}
}

/*
 * Without the setting there are no credentials.  *error is allocated in the
 * turn's memory.  All roles can see it in zk_status, so it does not name the
 * file.
 */
static bool
read_file(AuthText *auth, const char **error)
{
	const char *fault;
	int			fd;
	int			line = 0;

	auth->length = 0;
	if (zkl_auth_file[0] == '\0')
		return true;

	/* Opening a pipe must not make the worker wait for a writer. */
	fd = OpenTransientFile(zkl_auth_file, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
	{
		*error = psprintf("could not open \"zklock.auth_file\": %s",
						  strerror(errno));
		return false;
	}
	fault = permissions_fault(fd);
	if (fault == NULL)
	{
		auth->length = read(fd, auth->text, MAX_SIZE);
		if (auth->length < 0)
			fault = "it could not be read";
		else if (auth->length == MAX_SIZE)
			fault = "it is too large";
	}
	CloseTransientFile(fd);
	if (fault == NULL)
		fault = zkl_credentials_fault(auth->text, auth->length, &line);
	if (fault == NULL)
		return true;

	if (line > 0)
		*error = psprintf("line %d of \"zklock.auth_file\": %s", line, fault);
	else
		*error = psprintf("\"zklock.auth_file\" cannot be used: %s", fault);
	explicit_bzero(auth, sizeof(*auth));
	return false;
}

void
zkl_auth_file_forget(void)
{
	explicit_bzero(&in_use, sizeof(in_use));
}

/* The same rule as PostgreSQL has for the private key of a server. */
static const char *
permissions_fault(int fd)
{
	struct stat status;

	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
		return "it is not a regular file";
	if (status.st_uid != geteuid())
		return "it must be owned by the user that runs the server";
	if (status.st_mode & (S_IRWXG | S_IRWXO))
		return "it has group or world access; it must have permissions u=rw (0600) or less";
	return NULL;
}
