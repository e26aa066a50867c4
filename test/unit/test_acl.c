/*-------------------------------------------------------------------------
 *
 * test_acl.c
 *	  The access control list that zklock gives its znodes.
 *
 * test/unit/test_acl.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/acl.h"

#define SHAPE		"It must be \"open\", \"creator\", or a list of \"scheme:id:permissions\", with permissions out of \"cdrwa\"."
#define TOO_LONG	"A scheme or an id is too long."
#define TOO_MANY	"The list has more than 16 entries."

static ZklAcl acl;

static void
assert_accepted(const char *text, int nentries)
{
	const char *fault = zkl_acl_parse(text, &acl);

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
	const char *found = zkl_acl_parse(text, &acl);

	if (found == NULL)
		fail_msg("\"%s\" was accepted", text);
	assert_string_equal(found, fault);
}

static void
test_words(void **state)
{
	(void) state;

	assert_accepted("open", 1);
	assert_entry(0, "world", "anyone", ZKL_ACL_ALL);
	assert_accepted("creator", 1);
	assert_entry(0, "auth", "", ZKL_ACL_ALL);
}

static void
test_lists(void **state)
{
	(void) state;

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

static void
test_faults(void **state)
{
	(void) state;

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

static void
test_sizes(void **state)
{
	(void) state;

	char		text[1024];
	char		id[ZKL_ACL_ID_SIZE + 1];

	memset(id, 'x', sizeof(id) - 1);
	id[ZKL_ACL_ID_SIZE - 1] = '\0';
	snprintf(text, sizeof(text), "ip:%s:r", id);
	assert_accepted(text, 1);
	assert_entry(0, "ip", id, ZKL_ACL_READ);
	snprintf(text, sizeof(text), "ip:%sx:r", id);
	assert_fault(text, TOO_LONG);
	snprintf(text, sizeof(text), "%.*s:y:r", ZKL_ACL_SCHEME_SIZE - 1, id);
	assert_accepted(text, 1);
	snprintf(text, sizeof(text), "%.*s:y:r", ZKL_ACL_SCHEME_SIZE, id);
	assert_fault(text, TOO_LONG);

	strcpy(text, "a:b:r");
	for (int i = 1; i < ZKL_ACL_ENTRIES; i++)
		strcat(text, ",a:b:r");
	assert_accepted(text, ZKL_ACL_ENTRIES);
	strcat(text, ",a:b:r");
	assert_fault(text, TOO_MANY);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
