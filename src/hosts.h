/*-------------------------------------------------------------------------
 *
 * hosts.h
 *	  The connect string: "host:port,host:port/chroot".
 *
 * src/hosts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HOSTS_H
#define ZKL_HOSTS_H

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
 * What is known of the servers, as a letter and a text, allocated with palloc.
 * The text is their numeric addresses, or the reason why there are none.  The
 * addresses are sorted, because the client shuffles them, and odd in number,
 * because the client forgets half of an even number.  With "numeric", names
 * count as unknown; otherwise this looks names up, and waits for DNS.
 */
#define ZKL_HOSTS_ALL	'+'		/* of all servers */
#define ZKL_HOSTS_SOME	'-'
#define ZKL_HOSTS_NONE	'!'

extern char *zkl_hosts_resolve(const char *hosts, bool numeric);

/* How many addresses are in such a list? */
extern int	zkl_hosts_count(const char *servers);

#endif							/* ZKL_HOSTS_H */
