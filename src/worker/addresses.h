/*-------------------------------------------------------------------------
 *
 * addresses.h
 *	  What is known of the addresses of the ZooKeeper servers.
 *
 * Called only by the worker and its children.
 *
 * src/worker/addresses.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ADDRESSES_H
#define ZKL_ADDRESSES_H

#include <limits.h>

/*
 * What is known of the servers is a text with one line for each server: its
 * number, a letter, and its addresses separated by commas or the reason why
 * there are none.  A line is short enough to be written to a pipe in one piece.
 */
#define ZKL_ADDRESSES_KNOWN		'+'
#define ZKL_ADDRESSES_UNKNOWN	'!'
#define ZKL_ADDRESSES_LINE		PIPE_BUF

/*
 * The line of one server.  Allocated.  "numeric": a name counts as unknown; else this
 * looks the name up, and waits for that.
 */
extern char *zkl_addresses_resolve(const char *hosts, int server, bool numeric);

/*
 * The known lines of "new", and for the other servers those of "old", as far as there
 * is room for them.  Allocated.
 */
extern char *zkl_addresses_update(const char *hosts, const char *new,
								  const char *old, size_t size);

/*
 * All addresses, sorted (the client shuffles them) and odd in number, as the client
 * wants them.  Allocated.  "": there are none.
 */
extern char *zkl_addresses_list(const char *lines);

/* How many addresses are in such a list? */
extern int	zkl_addresses_count(const char *servers);

#endif							/* ZKL_ADDRESSES_H */
