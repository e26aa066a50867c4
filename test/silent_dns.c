/*
 * A resolver that may fall silent, for a process that is started with this in
 * LD_PRELOAD.  It knows the names that end in ".test": in its working directory, a
 * symbolic link of that name points to the address, to "silent" if a lookup waits, or
 * to "changing" if each lookup finds another address.
 * As long as there is a file "silent", all lookups wait.  The file "asked" says that
 * there was a lookup.
 *
 * The processes whose parent has ended become children of that process, as in a container of
 * which it is process 1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((constructor)) static void
adopt_orphans(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int
getaddrinfo(const char *node, const char *service,
			const struct addrinfo *hints, struct addrinfo **result)
{
	char		address[64];
	const char *end = node ? strrchr(node, '.') : NULL;
	__typeof__(&getaddrinfo) real =
		(__typeof__(&getaddrinfo)) dlsym(RTLD_NEXT, "getaddrinfo");

	if (end == NULL || strcmp(end, ".test") != 0)
		return real(node, service, hints, result);
	if (hints != NULL && hints->ai_flags & AI_NUMERICHOST)
		return EAI_NONAME;
	close(open("asked", O_CREAT | O_WRONLY, 0600));
	for (;;)
	{
		ssize_t		length = readlink(node, address, sizeof(address) - 1);

		address[length > 0 ? length : 0] = '\0';
		if (strcmp(address, "changing") == 0)
			length = snprintf(address, sizeof(address), "127.1.%d.%d",
							  getpid() / 250 % 250, getpid() % 250 + 1);
		if (access("silent", F_OK) != 0 && strcmp(address, "silent") != 0)
			return length > 0 ? real(address, service, hints, result) : EAI_NONAME;
		usleep(10000);
	}
}
