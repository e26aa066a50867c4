/*-------------------------------------------------------------------------
 *
 * identity.h
 *	  Who this server is to ZooKeeper: all that its files say about it.
 *
 * Only a worker reads the files.  What is in them never gets into shared
 * memory, into a message, or into a backend.
 *
 * Called only by sessionkeeper.c and lookup.c.
 *
 * src/worker/identity.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_IDENTITY_H
#define ZKL_IDENTITY_H

/*
 * Read the files, unless that has been done.  False: a file or a setting
 * cannot be used, as *error says, and no handle must be opened.
 */
extern bool zkl_identity_load(const char **error);

/*
 * Read the files again.  True if this server is to show another identity from
 * now on.  What cannot be used stays as it was before, and the log says so.
 */
extern bool zkl_identity_reload(void);

/* Give the open handle what it needs besides what it was opened with. */
extern void zkl_identity_show(void);

/* In a child of the worker, which needs no secrets. */
extern void zkl_identity_forget(void);

#endif							/* ZKL_IDENTITY_H */
