/*
 * A wall clock that an administrator sets, for a process that is started with this in
 * LD_PRELOAD.  The file "clock" in its working directory says by how many seconds it is
 * wrong; no file, or anything else: it is right.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name)	((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static long
offset(void)
{
	char		text[32];
	int			fd = open("clock", O_RDONLY | O_CLOEXEC);
	ssize_t		length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[length < 0 ? 0 : length] = '\0';
	return atol(text);
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int			rc = REAL(gettimeofday) (now, zone);

	now->tv_sec += offset();
	return rc;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			rc = REAL(clock_gettime) (clock, now);

	if (clock == CLOCK_REALTIME)
		now->tv_sec += offset();
	return rc;
}

time_t
time(time_t *result)
{
	time_t		now = REAL(time) (NULL) + offset();

	if (result != NULL)
		*result = now;
	return now;
}
