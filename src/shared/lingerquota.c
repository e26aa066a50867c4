/*-------------------------------------------------------------------------
 *
 * lingerquota.c
 *	  How many tickets the server keeps for each role.
 *
 * src/shared/lingerquota.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "settings.h"
#include "shared/lingerquota.h"
#include "shared/locktable.h"
#include "shared/rolequota.h"

typedef struct Kept
{
	pg_atomic_uint32 tickets[ZKL_LINGER_QUOTA_ROLES];
	pg_atomic_uint32 bytes[ZKL_LINGER_QUOTA_ROLES];
} Kept;

static Kept *kept = NULL;

static bool is_allowed(int role, int nfree);
static void count(const char *path, int role, int sign);

Size
zkl_linger_quota_size(void)
{
	return sizeof(Kept);
}

void
zkl_linger_quota_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	kept = memory;
	for (int role = 0; role < ZKL_LINGER_QUOTA_ROLES && is_new; role++)
	{
		pg_atomic_init_u32(&kept->tickets[role], 0);
		pg_atomic_init_u32(&kept->bytes[role], 0);
	}
}

/*
 * Usually the role has kept the ticket before, and there is room: then this
 * function only compares.  The worker, which ends claims whose lease time is
 * over, and the claims process serve all roles: they keep the ticket for the
 * one that requested it.
 */
bool
zkl_linger_quota_begin(ZklEntry *entry)
{
	Oid			releaser = OidIsValid(MyDatabaseId) ? MyProc->roleId : entry->role;
	int			role = releaser % ZKL_LINGER_QUOTA_ROLES;

	Assert(zkl_lock_table_is_mine(entry));
	if (!zkl_lock_table_is_half_free() &&
		!is_allowed(role, zkl_lock_table_max_entries()))
		return false;
	if (entry->kept_for != role + 1)
	{
		zkl_linger_quota_end(entry);
		entry->kept_for = role + 1;
		count(entry->path, role, 1);
	}
	return true;
}

void
zkl_linger_quota_end(ZklEntry *entry)
{
	Assert(zkl_lock_table_is_mine(entry));
	if (entry->kept_for != 0)
		count(entry->path, entry->kept_for - 1, -1);
	entry->kept_for = 0;
}

bool
zkl_linger_quota_begin_claim(const char *path, int nfree)
{
	int			role = MyProc->roleId % ZKL_LINGER_QUOTA_ROLES;

	if (!is_allowed(role, nfree))
		return false;
	count(path, role, 1);
	return true;
}

void
zkl_linger_quota_end_claim(const char *path, Oid role)
{
	count(path, role % ZKL_LINGER_QUOTA_ROLES, -1);
}

/* The counts may change at any time, so the result is approximate. */
static bool
is_allowed(int role, int nfree)
{
	int			free_entries = zkl_lock_table_max_entries() -
	(int) pg_atomic_read_u32(&zkl_lock_table->nentries);
	int			free_bytes = ZKL_EPHEMERAL_BYTES_MAX -
	(int) pg_atomic_read_u64(&zkl_session_info->ephemeral_bytes);

	return zkl_role_quota_allows(pg_atomic_read_u32(&kept->tickets[role]),
								 Min(free_entries, nfree)) &&
		zkl_role_quota_allows(pg_atomic_read_u32(&kept->bytes[role]), free_bytes);
}

/*
 * The bytes are those that sendqueue.c counts, without the common prefix of
 * all paths.
 */
static void
count(const char *path, int role, int sign)
{
	int			bytes = strlen(path) + ZKL_ZNODE_SIZE;

	pg_atomic_fetch_add_u32(&kept->tickets[role], sign);
	pg_atomic_fetch_add_u32(&kept->bytes[role], sign * bytes);
}
