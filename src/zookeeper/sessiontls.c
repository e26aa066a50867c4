/*-------------------------------------------------------------------------
 *
 * sessiontls.c
 *	  TLS to ZooKeeper, where the library of ZooKeeper's C client has it.
 *
 * The library's weak points, and what this file does about them:
 * - it reads the files again for each connection, and loops without end if
 *   they do not fit together at that moment: this file gives it copies, which
 *   it has checked;
 * - it trusts all authorities of the system besides the given one: this file
 *   tells OpenSSL that there are none;
 * - it does not compare the name in the server's certificate with anything:
 *   OpenSSL does, by its parameters for all connections of this process;
 * - it waits in the handshake as long as the server likes: a timer ends the
 *   wait;
 * - it does not say why TLS failed: OpenSSL's queue of errors does.
 *
 * src/zookeeper/sessiontls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "zookeeper/sessionint.h"

#ifdef ZKLOCK_TLS

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "utils/timeout.h"

#include "protocol/hosts.h"
#include "settings.h"

#define PATH_SIZE		32

/* The library has this state, but its header does not declare it. */
extern const int ZOO_SSL_CONNECTING_STATE;

static struct
{
	bool		is_on;
	int			copy[ZKL_TLS_TEXTS];	/* files in memory only */
	bool		is_timed;		/* the timer runs */
	volatile sig_atomic_t timed_out;
	int			fd;				/* the socket of the handshake under way */
	char		server[INET6_ADDRSTRLEN + 16];	/* the server of the handshake
												 * under way */
	char		error[256];
}			tls;

static bool is_in_use(const ZklTlsText *texts);
static int	copy_text(const ZklTlsText *text);
static void close_copies(int *copy);
static char *copy_path(int copy, char *path);
static const char *copies_fault(int *copy, int *faulty);
static int	no_password(char *buffer, int size, int for_write, void *context);
static unsigned long take_tls_error(void);
static void expect_server(void);
static bool is_address(const char *address, const char *name);
static void start_timer(int limit_ms);
static void on_timeout(void);

const char *
zkl_session_set_tls(const ZklTlsText *texts, bool *changed, int *faulty)
{
	int			copy[ZKL_TLS_TEXTS];
	const char *fault;

	if (is_in_use(texts))
		return NULL;
	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
		copy[i] = copy_text(&texts[i]);
	fault = copies_fault(copy, faulty);
	if (fault != NULL)
	{
		close_copies(copy);
		return fault;
	}
	(void) zkl_session_end_tls();
	memcpy(tls.copy, copy, sizeof(copy));
	tls.is_on = *changed = true;
	return NULL;
}

bool
zkl_session_end_tls(void)
{
	bool		was_on = tls.is_on;

	if (was_on)
		close_copies(tls.copy);
	tls.is_on = false;
	return was_on;
}

static bool
is_in_use(const ZklTlsText *texts)
{
	bool		result = tls.is_on;

	for (int i = 0; i < ZKL_TLS_TEXTS && result; i++)
	{
		int			length = texts[i].length;
		char	   *data = palloc(length + 1);

		/* Read one byte more, so that a longer copy is noticed. */
		result = pread(tls.copy[i], data, length + 1, 0) == length &&
			memcmp(data, texts[i].data, length) == 0;
		explicit_bzero(data, length + 1);
		pfree(data);
	}
	return result;
}

/*
 * The library wants file names.  The copies have only a name that is valid
 * within this process, and they are not on any disk.
 */
static int
copy_text(const ZklTlsText *text)
{
	int			copy = memfd_create("zklock", MFD_CLOEXEC);

	if (copy < 0 || write(copy, text->data, text->length) != text->length)
		elog(ERROR, "could not keep a certificate in memory: %m");
	return copy;
}

static void
close_copies(int *copy)
{
	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
		close(copy[i]);
}

static char *
copy_path(int copy, char *path)
{
	snprintf(path, PATH_SIZE, "/proc/self/fd/%d", copy);
	return path;
}

