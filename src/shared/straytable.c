/*-------------------------------------------------------------------------
 *
 * straytable.c
 *	  The znodes that creates of an earlier connection may still make.
 *
 * src/shared/straytable.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "settings.h"
#include "shared/straytable.h"

static ZklStray *strays = NULL;

static Size shared_size(void);

void
zkl_stray_table_request(void)
{
	RequestAddinShmemSpace(shared_size());
}

void
zkl_stray_table_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	strays = ShmemInitStruct("zklock strays", shared_size(), &found);
	if (!found)
		memset(strays, 0, shared_size());
	LWLockRelease(AddinShmemInitLock);
}

static Size
shared_size(void)
{
	return mul_size(mul_size(zkl_sessions, ZKL_STRAYS_MAX), sizeof(ZklStray));
}

ZklStray *
zkl_stray_table_rows(int session)
{
	return strays + session * ZKL_STRAYS_MAX;
}
