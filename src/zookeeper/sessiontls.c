/*-------------------------------------------------------------------------
 *
 * sessiontls.c
 *	  TLS to ZooKeeper, by a pump between the client library and the server.
 *
 * The library, as distributions build it, has no TLS.  It makes a socket and
 * connects it, in zookeeper_interest().  It writes to the socket only later,
 * in zookeeper_process().  In between, this file keeps the connected socket
 * for itself, and puts one end of a pair of sockets in its place:
 *
 *		library <- pair of sockets -> pump <- TLS on its socket -> server
 *
 * The library notices nothing, and nothing leaves this process in clear.
 * Whatever the library does, the pump follows.  If the library makes another
 * socket, that is a new connection.  If it closes its end of the pair, the
 * connection ends.
 *
 * The pump never waits, except for the end of a session; see end_close.  Its
 * buffers have a fixed size.  If one side does not read, the pump does not
 * read from the other side either, so the pair of sockets, and then the
 * library's own queue, hold what is to be sent.
 *
 * Linux does not complete a non-blocking connect at once.  Another system
 * might; then the library would write in clear.  So there is TLS on Linux only.
 *
 * src/zookeeper/sessiontls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "zookeeper/sessionint.h"

#ifdef ZKL_HAS_TLS

#ifdef __has_include
#if !__has_include(<openssl/ssl.h>)
#error "OpenSSL's header files are missing, with which PostgreSQL was built; Debian has them in libssl-dev"
#endif
#endif

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "datatype/timestamp.h"

#include "protocol/hosts.h"

/* How long to wait for the server to end the connection of a closed session. */
#define CLOSE_LIMIT		ZKL_MS(1000)

/* The longest record of TLS. */
#define FLOW_SIZE		16384

/* What was read from one side, and is not written to the other one yet. */
typedef struct Flow
{
	int			begin;
	int			end;
	char		data[FLOW_SIZE];
} Flow;

static struct
{
	SSL_CTX    *context;		/* NULL: TLS is not in use */
	uint64		hash;			/* hash of the texts from which it was made */

	/* The pump of one connection. */
	SSL		   *ssl;			/* NULL: there is none */
	int			socket;			/* to the server */
	int			inner;			/* our end of the pair */
	uint32		sockets;		/* count of the library's sockets at the last
								 * pair */
	bool		is_open;		/* the handshake is complete */
	bool		wants_write;	/* OpenSSL waits until it can write */
	bool		is_closing;		/* the session is being closed */
	uint64		nread;			/* bytes that OpenSSL has read */
	Flow		up;				/* to the library */
	Flow		down;			/* to the server */

	/* The library's end of the pair; it stays when the pump has ended. */
	bool		is_readable;
	bool		wants_room;		/* the library waits until it can write */
}			tls;

static SSL_CTX *make_context(const ZklTlsText *texts, int *faulty, const char **fault);
static int64 seconds_of(const ASN1_TIME *when);
static void adopt(zhandle_t *handle, int fd);
static bool is_shaking_hands(void);
static bool expect_server(void);
static void pump(void);
static bool read_server(void);
static bool write_library(void);
static bool read_library(void);
static bool write_server(void);
static void take_result(int rc, bool of_write);
static void report_tls(unsigned long code);
static void hang_up(void);

/*
 * The files
 */

const char *
zkl_session_set_tls(const ZklTlsText *texts, bool *changed, int *faulty)
{
	uint64		hash = 0;
	SSL_CTX    *context;
	const char *fault = NULL;

	for (int i = 0; i < ZKL_TLS_TEXTS; i++)
		hash = hash_bytes_extended((unsigned char *) texts[i].data, texts[i].length, hash);
	if (tls.context != NULL && hash == tls.hash)
		return NULL;
	context = make_context(texts, faulty, &fault);
	if (fault != NULL)
	{
		SSL_CTX_free(context);
		return fault;
	}
	(void) zkl_session_end_tls();
	tls.context = context;
	tls.hash = hash;
	*changed = true;
	return NULL;
}

bool
zkl_session_end_tls(void)
{
	bool		was_on = tls.context != NULL;

	(void) zkl_session_tls_drop();
	SSL_CTX_free(tls.context);
	tls.context = NULL;
	return was_on;
}

