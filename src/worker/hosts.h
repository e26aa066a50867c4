/*-------------------------------------------------------------------------
 *
 * hosts.h
 *	  The connect string: "host:port,host:port/chroot".
 *
 * src/worker/hosts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HOSTS_H
#define ZKL_HOSTS_H

#include <limits.h>

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

/*
 * What is known of the servers is a text with one line for each server: its
 * number, a letter, and its addresses separated by commas or the reason why
 * there are none.  A line is short enough to be written to a pipe in one piece.
 */
#define ZKL_HOSTS_KNOWN		'+'
#define ZKL_HOSTS_UNKNOWN	'!'
#define ZKL_HOSTS_LINE		PIPE_BUF

/* How many servers are named? */
extern int	zkl_hosts_servers(const char *hosts);

/*
 * The line of one server.  Allocated.  "numeric": a name counts as unknown; else this
 * looks the name up, and waits for that.
 */
extern char *zkl_hosts_resolve(const char *hosts, int server, bool numeric);

/*
 * The known lines of "new", and for the other servers those of "old", as far as there
 * is room for them.  Allocated.
 */
extern char *zkl_hosts_update(const char *hosts, const char *new,
							  const char *old, size_t size);

/*
 * All addresses, sorted (the client shuffles them) and odd in number, as the client
 * wants them.  Allocated.  "": there are none.
 */
extern char *zkl_hosts_list(const char *lines);

/* How many addresses are in such a list? */
extern int	zkl_hosts_count(const char *servers);

#endif							/* ZKL_HOSTS_H */
