/*-------------------------------------------------------------------------
 *
 * test_credentials.c
 *	  The text of the file with a server's credentials.
 *
 * test/unit/test_credentials.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/credentials.h"

/* The text, without its null, as it comes from a file. */
#define TEXT(text)	(text), sizeof(text) - 1

static void
assert_credentials(const char *text, size_t length, const char *expected)
{
	const char *at = text;
	ZklCredentials credentials;
	char		found[256] = "";
	int			line;
	const char *fault = zkl_credentials_fault(text, length, &line);

	if (fault != NULL)
		fail_msg("refused in line %d: %s", line, fault);
	while (zkl_credentials_next(&at, text + length, &credentials))
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s=%.*s;",
				 credentials.scheme, (int) credentials.length, credentials.data);
	assert_string_equal(found, expected);
}

static void
assert_fault(const char *text, size_t length, int expected, const char *part)
{
	int			line;
	const char *fault = zkl_credentials_fault(text, length, &line);

	assert_non_null(fault);
	assert_non_null(strstr(fault, part));
	assert_int_equal(line, expected);
}

static void
test_accepted(void **state)
{
	(void) state;

	assert_credentials(TEXT("\n\n  \n# digest a:b\n \t# c\ndigest d:e"), "digest=d:e;");
	assert_credentials(TEXT("digest user:password"), "digest=user:password;");
	assert_credentials(TEXT("digest user:password\n"), "digest=user:password;");
	assert_credentials(TEXT("digest a:b\r\ndigest c:d\r\n"), "digest=a:b;digest=c:d;");
	assert_credentials(TEXT(" digest \t a:b c : d #e \n"), "digest=a:b c : d #e ;");
	assert_credentials(TEXT("other \xff\x01\nip 1\n"), "other=\xff\x01;ip=1;");
}

static void
test_refused(void **state)
{
	(void) state;

	assert_fault(TEXT(""), 0, "no credentials");
	assert_fault(TEXT("\n\n  \n# digest a:b\n \t# c\n"), 0, "no credentials");
	assert_fault(TEXT("secret"), 1, "were expected");
	assert_fault(TEXT("\n\ndigest \n"), 3, "were expected");
	assert_fault(TEXT("digest a:b\ndigest secret\n"), 2, "user:password");
	assert_fault(TEXT("digest :secret"), 1, "user:password");
	assert_fault(TEXT("digest user:\r\n"), 1, "user:password");
	assert_fault(TEXT("digest a:b\0c\n"), 1, "null character");
	assert_fault(TEXT("\0"), 1, "null character");
	assert_fault(TEXT("thisnameisthirtytwocharacterslon secret"), 1, "scheme is too long");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepted),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
