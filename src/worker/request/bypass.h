/*-------------------------------------------------------------------------
 *
 * bypass.h
 *	  Notice and log clients that do not wait for zklock's locks.
 *
 * kazoo's own locks wait only for znodes with kazoo's own names.  So if such
 * a znode appears behind a ticket of this server, its client may hold the
 * lock at the same time as the server.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/worker/request/bypass.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_BYPASS_H
#define ZKL_BYPASS_H

#include "shared/locktable.h"

/* Look at the reply to a list that the entry's ticket has requested. */
extern void zkl_bypass_look(ZklEntry *entry, const ZklTicketEvent *list);

#endif							/* ZKL_BYPASS_H */
