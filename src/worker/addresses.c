/*-------------------------------------------------------------------------
 *
 * addresses.c
 *	  What is known of the addresses of the ZooKeeper servers.
 *
 * Names are resolved here and not by the client, because the client forgets
 * half of the servers when it is given an even number of addresses.
 *
 * src/worker/addresses.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netdb.h>
#include <sys/socket.h>

#include "common/ip.h"
#include "lib/stringinfo.h"

#include "protocol/hosts.h"
#include "worker/addresses.h"

#define MAX_ADDRESSES	255

static void append_addresses(StringInfo line, struct addrinfo *addresses);
static const char *find_line(const char *lines, int server);

static int
compare_addresses(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

char *
zkl_addresses_resolve(const char *hosts, int server, bool numeric)
{
	struct addrinfo hint = {0};
	struct addrinfo *addresses = NULL;
	StringInfoData line;
	char		name[ZKL_HOSTS_NAME_SIZE];
	char		port[ZKL_HOSTS_PORT_SIZE];
	int			error = EAI_NONAME;

	hint.ai_family = AF_UNSPEC;
	hint.ai_socktype = SOCK_STREAM;

	/*
	 * A number is recognized without DNS.  A name then is an error, and the
	 * line says that it is unknown.
	 */
	hint.ai_flags = numeric ? AI_NUMERICHOST : 0;
	/* A part that cannot be understood is an unknown name, too. */
	if (zkl_hosts_server(hosts, server, name, port))
		error = pg_getaddrinfo_all(name, port, &hint, &addresses);

	initStringInfo(&line);
	appendStringInfo(&line, "%d", server);
	if (error != 0)
		appendStringInfo(&line, "%c\"%s\": %s", ZKL_ADDRESSES_UNKNOWN, name,
						 gai_strerror(error));
	else
	{
		append_addresses(&line, addresses);
		pg_freeaddrinfo_all(AF_UNSPEC, addresses);
	}
	appendStringInfoChar(&line, '\n');
	return line.data;
}

/* Append what a name stands for, as numbers, as far as the line has room. */
static void
append_addresses(StringInfo line, struct addrinfo *addresses)
{
	char		separator = ZKL_ADDRESSES_KNOWN;

	for (struct addrinfo *a = addresses; a; a = a->ai_next)
	{
		char		host[NI_MAXHOST];
		char		service[NI_MAXSERV];

		/*
		 * The line has to stay short enough for a pipe to take it in one
		 * piece.
		 */
		if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host),
						service, sizeof(service),
						NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
			line->len + strlen(host) + strlen(service) + 4 > ZKL_ADDRESSES_LINE)
			continue;

		/* The client splits at the last colon, also for IPv6. */
		appendStringInfo(line, "%c%s:%s", separator, host, service);
		separator = ',';
	}
}

char *
zkl_addresses_update(const char *hosts, const char *new, const char *old,
					 size_t size)
{
	StringInfoData lines;
	int			n = zkl_hosts_servers(hosts);

	initStringInfo(&lines);
	for (int i = 0; i < n; i++)
	{
		const char *line = find_line(new, i);
		size_t		length;

		/* The new lookup found nothing for this server. */
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

		if (strtol(at, &letter, 10) == server && *letter == ZKL_ADDRESSES_KNOWN)
			return at;
	}
	return NULL;
}

char *
zkl_addresses_list(const char *lines)
{
	char	   *address[MAX_ADDRESSES + 1];
	int			n = 0;
	StringInfoData list;

	for (const char *at = lines; *at; at += strcspn(at, "\n") + 1)
	{
		/*
		 * After the number of the server comes the letter.  The line of an
		 * unknown server has no address, but its reason may have commas.
		 */
		const char *end = at + strspn(at, "0123456789");

		while (*end != '\n' && *end != ZKL_ADDRESSES_UNKNOWN && n < MAX_ADDRESSES)
		{
			/* "end" is at the letter or at a comma. */
			const char *begin = end + 1;

			end = begin + strcspn(begin, ",\n");
			address[n++] = pnstrdup(begin, end - begin);
		}
	}

	initStringInfo(&list);

	/*
	 * In a fixed order, so that equal lists are equal texts.  The worker
	 * compares them to find out whether servers have moved.
	 */
	qsort(address, n, sizeof(char *), compare_addresses);
	/* One address twice makes the number odd, and does no harm. */
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
zkl_addresses_count(const char *servers)
{
	int			count = 1;

	for (const char *at = servers; *at; at++)
		count += *at == ',';
	return count;
}
