/*-------------------------------------------------------------------------
 *
 * authfile.h
 *	  The credentials of this server, from the file zklock.auth_file.
 *
 * Only a worker reads the file.  What is in it never gets into shared memory,
 * into a message, or into a backend.
 *
 * Called only by sessionkeeper.c and lookup.c.
 *
 * src/worker/authfile.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_AUTHFILE_H
#define ZKL_AUTHFILE_H

/*
 * Read the file, unless that has been done.  False: the file cannot be used,
 * as *error says.
 */
extern bool zkl_auth_file_load(const char **error);

/*
 * Read the file again.  True if other credentials are in use from now on.  If
 * the file cannot be used, those from before stay in use, and the log says so.
 */
extern bool zkl_auth_file_reload(void);

/* In a child of the worker, which does not need them. */
extern void zkl_auth_file_forget(void);

/* Give the credentials to the open handle. */
extern void zkl_auth_file_show(void);

#endif							/* ZKL_AUTHFILE_H */
