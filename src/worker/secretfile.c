/*-------------------------------------------------------------------------
 *
 * secretfile.c
 *	  Reads a file that shows ZooKeeper who this server is.
 *
 * src/worker/secretfile.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "worker/secretfile.h"

static const char *permissions_fault(int fd, bool is_public);

int
zkl_secret_file_read(const ZklSecretFile *file, char *text, int size,
					 const char **error)
{
	const char *fault;
	int			length = 0;
	int			fd;

	/* Opening a pipe must not make the worker wait for a writer. */
	fd = OpenTransientFile(file->name, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
	{
		*error = psprintf("could not open \"%s\": %s", file->setting,
						  strerror(errno));
		return -1;
	}
	fault = permissions_fault(fd, file->is_public);
	if (fault == NULL)
	{
		length = read(fd, text, size);
		if (length < 0)
			fault = "it could not be read";
		else if (length == size)
			fault = "it is too large";
	}
	CloseTransientFile(fd);
	if (fault == NULL)
		return length;
	explicit_bzero(text, size);
	*error = zkl_secret_file_error(file, fault);
	return -1;
}

const char *
zkl_secret_file_error(const ZklSecretFile *file, const char *fault)
{
	return psprintf("\"%s\" cannot be used: %s", file->setting, fault);
}

/* The same rule as PostgreSQL has for the private key of a server. */
static const char *
permissions_fault(int fd, bool is_public)
{
	struct stat status;

	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
		return "it is not a regular file";
	if (is_public)
		return NULL;
	if (status.st_uid != geteuid())
		return "it must be owned by the user that runs the server";
	if (status.st_mode & (S_IRWXG | S_IRWXO))
		return "it has group or world access; it must have permissions u=rw (0600) or less";
	return NULL;
}