bool
zkl_session_certificate(ZklCertificate *certificate)
{
	X509	   *own = tls.context != NULL ? SSL_CTX_get0_certificate(tls.context) : NULL;

	STACK_OF(X509) * between = NULL;
	X509_STORE_CTX *store;

	if (own == NULL)
		return false;
	certificate->not_before = seconds_of(X509_get0_notBefore(own));
	certificate->not_after = seconds_of(X509_get0_notAfter(own));
	(void) SSL_CTX_get_extra_chain_certs(tls.context, &between);
	store = X509_STORE_CTX_new();
	if (store == NULL ||
		X509_STORE_CTX_init(store, SSL_CTX_get_cert_store(tls.context), own, between) != 1)
		elog(ERROR, "could not make a context for a certificate");
	X509_STORE_CTX_set_flags(store, X509_V_FLAG_NO_CHECK_TIME);
	certificate->fits = X509_verify_cert(store) == 1;
	X509_STORE_CTX_free(store);
	ERR_clear_error();
	return true;
}

/* 0 if OpenSSL cannot tell. */
static int64
seconds_of(const ASN1_TIME *when)
{
	ASN1_TIME  *epoch = ASN1_TIME_set(NULL, 0);
	int			days = 0;
	int			seconds = 0;

	if (epoch == NULL || ASN1_TIME_diff(&days, &seconds, epoch, when) != 1)
		days = seconds = 0;
	ASN1_TIME_free(epoch);
	return (int64) days * SECS_PER_DAY + seconds;
}

/*
 * Only the given authorities count, because no others are loaded.  A
 * connection may end without a message of TLS: ZooKeeper's own messages have
 * lengths, so none can be cut off unnoticed.
 */
static SSL_CTX *
make_context(const ZklTlsText *texts, int *faulty, const char **fault)
{
	SSL_CTX    *context = SSL_CTX_new(TLS_client_method());
	bool		shows_one = texts[ZKL_TLS_CERTIFICATE].path[0] != '\0';
	unsigned long code;

	if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
		elog(ERROR, "could not make a context for TLS");
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);

	/*
	 * Refuse a key with a passphrase: there is no terminal at which to enter
	 * it.
	 */
	SSL_CTX_set_default_passwd_cb_userdata(context, "");
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
	SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif

	ERR_clear_error();
	if (SSL_CTX_load_verify_locations(context, texts[ZKL_TLS_CA].path, NULL) != 1)
		*faulty = ZKL_TLS_CA;
	else if (shows_one &&
			 SSL_CTX_use_certificate_chain_file(context, texts[ZKL_TLS_CERTIFICATE].path) != 1)
		*faulty = ZKL_TLS_CERTIFICATE;
	/* This also compares the key with the certificate. */
	else if (shows_one &&
			 SSL_CTX_use_PrivateKey_file(context, texts[ZKL_TLS_KEY].path, SSL_FILETYPE_PEM) != 1)
		*faulty = ZKL_TLS_KEY;
	else
		return context;

	code = ERR_peek_last_error();
	*fault = ERR_reason_error_string(code);
	if (ERR_GET_LIB(code) == ERR_LIB_X509 &&
		(ERR_GET_REASON(code) == X509_R_KEY_VALUES_MISMATCH ||
		 ERR_GET_REASON(code) == X509_R_KEY_TYPE_MISMATCH))
		*fault = "it does not belong to the certificate in \"zklock.ssl_cert_file\"";
	if (*fault == NULL)
		*fault = "OpenSSL does not accept it";
	return context;
}

/*
 * The connection
 */

/* The library has said what it waits for, perhaps on a new socket. */
void
zkl_session_tls_interest(zhandle_t *handle, int *fd, bool *writable, long *timeout_ms)
{
	bool		readable = false;
	bool		may_write = false;

	if (tls.context == NULL || *fd < 0)
		return;
	if (tls.sockets != zkl_session_state.sockets)
		adopt(handle, *fd);
	tls.wants_room = *writable;
	zkl_session_tls_process(&readable, &may_write);
	zkl_session_state.is_unread |= readable;
	if (may_write)
		*timeout_ms = 0;
	if (tls.ssl != NULL)
	{
		*fd = tls.socket;
		*writable = tls.wants_write;
	}
}

void
zkl_session_tls_process(bool *readable, bool *writable)
{
	if (tls.ssl == NULL && !tls.is_readable)
		return;
	pump();
	*readable = tls.is_readable;
	tls.is_readable = false;
	/* The library writes its first request when its socket is connected. */
	*writable = tls.ssl != NULL && tls.wants_room && tls.down.begin == tls.down.end;
}

static bool
is_shaking_hands(void)
{
	return tls.ssl != NULL && !tls.is_open &&
		BIO_number_written(SSL_get_wbio(tls.ssl)) > 0;
}

