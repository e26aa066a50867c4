/*-------------------------------------------------------------------------
 *
 * hosts.c
 *	  The connect string, "host:port,host:port/chroot", and the pace at which a
 *	  PostgreSQL server tries its servers.
 *
 * The client library does not see the chroot: zklock puts it before the root
 * instead, and so creates it like any other directory.
 *
 * src/protocol/hosts.c
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/hosts.h"
#include "protocol/path.h"

#define MAX_SERVERS		255
#define DEFAULT_PORT	"2181"	/* as in ZooKeeper's client for Java */
#define MIN_PAUSE_MS	50
#define MIN_LIMIT_MS	200

static const char *find_server(const char *hosts, int server, size_t *length);
static bool split_server(const char *server, size_t length, char *name,
						 char *port);

/*
 * The loop runs at least once, and once more after a trailing comma.  So it
 * finds an empty list as well as an empty server.
 */
const char *
zkl_hosts_fault(const char *hosts)
{
	const char *end = zkl_hosts_chroot(hosts);
	const char *at = hosts;
	char		name[ZKL_HOSTS_NAME_SIZE];
	char		port[ZKL_HOSTS_PORT_SIZE];

	for (;;)
	{
		size_t		length = strcspn(at, ",/");

		if (!split_server(at, length, name, port))
			return "Servers are given as \"host\" or \"host:port\", separated by commas.";
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

/* A single slash is the root itself, so nothing is put before the path. */
void
zkl_hosts_prefix(const char *hosts, const char *root, char *prefix)
{
	const char *chroot = zkl_hosts_chroot(hosts);

	snprintf(prefix, ZKL_ROOT_SIZE, "%s%s",
			 strcmp(chroot, "/") == 0 ? "" : chroot,
			 strcmp(root, "/") == 0 ? "" : root);
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

bool
zkl_hosts_server(const char *hosts, int server, char *name, char *port)
{
	size_t		length;
	const char *at = find_server(hosts, server, &length);

	name[0] = '\0';
	return at != NULL && split_server(at, length, name, port);
}

/* Returns NULL if the list has fewer servers. */
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

/*
 * Parse "name:port" or "[address]:port".  The port may be missing, and
 * spaces may surround the whole.
 */
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

	/*
	 * An IPv6 address is in brackets, because its colons do not separate a
	 * port.
	 */
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

	if (name_length == 0 || name_length >= ZKL_HOSTS_NAME_SIZE ||
		memchr(server, ' ', name_length) != NULL)
		return false;

	/*
	 * Fill in the name first: the caller may show it even if the port is
	 * wrong.
	 */
	memcpy(name, server, name_length);
	name[name_length] = '\0';

	if (colon == NULL)
	{
		strcpy(port, DEFAULT_PORT);
		return true;
	}

	/*
	 * atoi() would accept a sign, leading blanks, and text after the number.
	 */
	digits = strspn(colon + 1, "0123456789");
	if (digits == 0 || digits >= ZKL_HOSTS_PORT_SIZE || colon + 1 + digits != end ||
		atoi(colon + 1) > 65535 || atoi(colon + 1) == 0)
		return false;
	memcpy(port, colon + 1, digits);
	port[digits] = '\0';
	return true;
}

/*
 * A server pauses after each round through the whole list, not after each
 * attempt.
 */
int
zkl_hosts_pause_ms(int attempts, int nservers, int timeout_ms,
				   uint32_t random)
{
	int			rounds = attempts / nservers;
	int			longest = timeout_ms / 20;
	int			pause;

	assert(attempts > 0 && nservers > 0);
	if (attempts % nservers != 0)
		return 0;
	if (longest < 2 * MIN_PAUSE_MS)
		longest = 2 * MIN_PAUSE_MS;
	pause = MIN_PAUSE_MS << (rounds < 10 ? rounds : 10);
	if (pause > longest)
		pause = longest;
	return pause / 2 + random % (pause / 2 + 1);
}

/*
 * If each connect takes longer than the limit, none would ever succeed.  So
 * the limit doubles when as many connects were late as there are servers.
 */
int
zkl_hosts_limit_ms(int late, int nservers, int timeout_ms, bool is_new)
{
	int			rounds = late / nservers;
	int			longest = timeout_ms / 3 * 2;
	int			limit = timeout_ms / (is_new ? 3 : 3 * nservers);

	assert(late >= 0 && nservers > 0);
	if (limit < MIN_LIMIT_MS)
		limit = MIN_LIMIT_MS;
	while (rounds-- > 0 && limit < longest)
		limit *= 2;
	return limit < longest ? limit : longest;
}
