/*-------------------------------------------------------------------------
 *
 * test_access.c
 *	  The texts of zklock.acl and of the file with a server's credentials.
 *
 * test/unit/test_access.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/access.h"

#define SHAPE		"It must be \"open\", \"creator\", or a list of \"scheme:id:permissions\", with permissions out of \"cdrwa\"."
#define TOO_LONG	"A scheme is longer than 31 bytes, or an id longer than 255."
#define TOO_MANY	"The list has more than 16 entries."

static ZklAcl acl;

static void
assert_accepted(const char *text, int nentries)
{
	const char *fault = zkl_access_parse_acl(text, &acl);

	if (fault != NULL)
		fail_msg("\"%s\" was refused: %s", text, fault);
	assert_int_equal(acl.nentries, nentries);
}

static void
assert_entry(int i, const char *scheme, const char *id, int permissions)
{
	assert_string_equal(acl.entry[i].scheme, scheme);
	assert_string_equal(acl.entry[i].id, id);
	assert_int_equal(acl.entry[i].permissions, permissions);
}

static void
assert_fault(const char *text, const char *fault)
{
	const char *found = zkl_access_parse_acl(text, &acl);

	if (found == NULL)
		fail_msg("\"%s\" was accepted", text);
	assert_string_equal(found, fault);
}

TEST(test_words)
{
	assert_accepted("open", 1);
	assert_entry(0, "world", "anyone", ZKL_ACL_ALL);
	assert_accepted("creator", 1);
	assert_entry(0, "auth", "", ZKL_ACL_ALL);
}

TEST(test_lists)
{
	assert_accepted("digest:svc:aGFzaA==:cdrwa,world:anyone:r", 2);
	assert_entry(0, "digest", "svc:aGFzaA==", ZKL_ACL_ALL);
	assert_entry(1, "world", "anyone", ZKL_ACL_READ);

	assert_accepted("  ip:10.0.0.0/8:rw ,\n auth::da\t", 2);
	assert_entry(0, "ip", "10.0.0.0/8", ZKL_ACL_READ | ZKL_ACL_WRITE);
	assert_entry(1, "auth", "", ZKL_ACL_DELETE | ZKL_ACL_ADMIN);

	/* The name in a certificate has commas, and an IPv6 address has colons. */
	assert_accepted("x509:CN=db1,OU=a,O=b:cdrwa, ip:fd00::1:r", 2);
	assert_entry(0, "x509", "CN=db1,OU=a,O=b", ZKL_ACL_ALL);
	assert_entry(1, "ip", "fd00::1", ZKL_ACL_READ);
}

TEST(test_faults)
{
	assert_fault("", SHAPE);
	assert_fault(" ", SHAPE);
	assert_fault("closed", SHAPE);
	assert_fault("Open", SHAPE);
	assert_fault("open,creator", SHAPE);
	assert_fault("world:anyone", SHAPE);
	assert_fault("world:anyone:", SHAPE);
	assert_fault("world:anyone:x", SHAPE);
	assert_fault("world:anyone:rx", SHAPE);
	assert_fault(":anyone:r", SHAPE);
	assert_fault("world:r", SHAPE);
	assert_fault("world:anyone:r,", SHAPE);
	assert_fault(",world:anyone:r", SHAPE);
	assert_fault("world:anyone:r;auth::r,x", SHAPE);
}

TEST(test_sizes)
{
	char		text[1024];
	char		id[ZKL_ACL_ID_SIZE + 1];

	memset(id, 'x', sizeof(id) - 1);
	id[ZKL_ACL_ID_SIZE - 1] = '\0';
	snprintf(text, sizeof(text), "ip:%s:r", id);
	assert_accepted(text, 1);
	assert_entry(0, "ip", id, ZKL_ACL_READ);
	snprintf(text, sizeof(text), "ip:%sx:r", id);
	assert_fault(text, TOO_LONG);
	snprintf(text, sizeof(text), "%.*s:y:r", ZKL_ACCESS_SCHEME_SIZE - 1, id);
	assert_accepted(text, 1);
	snprintf(text, sizeof(text), "%.*s:y:r", ZKL_ACCESS_SCHEME_SIZE, id);
	assert_fault(text, TOO_LONG);

	strcpy(text, "a:b:r");
	for (int i = 1; i < ZKL_ACL_ENTRIES; i++)
		strcat(text, ",a:b:r");
	assert_accepted(text, ZKL_ACL_ENTRIES);
	strcat(text, ",a:b:r");
	assert_fault(text, TOO_MANY);
}

/* The text, without its null, as it comes from a file. */
#define TEXT(text)	(text), sizeof(text) - 1

static void
assert_credentials(const char *text, size_t length, const char *expected)
{
	const char *at = text;
	ZklCredentials credentials;
	char		found[256] = "";
	int			line;
	const char *fault = zkl_access_credentials_fault(text, length, &line);

	if (fault != NULL)
		fail_msg("refused in line %d: %s", line, fault);
	while (zkl_access_next_credentials(&at, text + length, &credentials))
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s=%.*s;",
				 credentials.scheme, (int) credentials.length, credentials.data);
	assert_string_equal(found, expected);
}

static void
assert_refused(const char *text, size_t length, int expected, const char *part)
{
	int			line;
	const char *fault = zkl_access_credentials_fault(text, length, &line);

	assert_non_null(fault);
	assert_non_null(strstr(fault, part));
	assert_int_equal(line, expected);
}

TEST(test_accepted_credentials)
{
	assert_credentials(TEXT("\n\n  \n# digest a:b\n \t# c\ndigest d:e"), "digest=d:e;");
	assert_credentials(TEXT("digest user:password"), "digest=user:password;");
	assert_credentials(TEXT("digest user:password\n"), "digest=user:password;");
	assert_credentials(TEXT("digest a:b\r\ndigest c:d\r\n"), "digest=a:b;digest=c:d;");
	assert_credentials(TEXT(" digest \t a:b c : d #e \n"), "digest=a:b c : d #e ;");
	assert_credentials(TEXT("other \xff\x01\nip 1\n"), "other=\xff\x01;ip=1;");
}

TEST(test_refused_credentials)
{
	assert_refused(TEXT(""), 0, "no credentials");
	assert_refused(TEXT("\n\n  \n# digest a:b\n \t# c\n"), 0, "no credentials");
	assert_refused(TEXT("secret"), 1, "were expected");
	assert_refused(TEXT("\n\ndigest \n"), 3, "were expected");
	assert_refused(TEXT("digest a:b\ndigest secret\n"), 2, "user:password");
	assert_refused(TEXT("digest :secret"), 1, "user:password");
	assert_refused(TEXT("digest user:\r\n"), 1, "user:password");
	assert_refused(TEXT("digest a:b\0c\n"), 1, "null character");
	assert_refused(TEXT("\0"), 1, "null character");
	assert_refused(TEXT("thisnameisthirtytwocharacterslon secret"), 1, "scheme is longer than 31 bytes");
}

int
main(void)
{
	return run_all_tests("access");
}
