/*-------------------------------------------------------------------------
 *
 * siphash.h
 *	  SipHash-2-4: a hash with a secret key.
 *
 * PostgreSQL's hash functions for tables take a seed, but an attacker can
 * compute it from the hashes of a few known texts.  Roles know paths, and see
 * hashes of them in pg_locks.  Without the key of this function, a role cannot
 * find a path that has the hash of another one.  Nor can it check whether a
 * path that it guesses has a certain hash.
 *
 * Pure: no PostgreSQL, no ZooKeeper.
 *
 * src/protocol/siphash.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SIPHASH_H
#define ZKL_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ZklSipHashKey
{
	uint64_t	words[2];
} ZklSipHashKey;

/*
 * The hash has 128 bits.  One half tells nothing about the other, so one may
 * be shown while the other stays secret.  The second half costs extra time;
 * pass NULL if it is not needed.
 */
extern uint64_t zkl_siphash(const ZklSipHashKey *key, const char *str,
							size_t length, uint64_t *second_half);

#endif							/* ZKL_SIPHASH_H */
