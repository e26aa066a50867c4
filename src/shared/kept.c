/*-------------------------------------------------------------------------
 *
 * kept.c
 *	  How many tickets the server keeps for which role.
 *
 * src/shared/kept.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "settings.h"
#include "shared/kept.h"
#include "shared/locktable.h"
#include "shared/share.h"

typedef struct Kept
{
	pg_atomic_uint32 tickets[ZKL_KEPT_ROLES];
	pg_atomic_uint32 bytes[FLEXIBLE_ARRAY_MEMBER][ZKL_KEPT_ROLES];	/* for each session */
} Kept;

static Kept *kept = NULL;

static Size shared_size(void);
static bool is_half_free(const ZklEntry *entry);
static bool is_allowed(const ZklEntry *entry, int role);
static void count(const ZklEntry *entry, int sign);

void
zkl_kept_request(void)
{
	RequestAddinShmemSpace(shared_size());
}

void
zkl_kept_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	kept = ShmemInitStruct("zklock kept tickets", shared_size(), &found);
	for (int role = 0; role < ZKL_KEPT_ROLES && !found; role++)
	{
		pg_atomic_init_u32(&kept->tickets[role], 0);
		for (int i = 0; i < zkl_sessions; i++)
			pg_atomic_init_u32(&kept->bytes[i][role], 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

static Size
shared_size(void)
{
	return add_size(offsetof(Kept, bytes),
					mul_size(zkl_sessions, sizeof(kept->bytes[0])));
}

/*
 * Mostly the role has kept the ticket before, and there is room: then this only
 * compares.
 */
bool
zkl_kept_begin(ZklEntry *entry)
{
	int			role = MyProc->roleId % ZKL_KEPT_ROLES;

	if (!is_half_free(entry) && !is_allowed(entry, role))
		return false;
	if (entry->kept_for != role + 1)
	{
		zkl_kept_end(entry);
		entry->kept_for = role + 1;
		count(entry, 1);
	}
	return true;
}

void
zkl_kept_end(ZklEntry *entry)
{
	if (entry->kept_for != 0)
		count(entry, -1);
	entry->kept_for = 0;
}

static bool
is_half_free(const ZklEntry *entry)
{
	ZklSessionInfo *session = &zkl_lock_table->session[entry->session];

	return pg_atomic_read_u32(&zkl_lock_table->nentries) <= zkl_lock_table->max_entries / 2 &&
		pg_atomic_read_u64(&session->ephemeral_bytes) <= ZKL_EPHEMERAL_BYTES_MAX / 2;
}

/* The counts change at any time, so this holds of about this moment. */
static bool
is_allowed(const ZklEntry *entry, int role)
{
	ZklSessionInfo *session = &zkl_lock_table->session[entry->session];
	int			free_entries = zkl_lock_table->max_entries -
	(int) pg_atomic_read_u32(&zkl_lock_table->nentries);
	int			free_bytes = ZKL_EPHEMERAL_BYTES_MAX -
	(int) pg_atomic_read_u64(&session->ephemeral_bytes);

	return zkl_share_allows(pg_atomic_read_u32(&kept->tickets[role]), free_entries) &&
		zkl_share_allows(pg_atomic_read_u32(&kept->bytes[entry->session][role]), free_bytes);
}

/* The bytes are those that sendqueue.c counts, but for the prefix of all paths. */
static void
count(const ZklEntry *entry, int sign)
{
	int			role = entry->kept_for - 1;
	int			bytes = strlen(entry->path) + ZKL_ZNODE_SIZE;

	pg_atomic_fetch_add_u32(&kept->tickets[role], sign);
	pg_atomic_fetch_add_u32(&kept->bytes[entry->session][role], sign * bytes);
}
