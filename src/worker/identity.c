/*-------------------------------------------------------------------------
 *
 * identity.c
 *	  The identity of this server in ZooKeeper: the files with its
 *	  credentials.
 *
 * src/worker/identity.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "protocol/access.h"
#include "settings.h"
#include "worker/identity.h"
#include "zookeeper/session.h"

/* A file with all authorities of a system has about 200 kB. */
#define TLS_SIZE		(1024 * 1024)
#define AUTH_SIZE		8192

typedef struct SecretFile
{
	const char *setting;		/* the setting that names the file */
	const char *name;			/* its value */
	bool		is_public;		/* other users may read it */
} SecretFile;

typedef struct AuthText
{
	int			length;
	char		lines[AUTH_SIZE];
} AuthText;

static bool load_tls(bool *changed, const char **error);
static bool load_sasl(bool *changed, const char **error);
static const char *take_password(char *line, int length);
static bool load_auth(bool *changed, const char **error);
static bool read_auth(AuthText *auth, const char **error);
static int	read_secret(const SecretFile *file, char *data, int size,
						const char **error);
static const char *describe_fault(const SecretFile *file, const char *fault);
static const char *permissions_fault(int fd, bool is_public);
static const char *settings_fault(void);

/*
 * TLS first: if several files are wrong, the message should be about the
 * layer nearest to the network.
 */
static bool (*const parts[]) (bool *changed, const char **error) =
{
	load_tls, load_sasl, load_auth
};

static bool is_loaded = false;
static AuthText in_use;

bool
zkl_identity_load(const char **error)
{
	bool		changed;

	if (is_loaded)
		return true;
	*error = settings_fault();
	if (*error != NULL)
		return false;
	for (int i = 0; i < lengthof(parts); i++)
	{
		if (!parts[i] (&changed, error))
			return false;
	}
	is_loaded = true;
	return true;
}

bool
zkl_identity_reload(void)
{
	const char *error = settings_fault();
	bool		any_changed = false;
	bool		changed;

	/*
	 * There is no need to reload: the next attempt to open a session reads
	 * the files.
	 */
	if (!is_loaded)
		return false;
	for (int i = 0; i < lengthof(parts) && error == NULL; i++)
	{
		(void) parts[i] (&changed, &error);
		any_changed |= changed;
	}
	if (error != NULL)
		ereport(LOG,
				errmsg("credentials for ZooKeeper were not reloaded: %s", error));
	return any_changed;
}

void
zkl_identity_show(void)
{
	const char *at = in_use.lines;
	ZklCredentials credentials;

	while (zkl_access_next_credentials(&at, in_use.lines + in_use.length,
									   &credentials))
	{
		if (!zkl_session_add_auth(credentials.scheme, credentials.data,
								  credentials.length))
			elog(ERROR, "could not give the ZooKeeper client its credentials");
	}
}

void
zkl_identity_forget(void)
{
	explicit_bzero(&in_use, sizeof(in_use));
	(void) zkl_session_end_sasl();
}

/*
 * Check the settings together.  If one is forgotten, the server must not go
 * on without encryption or without credentials.
 */
static const char *
settings_fault(void)
{
	int			ntls = (zkl_ssl_ca_file[0] != '\0') +
	(zkl_ssl_cert_file[0] != '\0') + (zkl_ssl_key_file[0] != '\0');
	int			nsasl = (zkl_sasl_user[0] != '\0') +
	(zkl_sasl_password_file[0] != '\0');

	if (ntls != 0 && ntls != 3)
		return "\"zklock.ssl_ca_file\", \"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\" must be set together";
	if (nsasl == 1)
		return "\"zklock.sasl_user\" and \"zklock.sasl_password_file\" must be set together";
	if (ntls != 0 && nsasl != 0)
		return "the library of ZooKeeper's C client can use TLS or SASL, but not both";
	return NULL;
}

/*
 * Each of these three reads what the settings name; without the settings,
 * there is none.  *changed: handles that are opened from now on show something
 * else than before.  False: a file cannot be used, as *error says, and the old
 * contents stay in use.
 */
static bool
load_tls(bool *changed, const char **error)
{
	SecretFile	file[ZKL_TLS_TEXTS] = {
		[ZKL_TLS_CA] = {"zklock.ssl_ca_file", zkl_ssl_ca_file, true},
		[ZKL_TLS_CERTIFICATE] = {"zklock.ssl_cert_file", zkl_ssl_cert_file, true},
		[ZKL_TLS_KEY] = {"zklock.ssl_key_file", zkl_ssl_key_file, false}
	};
	ZklTlsText	content[ZKL_TLS_TEXTS] = {0};
	int			faulty = ZKL_TLS_CA;
	const char *fault = NULL;

	*changed = false;
	*error = NULL;
	if (zkl_ssl_ca_file[0] == '\0')
	{
		*changed = zkl_session_end_tls();
		return true;
	}
	for (int i = 0; i < ZKL_TLS_TEXTS && *error == NULL; i++)
	{
		content[i].data = palloc(TLS_SIZE);
		content[i].length = read_secret(&file[i], content[i].data, TLS_SIZE,
										error);
	}
	if (*error == NULL)
		fault = zkl_session_set_tls(content, changed, &faulty);
	if (fault != NULL)
		*error = describe_fault(&file[faulty], fault);
	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
	{
		if (content[i].data != NULL)
		{
			explicit_bzero(content[i].data, TLS_SIZE);
			pfree(content[i].data);
		}
	}
	return *error == NULL;
}

