/*-------------------------------------------------------------------------
 *
 * test_siphash.c
 *	  The hash with a secret key: the vectors of its authors.
 *
 * Each text has the bytes 0, 1, 2 and so on, and so has the key.
 *
 * test/unit/test_siphash.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/siphash.h"

static const struct
{
	size_t		length;
	const char *hash;			/* the bytes of both halves */
}			vectors[] =
{
	{0, "a3817f04ba25a8e66df67214c7550293"},
	{1, "da87c1d86b99af44347659119b22fc45"},
	{7, "a1f1ebbed8dbc153c0b84aa61ff08239"},
	{8, "3b62a9ba6258f5610f83e264f31497b4"},
	{15, "5493e99933b0a8117e08ec0f97cfc3d9"},
	{16, "6ee2a4ca67b054bbfd3315bf85230577"},
	{20, "9e25fc833f2290733e9344a5e83839eb"},
	{63, "5150d1772f50834a503e069a973fbd7c"}
};

static const ZklSipHashKey key = {{UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};

static void
write_half(char *to, uint64_t half)
{
	for (int i = 0; i < 8; i++)
		sprintf(to + 2 * i, "%02x", (unsigned) (half >> (8 * i)) & 0xff);
}

TEST(it_is_that_of_its_authors)
{
	char		text[64];
	char		hash[33];

	for (int i = 0; i < lengthof(text); i++)
		text[i] = i;
	for (int i = 0; i < lengthof(vectors); i++)
	{
		uint64_t	second_half;

		write_half(hash, zkl_siphash(&key, text, vectors[i].length, &second_half));
		write_half(hash + 16, second_half);
		assert_string_equal(hash, vectors[i].hash);
	}
}

/* Paths in UTF-8 have bytes that a signed char makes negative. */
TEST(bytes_have_no_sign)
{
	char		half[17];

	write_half(half, zkl_siphash(&key, "/\xff\xff\xff\xff\xff\xff\xff\xff\x80", 10, NULL));
	assert_string_equal(half, "3e8c5dd0a0b3bacd");
}

int
main(void)
{
	return run_all_tests("siphash");
}
