/*-------------------------------------------------------------------------
 *
 * lookup.h
 *	  The servers' addresses, found without making the worker wait.
 *
 * Short-lived child processes resolve the names, because a resolver may block
 * for as long as it likes.  One lookup runs at a time.
 *
 * Called only by the worker.
 *
 * src/worker/lookup.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOOKUP_H
#define ZKL_LOOKUP_H

typedef enum ZklLookup
{
	ZKL_LOOKUP_NONE,			/* no lookup has ended since the last call */
	ZKL_LOOKUP_DONE,			/* addresses were found, and remembered */
	ZKL_LOOKUP_FAILED
} ZklLookup;

/*
 * What is known of the servers in zklock.hosts, without asking DNS: those that
 * are given as numbers, the addresses that any worker found last for the names,
 * and what the lookup that is running has found so far.  False if nothing is
 * known; and if nothing was found before, until the lookup has had some time to
 * find all.
 */
extern bool zkl_lookup_servers(char **servers);

/*
 * Begin to look up the names, unless a lookup is running.  The lookup ends
 * within a bounded time.
 */
extern void zkl_lookup_start(void);
extern bool zkl_lookup_is_running(void);

/* The result of the lookup.  If it has FAILED, "text" says why. */
extern ZklLookup zkl_lookup_take(char **text);

#endif							/* ZKL_LOOKUP_H */
