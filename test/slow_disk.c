/*
 * A disk that is slow or full, for a process that is started with this in LD_PRELOAD.
 * The file "disk" in the process's working directory says what the disk does:
 *
 *	slow MS		each sync takes so many milliseconds
 *	full		nothing can be written below a directory "version-2"
 *
 * No file, or anything else: the disk works.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name)	((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static const char *
disk(void)
{
	static __thread char text[64];
	int			fd = open("disk", O_RDONLY | O_CLOEXEC);
	ssize_t		length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[length < 0 ? 0 : length] = '\0';
	return text;
}

static void
be_slow(void)
{
	int			ms;

	if (sscanf(disk(), "slow %d", &ms) == 1)
		nanosleep(&(struct timespec) {ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static int
is_full(int fd)
{
	char		link[64];
	char		path[4096];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	path[length < 0 ? 0 : length] = '\0';
	if (strstr(path, "/version-2/") == NULL || strncmp(disk(), "full", 4) != 0)
		return 0;
	errno = ENOSPC;
	return 1;
}

int
fsync(int fd)
{
	be_slow();
	return REAL(fsync) (fd);
}

int
fdatasync(int fd)
{
	be_slow();
	return REAL(fdatasync) (fd);
}

ssize_t
write(int fd, const void *data, size_t size)
{
	return is_full(fd) ? -1 : REAL(write) (fd, data, size);
}

ssize_t
writev(int fd, const struct iovec *parts, int n)
{
	return is_full(fd) ? -1 : REAL(writev) (fd, parts, n);
}

ssize_t
pwrite(int fd, const void *data, size_t size, off_t at)
{
	return is_full(fd) ? -1 : REAL(pwrite) (fd, data, size, at);
}

ssize_t
pwrite64(int fd, const void *data, size_t size, off64_t at)
{
	return is_full(fd) ? -1 : REAL(pwrite64) (fd, data, size, at);
}