/* Give the library one end of a pair of sockets in place of its own socket. */
static void
adopt(zhandle_t *handle, int fd)
{
	int			pair[2];

	(void) zkl_session_tls_drop();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0 ||
		(tls.socket = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0 ||
		dup3(pair[1], fd, O_CLOEXEC) < 0)
		elog(ERROR, "could not put TLS between the ZooKeeper client and its server: %m");
	close(pair[1]);
	tls.inner = pair[0];
	tls.sockets = zkl_session_state.sockets;
	tls.is_open = tls.is_closing = tls.is_readable = false;
	tls.nread = 0;
	tls.ssl = SSL_new(tls.context);
	if (tls.ssl == NULL || SSL_set_fd(tls.ssl, tls.socket) != 1 || !expect_server())
		elog(ERROR, "could not prepare TLS with server %s", zkl_session_state.server);
	if (zoo_state(handle) != ZOO_CONNECTING_STATE)
	{
		zkl_session_note_failure(true, "TLS with server %s failed: the client has written before it",
								 zkl_session_state.server);
		(void) zkl_session_tls_drop();
	}
}

/*
 * The certificate must be for one of the names in zklock.hosts that have this
 * address, or for the address itself if zklock.hosts has only that.
 */
static bool
expect_server(void)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(tls.ssl);
	int			nservers = zkl_hosts_servers(zkl_hosts);
	char		address[sizeof(zkl_session_state.server)];
	bool		has_name = false;

	for (int i = 0; i < nservers; i++)
	{
		char		name[ZKL_HOSTS_NAME_SIZE];
		char		port[ZKL_HOSTS_PORT_SIZE];

		if (!zkl_session_state.is_name_of(i, zkl_session_state.server) ||
			!zkl_hosts_server(zkl_hosts, i, name, port))
			continue;
		/* The server may choose its certificate by the first name. */
		if (X509_VERIFY_PARAM_add1_host(param, name, 0) != 1 ||
			(!has_name && SSL_set_tlsext_host_name(tls.ssl, name) != 1))
			return false;
		has_name = true;
	}

	/* The library puts the port after the last colon, for IPv6 too. */
	strlcpy(address, zkl_session_state.server, sizeof(address));
	if (strrchr(address, ':') != NULL)
		*strrchr(address, ':') = '\0';
	return has_name || X509_VERIFY_PARAM_set1_ip_asc(param, address) == 1;
}

/*
 * Move what can be moved without a wait.  Each step may end the connection.
 * OpenSSL also waits until the socket is connected.  Read from the server
 * before writing to it: the server may have said why it does not read any
 * more.
 */
static void
pump(void)
{
	ERR_clear_error();
	tls.wants_write = false;
	if (tls.ssl != NULL && !tls.is_open)
	{
		int			rc = SSL_connect(tls.ssl);

		tls.is_open = rc == 1;
		if (rc != 1)
			take_result(rc, false);
	}
	if (tls.ssl == NULL || !tls.is_open)
		return;
	while ((tls.up.begin < tls.up.end || read_server()) && write_library())
		;

	/* The library sees nothing of a record before it is complete. */
	if (tls.ssl != NULL && BIO_number_read(SSL_get_rbio(tls.ssl)) != tls.nread)
	{
		tls.nread = BIO_number_read(SSL_get_rbio(tls.ssl));
		zkl_session_state.received_at = zkl_now();
	}
	while (tls.ssl != NULL &&
		   (tls.down.begin < tls.down.end || read_library()) && write_server())
		;
}

static bool
read_server(void)
{
	int			n = SSL_read(tls.ssl, tls.up.data, FLOW_SIZE);

	if (n <= 0)
		take_result(n, false);
	tls.up.begin = 0;
	tls.up.end = Max(n, 0);
	return n > 0;
}

/* If the library has closed its end, drop the bytes that it will not read. */
static bool
write_library(void)
{
	int			n = send(tls.inner, tls.up.data + tls.up.begin, tls.up.end - tls.up.begin, MSG_NOSIGNAL);

	tls.is_readable = true;
	if (n < 0 && errno == EAGAIN)
		return false;
	tls.up.begin = n < 0 ? tls.up.end : tls.up.begin + n;
	return true;
}

/*
 * One call takes all requests of a turn, as far as there is room, so they go
 * out together.  If the library has closed its end, all that it has written
 * has been sent by now.
 */
static bool
read_library(void)
{
	int			n = recv(tls.inner, tls.down.data, FLOW_SIZE, 0);

	if (n > 0)
	{
		tls.down.begin = 0;
		tls.down.end = n;
		return true;
	}
	if ((n == 0 || errno != EAGAIN) && !tls.is_closing)
		hang_up();
	return false;
}

static bool
write_server(void)
{
	int			n = SSL_write(tls.ssl, tls.down.data + tls.down.begin, tls.down.end - tls.down.begin);

	if (n <= 0)
		take_result(n, true);
	else
		tls.down.begin += n;
	return n > 0;
}

