/*-------------------------------------------------------------------------
 *
 * lookup.h
 *	  The servers' addresses, found without making the worker wait.
 *
 * Names are resolved in a short-lived process of its own, since a resolver may
 * block for as long as it likes.  One lookup runs at a time.
 *
 * Called only by the worker.
 *
 * src/lookup.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LOOKUP_H
#define ZKL_LOOKUP_H

typedef enum ZklLookup
{
	ZKL_LOOKUP_NONE,			/* none has ended since */
	ZKL_LOOKUP_DONE,			/* addresses were found, and remembered */
	ZKL_LOOKUP_FAILED
} ZklLookup;

/*
 * What is known of the servers in zklock.hosts, without asking anybody: their numeric
 * addresses, or those that were found last, by whatever worker.  False: nothing.
 */
extern bool zkl_lookup_servers(char **servers);

/*
 * Begin to look up what is not numeric, unless a lookup is running.  It ends within a
 * bounded time.
 */
extern void zkl_lookup_start(void);
extern bool zkl_lookup_is_running(void);

/* What became of it.  "text" says why it has FAILED. */
extern ZklLookup zkl_lookup_take(char **text);

#endif							/* ZKL_LOOKUP_H */
