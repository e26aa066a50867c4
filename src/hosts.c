/*-------------------------------------------------------------------------
 *
 * hosts.c
 *	  The connect string: "host:port,host:port/chroot".
 *
 * The chroot is taken off here and put before the root, so that it is made
 * like any other directory.  Names are resolved here, because the client
 * forgets half of the servers when it is given an even number of addresses.
 *
 * src/hosts.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netdb.h>
#include <sys/socket.h>

#include "common/ip.h"
#include "lib/stringinfo.h"

#include "hosts.h"
#include "path.h"

#define MAX_SERVERS		255

typedef struct ServerList
{
	int			n;
	char	   *address[MAX_SERVERS + 1];
	char	   *error;			/* the last one; NULL: none */
} ServerList;

static bool split_server(const char *server, size_t length, char *name,
						 char *port);
static void resolve_server(const char *name, const char *port, bool numeric,
						   ServerList *list);

#define NAME_SIZE	256
#define PORT_SIZE	6

const char *
zkl_hosts_fault(const char *hosts)
{
	const char *end = zkl_hosts_chroot(hosts);
	const char *at = hosts;
	char		name[NAME_SIZE];
	char		port[PORT_SIZE];

	for (;;)
	{
		size_t		length = strcspn(at, ",/");

		if (!split_server(at, length, name, port))
			return "Servers are given as \"host:port\", separated by commas.";
		at += length;
		if (at >= end)
			break;
		at++;
	}
	return zkl_path_root_fault(end);
}

const char *
zkl_hosts_chroot(const char *hosts)
{
	return hosts + strcspn(hosts, "/");
}

void
zkl_hosts_prefix(const char *hosts, const char *root, char *prefix)
{
	const char *chroot = zkl_hosts_chroot(hosts);

	snprintf(prefix, ZKL_ROOT_SIZE, "%s%s",
			 strcmp(chroot, "/") == 0 ? "" : chroot,
			 strcmp(root, "/") == 0 ? "" : root);
}

static int
compare_addresses(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

char *
zkl_hosts_resolve(const char *hosts, bool numeric)
{
	const char *end = zkl_hosts_chroot(hosts);
	ServerList	list = {0};
	StringInfoData result;

	for (const char *at = hosts; at < end;)
	{
		size_t		length = strcspn(at, ",/");
		char		name[NAME_SIZE];
		char		port[PORT_SIZE];

		if (split_server(at, length, name, port))
			resolve_server(name, port, numeric, &list);
		at += length + 1;
	}

	initStringInfo(&result);
	if (list.n == 0)
	{
		appendStringInfo(&result, "%c%s", ZKL_HOSTS_NONE,
						 list.error ? list.error : "");
		return result.data;
	}
	qsort(list.address, list.n, sizeof(char *), compare_addresses);
	if (list.n % 2 == 0)
	{
		list.address[list.n] = list.address[0];
		list.n++;
	}
	for (int i = 0; i < list.n; i++)
		appendStringInfo(&result, "%c%s",
						 i > 0 ? ',' : list.error ? ZKL_HOSTS_SOME : ZKL_HOSTS_ALL,
						 list.address[i]);
	return result.data;
}

int
zkl_hosts_count(const char *servers)
{
	int			count = 1;

	for (const char *at = servers; *at; at++)
		count += *at == ',';
	return count;
}

/* "name:port" or "[address]:port", spaces around it. */
static bool
split_server(const char *server, size_t length, char *name, char *port)
{
	const char *end = server + length;
	const char *colon = NULL;
	size_t		name_length;
	size_t		digits;

	while (server < end && *server == ' ')
		server++;
	while (server < end && end[-1] == ' ')
		end--;

	if (server < end && *server == '[')
	{
		const char *close = memchr(server, ']', end - server);

		if (close == NULL || (close + 1 < end && close[1] != ':'))
			return false;
		colon = close + 1 < end ? close + 1 : NULL;
		server++;
		name_length = close - server;
	}
	else
	{
		colon = memchr(server, ':', end - server);
		name_length = (colon ? colon : end) - server;
	}

	if (name_length == 0 || name_length >= NAME_SIZE ||
		memchr(server, ' ', name_length) != NULL)
		return false;
	memcpy(name, server, name_length);
	name[name_length] = '\0';

	if (colon == NULL)
		return false;
	digits = strspn(colon + 1, "0123456789");
	if (digits == 0 || digits >= PORT_SIZE || colon + 1 + digits != end ||
		atoi(colon + 1) > 65535 || atoi(colon + 1) == 0)
		return false;
	memcpy(port, colon + 1, digits);
	port[digits] = '\0';
	return true;
}

static void
resolve_server(const char *name, const char *port, bool numeric,
			   ServerList *list)
{
	struct addrinfo hint = {0};
	struct addrinfo *addresses = NULL;
	int			error;

	hint.ai_family = AF_UNSPEC;
	hint.ai_socktype = SOCK_STREAM;
	hint.ai_flags = numeric ? AI_NUMERICHOST : 0;
	error = pg_getaddrinfo_all(name, port, &hint, &addresses);
	if (error != 0)
	{
		list->error = psprintf("\"%s\": %s", name, gai_strerror(error));
		return;
	}

	for (struct addrinfo *a = addresses; a; a = a->ai_next)
	{
		char		host[NI_MAXHOST];
		char		service[NI_MAXSERV];

		if (list->n >= MAX_SERVERS - 1 ||
			getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host),
						service, sizeof(service),
						NI_NUMERICHOST | NI_NUMERICSERV) != 0)
			continue;

		/* The client splits at the last colon, also for IPv6. */
		list->address[list->n++] = psprintf("%s:%s", host, service);
	}
	pg_freeaddrinfo_all(AF_UNSPEC, addresses);
}
