/*-------------------------------------------------------------------------
 *
 * waitpublisher.h
 *	  Publishes this server's waits, for the search for deadlocks.
 *
 * The first worker publishes the waits of all backends, whatever ZooKeeper
 * session their tickets are in.  The records (waitrecord.h) are in the znode
 * of the first session.  A further session that owns a lock which a record
 * names has a znode, too; it says only which session has the records.
 *
 * Called only by the worker's files.
 *
 * src/worker/waitpublisher.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_WAITPUBLISHER_H
#define ZKL_WAITPUBLISHER_H

#include "protocol/waitrecord.h"
#include "zookeeper/session.h"

/* What the znode of a further session says, before the first one's name. */
#define ZKL_WAIT_PUBLISHER_SEE	"zklock-waits-of="

/* A worker starts, perhaps with the session of its predecessor. */
extern void zkl_wait_publisher_start(const char *prefix);

/* The session's handle is gone, and with it all replies to come. */
extern void zkl_wait_publisher_restarted(void);

/* Handle an answer.  False if it is the answer to another file's request. */
extern bool zkl_wait_publisher_handle(const ZklSessionEvent *event);

/* Send what has changed. */
extern void zkl_wait_publisher_send(void);

/* When to call that again, even if nothing happens; PG_INT64_MAX: never. */
extern int64 zkl_wait_publisher_wake_at(void);

/*
 * The directory of the znodes; and the records as ZooKeeper has acknowledged
 * them, NULL: none, or it is not known.  The text stays as it is until the
 * next call of handle, restarted or send.  "serial" grows with each
 * acknowledgement.
 */
extern const char *zkl_wait_publisher_directory(void);
extern const char *zkl_wait_publisher_text(uint64 *serial);

#endif							/* ZKL_WAITPUBLISHER_H */
