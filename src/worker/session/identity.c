/*-------------------------------------------------------------------------
 *
 * identity.c
 *	  The identity of this server in ZooKeeper: the files with its
 *	  credentials.
 *
 * src/worker/session/identity.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/fd.h"
#include "utils/timestamp.h"

#include "protocol/access.h"
#include "settings.h"
#include "shared/sessioninfo.h"
#include "worker/session/identity.h"
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

static const char *load_all(bool *changed);
static const char *settings_fault(void);
static const char *load_tls(bool *changed);
static void note_certificate(bool is_new);
static char *time_text(int64 seconds);
static const char *load_auth(bool *changed);
static const char *read_auth(AuthText *auth);
static const char *read_secret(const SecretFile *file, char *data, int size,
							   int *length);
static const char *describe_fault(const SecretFile *file, const char *fault);
static const char *permissions_fault(int fd, bool is_public);

static bool is_loaded = false;
static AuthText in_use;

const char *
zkl_identity_load(void)
{
	bool		changed = false;
	const char *error = is_loaded ? NULL : load_all(&changed);

	is_loaded = error == NULL;
	return error;
}

bool
zkl_identity_reload(void)
{
	bool		changed = false;
	const char *error;

	/*
	 * There is no need to reload: the next attempt to open a session reads
	 * the files.
	 */
	if (!is_loaded)
		return false;
	error = load_all(&changed);
	if (error != NULL)
		ereport(LOG,
				errmsg("credentials for ZooKeeper were not reloaded: %s", error));
	return changed;
}

/*
 * TLS first: if several files are wrong, the message should be about the
 * layer nearest to the network.
 */
static const char *
load_all(bool *changed)
{
	const char *error = settings_fault();

	if (error == NULL)
		error = load_tls(changed);
	if (error == NULL)
		error = load_auth(changed);
	return error;
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
	(void) zkl_session_end_tls();
}

/*
 * Check the settings together.  If one is forgotten, the server must not go
 * on without encryption or without credentials.
 */
static const char *
settings_fault(void)
{
	if ((zkl_ssl_cert_file[0] == '\0') != (zkl_ssl_key_file[0] == '\0'))
		return "\"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\" must be set together";
	if (zkl_ssl_ca_file[0] == '\0' && zkl_ssl_cert_file[0] != '\0')
		return "\"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\" need \"zklock.ssl_ca_file\"";
	return NULL;
}

/*
 * Each of these two functions reads the files that the settings name.
 * *changed becomes true if handles that are opened from now on show another
 * identity than before.  Returns NULL, or why a file cannot be used; then the
 * old contents stay in use.
 */
static const char *
load_tls(bool *changed)
{
	SecretFile	file[ZKL_TLS_TEXTS] = {
		[ZKL_TLS_CA] = {"zklock.ssl_ca_file", zkl_ssl_ca_file, true},
		[ZKL_TLS_CERTIFICATE] = {"zklock.ssl_cert_file", zkl_ssl_cert_file, true},
		[ZKL_TLS_KEY] = {"zklock.ssl_key_file", zkl_ssl_key_file, false}
	};
	ZklTlsText	content[ZKL_TLS_TEXTS] = {0};
	int			faulty = ZKL_TLS_CA;
	const char *fault = NULL;
	const char *error = NULL;
	bool		is_new = false;

	if (zkl_ssl_ca_file[0] == '\0')
	{
		*changed |= zkl_session_end_tls();
		pg_atomic_write_u32(&zkl_session_info->tls, 0);
		pg_atomic_write_u64(&zkl_session_info->certificate_until, 0);
		return NULL;
	}
	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
	{
		content[i].path = file[i].name;
		content[i].data = palloc(TLS_SIZE);
		if (error == NULL && file[i].name[0] != '\0')
			error = read_secret(&file[i], content[i].data, TLS_SIZE,
								&content[i].length);
	}
	if (error == NULL)
		fault = zkl_session_set_tls(content, &is_new, &faulty);
	if (fault != NULL)
		error = describe_fault(&file[faulty], fault);
	else if (error == NULL)
		note_certificate(is_new);
	*changed |= is_new;
	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
	{
		explicit_bzero(content[i].data, TLS_SIZE);
		pfree(content[i].data);
	}
	return error;
}

