/*-------------------------------------------------------------------------
 *
 * hosts.h
 *	  The connect string: "host:port,host:port/chroot".
 *
 * Pure.
 *
 * src/protocol/hosts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HOSTS_H
#define ZKL_HOSTS_H

#include <stdbool.h>

#define ZKL_HOSTS_NAME_SIZE		256
#define ZKL_HOSTS_PORT_SIZE		6

/* What is wrong with a connect string?  NULL: nothing. */
extern const char *zkl_hosts_fault(const char *hosts);

/* The chroot, "" where there is none.  Points into "hosts". */
extern const char *zkl_hosts_chroot(const char *hosts);

/*
 * The directory in ZooKeeper below which this server's locks lie: chroot and
 * root, without a trailing slash.  "prefix" has room for ZKL_ROOT_SIZE.
 */
extern void zkl_hosts_prefix(const char *hosts, const char *root,
							 char *prefix);

/* How many servers are named? */
extern int	zkl_hosts_servers(const char *hosts);

/*
 * The name and port of one server, counted from 0.  False if it is not there
 * or not of that form; "name" is then empty or the part that was understood.
 */
extern bool zkl_hosts_server(const char *hosts, int server, char *name,
							 char *port);

#endif							/* ZKL_HOSTS_H */
