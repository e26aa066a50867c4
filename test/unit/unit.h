/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  What the unit tests share: cmocka, and random numbers that repeat.
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
