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
 * The servers' numeric addresses, sorted (the client shuffles them) and odd in
 * number, as the client wants them; allocated.  NULL where no name can be resolved.  Looks
 * names up, and waits for that.
 */
extern char *zkl_hosts_resolve(const char *hosts, int *nservers);

#endif							/* ZKL_HOSTS_H */
