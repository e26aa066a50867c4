/*-------------------------------------------------------------------------
 *
 * hosts.h
 *	  The connect string, "host:port,host:port/chroot", and the pace at which a
 *	  PostgreSQL server tries its servers.
 *
 * When ZooKeeper fails, many PostgreSQL servers lose it at once, and they
 * must not overload it when it comes back.  The list of ZooKeeper's servers
 * is tried once at full speed, then with pauses.  The pauses grow from round
 * to round, up to a twentieth of the session timeout, and differ from server
 * to server.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/hosts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HOSTS_H
#define ZKL_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#define ZKL_HOSTS_NAME_SIZE		256
#define ZKL_HOSTS_PORT_SIZE		6

/* Returns NULL if the connect string is valid, else what is wrong with it. */
extern const char *zkl_hosts_fault(const char *hosts);

/* The chroot, or "" if there is none.  The result points into "hosts". */
extern const char *zkl_hosts_chroot(const char *hosts);

/*
 * The directory in ZooKeeper that contains this server's locks: chroot and
 * root, without a trailing slash.  "prefix" has room for ZKL_ROOT_SIZE.
 */
extern void zkl_hosts_prefix(const char *hosts, const char *root,
							 char *prefix);

/* How many servers the connect string names. */
extern int	zkl_hosts_servers(const char *hosts);

/*
 * Get the name and port of one server, counted from 0.  Returns false if
 * there is no such server or its form is wrong; "name" is then empty, or the
 * part that was understood.
 */
extern bool zkl_hosts_server(const char *hosts, int server, char *name,
							 char *port);

/*
 * How long to pause after this many attempts on a list of nservers.  0 until
 * each server of the list has been tried.  "random" is any number; it spreads
 * the pauses of different servers.
 */
extern int	zkl_hosts_pause_ms(int attempts, int nservers, int timeout_ms,
							   uint32_t random);

/*
 * How long a connect may take before the next server of the list is tried.
 * At first, all servers together may take a third of the session timeout, so
 * that a session outlives a round through silent servers.  But all servers
 * may be slow.  So the limit grows, up to what the client library allows,
 * with the number of connects that were given up since the last useful
 * connection ("late").
 *
 * A new session has nothing to lose.  Giving a connect up may even leave a
 * session behind in ZooKeeper.  So for a new session, each server may take a
 * third from the start.
 */
extern int	zkl_hosts_limit_ms(int late, int nservers, int timeout_ms,
							   bool is_new);

#endif							/* ZKL_HOSTS_H */
