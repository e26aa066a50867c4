/*-------------------------------------------------------------------------
 *
 * lockdirectory.c
 *	  Which directory in ZooKeeper belongs to which entry.
 *
 * src/worker/request/lockdirectory.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/leases.h"
#include "worker/request/lockdirectory.h"

/*
 * ZooKeeper looks for empty containers once a minute, and removes them.  So a
 * directory exists for a while after the worker has seen it.
 */
#define LIKELY_FOR		ZKL_MS(60000)

/*
 * With this many slots, fewer than 10 of 1,000 directories collide and are
 * forgotten.
 */
#define MAX_NOTED		65536

static char prefix[ZKL_ROOT_SIZE];

/* If two directories have the same slot, the first one is merely forgotten. */
static struct
{
	uint32		hash;
	int64		at;
}			noted[MAX_NOTED];

static int64 voided_until = 0;	/* notes from this moment or before do not
								 * count */

static bool is_noted(uint32 hash);
static void note(uint32 hash);
static uint32 parent_hash(const ZklEntry *entry);
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
	 * The path of a lease's entry has a mark and a number.  In ZooKeeper, all
	 * leases of a semaphore are in one directory.
	 */
	if (zkl_lock_entry_is_lease(entry))
		snprintf(directory, ZKL_DIR_SIZE, "%s%s/" ZKL_LEASES, prefix,
				 entry->lock->path);
	else
		snprintf(directory, ZKL_DIR_SIZE, "%s%s", prefix, entry->path);
}

void
zkl_lock_directory_limit(const ZklEntry *semaphore, char *path)
{
	snprintf(path, ZKL_DIR_SIZE, "%s%s/" ZKL_LIMIT, prefix, semaphore->path);
}

bool
zkl_lock_directory_is_likely(const ZklEntry *entry)
{
	return is_noted(entry->hash);
}

bool
zkl_lock_directory_is_parent_likely(const ZklEntry *entry)
{
	return is_noted(parent_hash(entry));
}

/* Two paths may have one hash.  A wrong guess costs only one more round trip. */
static bool
is_noted(uint32 hash)
{
	int			slot = hash % MAX_NOTED;

	return noted[slot].at > voided_until && noted[slot].hash == hash &&
		zkl_now() - noted[slot].at < LIKELY_FOR;
}

void
zkl_lock_directory_note(const ZklEntry *entry)
{
	note(entry->hash);
}

void
zkl_lock_directory_note_parent(const ZklEntry *entry)
{
	note(parent_hash(entry));
}

/*
 * An older note in this slot is forgotten, which costs its path a round trip at
 * most.
 */
static void
note(uint32 hash)
{
	int			slot = hash % MAX_NOTED;

	noted[slot].hash = hash;
	noted[slot].at = zkl_now();
}

void
zkl_lock_directory_note_removed(const ZklEntry *entry)
{
	int			slot = entry->hash % MAX_NOTED;

	if (noted[slot].hash == entry->hash)
		voided_until = Max(voided_until, noted[slot].at);
}

void
zkl_lock_directory_forget_parent(const ZklEntry *entry)
{
	uint32		hash = parent_hash(entry);

	if (is_noted(hash))
		noted[hash % MAX_NOTED].at = 0;
}

/* The path above "/a" is empty: the root. */
static uint32
parent_hash(const ZklEntry *entry)
{
	char		path[ZKL_PATH_SIZE];

	strlcpy(path, entry->path, strrchr(entry->path, '/') - entry->path + 1);
	return zkl_lock_table_hash(path);
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
	 * Only the worker changes tickets, so the result stays correct after the
	 * unlock.
	 */
	if (entry != NULL && entry->ticket.state == ZKL_TICKET_NONE)
		entry = NULL;
	LWLockRelease(zkl_lock_table_partition(hash));
	return entry;
}

/* Called for each entry, with the semaphore's partition locked. */
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
	if (semaphore != NULL)
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
	 * The directory of leases has room for more than a path, so check the
	 * length as well.
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
