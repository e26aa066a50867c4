/*-------------------------------------------------------------------------
 *
 * bypass.c
 *	  Notice and log clients that do not wait for zklock's locks.
 *
 * Each znode of such a client that a ticket's lists show is counted once.  The
 * log reports the first one on each path.
 *
 * A list is read when a ticket queues.  It is also read when the directory of
 * an owned ticket changes, until other clients wait.  So a client that comes
 * after the first of these, or leaves at once, may be missed.
 *
 * src/worker/request/bypass.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "protocol/fieldtext.h"
#include "worker/request/bypass.h"

/* The log reports at most this many paths, so that it cannot be flooded. */
#define MAX_TOLD		1000

static uint32 told[MAX_TOLD];	/* hashes of paths */
static int	ntold = 0;

static int	number_behind(const ZklTicket *ticket, const char *child);
static void tell(const ZklEntry *entry, const char *child);
static void report(const char *path, const char *child);

void
zkl_bypass_look(ZklEntry *entry, const ZklTicketEvent *list)
{
	int			newest = entry->bypass;
	const char *child = NULL;

	/* A semaphore of kazoo's has another layout, so leases are not checked. */
	if (zkl_lock_entry_is_lease(entry) || list->outcome != ZKL_OUTCOME_OK)
		return;
	for (int i = 0; i < list->nchildren; i++)
	{
		int			number = number_behind(&entry->ticket, list->children[i]);

		if (number <= entry->bypass)
			continue;
		pg_atomic_fetch_add_u64(&zkl_lock_table->counters.bypasses, 1);
		newest = Max(newest, number);
		child = list->children[i];
	}
	entry->bypass = newest;
	if (child != NULL)
		tell(entry, child);
}

/*
 * Returns the child's sequence number if the child is a znode behind the
 * ticket, and its client should wait for the ticket but may not; otherwise 0.
 */
static int
number_behind(const ZklTicket *ticket, const char *child)
{
	ZklContender mine;
	ZklContender other;
	const char *key = NULL;

	/*
	 * Curator's names: only a LeaderLatch does not wait.  If the ticket
	 * queues behind one, it fails because of the latch, and the error says
	 * so.  So this looks only at lists of owned tickets, which are short.
	 */
	if (strncmp(child, "_c_", 3) == 0)
	{
		if (ticket->state == ZKL_TICKET_CHECKING)
			key = zkl_recipe_latch_key(child);
	}
	/* One of kazoo's own names.  Readers do not wait for a reader. */
	else if (zkl_recipe_parse(child, &other) &&
			 other.client == ZKL_CLIENT_KAZOO &&
			 zkl_recipe_number(child) >= 0 &&
			 !(other.mode == ZKL_MODE_KAZOO_READ && ticket->mode == ZKL_MODE_READ))
		key = other.key;

	if (key == NULL || !zkl_recipe_parse(ticket->name, &mine) ||
		strcmp(key, mine.key) <= 0)
		return 0;
	return atoi(key);
}

/* If two paths have one hash, the log reports only one of them. */
static void
tell(const ZklEntry *entry, const char *child)
{
	for (int i = 0; i < ntold; i++)
	{
		if (told[i] == entry->hash)
			return;
	}
	if (ntold == MAX_TOLD)
		return;
	told[ntold++] = entry->hash;
	report(entry->path, child);
}

static void
report(const char *path, const char *child)
{
	bool		is_latch = zkl_recipe_latch_key(child) != NULL;
	char	   *shown = palloc(4 * strlen(child) + 1);
	const char *why = is_latch ? "A LeaderLatch waits for no other kind of client." :
	"A client with kazoo's own names waits for zklock only if its lock has \"extra_lock_patterns\".";

	zkl_field_text_show(child, shown);
	ereport(WARNING,
			is_latch ?
			errmsg("lock \"%s\" does not exclude a LeaderLatch of Curator",
				   path) :
			errmsg("lock \"%s\" may not exclude a kazoo client", path),
			errdetail("A client has created znode \"%s\" behind this server's.  %s",
					  shown, why),
			is_latch ? errhint("Use Curator's LeaderSelector.") :
			errhint("Give kazoo's locks Curator's names."));
}
