/*-------------------------------------------------------------------------
 *
 * identity.h
 *	  The identity of this server in ZooKeeper: the files with its
 *	  credentials.
 *
 * Only a worker reads the files.  Their contents never get into shared
 * memory, into a message, or into a backend.
 *
 * Called only by sessionkeeper.c and resolver.c.  An error ends the worker
 * (worker.c).
 *
 * src/worker/session/identity.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_IDENTITY_H
#define ZKL_IDENTITY_H

/*
 * Read the files, unless that was done before.  Returns NULL, or why a file or
 * a setting cannot be used; then the caller must not open a handle.
 */
extern const char *zkl_identity_load(void);

/*
 * Read the files again.  True if this server must show another identity from
 * now on.  If a file cannot be used, its old contents stay in use, and the
 * log says so.
 */
extern bool zkl_identity_reload(void);

/* Give the open handle the credentials that it was not opened with. */
extern void zkl_identity_show(void);

/* Erase the secrets in a child of the worker, because the child does not need them. */
extern void zkl_identity_forget(void);

#endif							/* ZKL_IDENTITY_H */
