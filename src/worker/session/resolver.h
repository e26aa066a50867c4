/*-------------------------------------------------------------------------
 *
 * resolver.h
 *	  Looks up the servers' addresses without making the worker wait.
 *
 * Short-lived child processes resolve the names, because a resolver may block
 * for as long as it likes.  One lookup runs at a time.
 *
 * Called only by the worker.  An error ends the worker (worker.c).
 *
 * src/worker/session/resolver.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_RESOLVER_H
#define ZKL_RESOLVER_H

typedef enum ZklResolverOutcome
{
	ZKL_RESOLVER_NONE,			/* no lookup has ended since the last call */
	ZKL_RESOLVER_DONE,			/* addresses were found, and stored */
	ZKL_RESOLVER_FAILED
} ZklResolverOutcome;

/*
 * The addresses of the servers in zklock.hosts, as far as they are known
 * without DNS, sorted (the client shuffles them) and odd in number, as the
 * client needs them: those that are given as addresses, those that any worker
 * found last for the names, and what the present lookup has found so far.
 * False if nothing is known.  If no worker has found any before, this is also
 * false until the lookup has had some time to find all names.
 */
extern bool zkl_resolver_servers(char **servers);

/*
 * Is the server in zklock.hosts, counted from 0, given by a name, and does
 * that name have this address and port?
 */
extern bool zkl_resolver_is_name_of(int server, const char *address);

/*
 * Begin to look up the names, unless a lookup of them is running.  A lookup
 * for an earlier value of zklock.hosts is stopped.  The lookup ends within a
 * bounded time.
 */
extern void zkl_resolver_start(void);
extern bool zkl_resolver_is_running(void);

/* The outcome of the lookup.  If it has FAILED, "text" says why. */
extern ZklResolverOutcome zkl_resolver_take(char **text);

#endif							/* ZKL_RESOLVER_H */
