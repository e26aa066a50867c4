/*-------------------------------------------------------------------------
 *
 * sessionfile.h
 *	  The file that carries a session over a crash of the server.
 *
 * Called only by the worker's files.
 *
 * src/sessionfile.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONFILE_H
#define ZKL_SESSIONFILE_H

#include "session.h"

/* A worker starts, which holds the session of this number. */
extern void zkl_session_file_start(int session);

/*
 * Read the session that this very server had before it crashed.  False if
 * there is none, or if the file came here in a copy of the data directory.
 */
extern bool zkl_session_file_read(ZklSessionId *identity);

/* Write it; problems are logged, and cost no more than the file is for. */
extern void zkl_session_file_write(const ZklSessionId *identity);

/* True if there is none any more. */
extern bool zkl_session_file_remove(void);

#endif							/* ZKL_SESSIONFILE_H */
