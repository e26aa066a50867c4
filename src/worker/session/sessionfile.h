/*-------------------------------------------------------------------------
 *
 * sessionfile.h
 *	  The file that carries a session over to the server's next run.
 *
 * Called only by the worker's files.  An error ends the worker (worker.c).
 *
 * src/worker/session/sessionfile.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONFILE_H
#define ZKL_SESSIONFILE_H

#include "protocol/serverrecord.h"
#include "zookeeper/session.h"

/*
 * Remove the files of further sessions, which version 1.0 could have.  Errors
 * are only logged.
 */
extern void zkl_session_file_remove_others(void);

/*
 * Read the session that an earlier run of this server could not close.  False
 * if there is no file, or if the file is a copy.
 */
extern bool zkl_session_file_read(ZklSessionId *identity);

/*
 * Write the file.  Errors are only logged: without the file, a crash leaves
 * the session to its timeout.
 */
extern void zkl_session_file_write(const ZklSessionId *identity);

/* Remove the file.  True if there is no file afterwards. */
extern bool zkl_session_file_remove(void);

/*
 * Read and write the birth of ZooKeeper's data, as this server saw it last
 * (serverrecord.h).  It is in a second file; "birth" stays as it is if that
 * file is missing.  Unlike the session, the birth may be used in a copy of the
 * data directory.
 */
extern void zkl_session_file_read_birth(char birth[ZKL_SERVERRECORD_BIRTH_SIZE]);
extern void zkl_session_file_write_birth(const char *birth);

#endif							/* ZKL_SESSIONFILE_H */
