/*-------------------------------------------------------------------------
 *
 * passes.c
 *	  The leaderships and detached claims that must not end yet, because
 *	  transactions commit.
 *
 * src/shared/passes.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/shmem.h"

#include "compat.h"
#include "shared/locktable.h"
#include "shared/passes.h"

/* For each backend, the bits of its passes.  Only that backend writes them. */
static pg_atomic_uint64 *passes = NULL;

Size
zkl_passes_size(void)
{
	return mul_size(MaxBackends, sizeof(*passes));
}

void
zkl_passes_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	passes = memory;
	for (int i = 0; i < MaxBackends && is_new; i++)
		pg_atomic_init_u64(&passes[i], 0);
}

uint64
zkl_passes_bit(const char *path)
{
	return UINT64CONST(1) << (zkl_lock_table_hash(path) % 64);
}

void
zkl_passes_begin(uint64 bits)
{
	pg_atomic_write_u64(&passes[zkl_my_proc_number()], bits);
	pg_memory_barrier();
}

/* The commit must be complete before the pass is gone. */
void
zkl_passes_end(void)
{
	pg_memory_barrier();
	pg_atomic_write_u64(&passes[zkl_my_proc_number()], 0);
}

bool
zkl_passes_has(int proc_number, const char *path)
{
	return (pg_atomic_read_u64(&passes[proc_number]) & zkl_passes_bit(path)) != 0;
}

/* The caller has just marked the leadership as resigned. */
bool
zkl_passes_any(const char *path)
{
	pg_memory_barrier();
	for (int i = 0; i < MaxBackends; i++)
	{
		if (zkl_passes_has(i, path))
			return true;
	}
	return false;
}
