/*-------------------------------------------------------------------------
 *
 * sessionfile.c
 *	  The file that carries a session over to the server's next run.
 *
 * After a crash, or a stop while ZooKeeper was unreachable, shared memory is
 * new.  No process knows the old session, but its znodes still lock out all
 * clients.  With the session's id and password from this file, the new worker
 * ends it at once instead of after the session timeout.
 *
 * A copy of the data directory (base backup, snapshot, clone) must not do that
 * to the original's session.  The file is in a directory that base backups
 * leave out.  It contains its own device and inode, and the boot of the
 * machine: in a copy, at least one of these differs.
 *
 * src/worker/session/sessionfile.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "faultpoint.h"
#include "protocol/sessiontext.h"
#include "worker/session/sessionfile.h"

#define DIRECTORY			"pg_stat_tmp"
#define SESSION_FILE		DIRECTORY "/zklock.session"
#define NEW_FILE			SESSION_FILE ".new"
#define BIRTH_FILE			DIRECTORY "/zklock.ensemble"
#define BOOT_ID_FILE		"/proc/sys/kernel/random/boot_id"
#define BOOT_ID_LENGTH		36
#define MAX_SIZE			512

static bool read_file(const char *path, char *str, struct stat *status);
static bool describe_home(const struct stat *status, char *home);

/*
 * In version 1.0, a server could have several sessions, each with a file.  The
 * server stops with all of them closed; if it has crashed, they expire.
 */
void
zkl_session_file_remove_others(void)
{
	const char *other = "zklock.session.";
	DIR		   *directory = AllocateDir(DIRECTORY);
	struct dirent *entry;
	char		path[MAXPGPATH];

	while ((entry = ReadDirExtended(directory, DIRECTORY, LOG)) != NULL)
	{
		if (strncmp(entry->d_name, other, strlen(other)) != 0)
			continue;
		snprintf(path, sizeof(path), DIRECTORY "/%s", entry->d_name);
		if (unlink(path) != 0)
			ereport(LOG,
					errcode_for_file_access(),
					errmsg("could not remove file \"%s\": %m", path));
	}
	FreeDir(directory);
}

bool
zkl_session_file_read(ZklSessionId *identity)
{
	char		str[MAX_SIZE];
	char		home[MAX_SIZE];
	struct stat status;
	size_t		length;

	/*
	 * There is no file, or this boot has no name: there is no session to
	 * close.
	 */
	if (!read_file(SESSION_FILE, str, &status) ||
		!describe_home(&status, home))
		return false;

	/*
	 * The file begins with its home, the description of its place.  A copy
	 * has another home.
	 */
	length = strlen(home);
	if (strncmp(str, home, length) != 0)
	{
		ereport(LOG,
				errmsg("ignoring file \"%s\": it belongs to another server",
					   SESSION_FILE));
		return false;
	}
	/* A file that was not written completely names no session. */
	return zkl_session_text_parse(str + length, &identity->id,
								  identity->password);
}

void
zkl_session_file_write(const ZklSessionId *identity)
{
	char		str[2 * MAX_SIZE];
	struct stat status;
	int			length;
	int			fd;

	/*
	 * A new file has a new inode, and must name that.  Readers find the old
	 * file or the new one, but never a part of one.
	 */
	unlink(NEW_FILE);

	/*
	 * With the password, another client could close the session, so only the
	 * server may read the file.
	 */
	fd = OpenTransientFilePerm(NEW_FILE,
							   O_WRONLY | O_CREAT | O_EXCL | PG_BINARY, 0600);
	if (fd < 0)
	{
		ereport(LOG,
				errcode_for_file_access(),
				errmsg("could not create file \"%s\": %m", NEW_FILE));
		return;
	}
	if (fstat(fd, &status) != 0 || !describe_home(&status, str))
	{
		/* If the machine's boot has no name, write no file. */
		CloseTransientFile(fd);
		unlink(NEW_FILE);
		return;
	}

	zkl_session_text_format(identity->id, identity->password,
							str + strlen(str));
	length = strlen(str);

	/*
	 * The file is not synced, because it is of no use after a crash of the
	 * machine.
	 */
	if (write(fd, str, length) != length)
		ereport(LOG,
				errcode_for_file_access(),
				errmsg("could not write file \"%s\": %m", NEW_FILE));
	CloseTransientFile(fd);
	ZKL_FAULT_POINT("session-file-new");
	if (rename(NEW_FILE, SESSION_FILE) != 0)
		ereport(LOG,
				errcode_for_file_access(),
				errmsg("could not rename file \"%s\" to \"%s\": %m",
					   NEW_FILE, SESSION_FILE));
}

bool
zkl_session_file_remove(void)
{
	if (unlink(SESSION_FILE) == 0 || errno == ENOENT)
		return true;

	/*
	 * The caller must know if a file is left, because the next worker would
	 * read it again.
	 */
	ereport(LOG,
			errcode_for_file_access(),
			errmsg("could not remove file \"%s\": %m", SESSION_FILE));
	return false;
}

/* Read the birth.  A text without its end was not written completely. */
void
zkl_session_file_read_birth(char birth[ZKL_SERVERRECORD_BIRTH_SIZE])
{
	char		str[MAX_SIZE];
	struct stat status;
	size_t		length;

	if (!read_file(BIRTH_FILE, str, &status))
		return;
	length = strcspn(str, "\n");
	if (str[length] == '\n' && length < ZKL_SERVERRECORD_BIRTH_SIZE)
		strlcpy(birth, str, length + 1);
}

void
zkl_session_file_write_birth(const char *birth)
{
	char		str[ZKL_SERVERRECORD_BIRTH_SIZE + 1];
	int			length = snprintf(str, sizeof(str), "%s\n", birth);
	int			fd = OpenTransientFile(BIRTH_FILE, O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);

	if (fd < 0 || write(fd, str, length) != length)
		ereport(LOG,
				errcode_for_file_access(),
				errmsg("could not write file \"%s\": %m", BIRTH_FILE));
	if (fd >= 0)
		CloseTransientFile(fd);
}

/*
 * Make the home of a file with this status: the machine's present boot, and
 * the file's own device and inode.  "home" has room for MAX_SIZE.
 */
static bool
describe_home(const struct stat *status, char *home)
{
	char		boot_id[MAX_SIZE];
	struct stat of_boot_id;

	if (!read_file(BOOT_ID_FILE, boot_id, &of_boot_id) ||
		strlen(boot_id) < BOOT_ID_LENGTH)
		return false;
	snprintf(home, MAX_SIZE, "zklock session 1\n%.*s " UINT64_FORMAT " " UINT64_FORMAT "\n",
			 BOOT_ID_LENGTH, boot_id,
			 (uint64) status->st_dev, (uint64) status->st_ino);
	return true;
}

/*
 * Read the beginning of a file as a string.  False if the file is missing or
 * empty.
 */
static bool
read_file(const char *path, char *str, struct stat *status)
{
	int			fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	int			length;

	if (fd < 0)
	{
		/* Usually there is no file, and that is not an error. */
		if (errno != ENOENT)
			ereport(LOG,
					errcode_for_file_access(),
					errmsg("could not open file \"%s\": %m", path));
		return false;
	}
	length = fstat(fd, status) == 0 ? read(fd, str, MAX_SIZE - 1) : -1;
	CloseTransientFile(fd);
	str[Max(length, 0)] = '\0';

	return length > 0;
}