/*
 * The files fit together, but ZooKeeper may refuse the certificate, and after
 * a reload that costs a good connection.  Even so, the old files do not stay
 * in use, because an authority that was removed must not be trusted any more.
 * A certificate that has ended is reported with each reload.  A certificate of
 * an authority that is not in zklock.ssl_ca_file is reported once, because
 * ZooKeeper may trust other authorities.
 */
static void
note_certificate(bool is_new)
{
	ZklCertificate certificate;
	int64		now = (int64) time(NULL);

	pg_atomic_write_u32(&zkl_session_info->tls, 1);
	pg_atomic_write_u64(&zkl_session_info->certificate_until, 0);
	if (!zkl_session_certificate(&certificate))
		return;
	pg_atomic_write_u64(&zkl_session_info->certificate_until, certificate.not_after);
	if (now >= certificate.not_after || now < certificate.not_before)
		ereport(WARNING,
				errmsg("the certificate in \"zklock.ssl_cert_file\" is not valid now"),
				errdetail("It is valid from %s to %s.", time_text(certificate.not_before),
						  time_text(certificate.not_after)),
				errhint("ZooKeeper will probably refuse it."));
	else if (is_new && !certificate.fits)
		ereport(WARNING,
				errmsg("the certificate in \"zklock.ssl_cert_file\" is not signed by an authority in \"zklock.ssl_ca_file\""),
				errhint("This is right only if ZooKeeper trusts another authority for its clients than the one that has signed its own certificates."));
}

static char *
time_text(int64 seconds)
{
	return pstrdup(timestamptz_to_str((seconds - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY) * USECS_PER_SEC));
}

static const char *
load_auth(bool *changed)
{
	AuthText	auth = {0};
	const char *error = read_auth(&auth);

	if (error == NULL)
	{
		*changed |= auth.length != in_use.length ||
			memcmp(auth.lines, in_use.lines, auth.length) != 0;
		in_use = auth;
	}
	explicit_bzero(&auth, sizeof(auth));
	return error;
}

/* Without the setting there are no credentials. */
static const char *
read_auth(AuthText *auth)
{
	SecretFile	file = {"zklock.auth_file", zkl_auth_file, false};
	const char *error;
	const char *fault;
	int			line;

	if (zkl_auth_file[0] == '\0')
		return NULL;
	error = read_secret(&file, auth->lines, AUTH_SIZE, &auth->length);
	if (error != NULL)
		return error;
	fault = zkl_access_credentials_fault(auth->lines, auth->length, &line);
	if (fault != NULL && line > 0)
		return psprintf("line %d of \"%s\": %s", line, file.setting, fault);
	return fault != NULL ? describe_fault(&file, fault) : NULL;
}

/*
 * Read the whole file into "data", which has room for "size" bytes; the file
 * must be shorter.  Returns NULL, or why the file cannot be used, allocated in
 * the turn's memory context.  All roles can see that in zk_status, so it does
 * not name the file.
 */
static const char *
read_secret(const SecretFile *file, char *data, int size, int *length)
{
	const char *fault;
	int			fd;

	/*
	 * If the file is a pipe, opening it must not make the worker wait for a
	 * writer.
	 */
	fd = OpenTransientFile(file->name, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
		return psprintf("could not open \"%s\": %s", file->setting,
						strerror(errno));
	fault = permissions_fault(fd, file->is_public);
	if (fault == NULL)
	{
		*length = read(fd, data, size);
		if (*length < 0)
			fault = "it could not be read";
		else if (*length == size)
			fault = "it is too large";
	}
	CloseTransientFile(fd);
	if (fault == NULL)
		return NULL;
	explicit_bzero(data, size);
	return describe_fault(file, fault);
}

/* The message for a fault in the file, which the caller may have found itself. */
static const char *
describe_fault(const SecretFile *file, const char *fault)
{
	return psprintf("\"%s\" cannot be used: %s", file->setting, fault);
}

/*
 * PostgreSQL has this rule for the private key of a server: a file of root's
 * may be shared with a group, which is how a container gets its secrets.
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
