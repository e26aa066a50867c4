/*-------------------------------------------------------------------------
 *
 * siphash.c
 *	  SipHash-2-4: a hash with a secret key.
 *
 * Jean-Philippe Aumasson and Daniel J. Bernstein published the function in
 * "SipHash: a fast short-input PRF" (2012), in the form with a hash of 128
 * bits.  test_siphash.c has their test vectors.
 *
 * src/protocol/siphash.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/siphash.h"

#include <string.h>

#define WORD			8		/* bytes */

#define ROUNDS_OF_WORD	2
#define ROUNDS_AT_END	4

typedef struct State
{
	uint64_t	a;
	uint64_t	b;
	uint64_t	c;
	uint64_t	d;
} State;

static uint64_t
rotate(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static void
mix(State *state, int rounds)
{
	for (int i = 0; i < rounds; i++)
	{
		state->a += state->b;
		state->b = rotate(state->b, 13) ^ state->a;
		state->a = rotate(state->a, 32);
		state->c += state->d;
		state->d = rotate(state->d, 16) ^ state->c;
		state->a += state->d;
		state->d = rotate(state->d, 21) ^ state->a;
		state->c += state->b;
		state->b = rotate(state->b, 17) ^ state->c;
		state->c = rotate(state->c, 32);
	}
}

static void
add_word(State *state, uint64_t word)
{
	state->d ^= word;
	mix(state, ROUNDS_OF_WORD);
	state->a ^= word;
}

/*
 * The first byte is the lowest, on every machine.  Compilers turn this into
 * one load.
 */
static uint64_t
read_word(const char *str)
{
	const unsigned char *byte = (const unsigned char *) str;

	return byte[0] | (uint64_t) byte[1] << 8 |
		(uint64_t) byte[2] << 16 | (uint64_t) byte[3] << 24 |
		(uint64_t) byte[4] << 32 | (uint64_t) byte[5] << 40 |
		(uint64_t) byte[6] << 48 | (uint64_t) byte[7] << 56;
}

static uint64_t
half(State *state)
{
	mix(state, ROUNDS_AT_END);
	return state->a ^ state->b ^ state->c ^ state->d;
}

uint64_t
zkl_siphash(const ZklSipHashKey *key, const char *str, size_t length,
			uint64_t *second_half)
{
	State		state = {
		key->words[0] ^ UINT64_C(0x736f6d6570736575),
		key->words[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
		key->words[0] ^ UINT64_C(0x6c7967656e657261),
		key->words[1] ^ UINT64_C(0x7465646279746573)
	};
	char		last[WORD] = {0};
	uint64_t	first_half;

	last[WORD - 1] = (char) length;
	while (length >= WORD)
	{
		add_word(&state, read_word(str));
		str += WORD;

		length -= WORD;
	}
	memcpy(last, str, length);
	add_word(&state, read_word(last));

	state.c ^= 0xee;
	first_half = half(&state);
	state.b ^= 0xdd;
	if (second_half != NULL)
		*second_half = half(&state);
	return first_half;
}
