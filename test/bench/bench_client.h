/*
 * What the benchmark's clients in C have in common: clock, counters, the file in which
 * the holder of a contended lock counts, and the lines they are driven by.  See README.md.
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS 64

static inline void
die(const char *what)
{
	printf("error %s\n", what);
	fflush(stdout);
	exit(1);
}

static inline int64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Random enough, and cheap. */
static inline uint32_t
next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

/* Read, write back plus one: only the lock protects it. */
static inline volatile int64_t *
map_counter(const char *file)
{
	int			fd;
	void	   *memory;

	if (strcmp(file, "-") == 0)
		return NULL;
	fd = open(file, O_RDWR);
	memory = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || memory == MAP_FAILED)
		die("cannot map the counter");
	close(fd);
	return memory;
}

/* paths: 1 is PATH itself, 0 one that no client has ever used, else one of so many below it */
static inline void
choose_path(char *path, size_t size, const char *base, int paths, int client, int64_t round,
			uint64_t *random)
{
	if (paths == 1)
		snprintf(path, size, "%s", base);
	else if (paths == 0)
		snprintf(path, size, "%s/%" PRIx64 "-%d-%" PRId64, base, (int64_t) getpid(), client, round);
	else
		snprintf(path, size, "%s/%u", base, next_random(random) % paths);
}

static inline void
answer_counts(int64_t elapsed_ns, const int64_t *counts, int n)
{
	printf("ok %.6f", elapsed_ns / 1e9);
	for (int i = 0; i < n; i++)
		printf(" %" PRId64, counts[i]);
	printf("\n");
	fflush(stdout);
}

#endif
