/*-------------------------------------------------------------------------
 *
 * sessionfile.h
 *	  The file that carries a session over a crash of the server.
 *
 * Called only by the worker's files.
 *
 * src/worker/sessionfile.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONFILE_H
#define ZKL_SESSIONFILE_H

#include "zookeeper/session.h"

/* A worker starts, which holds the ZooKeeper session of this number. */
extern void zkl_session_file_start(int session);

/*
 * Read the session that this server had before it crashed.  False if there is
 * no file, or if the file came here in a copy of the data directory.
 */
extern bool zkl_session_file_read(ZklSessionId *identity);

/*
 * Write the file.  Errors are only logged: without the file, a crash leaves
 * the session to its timeout.
 */
extern void zkl_session_file_write(const ZklSessionId *identity);

/* Remove the file.  True if there is none any more. */
extern bool zkl_session_file_remove(void);

#endif							/* ZKL_SESSIONFILE_H */
