/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  What the unit tests share: cmocka, a list of tests, and random numbers
 *	  that repeat.
 *
 * test/unit/unit.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_UNIT_H
#define ZKL_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define lengthof(array)	((int) (sizeof(array) / sizeof((array)[0])))

/*
 * "TEST(what_it_shows)" stands before the body of a test, and adds it to those
 * that run_all_tests() runs.
 */
#define TEST(name) \
	static void name(void **state); \
	__attribute__((constructor)) static void \
	add_##name(void) \
	{ \
		add_test((struct CMUnitTest) cmocka_unit_test(name)); \
	} \
	static void name(void **state __attribute__((unused)))

static struct CMUnitTest tests[1000];
static int	ntests;

static inline void
add_test(struct CMUnitTest test)
{
	tests[ntests++] = test;
}

static inline int
run_all_tests(const char *group)
{
	return _cmocka_run_group_tests(group, tests, (size_t) ntests, NULL, NULL);
}

/*
 * Numbers for generated tests: xorshift64*, so that a seed gives the same
 * test on every machine.  The seed must not be 0.
 */
static inline uint32_t
random_below(uint64_t *seed, uint32_t limit)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return (uint32_t) ((*seed * UINT64_C(2685821657736338717)) >> 32) % limit;
}

static inline void
random_bytes(uint64_t *seed, uint8_t *bytes, int nbytes)
{
	for (int i = 0; i < nbytes; i++)
		bytes[i] = (uint8_t) random_below(seed, 256);
}

#endif							/* ZKL_UNIT_H */
