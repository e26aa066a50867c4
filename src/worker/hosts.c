/*-------------------------------------------------------------------------
 *
 * hosts.c
 *	  The connect string: "host:port,host:port/chroot".
 *
 * The chroot is taken off here and put before the root, so that it is made
 * like any other directory.  Names are resolved here, because the client
 * forgets half of the servers when it is given an even number of addresses.
 *
 * src/worker/hosts.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netdb.h>
#include <sys/socket.h>

#include "common/ip.h"
#include "lib/stringinfo.h"

#include "protocol/path.h"
#include "worker/hosts.h"

#define MAX_SERVERS		255

static const char *find_server(const char *hosts, int server, size_t *length);
static bool split_server(const char *server, size_t length, char *name,
						 char *port);
static void append_addresses(StringInfo line, struct addrinfo *addresses);
static const char *find_line(const char *lines, int server);

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

int
zkl_hosts_servers(const char *hosts)
{
	int			n = 0;
	size_t		length;

	while (n < MAX_SERVERS && find_server(hosts, n, &length) != NULL)
		n++;
	return n;
}

char *
zkl_hosts_resolve(const char *hosts, int server, bool numeric)
{
	struct addrinfo hint = {0};
	struct addrinfo *addresses = NULL;
	StringInfoData line;
	char		name[NAME_SIZE] = "";
	char		port[PORT_SIZE];
	size_t		length;
	const char *at = find_server(hosts, server, &length);
	int			error = EAI_NONAME;

	hint.ai_family = AF_UNSPEC;
	hint.ai_socktype = SOCK_STREAM;
	hint.ai_flags = numeric ? AI_NUMERICHOST : 0;
	if (split_server(at, length, name, port))
		error = pg_getaddrinfo_all(name, port, &hint, &addresses);

	initStringInfo(&line);
	appendStringInfo(&line, "%d", server);
	if (error != 0)
		appendStringInfo(&line, "%c\"%s\": %s", ZKL_HOSTS_UNKNOWN, name,
						 gai_strerror(error));
	else
	{
		append_addresses(&line, addresses);
		pg_freeaddrinfo_all(AF_UNSPEC, addresses);
	}
	appendStringInfoChar(&line, '\n');
	return line.data;
}

static void
append_addresses(StringInfo line, struct addrinfo *addresses)
{
	char		separator = ZKL_HOSTS_KNOWN;

	for (struct addrinfo *a = addresses; a; a = a->ai_next)
	{
		char		host[NI_MAXHOST];
		char		service[NI_MAXSERV];

		if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host),
						service, sizeof(service),
						NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
			line->len + strlen(host) + strlen(service) + 4 > ZKL_HOSTS_LINE)
			continue;

		/* The client splits at the last colon, also for IPv6. */
		appendStringInfo(line, "%c%s:%s", separator, host, service);
		separator = ',';
	}
}

char *
zkl_hosts_update(const char *hosts, const char *new, const char *old,
				 size_t size)
{
	StringInfoData lines;
	int			n = zkl_hosts_servers(hosts);

	initStringInfo(&lines);
	for (int i = 0; i < n; i++)
	{
		const char *line = find_line(new, i);
		size_t		length;

		if (line == NULL)
			line = find_line(old, i);
		length = line ? strcspn(line, "\n") + 1 : 0;
		if (lines.len + length < size)
			appendBinaryStringInfo(&lines, line, length);
	}
	return lines.data;
}

/* The line that knows the server, in lines of any order. */
static const char *
find_line(const char *lines, int server)
{
	for (const char *at = lines; *at; at += strcspn(at, "\n") + 1)
	{
		char	   *letter;

		if (strtol(at, &letter, 10) == server && *letter == ZKL_HOSTS_KNOWN)
			return at;
	}
	return NULL;
}

char *
zkl_hosts_list(const char *lines)
{
	char	   *address[MAX_SERVERS + 1];
	int			n = 0;
	StringInfoData list;

	for (const char *at = lines; *at; at += strcspn(at, "\n") + 1)
	{
		const char *end = at + strspn(at, "0123456789");

		while (*end != '\n' && *end != ZKL_HOSTS_UNKNOWN && n < MAX_SERVERS)
		{
			const char *begin = end + 1;

			end = begin + strcspn(begin, ",\n");
			address[n++] = pnstrdup(begin, end - begin);
		}
	}

	initStringInfo(&list);
	qsort(address, n, sizeof(char *), compare_addresses);
	if (n > 0 && n % 2 == 0)
	{
		address[n] = address[0];
		n++;
	}
	for (int i = 0; i < n; i++)
		appendStringInfo(&list, "%s%s", i > 0 ? "," : "", address[i]);
	return list.data;
}

int
zkl_hosts_count(const char *servers)
{
	int			count = 1;

	for (const char *at = servers; *at; at++)
		count += *at == ',';
	return count;
}

/* NULL: there are fewer. */
static const char *
find_server(const char *hosts, int server, size_t *length)
{
	const char *end = zkl_hosts_chroot(hosts);
	const char *at = hosts;

	*length = 0;
	while (at < end)
	{
		*length = strcspn(at, ",/");
		if (server-- == 0)
			return at;
		at += *length + 1;
	}
	return NULL;
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
