/*-------------------------------------------------------------------------
 *
 * authfile.h
 *	  The credentials of this server, from the file zklock.auth_file.
 *
 * Called only by identity.c.
 *
 * src/worker/authfile.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_AUTHFILE_H
#define ZKL_AUTHFILE_H

/*
 * Read the file.  *changed: other credentials are in use from now on.  False:
 * the file cannot be used, as *error says, and those from before stay in use.
 */
extern bool zkl_auth_file_load(bool *changed, const char **error);

/* In a child of the worker, which does not need them. */
extern void zkl_auth_file_forget(void);

/* Give the credentials to the open handle. */
extern void zkl_auth_file_show(void);

#endif							/* ZKL_AUTHFILE_H */
