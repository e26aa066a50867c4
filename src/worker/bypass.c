/*-------------------------------------------------------------------------
 *
 * bypass.c
 *	  Clients that do not wait for zklock: notice them, and say so.
 *
 * Each znode that a ticket's lists show is counted once.  The log tells of the
 * first one on each path, with the ZooKeeper session of its client, for which
 * the worker asks ZooKeeper.
 *
 * A list is read when a ticket queues, and when the directory of an owned
 * ticket changes, until other clients wait.  So a client that comes behind
 * those, or goes at once, may be missed.
 *
 * src/worker/bypass.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "worker/bypass.h"
#include "worker/lockdirectory.h"

/* The log tells of no more paths than this, so that it cannot be flooded. */
#define MAX_TOLD		1000

/* So many questions may be under way; a path beyond them has its turn later. */
#define MAX_QUESTIONS	8

/* A znode whose session is asked for. */
typedef struct Question
{
	bool		active;
	uint32		attempt;		/* tags the request */
	char		path[ZKL_PATH_SIZE];
	char		child[ZKL_CHILD_SIZE];
} Question;

static Question questions[MAX_QUESTIONS];
static uint32 told[MAX_TOLD];	/* hashes of paths */
static int	ntold = 0;

static int	number_behind(const ZklTicket *ticket, const char *child);
static const char *kazoo_key(const ZklTicket *ticket, const char *child);
static const char *latch_key(const ZklTicket *ticket, const char *child);
static void tell(const ZklEntry *entry, const char *child);
static bool was_told(uint32 hash);
static void ask(const ZklEntry *entry, const char *child);
static void report(const Question *question, int64 owner);

void
zkl_bypass_look(ZklEntry *entry, const ZklTicketEvent *list)
{
	int			newest = entry->bypass;
	const char *child = NULL;

	/* A semaphore of kazoo's has another layout. */
	if (entry->semaphore != NULL || list->outcome != ZKL_OUTCOME_OK)
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
 * The sequence number of a znode that is behind the ticket's, and whose client
 * should wait for it, but may not; or 0.
 */
static int
number_behind(const ZklTicket *ticket, const char *child)
{
	ZklContender mine;
	const char *key = strncmp(child, "_c_", 3) != 0 ? kazoo_key(ticket, child) :
	latch_key(ticket, child);

	if (key == NULL || !zkl_recipe_parse(ticket->name, &mine) ||
		strcmp(key, mine.key) <= 0)
		return 0;
	return atoi(key);
}

/*
 * The number of a znode with a name of kazoo's own, which would have to wait
 * for the ticket.  Readers do not wait for a reader.
 */
static const char *
kazoo_key(const ZklTicket *ticket, const char *child)
{
	ZklContender other;

	if (!zkl_recipe_parse(child, &other) ||
		other.client != ZKL_CLIENT_KAZOO ||
		!zkl_recipe_sequence_is_sound(child) ||
		(other.mode == ZKL_MODE_KAZOO_READ && ticket->mode == ZKL_MODE_READ))
		return NULL;
	return other.key;
}

/*
 * The number of a znode of Curator's LeaderLatch.  Where the server does not own
 * the lock, it gives up because of the latch, and says so.  So this looks only
 * at lists of owned tickets, which are short.
 */
static const char *
latch_key(const ZklTicket *ticket, const char *child)
{
	return ticket->state == ZKL_TICKET_CHECKING ?
		zkl_recipe_latch_key(child) : NULL;
}

static void
tell(const ZklEntry *entry, const char *child)
{
	if (ntold == MAX_TOLD || was_told(entry->hash) ||
		strlen(child) >= ZKL_CHILD_SIZE || !zkl_session_is_usable())
		return;
	told[ntold++] = entry->hash;
	ask(entry, child);
}

/* If two paths have one hash, the log tells of one of them only. */
static bool
was_told(uint32 hash)
{
	for (int i = 0; i < ntold; i++)
	{
		if (told[i] == hash)
			return true;
	}
	return false;
}

static void
ask(const ZklEntry *entry, const char *child)
{
	char		directory[ZKL_DIR_SIZE];

	for (int i = 0; i < MAX_QUESTIONS; i++)
	{
		Question   *question = &questions[i];
		ZklSessionAsk request = {question, question->attempt + 1, 0};

		if (question->active)
			continue;
		question->active = true;
		question->attempt++;
		strlcpy(question->path, entry->path, sizeof(question->path));
		strlcpy(question->child, child, sizeof(question->child));
		zkl_lock_directory_of(entry, directory);
		pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
		zkl_session_ask_stat(request, psprintf("%s/%s", directory, child));
		return;
	}

	/* All are under way, so the next list tells of this path. */
	ntold--;
}

/*
 * If the znode has gone, or the answer was lost, the log tells of it without
 * the session.
 */
bool
zkl_bypass_handle(const ZklSessionEvent *event)
{
	Question   *question = event->tag;

	if (question < questions || question >= questions + MAX_QUESTIONS)
		return false;
	if (question->active && event->attempt == question->attempt)
	{
		report(question, event->reply.outcome == ZKL_OUTCOME_OK ? event->owner : 0);
		question->active = false;
	}
	return true;
}

void
zkl_bypass_restarted(void)
{
	for (int i = 0; i < MAX_QUESTIONS; i++)
	{
		if (questions[i].active)
			report(&questions[i], 0);
		questions[i].active = false;
	}
}

static void
report(const Question *question, int64 owner)
{
	bool		is_latch = zkl_recipe_latch_key(question->child) != NULL;
	const char *why = is_latch ? "A LeaderLatch waits for no other kind of client." :
	"A client with kazoo's own names waits for zklock only if its lock has \"extra_lock_patterns\".";

	ereport(WARNING,
			is_latch ?
			errmsg("lock \"%s\" does not exclude a LeaderLatch of Curator",
				   question->path) :
			errmsg("lock \"%s\" may not exclude a kazoo client",
				   question->path),
			owner != 0 ?
			errdetail("ZooKeeper session 0x%llx has created znode \"%s\" behind this server's.  %s",
					  (unsigned long long) owner, question->child, why) :
			errdetail("A client has created znode \"%s\" behind this server's.  %s",
					  question->child, why),
			is_latch ? errhint("Use Curator's LeaderSelector.") :
			errhint("Give kazoo's locks Curator's names."));
}