/* Try the files here as the library will use them. */
static const char *
copies_fault(int *copy, int *faulty)
{
	SSL_CTX    *context = SSL_CTX_new(TLS_client_method());
	char		path[PATH_SIZE];
	const char *fault = NULL;

	if (context == NULL)
		elog(ERROR, "could not make a context for TLS");
	ERR_clear_error();
	SSL_CTX_set_default_passwd_cb(context, no_password);
	if (SSL_CTX_load_verify_locations(context, copy_path(copy[ZKL_TLS_CA], path), NULL) != 1)
		*faulty = ZKL_TLS_CA;
	else if (SSL_CTX_use_certificate_chain_file(context, copy_path(copy[ZKL_TLS_CERTIFICATE], path)) != 1)
		*faulty = ZKL_TLS_CERTIFICATE;
	/* This also compares the key with the certificate. */
	else if (SSL_CTX_use_PrivateKey_file(context, copy_path(copy[ZKL_TLS_KEY], path),
										 SSL_FILETYPE_PEM) != 1)
		*faulty = ZKL_TLS_KEY;
	else
		*faulty = ZKL_TLS_TEXTS;
	if (*faulty != ZKL_TLS_TEXTS)
	{
		fault = ERR_reason_error_string(ERR_peek_last_error());
		if (fault == NULL)
			fault = "OpenSSL does not accept it";
	}
	ERR_clear_error();
	SSL_CTX_free(context);
	return fault;
}

/* Refuse a key with a password: no terminal is there to ask for it. */
static int
no_password(char *buffer, int size, int for_write, void *context)
{
	return -1;
}

/*
 * OpenSSL looks for other authorities where its environment variables say.
 * Such a variable may be set for the whole server; it must not count here.
 */
bool
zkl_session_init_tls(zhandle_t **handle, const char *servers, int timeout_ms,
					 const clientid_t *client_id, watcher_fn on_watch,
					 log_callback_fn on_log)
{
	char		path[ZKL_TLS_TEXTS][PATH_SIZE];
	char		paths[ZKL_TLS_TEXTS * PATH_SIZE];

	if (!tls.is_on)
		return false;
	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
		copy_path(tls.copy[i], path[i]);
	setenv("SSL_CERT_FILE", path[ZKL_TLS_CA], 1);
	setenv("SSL_CERT_DIR", "/dev/null", 1);
	snprintf(paths, sizeof(paths), "%s,%s,%s", path[ZKL_TLS_CA],
			 path[ZKL_TLS_CERTIFICATE], path[ZKL_TLS_KEY]);
	*handle = zookeeper_init_ssl(servers, paths, on_watch, timeout_ms, client_id,
								 NULL, ZOO_NO_LOG_CLIENTENV);
	if (*handle != NULL)
		zoo_set_log_callback(*handle, on_log);
	return true;
}

void
zkl_session_begin_tls_work(zhandle_t *handle, int fd, int limit_ms)
{
	const char *server;

	if (!tls.is_on)
		return;

	/*
	 * If an older system call has left an error here, the library takes it
	 * for "nothing to read".
	 */
	errno = 0;
	ERR_clear_error();
	tls.timed_out = false;
	tls.fd = fd;
	server = zoo_get_current_server(handle);
	strlcpy(tls.server, server ? server : "", sizeof(tls.server));
	if (zoo_state(handle) == ZOO_SSL_CONNECTING_STATE)
	{
		expect_server();
		start_timer(limit_ms);
	}
}

/*
 * Why TLS has failed.  A connection that merely ends is not a failure of TLS.
 */
const char *
zkl_session_end_tls_work(bool *is_mistrusted)
{
	unsigned long code;
	const char *reason;

	*is_mistrusted = false;
	if (!tls.is_on)
		return NULL;
	if (tls.is_timed)
		disable_timeout(USER_TIMEOUT, false);
	tls.is_timed = false;
	code = take_tls_error();
	if (code == 0 && !tls.timed_out)
		return NULL;
	if (tls.timed_out)
		reason = "no answer in time";
	else
	{
		reason = ERR_reason_error_string(code);
		*is_mistrusted = true;
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
		*is_mistrusted = ERR_GET_REASON(code) != SSL_R_UNEXPECTED_EOF_WHILE_READING;
#endif
	}
	snprintf(tls.error, sizeof(tls.error), "TLS with server %s failed: %s",
			 tls.server, reason ? reason : "unknown error");
	return tls.error;
}

