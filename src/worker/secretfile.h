/*-------------------------------------------------------------------------
 *
 * secretfile.h
 *	  Reads a file that shows ZooKeeper who this server is.
 *
 * src/worker/secretfile.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SECRETFILE_H
#define ZKL_SECRETFILE_H

typedef struct ZklSecretFile
{
	const char *setting;		/* the setting that names the file */
	const char *name;			/* its value */
	bool		is_public;		/* other users may read it */
} ZklSecretFile;

/*
 * Read the whole file into "text", which has room for "size" bytes, less than
 * which the file must have.  Returns the length, or -1 if the file cannot be
 * used, as *error says.  *error is allocated in the turn's memory.  All roles
 * can see it in zk_status, so it does not name the file.
 */
extern int	zkl_secret_file_read(const ZklSecretFile *file, char *text,
								 int size, const char **error);

/* The same message, for a fault that the caller has found in the text. */
extern const char *zkl_secret_file_error(const ZklSecretFile *file,
										 const char *fault);

#endif							/* ZKL_SECRETFILE_H */
