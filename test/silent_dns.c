/*
 * A resolver that may fall silent, for a process that is started with this in
 * LD_PRELOAD.  It knows one name, "zk.test".  As long as there is a file "silent" in its
 * working directory, it does not answer; who asks waits.  The file "asked" says that
 * somebody has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *node, const char *service,
			const struct addrinfo *hints, struct addrinfo **result)
{
	__typeof__(&getaddrinfo) real =
		(__typeof__(&getaddrinfo)) dlsym(RTLD_NEXT, "getaddrinfo");

	if (node == NULL || strcmp(node, "zk.test") != 0)
		return real(node, service, hints, result);
	if (hints != NULL && hints->ai_flags & AI_NUMERICHOST)
		return EAI_NONAME;
	close(open("asked", O_CREAT | O_WRONLY, 0600));
	while (access("silent", F_OK) == 0)
		usleep(10000);
	return real("127.0.0.1", service, hints, result);
}
