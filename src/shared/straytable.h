/*-------------------------------------------------------------------------
 *
 * straytable.h
 *	  The znodes that creates of an earlier connection may still make.
 *
 * worker/strays.h says what a stray is.  The table is in shared memory because
 * it must outlive the worker.  Each ZooKeeper session has a part of its own,
 * which only the worker of that session reads and writes.  So there is no lock.
 *
 * src/shared/straytable.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_STRAYTABLE_H
#define ZKL_STRAYTABLE_H

#include "protocol/path.h"
#include "protocol/recipe.h"

#define ZKL_STRAYS_MAX	256		/* of one session */

typedef struct ZklStray
{
	int64		noted_at;		/* 0: the row is free */
	char		directory[ZKL_DIR_SIZE];
	char		uuid[ZKL_UUID_SIZE];	/* in the name of the znode */
} ZklStray;

/* For the shared-memory hooks: once in the postmaster, once in each process. */
extern void zkl_stray_table_request(void);
extern void zkl_stray_table_startup(void);

/* The ZKL_STRAYS_MAX rows of a session; for its worker. */
extern ZklStray *zkl_stray_table_rows(int session);

#endif							/* ZKL_STRAYTABLE_H */