static bool
load_sasl(bool *changed, const char **error)
{
	SecretFile	file = {"zklock.sasl_password_file", zkl_sasl_password_file, false};
	char		line[ZKL_SASL_PASSWORD_SIZE + 2];	/* with the end of the
													 * line */
	const char *fault;
	int			length;

	*changed = false;
	if (zkl_sasl_user[0] == '\0')
	{
		*changed = zkl_session_end_sasl();
		return true;
	}
	length = read_secret(&file, line, sizeof(line), error);
	if (length < 0)
		return false;
	fault = take_password(line, length);
	if (fault == NULL)
		fault = zkl_session_set_sasl(zkl_sasl_user, line, changed);
	if (fault != NULL)
		*error = describe_fault(&file, fault);
	explicit_bzero(line, sizeof(line));
	return fault == NULL;
}

/* Terminate the password, which must be the only line of the file. */
static const char *
take_password(char *line, int length)
{
	if (length > 0 && line[length - 1] == '\n')
		length--;
	if (length > 0 && line[length - 1] == '\r')
		length--;
	if (length == 0)
		return "there is no password in it";
	if (length >= ZKL_SASL_PASSWORD_SIZE)
		return "the password is too long";
	if (memchr(line, '\n', length) != NULL || memchr(line, '\0', length) != NULL)
		return "it must have one line, with the password";
	line[length] = '\0';

	return NULL;
}

static bool
load_auth(bool *changed, const char **error)
{
	static AuthText other;
	bool		result;

	*changed = false;
	result = read_auth(&other, error);
	if (result)
	{
		*changed = other.length != in_use.length ||
			memcmp(other.lines, in_use.lines, other.length) != 0;
		in_use = other;
	}
	explicit_bzero(&other, sizeof(other));
	return result;
}

/* Without the setting there are no credentials. */
static bool
read_auth(AuthText *auth, const char **error)
{
	SecretFile	file = {"zklock.auth_file", zkl_auth_file, false};
	const char *fault;
	int			line;

	auth->length = 0;
	if (zkl_auth_file[0] == '\0')
		return true;
	auth->length = read_secret(&file, auth->lines, AUTH_SIZE, error);
	if (auth->length < 0)
		return false;
	fault = zkl_access_credentials_fault(auth->lines, auth->length, &line);
	if (fault == NULL)
		return true;
	if (line > 0)
		*error = psprintf("line %d of \"%s\": %s", line, file.setting, fault);
	else
		*error = describe_fault(&file, fault);
	return false;
}

/*
 * Read the whole file into "data", which has room for "size" bytes; the file
 * must be shorter.  Return the length, or -1 if the file cannot be used, as
 * *error says.  *error is allocated in the turn's memory context.  All roles
 * can see it in zk_status, so it does not name the file.
 */
static int
read_secret(const SecretFile *file, char *data, int size, const char **error)
{
	const char *fault;
	int			length = 0;
	int			fd;

	/*
	 * If the file is a pipe, opening it must not make the worker wait for a
	 * writer.
	 */
	fd = OpenTransientFile(file->name, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
	{
		*error = psprintf("could not open \"%s\": %s", file->setting,
						  strerror(errno));
		return -1;
	}
	fault = permissions_fault(fd, file->is_public);
	if (fault == NULL)
	{
		length = read(fd, data, size);
		if (length < 0)
			fault = "it could not be read";
		else if (length == size)
			fault = "it is too large";
	}
	CloseTransientFile(fd);
	if (fault == NULL)
		return length;
	explicit_bzero(data, size);
	*error = describe_fault(file, fault);
	return -1;
}

/* The message for a fault in the file, which the caller may have found itself. */
static const char *
describe_fault(const SecretFile *file, const char *fault)
{
	return psprintf("\"%s\" cannot be used: %s", file->setting, fault);
}

/*
 * The same rule as PostgreSQL has for the private key of a server: a file of root's may be shared
 * with a group, which is how a container gets its secrets.
 */
static const char *
permissions_fault(int fd, bool is_public)
{
	struct stat status;

	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
		return "it is not a regular file";
	if (is_public)
		return NULL;
	if (status.st_uid != geteuid() && status.st_uid != 0)
		return "it must be owned by the user that runs the server, or by root";
	if (status.st_mode & (status.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO))
		return "it has group or world access; it must have permissions u=rw (0600) or less, or, if owned by root, u=rw,g=r (0640) or less";
	return NULL;
}
