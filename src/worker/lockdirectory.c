/*-------------------------------------------------------------------------
 *
 * lockdirectory.c
 *	  Which directory in ZooKeeper belongs to which entry.
 *
 * src/worker/lockdirectory.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/leases.h"
#include "worker/lockdirectory.h"

/* ZooKeeper looks for empty containers once a minute, and removes them. */
#define LIKELY_FOR		ZKL_MS(60000)
#define MAX_NOTED		8192

static char prefix[ZKL_ROOT_SIZE];

/* If two directories have the same slot, the first one is only forgotten. */
static struct
{
	uint32		hash;
	int64		at;
}			noted[MAX_NOTED];

static void collect_lease(ZklEntry *lease, void *arg);
static bool path_of(const char *directory, size_t length,
					char path[ZKL_PATH_SIZE]);

void
zkl_lock_directory_start(const char *directory_prefix)
{
	strlcpy(prefix, directory_prefix, sizeof(prefix));
}

int
zkl_lock_directory_prefix_length(void)
{
	return strlen(prefix);
}

void
zkl_lock_directory_of(const ZklEntry *entry, char *directory)
{
	/*
	 * A lease's own path has a mark and a number.  In ZooKeeper, all leases
	 * of a semaphore are in one directory.
	 */
	if (entry->semaphore != NULL)
		snprintf(directory, ZKL_DIR_SIZE, "%s%s/" ZKL_LEASES, prefix,
				 entry->semaphore->path);
	else
		snprintf(directory, ZKL_DIR_SIZE, "%s%s", prefix, entry->path);
}

bool
zkl_lock_directory_is_likely(const ZklEntry *entry)
{
	int			slot = entry->hash % MAX_NOTED;

	/*
	 * Two paths may have one hash.  A wrong guess costs a round trip more,
	 * and nothing else.
	 */
	return noted[slot].at != 0 && noted[slot].hash == entry->hash &&
		zkl_now() - noted[slot].at < LIKELY_FOR;
}

void
zkl_lock_directory_note(const ZklEntry *entry)
{
	int			slot = entry->hash % MAX_NOTED;

	/*
	 * An older note in this slot is forgotten, which costs its path a round
	 * trip at most.
	 */
	noted[slot].hash = entry->hash;
	noted[slot].at = zkl_now();
}

ZklEntry *
zkl_lock_directory_find(const char *directory, size_t length)
{
	char		path[ZKL_PATH_SIZE];
	ZklEntry   *entry;
	uint32		hash;

	if (!path_of(directory, length, path))
		return NULL;
	hash = zkl_lock_table_hash(path);
	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	entry = zkl_lock_table_find(path, hash);

	/*
	 * Only this worker changes the tickets of its session, so the result is
	 * still right after the unlock.
	 */
	if (entry != NULL && (entry->session != zkl_session_info_number() ||
						  entry->ticket.state == ZKL_TICKET_NONE))
		entry = NULL;
	LWLockRelease(zkl_lock_table_partition(hash));
	return entry;
}

/* A visitor, with the semaphore's partition locked. */
static void
collect_lease(ZklEntry *lease, void *arg)
{
	List	  **leases = arg;

	if (lease->ticket.state != ZKL_TICKET_NONE)
		*leases = lappend(*leases, lease);
}

List *
zkl_lock_directory_find_leases(const char *directory, size_t length)
{
	char		path[ZKL_PATH_SIZE];
	size_t		suffix = strlen("/" ZKL_LEASES);
	List	   *leases = NIL;
	ZklEntry   *semaphore;
	uint32		hash;

	/* The leases are in a child of the semaphore's directory. */
	if (length <= suffix ||
		strncmp(directory + length - suffix, "/" ZKL_LEASES, suffix) != 0 ||
		!path_of(directory, length - suffix, path))
		return NIL;
	hash = zkl_lock_table_hash(path);
	LWLockAcquire(zkl_lock_table_partition(hash), LW_SHARED);
	/* The semaphore has an entry as long as one of its leases has. */
	semaphore = zkl_lock_table_find(path, hash);
	if (semaphore != NULL && semaphore->session == zkl_session_info_number())
		zkl_leases_visit(semaphore, collect_lease, &leases);
	LWLockRelease(zkl_lock_table_partition(hash));
	return leases;
}

/* The path of the lock whose directory this is. */
static bool
path_of(const char *directory, size_t length, char path[ZKL_PATH_SIZE])
{
	size_t		prefix_length = strlen(prefix);

	/*
	 * The directory of leases has room for more than a path, so the length is
	 * checked, too.
	 */
	if (strncmp(directory, prefix, prefix_length) != 0 ||
		length <= prefix_length || length - prefix_length >= ZKL_PATH_SIZE)
		return false;
	strlcpy(path, directory + prefix_length, length - prefix_length + 1);
	return true;
}

List *
zkl_lock_directory_leases_of(ZklEntry *semaphore)
{
	List	   *leases = NIL;

	LWLockAcquire(zkl_lock_table_partition(semaphore->hash), LW_SHARED);
	zkl_leases_visit(semaphore, collect_lease, &leases);
	LWLockRelease(zkl_lock_table_partition(semaphore->hash));
	return leases;
}