/* A call of OpenSSL has not succeeded: go on later, or end the connection. */
static void
take_result(int rc, bool of_write)
{
	char		reason[128];
	int			code = errno;
	int			result = SSL_get_error(tls.ssl, rc);

	if (result == SSL_ERROR_WANT_WRITE)
		tls.wants_write = true;
	if (result == SSL_ERROR_WANT_WRITE || result == SSL_ERROR_WANT_READ)
		return;

	/*
	 * The server may have said why before it closed the connection.  With TLS
	 * 1.3 it refuses a certificate only after the handshake.
	 */
	if (of_write && result == SSL_ERROR_SYSCALL)
	{
		do
			rc = SSL_read(tls.ssl, tls.up.data, FLOW_SIZE);
		while (rc > 0);
		result = SSL_get_error(tls.ssl, rc);
	}
	/* If the connection ends after the handshake, the library says so. */
	if (result == SSL_ERROR_SSL)
		report_tls(ERR_peek_last_error());
	else if (is_shaking_hands())
		zkl_session_note_failure(false, "TLS with server %s failed: it closed the connection in the handshake, as a port without TLS does",
								 zkl_session_state.server);
	else if (!tls.is_open)
	{
		zkl_session_describe_errno(code, reason, sizeof(reason));
		zkl_session_note_failure(false, "server %s %s", zkl_session_state.server, reason);
	}
	(void) zkl_session_tls_drop();
}

static void
report_tls(unsigned long code)
{
	int			reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
	bool		is_alert = reason >= SSL_AD_REASON_OFFSET;
	bool		is_mistrusted = is_alert || reason == SSL_R_CERTIFICATE_VERIFY_FAILED;
	const char *text = ERR_reason_error_string(code);
	const char *about = "";

	if (is_alert)
	{
		about = "it has sent the alert: ";
		text = SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET);
	}
	else if (is_mistrusted)
	{
		about = "its certificate is not trusted: ";
		text = X509_verify_cert_error_string(SSL_get_verify_result(tls.ssl));
	}
	else if (reason == SSL_R_WRONG_VERSION_NUMBER)
		text = "it does not speak TLS";

	else if (reason == SSL_R_UNSUPPORTED_PROTOCOL)
		text = "its versions of TLS are all older than 1.2";

	zkl_session_note_failure(is_mistrusted, "TLS with server %s failed: %s%s",
							 zkl_session_state.server, about, text ? text : "unknown error");
}

/*
 * The end
 */

/* The library's end of the pair stays, and shows the end of the connection. */
bool
zkl_session_tls_drop(void)
{
	bool		result = is_shaking_hands();

	if (tls.ssl == NULL)
		return false;
	SSL_free(tls.ssl);
	tls.ssl = NULL;
	close(tls.socket);
	close(tls.inner);
	tls.is_readable = true;
	/* Erase the buffers, because requests may contain passwords. */
	explicit_bzero(&tls.up, sizeof(tls.up));
	explicit_bzero(&tls.down, sizeof(tls.down));
	return result;
}

/* Tell the server that nothing more comes. */
static void
hang_up(void)
{
	ERR_clear_error();
	(void) SSL_shutdown(tls.ssl);
	(void) zkl_session_tls_drop();
}

/*
 * Close the handle.  If it is connected, the library sends the request that
 * ends the session, and waits until it can read: let it read the end of the
 * connection.  The server would lose the request if the connection ended
 * before its reply, so wait until the server closes the connection.
 */
void
zkl_session_tls_close(zhandle_t *handle)
{
	int64		until = zkl_now() + CLOSE_LIMIT;
	int64		now;

	pump();
	tls.is_closing = tls.ssl != NULL && zoo_state(handle) == ZOO_CONNECTED_STATE;
	if (tls.is_closing)
		(void) shutdown(tls.inner, SHUT_WR);
	zookeeper_close(handle);
	while (tls.ssl != NULL && tls.is_closing && (now = zkl_now()) < until)
	{
		struct pollfd ready = {.fd = tls.socket};

		pump();
		ready.events = POLLIN | (tls.wants_write ? POLLOUT : 0);
		if (tls.ssl != NULL)
			(void) poll(&ready, 1, (until - now) / 1000);
	}
	if (tls.ssl != NULL)
		hang_up();
	tls.is_readable = false;
}

#else							/* ZKL_HAS_TLS */

/* Without TLS, the settings cannot be set, so this is not reached. */
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
zkl_session_certificate(ZklCertificate *certificate)
{
	return false;
}

void
zkl_session_tls_interest(zhandle_t *handle, int *fd, bool *writable, long *timeout_ms)
{
}

void
zkl_session_tls_process(bool *readable, bool *writable)
{
}

bool
zkl_session_tls_drop(void)
{
	return false;
}

void
zkl_session_tls_close(zhandle_t *handle)
{
	zookeeper_close(handle);
}

#endif							/* ZKL_HAS_TLS */
