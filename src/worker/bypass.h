/*-------------------------------------------------------------------------
 *
 * bypass.h
 *	  Clients that do not wait for zklock: notice them, and say so.
 *
 * kazoo's own locks wait only for znodes with kazoo's own names.  So if such a
 * znode appears behind one of this server's, its client may hold the lock at
 * the same time.
 *
 * Called only by the worker's files.
 *
 * src/worker/bypass.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_BYPASS_H
#define ZKL_BYPASS_H

#include "shared/locktable.h"
#include "zookeeper/session.h"

/* Look at the reply to a list that the entry's ticket has requested. */
extern void zkl_bypass_look(ZklEntry *entry, const ZklTicketEvent *list);

/* Handle an answer.  False if it is the answer to another file's request. */
extern bool zkl_bypass_handle(const ZklSessionEvent *event);

/* The session's handle is gone, and with it all replies to come. */
extern void zkl_bypass_restarted(void);

#endif							/* ZKL_BYPASS_H */