/* Ignore errors about certificates that OpenSSL only looked for. */
static unsigned long
take_tls_error(void)
{
	unsigned long code;

	do
		code = ERR_get_error();
	while (code != 0 && ERR_GET_LIB(code) != ERR_LIB_SSL);
	ERR_clear_error();
	return code;
}

/*
 * OpenSSL checks the certificate against the parameters that it has for
 * servers in general.  Replace these by ours: the certificate must be for one
 * of the names in zklock.hosts, or for the address if zklock.hosts has that.
 * The names cannot be matched with addresses, because the library knows only
 * addresses.
 */
static void
expect_server(void)
{
	X509_VERIFY_PARAM *param = X509_VERIFY_PARAM_new();
	int			nservers = zkl_hosts_servers(zkl_hosts);
	char		address[sizeof(tls.server)];
	bool		done;

	/* The library puts the port after the last colon, for IPv6 too. */
	strlcpy(address, tls.server, sizeof(address));
	if (strrchr(address, ':') != NULL)
		*strrchr(address, ':') = '\0';
	done = param != NULL &&
		X509_VERIFY_PARAM_set1_name(param, "ssl_server") == 1 &&
		X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER) == 1 &&
		X509_VERIFY_PARAM_set_trust(param, X509_TRUST_SSL_SERVER) == 1;
	for (int i = 0; i < nservers && done; i++)
	{
		char		name[ZKL_HOSTS_NAME_SIZE];
		char		port[ZKL_HOSTS_PORT_SIZE];

		if (!zkl_hosts_server(zkl_hosts, i, name, port))
			continue;
		if (is_address(address, name))
		{
			done = X509_VERIFY_PARAM_set1_host(param, NULL, 0) == 1 &&
				X509_VERIFY_PARAM_set1_ip_asc(param, address) == 1;
			break;
		}
		done = X509_VERIFY_PARAM_add1_host(param, name, 0) == 1;
	}
	if (!done || X509_VERIFY_PARAM_add0_table(param) != 1)
		elog(ERROR, "could not set the names of the ZooKeeper servers for TLS");
}

/* Is the name the same address, perhaps in another notation? */
static bool
is_address(const char *address, const char *name)
{
	unsigned char one[sizeof(struct in6_addr)];
	unsigned char other[sizeof(struct in6_addr)];

	return (inet_pton(AF_INET, address, one) == 1 &&
			inet_pton(AF_INET, name, other) == 1 &&
			memcmp(one, other, sizeof(struct in_addr)) == 0) ||
		(inet_pton(AF_INET6, address, one) == 1 &&
		 inet_pton(AF_INET6, name, other) == 1 &&
		 memcmp(one, other, sizeof(struct in6_addr)) == 0);
}

static void
start_timer(int limit_ms)
{
	static bool is_registered = false;

	if (!is_registered)
		RegisterTimeout(USER_TIMEOUT, on_timeout);
	is_registered = true;
	tls.is_timed = true;
	enable_timeout_after(USER_TIMEOUT, limit_ms);
}

/* A signal handler: the library then finds that the connection has ended. */
static void
on_timeout(void)
{
	tls.timed_out = true;
	if (tls.fd >= 0)
		shutdown(tls.fd, SHUT_RDWR);
}

#else							/* ZKLOCK_TLS */

/* The settings cannot be set without TLS, so this is not reached. */
const char *
zkl_session_set_tls(const ZklTlsText *texts, bool *changed, int *faulty)
{
	*faulty = ZKL_TLS_CA;
	return "zklock was built without TLS";
}

bool
zkl_session_end_tls(void)
{
	return false;
}

bool
zkl_session_init_tls(zhandle_t **handle, const char *servers, int timeout_ms,
					 const clientid_t *client_id, watcher_fn on_watch,
					 log_callback_fn on_log)
{
	return false;
}

void
zkl_session_begin_tls_work(zhandle_t *handle, int fd, int limit_ms)
{
}

const char *
zkl_session_end_tls_work(bool *is_mistrusted)
{
	*is_mistrusted = false;
	return NULL;
}

#endif							/* ZKLOCK_TLS */
